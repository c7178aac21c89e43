"""Instructions per word with the compiled core, without epochs and with state, and a check against a record.

The word count runs with two spouts, two Splits and two Counts in two workers, tracked, in a local cluster in simulated time:
one thread, frames through the codec, no sockets and no waits, and so the same calls in each run. It runs under valgrind's
callgrind, once with few sentences and once with many, each in a child that is forked after the imports, which take longer than
either; the difference cancels the cost of the start. With state, Count is a stateful bolt, and both runs take one snapshot, at
the end, of the same keys: the difference cancels it too.

The record (`instructions.json`) has a figure for each version of Python and machine architecture. With the exact build of
Python with which it was recorded, all instructions are compared; with another build, only those in Squall's own extensions,
since a differently optimised interpreter needs a different number by itself. What is recorded without epochs is the core
before it had epochs (29f70800, 2026-11-23), measured as above: topologies without epochs must not pay for them, so do not
replace it lightly. Exit status 1: too many instructions, 3: no record.

    python -m benchmarks instructions                  # compare both
    python -m benchmarks instructions --record state   # replace the record with state
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks import callgrind
from benchmarks.child import ROOT, command_of
from benchmarks.topology import Count, Endless, Job, Split, spouts
from local_cluster import LocalCluster
from topology_api import RewindableSpout, StatefulBolt, Topology, TopologyBuilder, Tuple, ValueState
from topology_api.core_choice import CHOICE, HOT, SHARED, source_path

RECORD = Path(__file__).with_name("instructions.json")
DIFFERENT = 1_000
STATELESS, STATE = KINDS = ("stateless", "state")
SIZES = {STATELESS: (2_000, 4_000), STATE: (1_000, 2_000)}
"""Few and many sentences of each spout. The start differs by half a million instructions from run to run; the difference has
240 million, with state 140. The first thousand sentences are not like those that follow: memory still grows.
"""
ALLOWED = {STATELESS: 1.02, STATE: 1.10}
"""The permitted multiples of the record's figures. A topology without epochs may take 1 % more than before there were any; how
memory is laid out changes the figure by half a percent.
"""
ALLOWED_ELSEWHERE = 1.10
"""The same with another build of Python."""
TOO_MANY, NO_RECORD = 1, 3
"""Exit status."""
INTERPRETER = "the interpreter and user code"


class Rewindable(Endless, RewindableSpout):
    """The sentences for a topology with state. A run in which it would have to rewind is not counted."""

    def position(self) -> list[int]:
        return [self.number]

    def rewind(self, position: Any) -> None:
        if position is not None:
            raise AssertionError("a run that goes on from a commit cannot be counted")


class CountInState(StatefulBolt):
    """Counts words in state."""

    key = "word"
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1


def topology_of(job: Job, kind: str, folder: str) -> Topology:
    """Return the topology of a kind. With state its only commit is that at its end, into this folder."""
    conf: dict[str, Any] = {"topology.workers": 2}
    if kind == STATE:
        conf |= {"topology.state.path": f"file://{folder}", "topology.epoch.secs": 600.0}
        conf |= {"topology.epoch.uncommitted": 10_000_000}
    builder = TopologyBuilder("word-count", conf=conf)
    spout, count = (Rewindable(job), CountInState()) if kind == STATE else (Endless(job), Count())
    builder.set_spout("sentences", spout, parallelism=2)
    builder.set_bolt("split", Split(), parallelism=2).local_or_shuffle_grouping("sentences")
    builder.set_bolt("count", count, parallelism=2).fields_grouping("split", "word")
    return builder.build()


def words_of(emits: int, kind: str = STATELESS) -> int:
    """Run the topology with this many sentences per spout; return the number of words counted."""
    job = Job(emits, DIFFERENT)
    spouts.clear()
    with (
        tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder,
        LocalCluster(simulated_time=True, seed=1, encode=True) as cluster,
    ):
        cluster.submit(topology_of(job, kind, folder))
        for _ in range(1_000):
            if cluster.status("word-count").state == "COMPLETED":
                break
            cluster.advance(0.5)
        status = cluster.status("word-count")
    acked = status.components["sentences"].acked
    if (status.state, acked, len(spouts)) != ("COMPLETED", 2 * emits, 2):
        raise AssertionError(f"{2 * emits} sentences; {status.state}, {acked} acked, {len(spouts)} spouts")
    expected = 2 * sum(len(job.lines[number % DIFFERENT].split()) for number in range(emits))
    words = status.components["count"].executed
    if words != expected:
        raise AssertionError(f"{words} of {expected} words were counted")
    return words


def part_of(file: str) -> str:
    """Return the part of the program to which a file's code belongs."""
    if file in EXTENSIONS:
        return EXTENSIONS[file]
    name = Path(file).name
    if name.startswith(("libpython", "python")):
        return INTERPRETER
    return f"library {name.partition('.')[0]}"


OWN = (*HOT, SHARED)
EXTENSIONS = {source_path(module, str(sysconfig.get_config_var("EXT_SUFFIX"))): module for module in OWN}


