"""The word count by hand in one process, without a framework: the yardstick for Squall's speed.

`run_plain` splits and counts. `run_acked` is what a careful programmer would write who needs to know when each sentence is
completely counted: Tuple objects, a Split and two Counts with `execute`, a random edge id per tuple, and the XOR of each tree's
edges in a table of at most 1,000 pending sentences (the limit never stops it: a batch is counted before the next is read).
Nothing is slow on purpose, and nothing is over-optimised. It has no timeouts, replays, error handling or metrics. It must not
import Squall.

    python -m benchmarks yardstick [--sentences 100000] [--rounds 5] [--seed 1]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import getrandbits
from zlib import crc32

__all__ = ["Run", "run_acked", "run_plain"]

MAX_PENDING = 1_000
BATCH = 200
COUNTS = 2


@dataclass(frozen=True)
class Run:
    """The figures of a run."""

    counts: dict[str, int]
    words: int
    seconds: float
    cpu_seconds: float
    acked: int = 0

    @property
    def words_per_second(self) -> float:
        """The figure to compare."""
        return self.words / self.seconds


def run_plain(sentences: list[str]) -> Run:
    """Splits and counts."""
    started, cpu = time.perf_counter(), time.process_time()
    counts = plain_loop(sentences)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    return Run(counts, sum(counts.values()), seconds, cpu_seconds)


def plain_loop(sentences: list[str]) -> dict[str, int]:
    """Return how often each word occurs."""
    counts: dict[str, int] = {}
    for sentence in sentences:
        for word in sentence.split():
            counts[word] = counts.get(word, 0) + 1
    return counts


def run_acked(sentences: list[str]) -> Run:
    """Splits and counts, every word tracked, and every sentence acked once; the result is checked."""
    job = AckedLoop(sentences)
    started, cpu = time.perf_counter(), time.process_time()
    job.run()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    counts: dict[str, int] = {}
    for part in job.counts:
        if counts.keys() & part.counts.keys():
            raise AssertionError("a word was counted in two places")
        counts.update(part.counts)
    if counts != plain_loop(sentences):
        raise AssertionError("the acked loop counted something else than the plain loop")
    if job.source.acked != set(range(len(sentences))) or job.pending:
        raise AssertionError(f"{len(job.source.acked)} of {len(sentences)} sentences were acked")
    return Run(counts, sum(counts.values()), seconds, cpu_seconds, len(job.source.acked))


class Tuple:
    """Values by the names of their fields, their tree, and their edge in it."""

    __slots__ = ("edge", "fields", "root", "values")

    def __init__(self, values: tuple[str, ...], fields: dict[str, int], root: int, edge: int) -> None:
        self.values = values
        self.fields = fields
        self.root = root
        self.edge = edge

    def __getitem__(self, field: str) -> str:
        return self.values[self.fields[field]]


class Source:
    """Emits sentences with their numbers, and records their acks."""

    def __init__(self, sentences: list[str]) -> None:
        self.numbered = iter(enumerate(sentences))
        self.acked: set[int] = set()

    def next(self) -> tuple[int, str] | None:
        return next(self.numbered, None)

    def ack(self, message_id: int) -> None:
        self.acked.add(message_id)


class Split:
    """Emits the words of a sentence."""

    def __init__(self, emit: Callable[[tuple[str, ...]], None]) -> None:
        self.emit = emit

    def execute(self, tup: Tuple) -> None:
        for word in tup["sentence"].split():
            self.emit((word,))


class Count:
    """Counts words."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1


class AckedLoop:
    """The job: a batch of sentences is split, its words are counted, and finished ones are acked."""

    sentence_fields = {"sentence": 0}
    word_fields = {"word": 0}

    def __init__(self, sentences: list[str]) -> None:
        self.source = Source(sentences)
        self.split = Split(self.emit)
        self.counts = [Count() for _ in range(COUNTS)]
        self.inboxes: list[list[Tuple]] = [[] for _ in range(COUNTS)]
        self.choices: dict[str, list[Tuple]] = {}  # word -> the inbox of the Count that its hash selects
        self.pending: dict[int, int] = {}  # root (the message id) -> XOR of the edges that are not acked
        self.root = 0  # the tree of the sentence that is being split
        self.edges = 0  # XOR of the edges emitted for it

    def run(self) -> None:
        """Run until the source has ended and nothing is pending."""
        while batch := self.read():
            self.split_all(batch)
            for count, inbox in zip(self.counts, self.inboxes):
                self.count_all(count, inbox)

    def read(self) -> list[Tuple]:
        """Read the next sentences, as many as may be pending."""
        batch = []
        pending = self.pending
        for _ in range(min(BATCH, MAX_PENDING - len(pending))):
            numbered = self.source.next()
            if numbered is None:
                break
            message_id, sentence = numbered
            edge = getrandbits(64) or 1
            pending[message_id] = edge
            batch.append(Tuple((sentence,), self.sentence_fields, message_id, edge))
        return batch

    def split_all(self, batch: list[Tuple]) -> None:
        execute = self.split.execute
        for tup in batch:
            self.root = tup.root
            self.edges = tup.edge
            execute(tup)
            self.settle(tup.root, self.edges)

    def emit(self, values: tuple[str, ...]) -> None:
        """Send a word to the Count that its hash selects, anchored to the sentence that is being split."""
        word = values[0]
        inbox = self.choices.get(word)
        if inbox is None:
            inbox = self.choices[word] = self.inboxes[crc32(word.encode()) % COUNTS]
        edge = getrandbits(64) or 1
        self.edges ^= edge
        inbox.append(Tuple(values, self.word_fields, self.root, edge))

    def count_all(self, count: Count, inbox: list[Tuple]) -> None:
        execute = count.execute
        for tup in inbox:
            execute(tup)
            self.settle(tup.root, tup.edge)
        inbox.clear()

    def settle(self, root: int, edges: int) -> None:
        """Remove edges from their tree; a tree without edges is done."""
        left = self.pending[root] ^ edges
        if left:
            self.pending[root] = left
        else:
            del self.pending[root]
            self.source.ack(root)


def main() -> None:
    """Print words/s, CPU and memory of both loops."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sentences", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # As a script, only this folder is on the path.
    from benchmarks.sentences import sentences

    lines = sentences(options.sentences, options.seed)
    print(f"{len(lines):,} sentences (seed {options.seed}), median of {options.rounds} rounds")
    print(f"peak RSS with the sentences only: {peak_rss():.0f} MB")
    for name, run in (("plain loop", run_plain), ("acked loop", run_acked)):
        runs = [run(lines) for _ in range(options.rounds)]
        rates = [each.words_per_second for each in runs]
        cpu = statistics.median(each.cpu_seconds for each in runs)
        print(
            f"{name}: {statistics.median(rates):>11,.0f} words/s ({min(rates):,.0f} to {max(rates):,.0f}), "
            f"CPU {cpu:.2f} s for {runs[0].words:,} words, peak RSS so far {peak_rss():.0f} MB"
        )


def peak_rss() -> float:
    """Return the peak memory of this process, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)  # macOS counts bytes, Linux kilobytes
