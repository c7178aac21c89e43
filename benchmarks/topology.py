"""The word count as a user writes it, and how long it takes in a local cluster: the topology of most benchmarks.

One spout, `Split`, `Count` by key; every sentence has a message id and every word is anchored by the runtime. The classes are
imported by name where they run, so that the sentences exist before the clock starts. It must not know how figures are printed.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from benchmarks.sentences import sentences
from local_cluster import LocalCluster
from topology_api import Bolt, Context, Fields, Spout, Topology, TopologyBuilder, Tuple

__all__ = ["Job", "Measured", "build", "run"]

LONGEST_RUN = 300.0
"""Seconds after which a run is given up."""

lines = cache(sentences)

spouts: list[Sentences] = []
counts: list[dict[str, int]] = []
"""What has run in this process: the spouts that were opened, and what each Count had when it was cleaned up."""


@dataclass(frozen=True)
class Job:
    """A job: `emits` sentences out of `different` ones; for `Endless` repeatedly, `seconds` at most."""

    emits: int
    different: int
    seed: int = 1
    splits: int = 1
    counters: int = 2
    seconds: float = float("inf")

    @property
    def lines(self) -> list[str]:
        """The different sentences, made once per process."""
        return lines(self.different, self.seed)


class Sentences(Spout):
    """Emits the sentences of a job with their numbers, and records their acks."""

    outputs = Fields("sentence")

    def __init__(self, job: Job) -> None:
        self.job = job

    def open(self, context: Context) -> None:
        self.lines = self.job.lines
        self.different = len(self.lines)
        self.emits = self.job.emits
        self.number = 0
        self.acked: set[int] = set()
        self.opened = time.perf_counter()
        self.deadline = self.opened + self.job.seconds
        self.closed = 0.0
        spouts.append(self)

    def next_tuple(self) -> None:
        number = self.number
        if number >= self.emits:
            return self.finish()
        self.number = number + 1
        self.emit((self.lines[number],), message_id=number)

    def ack(self, message_id: object) -> None:
        self.acked.add(message_id)  # type: ignore[arg-type]

    def close(self) -> None:
        self.closed = time.perf_counter()


class Endless(Sentences):
    """The same sentences repeatedly, until a deadline at most, and without a set of those acked: any growth of memory is the
    core's own.
    """

    def next_tuple(self) -> None:
        number = self.number
        if number >= self.emits or (number % 256 == 0 and time.perf_counter() > self.deadline):
            return self.finish()
        self.number = number + 1
        self.emit((self.lines[number % self.different],), message_id=number)

    def ack(self, message_id: object) -> None:
        """Not recorded: the cluster counts acks too."""


class Split(Bolt):
    """Emits the words of a sentence."""

    outputs = Fields("word")

    def execute(self, tup: Tuple) -> None:
        for word in tup["sentence"].split():
            self.emit((word,))


class Count(Bolt):
    """Counts words."""

    def prepare(self, context: Context) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1

    def cleanup(self) -> None:
        counts.append(self.counts)


def build(job: Job, spout: type[Sentences] = Sentences) -> Topology:
    """Return the topology of a job."""
    builder = TopologyBuilder("word-count")
    builder.set_spout("sentences", spout(job))
    builder.set_bolt("split", Split(), parallelism=job.splits).shuffle_grouping("sentences")
    builder.set_bolt("count", Count(), parallelism=job.counters).fields_grouping("split", "word")
    return builder.build()


@dataclass(frozen=True)
class Measured:
    """The figures of a run. `seconds`: from submit to completed; `streaming`: from the spout's open to its close."""

    words: int
    seconds: float
    streaming: float
    cpu_seconds: float
    acked: int
    p50: float
    p99: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def run(job: Job, spout: type[Sentences] = Sentences) -> Measured:
    """Run a job to its end in a local cluster, and check the counts and the acks."""
    spouts.clear()
    counts.clear()
    _ = job.lines
    started, cpu = time.perf_counter(), time.process_time()
    with LocalCluster() as cluster:
        cluster.submit(build(job, spout))
        cluster.wait("word-count", timeout=LONGEST_RUN)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
        status = cluster.status("word-count").components
    (source,) = spouts
    totals = status["sentences"]
    if (totals.acked, totals.failed) != (source.number, 0):
        raise AssertionError(f"{source.number} sentences: {totals.acked} acked, {totals.failed} failed")
    if spout is Sentences and source.acked != set(range(source.number)):
        raise AssertionError(f"the spout got {len(source.acked)} acks for {source.number} sentences")
    check_counts(source)
    words = sum(sum(part.values()) for part in counts)
    streaming = source.closed - source.opened
    p50, p99 = totals.p50 or 0.0, totals.p99 or 0.0
    return Measured(words, seconds, streaming, cpu_seconds, totals.acked, p50, p99)


def check_counts(source: Sentences) -> None:
    """Compare with a plain count of the emitted sentences."""
    expected: dict[str, int] = {}
    whole, rest = divmod(source.number, source.different)
    for position, line in enumerate(source.lines):
        times = whole + (position < rest)
        if times:
            for word in line.split():
                expected[word] = expected.get(word, 0) + times
    counted: dict[str, int] = {}
    for part in counts:
        if counted.keys() & part.keys():
            raise AssertionError("a word was counted by two tasks")
        counted.update(part)
    if counted != expected:
        wrong = [word for word in counted.keys() | expected if counted.get(word) != expected.get(word)]
        raise AssertionError(f"{len(wrong)} words were counted wrong, among them {sorted(wrong)[:5]}")