def answer_runs(kinds: Sequence[str] = (STATELESS,)) -> None:
    """Print the numbers of words of the runs of each kind, in turn; each runs in a child of its own."""
    for kind in kinds:
        for emits in SIZES[kind]:
            child = get_context("fork").Process(target=print_words, args=(emits, kind))
            child.start()
            child.join()
            if child.exitcode:
                sys.exit(1)


def print_words(emits: int, kind: str) -> None:
    """Do one run and print its number of words."""
    print(words_of(emits, kind), flush=True)


def measure(benchmark: str = __name__) -> list[dict[str, float]]:
    """Return instructions per word by part, for each kind that a benchmark gives to `answer_runs` with the option `--run`."""
    command = [*command_of(benchmark), "--run"]
    words = [int(line) for line in callgrind.run(ROOT, command).split()]  # this also compiles all bytecode
    *counted, _ = callgrind.count(ROOT, command)
    runs = list(zip(counted, words, strict=True))
    return [
        a_word(few, many, more - less)
        for (few, less), (many, more) in zip(runs[::2], runs[1::2], strict=True)
    ]


def a_word(few: Counter[str], many: Counter[str], words: int) -> dict[str, float]:
    """Return instructions per word by part, from those of two runs by file; `words`: how many more the second run counted."""
    parts: Counter[str] = Counter()
    for file in many:
        parts[part_of(file)] += many[file] - few[file]
    return {part: times / words for part, times in parts.most_common()}


def own(parts: dict[str, float]) -> float:
    """Return the instructions in Squall's extensions."""
    return sum(value for part, value in parts.items() if part in OWN)


def key(kind: str = STATELESS) -> str:
    """Return the record's name for this Python and machine."""
    name = f"{sys.version_info.major}.{sys.version_info.minor} {platform.machine()}"
    return f"{name} {STATE}" if kind == STATE else name


def build() -> str:
    """Return what identifies an interpreter's instructions."""
    return " ".join(
        [
            platform.python_version(),
            platform.python_compiler(),
            *(
                name
                for name in ("--enable-optimizations", "--with-lto", "--enable-shared")
                if name in str(sysconfig.get_config_var("CONFIG_ARGS"))
            ),
        ]
    )


def compare(parts: dict[str, float], recorded: dict[str, Any], kind: str = STATELESS) -> tuple[bool, str]:
    """Return whether these are no more than the record allows, and what was compared."""
    same = recorded["build"] == build()
    allowed = ALLOWED[kind] if same else ALLOWED_ELSEWHERE
    figures = [("in Squall's extensions", own(parts), own(recorded["parts"]))]
    if same:
        figures.append(("in all", sum(parts.values()), sum(recorded["parts"].values())))
    lines = [
        f"{name}: {now:,.0f}, recorded {then:,.0f}: {now / then - 1:+.1%} (allowed: {allowed - 1:+.0%})"
        for name, now, then in figures
    ]
    if not same:
        lines.append(f"the record is of another Python ({recorded['build']}; this is {build()})")
    return all(now <= allowed * then for _, now, then in figures), "\n".join(lines)


def main() -> int:
    """Compare or record, or run in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--record", choices=KINDS, help="write the figures of one kind into the record")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not CHOICE.compiled:
        sys.exit(f"the core that runs is {CHOICE}: there is nothing to compare")
    if options.run:
        answer_runs(KINDS)
        return 0
    if not callgrind.available():
        sys.exit("valgrind is missing (on Debian: apt-get install valgrind)")
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    statuses = []
    for kind, parts in zip(KINDS, measure(), strict=True):
        recorded = record.get(key(kind))
        print_parts(kind, parts, recorded)
        if options.record is None:
            statuses.append(answer(kind, parts, recorded))
        elif options.record == kind:
            rounded = {part: round(value, 1) for part, value in parts.items() if round(value, 1) != 0}
            record[key(kind)] = {"build": build(), "parts": rounded}
            RECORD.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
            print(f"recorded: {sum(parts.values()):,.0f} in all, {own(parts):,.0f} in Squall's extensions")
    return TOO_MANY if TOO_MANY in statuses else max(statuses, default=0)


def print_parts(kind: str, parts: dict[str, float], recorded: dict[str, Any] | None) -> None:
    """Print the instructions of each part, beside those recorded."""
    print(f"instructions a word, {kind}, {build()}, {platform.machine()}")
    for part, value in sorted(parts.items(), key=lambda item: -item[1]):
        if value >= 1:
            before = f"{recorded['parts'].get(part, 0.0):>8,.0f}" if recorded else ""
            print(f"{part:<34}{value:>8,.0f}{before}")


def answer(kind: str, parts: dict[str, float], recorded: dict[str, Any] | None) -> int:
    """Print how these compare with the record; return the exit status."""
    if recorded is None:
        print(f"no record for {key(kind)}; python -m benchmarks instructions --record {kind} makes one")
        return NO_RECORD
    good, text = compare(parts, recorded, kind)
    print(text)
    if not good:
        print(f"more than is allowed: find out why. If it is meant to be so, use --record {kind}")
    return 0 if good else TOO_MANY
