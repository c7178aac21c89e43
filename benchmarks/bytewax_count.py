"""The word count with Bytewax, in one process or as one of two: run by `beside_bytewax.py` in Bytewax's own environment.

Sentences come from a source with a partition for each process, in batches of 200 as in the count by hand; words are sent by key
to the process that counts them. `final` counts as Bytewax's own word count does (`count_final`): occurrences within a batch are
added up before they are sent. `fold` counts each word individually (`fold_final` on a keyed stream), as a Count bolt does. The
counts are emitted at the end. The time runs from the first batch of the source until the dataflow has ended. It must not import
Squall.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

# As a script, only this folder is on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bytewax.operators as op  # type: ignore[import-not-found]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition  # type: ignore[import-not-found]
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # type: ignore[import-not-found]
from bytewax.recovery import RecoveryConfig  # type: ignore[import-not-found]
from bytewax.testing import cluster_main, run_main  # type: ignore[import-not-found]

from benchmarks.sentences import sentences

BATCH = 200


class Moments:
    """When the first batch was requested, and the CPU until then."""

    begun = 0.0
    cpu = 0.0


class Part(StatefulSourcePartition):  # type: ignore[misc]
    """The sentences of one process; its state is the number already emitted."""

    def __init__(self, lines: list[str], at: int) -> None:
        self.lines = lines
        self.at = at

    def next_batch(self) -> list[str]:
        if not Moments.begun:
            Moments.begun, Moments.cpu = time.perf_counter(), time.process_time()
        if self.at >= len(self.lines):
            raise StopIteration
        batch = self.lines[self.at : self.at + BATCH]
        self.at += len(batch)
        return batch

    def snapshot(self) -> int:
        return self.at


class Sentences(FixedPartitionedSource):  # type: ignore[misc]
    """A partition for each process."""

    def __init__(self, parts: dict[str, list[str]]) -> None:
        self.parts = parts

    def list_parts(self) -> list[str]:
        return list(self.parts)

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Part:
        return Part(self.parts[for_part], resume_state or 0)


class Kept(StatelessSinkPartition):  # type: ignore[misc]
    """Keeps the counts: one dictionary for the process."""

    counts: dict[str, int] = {}

    def write_batch(self, items: list[tuple[str, int]]) -> None:
        for word, count in items:
            if word in self.counts:
                raise AssertionError(f"{word!r} was counted twice")
            self.counts[word] = count


class Counts(DynamicSink):  # type: ignore[misc]
    """Keeps the counts that the dataflow emits."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Kept:
        return Kept()


def words_of(sentence: str) -> Iterable[str]:
    """The words of a sentence."""
    return sentence.split()


def dataflow(way: str, parts: dict[str, list[str]]) -> Any:
    """Sentences, their words, the count of each."""
    flow = Dataflow("word_count")
    lines = op.input("sentences", flow, Sentences(parts))
    words = op.flat_map("split", lines, words_of)
    if way == "final":
        counts = op.count_final("count", words, lambda word: word)
    else:
        keyed = op.key_on("word", words, lambda word: word)
        counts = op.fold_final("count", keyed, lambda: 0, lambda count, _: count + 1)
    op.output("counts", counts, Counts())
    return flow


def main() -> None:
    """Run the dataflow and write its figures to a file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--way", choices=("final", "fold"), required=True)
    parser.add_argument("--sentences", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--addresses", nargs="*", default=[], help="of all processes; none: there is one")
    parser.add_argument("--process", type=int, default=0)
    parser.add_argument("--snapshots", type=float, help="seconds between two; needs --recovery")
    parser.add_argument(
        "--recovery", help="the folder for snapshots, made by bytewax.recovery; none: no recovery"
    )
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    lines = sentences(options.sentences, options.seed)
    processes = max(1, len(options.addresses))
    parts = {str(index): lines[index::processes] for index in range(processes)}
    recovery: dict[str, Any] = {}
    if options.recovery:
        recovery["recovery_config"] = RecoveryConfig(options.recovery)
        recovery["epoch_interval"] = timedelta(seconds=options.snapshots)
    flow = dataflow(options.way, parts)
    if options.addresses:
        cluster_main(flow, options.addresses, options.process, **recovery)
    else:
        run_main(flow, **recovery)
    values = {
        "begun": Moments.begun,
        "finished": time.perf_counter(),
        "cpu_seconds": time.process_time() - Moments.cpu,
        "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "counts": Kept.counts,
    }
    Path(options.out).write_text(json.dumps(values))


if __name__ == "__main__":
    main()
