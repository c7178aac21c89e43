"""Counts the words of Python's own documentation and standard library, and checks the counts.

    scripts/demo                  # in an environment of its own
    python examples/demo.py       # where Squall is installed

It teaches how a program runs a topology by itself, with `LocalCluster`: here over two worker processes. Two supervisors start
the workers, which send tuples over encrypted links. The demo also shows that nothing is lost or counted twice: every line is
the root of a tuple tree that is tracked to its end, and the counts must equal those of a plain loop over the same text. Spout
and bolts are those of word_count.py, followed by one more bolt. This bolt writes the counts into a file, which the program
reads, because a different process cannot return its results in memory. (`squall run examples/demo.py -- README.md` runs the
topology alone.)
"""

import json
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from word_count import Count, Lines, Split

from local_cluster import LocalCluster
from topology_api import Bolt, TopologyBuilder

NAME = "python-words"
WORKERS = 2
COUNT_TASKS = 4
NOT_READ = {"site-packages", "dist-packages", "test", "tests", "encodings", "pydoc_data"}
LONGEST_RUN = 300  # seconds


def lines():
    """Yield the reference text of pydoc, then the sources of the standard library, line by line."""
    for topic in sorted(topics):
        yield from topics[topic].splitlines()
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if not NOT_READ.intersection(path.relative_to(library).parts):
            yield from path.read_text(encoding="utf-8", errors="replace").splitlines()


class Totals(Bolt):
    """Keeps the latest count of each word, and writes them into a file when the input has ended."""

    def __init__(self, path):
        self.path = path

    def prepare(self, context):
        self.counts = {}

    def execute(self, tup):
        word, count = tup.values
        if (
            count != self.counts.get(word, 0) + 1
        ):  # another task counted it too: the fields grouping is broken
            raise ValueError(f"{word!r} is counted {count}, after {self.counts.get(word, 0)}")
        self.counts[word] = count

    def end_of_input(self):
        Path(self.path).write_text(json.dumps(self.counts), encoding="utf-8")


def topology(text="README.md", path="counts.json"):
    builder = TopologyBuilder(NAME)
    read = builder.set_spout("lines", Lines(text))
    words = builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping(read)
    counts = builder.set_bolt("count", Count(), parallelism=COUNT_TASKS).fields_grouping(words, "word")
    builder.set_bolt("totals", Totals(path)).global_grouping(counts)
    return builder.build()


def plain_count():
    """Count the same words by a loop; return (number of lines, counts)."""
    counts, number = Counter(), 0
    for line in lines():
        counts.update(line.split())
        number += 1
    return number, dict(counts)


def run(console, number_of_lines, text, path):
    """Run the topology to its end and show progress; return (its status, seconds)."""
    start = last = time.monotonic()
    with (
        LocalCluster(processes=True, supervisors=WORKERS, slots=1) as cluster,
        Progress(console=console, disable=not console.is_terminal) as progress,
    ):
        bar = progress.add_task("lines processed", total=number_of_lines)
        cluster.submit(topology(text, path), conf={"topology.workers": WORKERS})
        while True:
            try:
                cluster.wait(NAME, timeout=0.2)
                break
            except TimeoutError as error:
                now = time.monotonic()
                if now - start > LONGEST_RUN:
                    raise SystemExit(f"not done after {LONGEST_RUN} s: {error}") from None
                acked = cluster.status(NAME).components["lines"].acked
                progress.update(bar, completed=acked)
                if not console.is_terminal and now - last >= 2:
                    last = now
                    console.print(f"  {acked:,} of {number_of_lines:,} lines processed")
        seconds = time.monotonic() - start
        progress.update(bar, completed=number_of_lines)
        return cluster.status(NAME), seconds


def show_words(console, counts):
    table = Table("word")
    table.add_column("count", justify="right")
    words = [pair for pair in counts.items() if pair[0].isalpha()]  # most frequent in source code: "="
    for word, count in sorted(words, key=lambda pair: (-pair[1], pair[0]))[:10]:
        table.add_row(word, f"{count:,}")
    console.print(table)


def main():
    console = Console(highlight=False)
    console.print("Counting the words that Python is made of by a plain loop, to compare with ...")
    number, expected = plain_count()
    console.print(f"  {number:,} lines, {sum(expected.values()):,} words, {len(expected):,} different words")
    shape = f"lines -> split (2 tasks) -> count ({COUNT_TASKS}) -> totals"
    console.print(f"Counting by a topology over {WORKERS} worker processes: {shape} ...")
    with tempfile.TemporaryDirectory() as folder:
        text, path = Path(folder, "text"), Path(folder, "counts.json")
        with text.open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(f"{line}\n" for line in lines())
        status, seconds = run(console, number, str(text), str(path))
        counts = json.loads(path.read_text(encoding="utf-8"))

    show_words(console, counts)
    spout, words = status.components["lines"], sum(counts.values())
    console.print(f"tuple trees: {spout.acked:,} acked, {spout.failed:,} failed")
    console.print(f"rate: {words / seconds:,.0f} words a second, every one tracked ({seconds:.1f} s)")
    right = counts == expected and spout.acked == number and spout.failed == 0
    if right:
        console.print(f"[bold green]The counts of all {len(counts):,} words equal the plain count.[/]")
    else:
        wrong = sum(counts.get(word) != expected.get(word) for word in counts.keys() | expected.keys())
        console.print(f"[bold red]WRONG: {wrong:,} words are not counted as by the plain loop.[/]")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
