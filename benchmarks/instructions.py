"""Instructions per word with the compiled core, and a check that they exceed the record by no more than 10 %.

The word count runs with two spouts, two Splits and two Counts in two workers, tracked, in a local cluster in simulated time:
one thread, frames through the codec, no sockets and no waits, and so the same calls in each run. It runs under valgrind's
callgrind, once with few sentences and once with many, each in a child that is forked after the imports, which take longer than
either; the difference cancels the cost of the start. The record
(`instructions.json`) has a figure for each version of Python and machine architecture. With the exact build of Python with
which it was recorded, all instructions are compared; with another build, only those in Squall's own extensions, since a
differently optimised interpreter needs a different number by itself. Exit status 1: more than 10 % above the record, 3: no
record.

    python -m benchmarks instructions            # compare
    python -m benchmarks instructions --record   # replace the record
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import sysconfig
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks import callgrind
from benchmarks.child import ROOT, command_of
from benchmarks.topology import Count, Endless, Job, Split, spouts
from local_cluster import LocalCluster
from topology_api import TopologyBuilder
from topology_api.core_choice import CHOICE, HOT, SHARED, source_path

RECORD = Path(__file__).with_name("instructions.json")
FEW, MANY = 1_000, 3_000
"""Sentences of each spout. The start differs by half a million instructions from run to run; the difference has 250 million."""
DIFFERENT = 1_000
ALLOWED = 1.10
"""The permitted multiple of the record's figure."""
TOO_MANY, NO_RECORD = 1, 3
"""Exit status."""
INTERPRETER = "the interpreter and user code"


def words_of(emits: int) -> int:
    """Run the topology with this many sentences per spout; return the number of words counted."""
    job = Job(emits, DIFFERENT)
    builder = TopologyBuilder("word-count", conf={"topology.workers": 2})
    builder.set_spout("sentences", Endless(job), parallelism=2)
    builder.set_bolt("split", Split(), parallelism=2).local_or_shuffle_grouping("sentences")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", "word")
    with LocalCluster(simulated_time=True, seed=1, encode=True) as cluster:
        cluster.submit(builder.build())
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


def answer_runs(every: list[int]) -> None:
    """Print the number of words for each number of sentences, each counted in a child of its own, one after another."""
    for emits in every:
        child = get_context("fork").Process(target=lambda emits=emits: print(words_of(emits), flush=True))
        child.start()
        child.join()
        if child.exitcode:
            sys.exit(1)


def measure(benchmark: str = __name__) -> dict[str, float]:
    """Instructions per word, by part, of a benchmark that calls `answer_runs` with the option `--run`."""
    command = [*command_of(benchmark), "--run", str(FEW), str(MANY)]
    few_words, many_words = map(int, callgrind.run(ROOT, command).split())  # this also compiles all bytecode
    few, many, _ = callgrind.count(ROOT, command)
    parts: Counter[str] = Counter()
    for file in many:
        parts[part_of(file)] += many[file] - few[file]
    return {part: times / (many_words - few_words) for part, times in parts.most_common()}


def own(parts: dict[str, float]) -> float:
    """Return the instructions in Squall's extensions."""
    return sum(value for part, value in parts.items() if part in OWN)


def key() -> str:
    """Return the record's name for this Python and machine."""
    return f"{sys.version_info.major}.{sys.version_info.minor} {platform.machine()}"


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


def compare(parts: dict[str, float], recorded: dict[str, Any]) -> tuple[bool, str]:
    """Return whether these are no more than 10 % above the record, and what was compared."""
    same = recorded["build"] == build()
    figures = [("in Squall's extensions", own(parts), own(recorded["parts"]))]
    if same:
        figures.append(("in all", sum(parts.values()), sum(recorded["parts"].values())))
    lines = [
        f"{name}: {now:,.0f}, recorded {then:,.0f}: {now / then - 1:+.1%}" for name, now, then in figures
    ]
    if not same:
        lines.append(f"the record is of another Python ({recorded['build']}; this is {build()})")
    return all(now <= ALLOWED * then for _, now, then in figures), "\n".join(lines)


def main() -> int:
    """Compare or record, or run in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--record", action="store_true", help="write the figures into the record")
    parser.add_argument("--run", type=int, nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not CHOICE.compiled:
        sys.exit(f"the core that runs is {CHOICE}: there is nothing to compare")
    if options.run:
        answer_runs(options.run)
        return 0
    if not callgrind.available():
        sys.exit("valgrind is missing (on Debian: apt-get install valgrind)")
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    recorded = record.get(key())
    parts = measure()
    print(f"instructions a word, {build()}, {platform.machine()}")
    for part, value in sorted(parts.items(), key=lambda item: -item[1]):
        if value >= 1:
            before = f"{recorded['parts'].get(part, 0.0):>8,.0f}" if recorded else ""
            print(f"{part:<34}{value:>8,.0f}{before}")
    if options.record:
        rounded = {part: round(value, 1) for part, value in parts.items() if round(value, 1) != 0}
        record[key()] = {"build": build(), "parts": rounded}
        RECORD.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
        print(
            f"recorded for {key()}: {sum(parts.values()):,.0f} in all, {own(parts):,.0f} in Squall's extensions"
        )
        return 0
    if recorded is None:
        print(f"there is no record for {key()}; python -m benchmarks instructions --record makes one")
        return NO_RECORD
    good, text = compare(parts, recorded)
    print(text)
    if not good:
        print(
            "more than 10 % above the record: find out why. If it is meant to be so: python -m benchmarks instructions --record"
        )
    return 0 if good else TOO_MANY
