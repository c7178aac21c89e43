"""In a large state the keys of several calls are looked up at once: each call sees what earlier calls did."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from local_cluster import LocalCluster
from topology_api import Fields, Spout, StatefulBolt, TopologyBuilder, Tuple, ValueState
from topology_api.core_choice import CHOICE
from worker.state.plain_values import LEAST_AHEAD, PlainValueHandle

#: Few keys that come often, and are cleared often, among many.
FEW: list[Any] = ["a", "b", "c", "new", 7, ("x", 1), "word-1"]
counted: list[dict[Any, int]] = []
looked: list[bool] = []


def rows_of(seed: int) -> list[tuple[Any, str]]:
    source = Random(seed)
    rows: list[tuple[Any, str]] = [(f"word-{number}", "add") for number in range(LEAST_AHEAD + 10)]
    for _ in range(4_000):
        key = source.choice(FEW) if source.random() < 0.8 else f"word-{source.randrange(LEAST_AHEAD)}"
        [what] = source.choices(("add", "clear", "again", "raise", "look"), (12, 2, 1, 1, 1))
        rows.append((key, what))
    return rows


class Rows(Spout):
    outputs = Fields("word", "what")

    def __init__(self, rows: list[tuple[Any, str]]) -> None:
        self.rows = rows

    def open(self, context: Any) -> None:
        self.left = iter(self.rows)

    def next_tuple(self) -> None:
        row = next(self.left, None)
        if row is None:
            self.finish()
        else:
            self.emit(row)


class Count(StatefulBolt):
    key = "word"
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        what = tup["what"]
        if what == "look":
            return
        if what in ("clear", "again"):
            self.times.clear()
        if what != "clear":
            self.times.value += 1
        if what == "raise":
            raise ValueError("on purpose")

    def cleanup(self) -> None:
        handle: Any = self.times
        assert isinstance(handle, PlainValueHandle)
        counted.append(handle.current())
        looked.append(handle.ahead_turn > 0)


def model_of(rows: list[tuple[Any, str]]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for key, what in rows:
        if what in ("clear", "again"):
            found.pop(key, None)
        if what in ("add", "again"):
            found[key] = found.get(key, 0) + 1
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_each_call_sees_what_those_before_it_did(seed: int) -> None:
    counted.clear()
    looked.clear()
    rows = rows_of(seed)
    builder = TopologyBuilder("many")
    builder.set_spout("rows", Rows(rows))
    builder.set_bolt("count", Count()).fields_grouping("rows", "word")
    with LocalCluster(simulated_time=True, seed=1) as cluster:
        cluster.submit(builder.build())
        while cluster.status("many").state != "COMPLETED":
            cluster.advance(0.5)
    assert counted == [model_of(rows)]
    assert any(looked) == CHOICE.compiled
