"""The word count over worker processes: two spouts, two Splits (local or shuffle) and two Counts (by key), in two workers.

It is written as by a user, except for the notes about each process, which cannot be observed otherwise. Each spout emits every
second sentence, so half of the words cross. The measured time begins when the spouts of all workers are ready and ends with the
last ack; the start is another benchmark's subject. Without message ids there are no acks: then the time ends at the last
Count's end of input. It must not know how figures are printed.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from benchmarks import topology
from benchmarks.notes import Meeting, Usage, find, leave
from benchmarks.sentences import sentences
from local_cluster import LocalCluster
from topology_api import Context, Fields, Spout, Topology, TopologyBuilder

__all__ = ["WORKERS", "Job", "Measured", "build", "cluster_of_processes", "run"]

WORKERS = 2
LONGEST_RUN = 300.0
"""Seconds after which a run is given up."""


@dataclass(frozen=True)
class Job:
    """A job, and the folder for the notes."""

    folder: str
    sentences: int
    seed: int = 1
    pending: int = 1_000

    def lines(self, index: int) -> list[str]:
        """Return the sentences of one of the spouts."""
        return sentences(self.sentences, self.seed)[index::WORKERS]


class Sentences(Spout):
    """Emits its sentences with their numbers, and records their acks."""

    outputs = Fields("sentence")

    def __init__(self, job: Job) -> None:
        self.job = job

    def open(self, context: Context) -> None:
        self.index = context.index
        self.lines = self.job.lines(context.index)
        self.emits = len(self.lines)
        self.number = 0
        self.acked: set[int] = set()
        self.begun = self.finished = 0.0
        self.meeting = Meeting(self.job.folder, context.index, context.parallelism)

    def next_tuple(self) -> float | None:
        if not self.begun:
            return self.begin()
        number = self.number
        if number >= self.emits:
            self.finish()
            return None
        self.number = number + 1
        self.emit((self.lines[number],), message_id=number)
        return None

    def begin(self) -> float:
        """Wait for the other spouts; all begin at the same moment."""
        begins = self.meeting.begins()
        if begins is None:
            return 0.01
        if (early := begins - time.perf_counter()) > 0:
            return early
        self.usage = Usage()
        self.begun = time.perf_counter()
        return 0.0

    def ack(self, message_id: object) -> None:
        self.acked.add(message_id)  # type: ignore[arg-type]
        if len(self.acked) == self.emits:
            self.finished = time.perf_counter()

    def close(self) -> None:
        # CPU is read here and not at the last ack: the other worker's words may still be counted then.
        values = {"begun": self.begun, "finished": self.finished, "emitted": self.number}
        leave(self.job.folder, "spout", self.index, acked=len(self.acked), **values, **self.usage.read())


class Untracked(Sentences):
    """Emits its sentences without message ids."""

    def next_tuple(self) -> float | None:
        if not self.begun:
            return self.begin()
        number = self.number
        if number >= self.emits:
            self.finish()
            return None
        self.number = number + 1
        self.emit((self.lines[number],))
        return None


class Split(topology.Split):
    """Splits, and notes where it runs."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def prepare(self, context: Context) -> None:
        leave(self.folder, "split", context.index)


class Count(topology.Count):
    """Counts, and notes its counts."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        self.index = context.index
        self.ended = 0.0

    def end_of_input(self) -> None:
        self.ended = time.perf_counter()

    def cleanup(self) -> None:
        leave(self.folder, "count", self.index, counts=self.counts, ended=self.ended)


def build(job: Job, spout: type[Sentences] = Sentences) -> Topology:
    """Return the topology of a job."""
    conf = {"topology.workers": WORKERS, "topology.max.spout.pending": job.pending}
    builder = TopologyBuilder("word-count", conf=conf)
    builder.set_spout("sentences", spout(job), parallelism=WORKERS)
    split = builder.set_bolt("split", Split(job.folder), parallelism=WORKERS)
    split.local_or_shuffle_grouping("sentences")
    builder.set_bolt("count", Count(job.folder), parallelism=WORKERS).fields_grouping("split", "word")
    return builder.build()


@dataclass(frozen=True)
class Measured:
    """The figures of a run. `seconds`: from when the spouts began to the last ack; `whole`: from submit to completed. CPU of
    both workers, and separately that of this process (Nimbus, supervisors); the larger worker's peak memory; complete
    latencies; the share of the words that crossed.
    """

    words: int
    seconds: float
    whole: float
    cpu_seconds: float
    control_cpu_seconds: float
    peak_rss: float
    acked: int
    p50: float
    p99: float
    crossed: float


def cluster_of_processes(supervisors: int = 1) -> LocalCluster:
    """Return a cluster with room for the two workers and more."""
    return LocalCluster(processes=True, supervisors=supervisors, slots=2)


def run(count: int, seed: int, supervisors: int = 1, pending: int = 1_000, tracked: bool = True) -> Measured:
    """Count the words of this many sentences over two workers, and check counts, acks and placement."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        job = Job(folder, count, seed, pending)
        return run_in(job, supervisors, Sentences if tracked else Untracked)


