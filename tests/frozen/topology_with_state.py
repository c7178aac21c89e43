"""A topology whose bolt has every kind of state, and whose folder of state is frozen. Must not know: what the folder holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topology_api import (
    BroadcastState,
    Fields,
    ListState,
    MapState,
    Replay,
    RewindableSpout,
    Spout,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)
from worker.epochs.log import LogView
from worker.epochs.records import SnapshotFile
from worker.epochs.snapshot_files import TaskSnapshot, read_chain
from worker.loop.epoch_store import EpochFiles
from worker.routing.key_groups import GroupRange

#: How many tuples the spouts emit before their folder is frozen, and in all.
FIRST, ALL = 20, 30


@dataclass
class Reading:
    """The value of a state."""

    value: float
    unit: str


class Numbers(RewindableSpout):
    """Emits numbers with one of three keys, one each 0.1 s."""

    outputs = Fields("key", "number")
    replay = Replay(max_attempts=None, first_delay=1.0, max_delay=1.0)

    def __init__(self, count: int) -> None:
        self.count, self.at = count, 0

    def position(self) -> dict[str, int]:
        return {"at": self.at}

    def rewind(self, position: dict[str, int] | None) -> None:
        self.at = 0 if position is None else position["at"]

    def next_tuple(self) -> float:
        if self.at < self.count:
            self.emit((f"k{self.at % 3}", self.at), message_id=self.at)
            self.at += 1
        return 0.1


class Rates(Spout):
    """Emits one tuple to all."""

    outputs = Fields("rate")

    def __init__(self) -> None:
        self.done = False

    def next_tuple(self) -> float:
        if not self.done:
            self.done = True
            self.emit((1.5,), message_id="rate")
        return 60.0


class Everything(StatefulBolt):
    """Remembers each number in every kind of state."""

    key = "key"
    outputs = Fields("key", "count")
    count = ValueState(int, default=0)
    last = ValueState(Reading)
    any_value = ValueState(object, pickled=True)
    numbers = ListState(int)
    recent = ListState(int, ttl=3e7)
    by_number = MapState(int, str)
    kept = MapState(int, str, ttl=3e7)
    rate = BroadcastState(float, default=0.0)

    def __init__(self, poison: frozenset[int]) -> None:
        self.poison = poison

    def execute(self, tup: Tuple) -> None:
        if tup.component == "rates":
            self.rate.value = tup["rate"]
            return
        number = tup["number"]
        if number in self.poison:
            raise ValueError(f"number {number}")
        self.count.value += 1
        self.last.value = Reading(float(number), "C")
        self.any_value.value = {number, "any"}
        self.numbers.append(number)
        self.recent.append(number)
        self.by_number[number] = str(number)
        self.kept[number] = str(number)
        self.timer_after(3e7, name="far")
        self.timer_after(0.5, name="near")
        self.emit((tup["key"], self.count.value))

    def on_timer(self, name: str, time: Any) -> None:
        if self.current_key == "k2" and self.poison:
            raise ValueError("a timer that is tried again")


def topology(count: int, poison: frozenset[int]) -> Topology:
    builder = TopologyBuilder("everything")
    builder.set_spout("numbers", Numbers(count))
    builder.set_spout("rates", Rates())
    bolt = builder.set_bolt("bolt", Everything(poison), 2)
    bolt.fields_grouping("numbers", "key").all_grouping("rates")
    return builder.build()


def state_of(numbers: list[int]) -> dict[str, Any]:
    """The state of a key that got these numbers, in this order."""
    return {
        "count": len(numbers),
        "last": Reading(float(numbers[-1]), "C"),
        "any_value": {numbers[-1], "any"},
        "numbers": numbers,
        "recent": numbers,
        "by_number": {number: str(number) for number in numbers},
        "kept": {number: str(number) for number in numbers},
        "rate": 1.5,
    }


def newest_files(folder: Path) -> dict[str, SnapshotFile]:
    """The snapshots of the last commit in a folder of state: task -> file."""
    view = LogView()
    for record in EpochFiles(f"file://{folder}", "everything").records_after(0):
        view.add(record)
    assert view.newest is not None
    return view.newest.files


def shares_of(folder: Path, file: SnapshotFile) -> dict[str, TaskSnapshot]:
    """A snapshot with the files that it builds upon: all of it, and what a task would read that has one of four key groups."""

    def read(name: str, offset: int = 0, length: int | None = None, /) -> bytes:
        data = (folder / "everything" / "snapshots" / name).read_bytes()[offset:]
        return data if length is None else data[:length]

    halves = {"all": None, "second group": GroupRange(1, 2, 4), "last group": GroupRange(3, 4, 4)}
    return {name: read_chain(file, read, wanted, labelled=True) for name, wanted in halves.items()}
