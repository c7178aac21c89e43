"""Counting at a fixed rate in state of many keys: the topology of the benchmarks of pauses and recovery.

Each spout first emits all words of its part once, as fast as it can. When these are acked, and so committed if state is, it
emits words of its part at a fixed rate, for a time or until a file exists. A tuple carries the moment at which it was due, so
that a spout that is late counts as well (open loop). After a rewind the spout goes on from its position. The counts must add up
to what the spouts have emitted. Without `epoch` the same components run without epochs. It must not know how figures are
printed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.notes import find, leave
from benchmarks.stateful_count import word_of
from topology_api import (
    Context,
    Fields,
    RewindableSpout,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)

__all__ = ["NAME", "Job", "asked", "build", "check_counts", "waits"]

NAME = "paced"


@dataclass(frozen=True)
class Job:
    """A job, and the folder for the notes. `keys` in all, `rate` tuples a second in all; `epoch`: seconds, None: no epochs."""

    folder: str
    keys: int
    rate: int
    seconds: float = float("inf")
    workers: int = 1
    epoch: float | None = 1.0

    @property
    def stop(self) -> Path:
        """The file that ends the spouts."""
        return Path(self.folder, "stop")

    @property
    def state(self) -> str:
        """The path of the state."""
        return f"{self.folder}/state"


class Words(RewindableSpout):
    """Emits (word, when it was due); 0: before the clock starts."""

    outputs = Fields("word", "due")

    def __init__(self, job: Job) -> None:
        self.job = job

    def open(self, context: Context) -> None:
        self.index, self.step = context.index, context.parallelism
        self.keys = len(range(self.index, self.job.keys, self.step))
        self.pause = self.step / self.job.rate
        self.emitted = self.acked = 0
        self.begun = 0.0
        #: When the end of the open epoch was asked for; and, of each epoch, the seconds from then until its commit was known.
        self.asked_at = 0.0
        self.asked: list[float] = []

    def next_tuple(self) -> float | None:
        number = self.emitted
        if number < self.keys:
            self.emit((word_of(self.index + number * self.step), 0.0), message_id=number)
            self.emitted = number + 1
            return None
        if self.acked < self.keys:
            return 0.01
        now = time.perf_counter()
        if not self.begun:
            self.first, self.begun = number, now
            leave(self.job.folder, "begun", self.index)
        due = self.begun + (number - self.first) * self.pause
        if due > now:
            return due - now
        if now - self.begun >= self.job.seconds or (number % 64 == 0 and self.job.stop.exists()):
            self.finish()
            return None
        # Steps of a prime spread the words, so that the rate alone says how many keys an epoch changes.
        self.emit((word_of(self.index + number * 7919 % self.keys * self.step), due), message_id=number)
        self.emitted = number + 1
        return None

    def ack(self, message_id: object) -> None:
        self.acked += 1
        if self.asked_at:
            if self.begun:
                self.asked.append(time.perf_counter() - self.asked_at)
            self.asked_at = 0.0

    def position(self) -> int:
        self.asked_at = time.perf_counter()
        return self.emitted

    def rewind(self, position: Any) -> None:
        if position is not None:
            self.emitted = self.acked = position

    def close(self) -> None:
        leave(self.job.folder, "spout", self.index, emitted=self.emitted, asked=self.asked)


class Counts(StatefulBolt):
    """Counts in state, and notes how long each tuple waited since it was due."""

    key = "word"
    times = ValueState(int, default=0)

    def __init__(self, job: Job) -> None:
        self.job = job

    def prepare(self, context: Context) -> None:
        self.index = context.index
        self.waits: list[tuple[float, float]] = []
        leave(self.job.folder, "task", self.index)

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        if due := tup["due"]:
            self.waits.append((due, time.perf_counter() - due))

    def cleanup(self) -> None:
        cells, raw = (
            self.times.current(),
            self.times.raw,
        )  # those of `raw` have not been touched since a rewind
        words = sum(cells.values()) + sum(map(self.times.codec.decode, raw.values()))
        leave(self.job.folder, "count", self.index, words=words, keys=len(cells) + len(raw), waits=self.waits)


def build(job: Job) -> Topology:
    """Return the topology of a job."""
    conf: dict[str, Any] = {"topology.workers": job.workers, "topology.max.spout.pending": 10_000}
    if job.epoch is not None:
        conf |= {"topology.state.path": f"file://{job.state}", "topology.epoch.secs": job.epoch}
        conf |= {"topology.epoch.keep": 2, "topology.epoch.uncommitted": 100_000_000}
    builder = TopologyBuilder(NAME, conf=conf)
    builder.set_spout("words", Words(job), parallelism=job.workers)
    builder.set_bolt("count", Counts(job), parallelism=job.workers).fields_grouping("words", "word")
    return builder.build()


def check_counts(job: Job) -> None:
    """Compare what was counted with what was emitted."""
    counts, spouts = find(job.folder, "count"), find(job.folder, "spout")
    found = sum(note["keys"] for note in counts), sum(note["words"] for note in counts)
    wanted = job.keys, sum(note["emitted"] for note in spouts)
    if found != wanted:
        raise AssertionError(
            f"{found[0]:,} keys with {found[1]:,} words were counted, not {wanted[0]:,} with {wanted[1]:,}"
        )


def waits(job: Job) -> list[tuple[float, float]]:
    """Return when each tuple was due, and the seconds until it was executed, in the order of the former."""
    return sorted((due, wait) for note in find(job.folder, "count") for due, wait in note["waits"])


def asked(job: Job) -> list[float]:
    """Return, for each epoch of each spout, the seconds from when its end was asked for until its commit was known."""
    return [seconds for note in find(job.folder, "spout") for seconds in note["asked"]]
