"""Checks that an installed Squall works: the expected core runs, and a topology counts words right.

    python scripts/try_installation.py compiled|plain

Run by `scripts/wheels` and by cibuildwheel, with the Python that Squall is installed into, from any folder but the checkout.
Must not know: how it was built.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

LINES = ("the quick brown fox", "jumps over the lazy dog", "the end") * 200

TOPOLOGY = f"""
import json
from topology_api import Bolt, Fields, Spout, TopologyBuilder

class Lines(Spout):
    outputs = Fields("line")

    def open(self, context):
        self.lines = enumerate({LINES!r})

    def next_tuple(self):
        for number, line in self.lines:
            return self.emit((line,), message_id=number)
        self.finish()

class Split(Bolt):
    outputs = Fields("word")

    def execute(self, tup):
        for word in tup["line"].split():
            self.emit((word,))

class Count(Bolt):
    def __init__(self, path):
        self.path = path

    def prepare(self, context):
        self.counts = {{}}

    def execute(self, tup):
        self.counts[tup["word"]] = self.counts.get(tup["word"], 0) + 1

    def end_of_input(self):
        with open(self.path, "w") as file:
            json.dump(self.counts, file)

def topology(path):
    builder = TopologyBuilder("tried")
    lines = builder.set_spout("lines", Lines())
    split = builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping(lines)
    builder.set_bolt("count", Count(path)).fields_grouping(split, "word")
    return builder.build()
"""


def squall(folder: Path, *arguments: str) -> str:
    """Return the output of a command of the installed Squall; a failure ends this program."""
    done = subprocess.run(
        [sys.executable, "-m", "squall_cli", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"squall {arguments[0]}: exit status {done.returncode}")
    return done.stdout


def main(expected: str) -> None:
    """Exits with a message if anything is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        version = squall(folder, "version")
        if not version.splitlines()[1].startswith(f"core: {expected}"):
            sys.exit(f"the {expected} core was expected:\n{version}")
        (folder / "tried.py").write_text(TOPOLOGY)
        wanted = Counter(word for line in LINES for word in line.split())
        for workers in ("1", "2"):
            counts = folder / f"counts-{workers}.json"
            squall(folder, "run", "--workers", workers, "--json", "tried.py", "--", str(counts))
            if json.loads(counts.read_text()) != wanted:
                sys.exit(f"wrong counts over {workers} workers: {counts.read_text()}")
        print(version, end="")
        print(f"{sum(wanted.values()):,} words counted right, over one worker process and over two")


if __name__ == "__main__":
    if sys.argv[1:] not in (["compiled"], ["plain"]):
        sys.exit(f"usage: {sys.argv[0]} compiled|plain")
    main(sys.argv[1])
