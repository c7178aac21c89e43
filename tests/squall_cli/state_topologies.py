"""A topology whose state has every kind, odd keys, and values of a class that a reader may lack."""

from __future__ import annotations

import dataclasses
import sys
import types
from pathlib import Path
from typing import Any

from local_cluster import LocalCluster
from topology_api import (
    Bolt,
    BroadcastState,
    Context,
    Fields,
    ListState,
    MapState,
    Replay,
    RewindableSpout,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)

GONE = "squall_test_shop"
TTL = 3600.0
ODD_KEYS: list[Any] = ["word", 7, "7", ("a", 1), b"\x00", None, 2.5]


class Readings(RewindableSpout):
    """Emits each of its keys as many times as its position in the list says."""

    outputs = Fields("key", "number")
    replay = Replay(max_attempts=100, first_delay=30, max_delay=30)

    def __init__(self, keys: list[Any], limit: int | None = None) -> None:
        self.rows: list[Any] = [(key, number) for number, key in enumerate(keys) for _ in range(number + 1)]
        self.limit = limit

    def open(self, context: Context) -> None:
        self.at = 0

    def position(self) -> dict[str, int]:
        return {"row": self.at}

    def rewind(self, position: dict[str, int] | None) -> None:
        self.at = position["row"] if position else 0

    def next_tuple(self) -> float | None:
        if self.at == len(self.rows):
            if self.limit is not None:
                self.finish()
            return 0.1
        self.emit(self.rows[self.at])
        self.at += 1
        return 0.01


class Rates(Readings):
    """Emits one tuple for all tasks."""

    outputs = Fields("rate")

    def __init__(self) -> None:
        super().__init__([])
        self.rows = [(1.5,)]


class Everything(StatefulBolt):
    """Has a state of every kind."""

    key = "key"
    times = ValueState(int, default=0)
    fresh = ValueState(int, default=0, ttl=TTL)
    numbers = ListState(int, ttl=TTL)
    by_number = MapState(int, str)
    by_name = MapState(str, float, ttl=TTL)
    raw = ValueState(bytes, default=b"")
    item = ValueState(object, default=None, pickled=True)
    rate = BroadcastState(float, default=0.0)

    def execute(self, tup: Tuple) -> None:
        if "rate" in tup.fields:
            self.rate.value = tup["rate"]
            return
        self.times.value += 1
        self.fresh.value += 1
        self.numbers.append(tup["number"])
        self.by_number[tup["number"]] = "n"
        self.by_name["x"] = 0.5
        self.raw.value = b"\xff"
        gone = sys.modules.get(GONE)
        self.item.value = {1, 2} if gone is None else gone.Item(self.times.value)
        self.timer_after(1000, name="quiet")

    def on_timer(self, name: str, time: float) -> None:
        raise AssertionError("not called")


class Parks(Bolt):
    """Fails for the key "word"."""

    outputs = Fields("key", "number")

    def execute(self, tup: Tuple) -> None:
        if tup["key"] == "parked":
            raise ValueError("not yet")
        self.emit((tup["key"], tup["number"]))


def everything(keys: list[Any], limit: int | None = None) -> Topology:
    builder = TopologyBuilder("things")
    builder.set_spout("readings", Readings(keys, limit))
    builder.set_spout("rates", Rates())
    builder.set_bolt("parks", Parks()).shuffle_grouping("readings")
    count = builder.set_bolt("count", Everything(), 2)
    count.fields_grouping("parks", "key").all_grouping("rates")
    return builder.build()


def gone_module() -> types.ModuleType:
    """Return a module with a class whose pickles name this module: it can be imported only while it is in sys.modules."""
    module = types.ModuleType(GONE)
    module.Item = dataclasses.make_dataclass("Item", ["size"], frozen=True, namespace={"__module__": GONE})  # type: ignore[attr-defined]
    return module


def conf_at(path: Path, **more: Any) -> dict[str, Any]:
    return {"topology.state.path": f"file://{path}", "topology.epoch.secs": 0.5, **more}


def written(path: Path, keys: list[Any], conf: dict[str, Any] | None = None) -> Path:
    """Let the topology commit its state; return its folder."""
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(everything(keys), {**conf_at(path), **(conf or {})})
        cluster.advance(10)
    return path / "things"
