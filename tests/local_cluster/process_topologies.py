"""Topologies for worker processes: they report by files, since the test is another process.

Workers import this module, so it imports nothing slow.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from topology_api import (
    Bolt,
    Context,
    Fields,
    MapState,
    Replay,
    Spout,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)


class Numbers(Spout):
    """Emits 0, 1, ... `count` - 1 and finishes; without a count it never does. Replays what fails, soon."""

    outputs = Fields("number")
    replay = Replay(max_attempts=50, first_delay=0.05, max_delay=0.5)

    def __init__(self, count: int | None, pause: float = 0.0) -> None:
        self.count = count
        self.pause = pause

    def open(self, context: Context) -> None:
        self.next = 0

    def next_tuple(self) -> float | None:
        if self.next == self.count:
            self.finish()
            return None
        self.emit((self.next,), message_id=self.next)
        self.next += 1
        return self.pause or None


class NeverOpens(Numbers):
    """Its `open` does not return."""

    def __init__(self, folder: Path) -> None:
        super().__init__(None)
        self.folder = folder

    def open(self, context: Context) -> None:
        (self.folder / "opening").touch()
        time.sleep(600)


class Stores(Bolt):
    """Needs a store, which is away while its folder is."""

    def __init__(self, store: Path) -> None:
        self.store = store

    def execute(self, tup: Tuple) -> None:
        with (self.store / "numbers").open("a") as numbers:
            numbers.write(f"{tup[0]}\n")


class Notes(Bolt):
    """Writes each number, with its process id, to a file of its task."""

    outputs = Fields("number")

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, context: Context) -> None:
        self.held = context.counter("noted")
        context.gauge("process", lambda: os.getpid())
        self.file = open(self.folder / f"{context.component}-{context.index}", "a", buffering=1)  # noqa: SIM115

    def execute(self, tup: Tuple) -> None:
        self.file.write(f"{tup['number']} {os.getpid()}\n")
        self.held.add()
        self.emit((tup["number"],))

    def cleanup(self) -> None:
        self.file.write("cleaned up\n")
        self.file.close()


class Hangs(Bolt):
    """A call that never returns; a file shows that it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def execute(self, tup: Tuple) -> None:
        (self.folder / "hangs").touch()
        threading.Event().wait()


class Raises(Bolt):
    """Raises for every number that ends in 7."""

    def execute(self, tup: Tuple) -> None:
        if tup["number"] % 10 == 7:
            raise ValueError(f"{tup['number']} is refused")


class NeedsSink(Bolt):
    """Fails in prepare as long as a file is missing."""

    def __init__(self, sink: Path) -> None:
        self.sink = sink

    def prepare(self, context: Context) -> None:
        if not self.sink.exists():
            raise ConnectionError("the sink is down")

    def execute(self, tup: Tuple) -> None:
        """Does nothing."""


class Keeps(Bolt):
    """Neither acks nor fails."""

    auto_ack = False

    def execute(self, tup: Tuple) -> None:
        """Emits nothing, ever."""


def line(name: str, spout: Spout, *bolts: Bolt, workers: int = 2, **conf: object) -> Topology:
    """A spout, then bolts one behind another, each with two tasks: bolt1, bolt2, ..."""
    options = {key.replace("_", "."): value for key, value in conf.items()}
    builder = TopologyBuilder(name, {"topology.workers": workers, **options})
    builder.set_spout("numbers", spout)
    before = "numbers"
    for number, bolt in enumerate(bolts, 1):
        builder.set_bolt(f"bolt{number}", bolt, parallelism=2).shuffle_grouping(before)
        before = f"bolt{number}"
    return builder.build()


def noted(folder: Path, bolt: str) -> list[tuple[int, int]]:
    """(number, pid) of everything that the tasks of a `Notes` wrote."""
    rows = []
    for file in sorted(folder.glob(f"{bolt}-*")):
        for text in file.read_text().splitlines():
            if text != "cleaned up":
                number, pid = text.split()
                rows.append((int(number), int(pid)))
    return rows


def wait_until(holds: object, seconds: float = 60.0) -> None:
    """Wait for a condition that other processes fulfil; AssertionError if they do not."""
    end = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@dataclass(frozen=True)
class Place:
    """A key that JSON does not have."""

    room: str
    row: int


class Places(Spout):
    """Emits each of some places once."""

    outputs = Fields("place")

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, context: Context) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < self.count:
            self.emit((Place("hall", self.next),))
            self.next += 1


class Visits(StatefulBolt):
    """Keeps the places themselves."""

    key = "place"
    times = ValueState(int, default=0)
    seen = MapState(int, Place)

    def execute(self, tup: Tuple) -> None:
        place = tup["place"]
        self.times.value += 1
        self.seen[place.row] = place


def places(count: int) -> Topology:
    builder = TopologyBuilder("places")
    builder.set_spout("places", Places(count))
    builder.set_bolt("visits", Visits(), 2).fields_grouping("places", "place")
    return builder.build()
