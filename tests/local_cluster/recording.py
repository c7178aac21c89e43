"""Spouts and bolts that record their calls, and how the tests run them on simulated time.

Components are pickled by reference, so running instances write into the same `JOURNAL` that a test reads.
Must not know: single tests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from local_cluster import LocalCluster, TopologyStatus
from topology_api import Bolt, Context, Failure, Fields, Replay, Spout, Topology, TopologyBuilder, Tuple


class Journal:
    """A log of events in order: (kind, details...). Thread-safe."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []
        self.changed = threading.Condition()

    def note(self, kind: str, *details: Any) -> None:
        """Record something."""
        with self.changed:
            self.entries.append((kind, *details))
            self.changed.notify_all()

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        """The details of all entries of a kind, in order."""
        with self.changed:
            return [entry[1:] for entry in self.entries if entry[0] == kind]

    def kinds(self) -> list[str]:
        """The kinds of all entries, in order."""
        with self.changed:
            return [entry[0] for entry in self.entries]

    def clear(self) -> None:
        """Forget everything."""
        with self.changed:
            self.entries.clear()

    def wait_for(self, kind: str, count: int = 1, seconds: float = 30.0) -> None:
        """Wait (real time) for this many entries of a kind."""
        with self.changed:
            there = self.changed.wait_for(
                lambda: sum(entry[0] == kind for entry in self.entries) >= count, seconds
            )
        assert there, f"no {count} entries {kind!r} within {seconds} s: {self.entries[-20:]}"


JOURNAL = Journal()


class Numbers(Spout):
    """Emits 0 … count-1 with themselves as message ids (None: untracked), then finishes; records all its calls."""

    outputs = Fields("number")

    def __init__(
        self,
        count: int,
        replay: Replay | None = None,
        *,
        per_call: int = 1,
        tracked: bool = True,
        finishes: bool = True,
    ) -> None:
        self.count = count
        self.replay = replay
        self.per_call = per_call
        self.tracked = tracked
        self.finishes = finishes

    def open(self, context: Context) -> None:
        self.now = context.now
        self.next = 0
        JOURNAL.note("open", context.task)

    def next_tuple(self) -> None:
        for _ in range(self.per_call):
            if self.next >= self.count:
                return self.finish() if self.finishes else None
            number, self.next = self.next, self.next + 1
            JOURNAL.note("emit", number, self.now())
            self.emit((number,), message_id=number if self.tracked else None)
        return None

    def ack(self, message_id: object) -> None:
        JOURNAL.note("ack", message_id, self.now())

    def fail(self, message_id: object, failure: Failure) -> None:
        JOURNAL.note("fail", message_id, self.now(), failure)

    def activate(self) -> None:
        JOURNAL.note("activate", self.now())

    def deactivate(self) -> None:
        JOURNAL.note("deactivate", self.now())

    def close(self) -> None:
        JOURNAL.note("close", self.now())


class Pass(Bolt):
    """Passes each number on and records it, with the name of its component."""

    outputs = Fields("number")

    def prepare(self, context: Context) -> None:
        self.context = context
        JOURNAL.note("prepare", context.component, context.task)

    def execute(self, tup: Tuple) -> None:
        JOURNAL.note("execute", self.context.component, tup["number"], self.context.now())
        self.emit((tup["number"],))

    def cleanup(self) -> None:
        JOURNAL.note("cleanup", self.context.component, self.context.now())


class Keep(Bolt):
    """A rich bolt that neither acks nor fails its tuples, not even in `tick`."""

    auto_ack = False
    auto_anchor = False

    def prepare(self, context: Context) -> None:
        self.context = context
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        JOURNAL.note("keep", tup["number"], self.context.now())
        self.kept.append(tup)


class ResetsTimeout(Keep):
    """Keeps its tuples and asks for more time at each tick, for `ticks` ticks."""

    tick_interval = 5.0

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks

    def tick(self) -> None:
        self.ticks -= 1
        if self.ticks >= 0:
            for tup in self.kept:
                self.reset_timeout(tup)


def chain(name: str, spout: Spout, *bolts: Bolt, conf: Mapping[str, object] | None = None) -> Topology:
    """spout "numbers" -> "bolt1" -> "bolt2" …, each with one task."""
    builder = TopologyBuilder(name, conf)
    source: Any = builder.set_spout("numbers", spout)
    for number, bolt in enumerate(bolts, 1):
        source = builder.set_bolt(f"bolt{number}", bolt).shuffle_grouping(source)
    return builder.build()


def run_to_the_end(cluster: LocalCluster, name: str, seconds: float = 3600.0) -> TopologyStatus:
    """Advance simulated time until the topology is COMPLETED (or FAILED), at most this many seconds."""
    advance_until(cluster, lambda: cluster.status(name).state in ("COMPLETED", "FAILED"), seconds)
    return cluster.status(name)


def advance_until(
    cluster: LocalCluster, condition: Callable[[], bool], seconds: float, step: float = 0.25
) -> float:
    """Advance simulated time in small steps until a condition holds; return the seconds it took, at most `seconds`."""
    passed = 0.0
    while not condition():
        assert passed < seconds, f"it did not happen within {seconds} simulated seconds"
        cluster.advance(step)
        passed += step
    return passed


def message_ids(entries: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The message ids of "ack" or "fail" entries, sorted."""
    return sorted(entry[0] for entry in entries)