def run_in(job: Job, supervisors: int, spout: type[Sentences] = Sentences) -> Measured:
    """Like `run`; the notes stay in the job's folder."""
    with cluster_of_processes(supervisors) as cluster:
        started, cpu = time.perf_counter(), time.process_time()
        cluster.submit(build(job, spout))
        cluster.wait("word-count", timeout=LONGEST_RUN)
        whole, cpu = time.perf_counter() - started, time.process_time() - cpu
        status = cluster.status("word-count").components
    spouts = find(job.folder, "spout")
    totals = status["sentences"]
    tracked = spout is not Untracked
    check_acks(job, spouts, totals, job.sentences if tracked else 0)
    check_places(job.folder, spouts)
    words, crossed = check_counts(job, spouts)
    executed = (status["split"].executed, status["count"].executed)
    if executed != (job.sentences, words):
        raise AssertionError(f"{job.sentences} sentences, {words} words; by status(), executed: {executed}")
    return Measured(
        words=words,
        seconds=(finished(spouts) if tracked else ended(job)) - min(note["begun"] for note in spouts),
        whole=whole,
        cpu_seconds=sum(note["cpu_seconds"] for note in spouts),
        control_cpu_seconds=cpu,
        peak_rss=max(note["peak_rss"] for note in spouts),
        acked=totals.acked,
        p50=totals.p50 or 0.0,
        p99=totals.p99 or 0.0,
        crossed=crossed,
    )


def finished(spouts: list[dict[str, Any]]) -> float:
    """Return the time at which the last sentence was acked."""
    return float(max(note["finished"] for note in spouts))


def ended(job: Job) -> float:
    """Return the time at which the last Count got its end of input."""
    return float(max(note["ended"] for note in find(job.folder, "count")))


def check_acks(job: Job, spouts: list[dict[str, Any]], totals: Any, acked: int) -> None:
    """Check that each spout got the acks of all its sentences, or of none, and that status() agrees."""
    for note in spouts:
        emits = len(job.lines(note["index"]))
        if (note["emitted"], note["acked"]) != (emits, emits if acked else 0):
            raise AssertionError(f"spout {note['index']}: {emits} sentences, noted: {note}")
    if (totals.acked, totals.failed, totals.replayed) != (acked, 0, 0):
        raise AssertionError(f"{job.sentences} sentences, but status() says: {totals}")


def check_places(folder: str, spouts: list[dict[str, Any]]) -> None:
    """Check that each worker is a process of its own and has one task of each component."""
    workers = {note["pid"] for note in spouts}
    for kind in ("spout", "split", "count"):
        pids = sorted(note["pid"] for note in find(folder, kind))
        if pids != sorted(workers) or len(pids) != WORKERS:
            raise AssertionError(f"{WORKERS} workers were to have one task of {kind} each, not: {pids}")


def check_counts(job: Job, spouts: list[dict[str, Any]]) -> tuple[int, float]:
    """Compare with a plain count; return the number of words, and the share of them that crossed."""
    owner: dict[str, int] = {}
    counted: dict[str, int] = {}
    for note in find(job.folder, "count"):
        if counted.keys() & note["counts"].keys():
            raise AssertionError("a word was counted by two tasks")
        counted.update(note["counts"])
        owner.update(dict.fromkeys(note["counts"], note["pid"]))
    expected: Counter[str] = Counter()
    crossed = 0
    for note in spouts:
        emitted = Counter(word for line in job.lines(note["index"]) for word in line.split())
        expected.update(emitted)
        crossed += sum(times for word, times in emitted.items() if owner.get(word) != note["pid"])
    if counted != expected:
        wrong = [word for word in counted.keys() | expected.keys() if counted.get(word) != expected.get(word)]
        raise AssertionError(f"{len(wrong)} words were counted wrong, among them {sorted(wrong)[:5]}")
    words = sum(counted.values())
    return words, crossed / words
