"""The word count over two workers for a time, with state that is committed or with a dict, for few words or for a million.

The topology is that of `two_workers`. Its spouts emit for a fixed time, so that a run has the same number of epochs on every
machine. `few`: the sentences of a book, repeatedly. `many`: before the clock starts, each of `keys` words is counted once (and
committed); then the words of one tenth of them are drawn for a second, then those of the next. The variant with state differs
in its Count (a StatefulBolt), in its spouts, which can rewind, and in the options of epochs. The measured time begins when all
spouts are ready; CPU is counted from then until the spouts are closed, which is after the last commit. Every run checks counts,
acks and places. It must not know how figures are printed.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from benchmarks import two_workers
from benchmarks.notes import Meeting, Usage, find, leave
from benchmarks.sentences import sentences
from benchmarks.two_workers import LONGEST_RUN, WORKERS, Measured, check_places, cluster_of_processes
from topology_api import (
    Context,
    Fields,
    RewindableSpout,
    Spout,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)

__all__ = ["SHARES", "Job", "build", "run", "words_of"]

SHARES = 10
"""Of `many` words, those of one share are counted in a second."""
DIFFERENT = 20_000
"""Sentences of a share and of a spout that differ."""
WORDS = 9
"""Words in a sentence of `many`."""


@dataclass(frozen=True)
class Job:
    """A job, and the folder for the notes. `keys` 0: the words of a book. `stateful`: committed every `epoch` seconds."""

    folder: str
    seconds: float
    keys: int = 0
    stateful: bool = True
    epoch: float = 1.0
    seed: int = 1
    pending: int = 1_000

    def first(self, index: int) -> list[str]:
        """Return what a spout emits before the clock starts: its part of all words."""
        words = [word_of(number) for number in range(index, self.keys, WORKERS)]
        return [" ".join(words[start : start + WORDS]) for start in range(0, len(words), WORDS)]

    def shares(self, index: int) -> list[list[str]]:
        """Return a spout's sentences; those of the same share are emitted in the same second."""
        if not self.keys:
            return [sentences(DIFFERENT * WORKERS, self.seed)[index::WORKERS]]
        source = random.Random(f"{self.seed}/{index}")
        return [self.share(source, number) for number in range(SHARES)]

    def share(self, source: random.Random, number: int) -> list[str]:
        """Return sentences from one tenth of the words. All of these words are in them, if there is room."""
        size = self.keys // SHARES
        places = list(range(number * size, (number + 1) * size))
        source.shuffle(places)
        needed = DIFFERENT * WORDS
        drawn = (places * (needed // max(1, size) + 1))[:needed]
        return [
            " ".join(word_of(place) for place in drawn[start : start + WORDS])
            for start in range(0, needed, WORDS)
        ]


def word_of(number: int) -> str:
    """Return the word of a number."""
    return f"word-{number}"


class Sentences(Spout):
    """Emits for a time, and counts its acks."""

    outputs = Fields("sentence")

    def __init__(self, job: Job) -> None:
        self.job = job

    def open(self, context: Context) -> None:
        self.index, self.members = context.index, context.parallelism
        self.first = self.job.first(self.index)
        self.shares = self.job.shares(self.index)
        #: How many sentences of each share were emitted.
        self.taken = [0] * len(self.shares)
        self.emitted = self.acked = 0
        self.begun = self.finished = 0.0
        self.meeting: Meeting | None = None

    def next_tuple(self) -> float | None:
        if not self.begun:
            if self.emitted >= len(self.first):
                return self.begin()
            self.prepare_words()
            return None
        past = time.perf_counter() - self.begun
        if past >= self.job.seconds:
            self.finish()
            return None
        share = int(past) % len(self.shares)
        lines, at = self.shares[share], self.taken[share]
        self.taken[share] = at + 1
        self.emitted += 1
        self.emit((lines[at % DIFFERENT],), message_id=self.emitted)
        return None

    def prepare_words(self) -> None:
        """Emit a sentence of those before the clock starts."""
        self.emit((self.first[self.emitted],), message_id=self.emitted + 1)
        self.emitted += 1

    def begin(self) -> float:
        """Wait until all before is acked, and for the other spouts; all begin at the same moment."""
        if self.acked < len(self.first):
            return 0.01
        if self.meeting is None:
            self.meeting = Meeting(self.job.folder, self.index, self.members)
        begins = self.meeting.begins()
        if begins is None:
            return 0.01
        if (early := begins - time.perf_counter()) > 0:
            return early
        self.usage = Usage()
        self.begun = time.perf_counter()
        return 0.0

    def ack(self, message_id: object) -> None:
        self.acked += 1
        self.finished = time.perf_counter()

    def close(self) -> None:
        values = {"begun": self.begun, "finished": self.finished, "taken": self.taken}
        counted = {"emitted": self.emitted, "acked": self.acked, "first": len(self.first)}
        leave(self.job.folder, "spout", self.index, **values, **counted, **self.usage.read())


class RewindableSentences(Sentences, RewindableSpout):
    """The same for a topology with state. A run in which it would have to rewind is not measured."""

    def position(self) -> list[int]:
        return [self.emitted]

    def rewind(self, position: Any) -> None:
        if position is not None:
            raise AssertionError("a run that goes on from a commit cannot be measured")


class CountsInState(StatefulBolt):
    """Counts words in state, and notes its counts."""

    key = "word"
    times = ValueState(int, default=0)

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def prepare(self, context: Context) -> None:
        self.index = context.index

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1

    def cleanup(self) -> None:
        counts = dict(self.times.current())
        leave(self.folder, "count", self.index, counts=counts)


def build(job: Job, rewindable: type[RewindableSentences] = RewindableSentences) -> Topology:
    """Return the topology of a job."""
    conf: dict[str, Any] = {"topology.workers": WORKERS, "topology.max.spout.pending": job.pending}
    if job.stateful:
        conf |= {"topology.state.path": f"file://{job.folder}/state", "topology.epoch.secs": job.epoch}
        conf |= {"topology.epoch.keep": 2, "topology.epoch.uncommitted": 10_000_000}
    spout = rewindable(job) if job.stateful else Sentences(job)
    count = CountsInState(job.folder) if job.stateful else two_workers.Count(job.folder)
    builder = TopologyBuilder("word-count", conf=conf)
    builder.set_spout("sentences", spout, parallelism=WORKERS)
    split = builder.set_bolt("split", two_workers.Split(job.folder), parallelism=WORKERS)
    split.local_or_shuffle_grouping("sentences")
    builder.set_bolt("count", count, parallelism=WORKERS).fields_grouping("split", "word")
    return builder.build()


def run(job: Job, rewindable: type[RewindableSentences] = RewindableSentences) -> Measured:
    """Run a job in a cluster of its own and check counts, acks and placement; the notes stay in the job's folder."""
    with cluster_of_processes() as cluster:
        started, cpu = time.perf_counter(), time.process_time()
        cluster.submit(build(job, rewindable))
        cluster.wait("word-count", timeout=LONGEST_RUN)
        whole, cpu = time.perf_counter() - started, time.process_time() - cpu
        totals = cluster.status("word-count").components["sentences"]
    spouts = find(job.folder, "spout")
    emitted = sum(note["emitted"] for note in spouts)
    if any(note["emitted"] != note["acked"] for note in spouts) or (totals.acked, totals.failed) != (
        emitted,
        0,
    ):
        raise AssertionError(f"{emitted} sentences; noted: {spouts}; status() says: {totals}")
    check_places(job.folder, spouts)
    words, crossed = check_counts(job, spouts)
    return Measured(
        words=words,
        seconds=max(note["finished"] for note in spouts) - min(note["begun"] for note in spouts),
        whole=whole,
        cpu_seconds=sum(note["cpu_seconds"] for note in spouts),
        control_cpu_seconds=cpu,
        peak_rss=max(note["peak_rss"] for note in spouts),
        acked=totals.acked,
        p50=totals.p50 or 0.0,
        p99=totals.p99 or 0.0,
        crossed=crossed,
    )


def check_counts(job: Job, spouts: list[dict[str, Any]]) -> tuple[int, float]:
    """Compare with a plain count. Return the number of words in the measured time, and the share that crossed."""
    owner: dict[str, int] = {}
    counted: dict[str, int] = {}
    for note in find(job.folder, "count"):
        if counted.keys() & note["counts"].keys():
            raise AssertionError("a word was counted by two tasks")
        counted.update(note["counts"])
        owner.update(dict.fromkeys(note["counts"], note["pid"]))
    expected: Counter[str] = Counter()
    words = crossed = 0
    for note in spouts:
        timed = words_of(job.shares(note["index"]), note["taken"])
        words += timed.total()
        crossed += sum(times for word, times in timed.items() if owner.get(word) != note["pid"])
        expected.update(timed)
        expected.update(word for line in job.first(note["index"]) for word in line.split())
    if counted != expected:
        wrong = [word for word in counted.keys() | expected.keys() if counted.get(word) != expected.get(word)]
        raise AssertionError(f"{len(wrong)} words were counted wrong, among them {sorted(wrong)[:5]}")
    return words, crossed / words


def words_of(shares: list[list[str]], taken: list[int]) -> Counter[str]:
    """Return how often each word was in the emitted sentences."""
    counted: Counter[str] = Counter()
    for lines, emitted in zip(shares, taken):
        whole, rest = divmod(emitted, len(lines))
        for word, times in Counter(word for line in lines for word in line.split()).items():
            counted[word] += times * whole
        counted.update(word for line in lines[:rest] for word in line.split())
    return +counted


def run_once(seconds: float, keys: int, stateful: bool, **more: Any) -> Measured:
    """Run a job whose notes and state are removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        return run(Job(folder, seconds, keys, stateful, **more))
