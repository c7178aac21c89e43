"""What a pending tree keeps is left out by the garbage collector if its values can be in no cycle, and only then.

With the plain core the collector itself leaves out what it can.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from local_cluster.testing import run_bolt
from tests.worker.lone_spout import lone_spout
from topology_api import BatchBolt, Bolt, Fields, Spout, Tuple
from topology_api.core_choice import CHOICE

#: The tuples that bolts have got.
KEPT: list[Tuple] = []
#: What a spout emits.
ROWS: list[tuple[Any, ...]] = []
#: Values of each kind that is in no cycle, in one tuple.
ATOMS = ("a", 1, 2.5, b"b", None, True)


class Thing:
    """It may refer to anything."""

    held: object = None


class Keeps(Bolt):
    outputs = Fields()

    def execute(self, tup: Tuple) -> None:
        KEPT.append(tup)


class KeepsAndAcks(Bolt):
    outputs = Fields()
    auto_ack = False

    def execute(self, tup: Tuple) -> None:
        KEPT.append(tup)
        self.ack(tup)


class KeepsAll(BatchBolt):
    outputs = Fields()
    batch_size = 2

    def execute_batch(self, tups: Any) -> None:
        KEPT.extend(tups)


class Emits(Spout):
    outputs = Fields("value")

    def next_tuple(self) -> float:
        for row in ROWS:
            self.emit(row, message_id=("id", row[0]) if type(row[0]) is int else Thing())
        ROWS.clear()
        return 1.0


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    KEPT.clear()
    ROWS.clear()


@pytest.mark.parametrize("bolt", [KeepsAndAcks, KeepsAll])
def test_a_kept_tuple_of_plain_values_is_left_out(bolt: type[Bolt]) -> None:
    run = run_bolt(bolt(), [ATOMS, ATOMS], source_fields=tuple("abcdef"))
    assert not run.errors and [tup.values for tup in KEPT] == [ATOMS, ATOMS]
    assert [gc.is_tracked(tup) for tup in KEPT] == [not CHOICE.compiled] * 2


def in_cycles(bolt: Bolt, make: Callable[[list[Any]], Any]) -> list[weakref.ref[Thing]]:
    """Let a bolt keep tuples of values that lead to them; return what lies on the way."""
    lists: list[list[Any]] = [[], []]
    run = run_bolt(bolt, [(make(each), "x") for each in lists], source_fields=("a", "b"))
    assert not run.errors and len(KEPT) == 2
    things = [Thing(), Thing()]
    for tup, thing, each in zip(KEPT, things, lists):
        thing.held = tup
        each.append(thing)
    return [weakref.ref(thing) for thing in things]


@pytest.mark.parametrize("bolt", [Keeps, KeepsAndAcks, KeepsAll])
@pytest.mark.parametrize(
    "make",
    [lambda inner: inner, lambda inner: {"a": inner}, lambda inner: (1, inner)],
    ids=["a list", "a dict", "a tuple"],
)
def test_a_kept_tuple_that_is_in_a_cycle_is_freed(bolt: type[Bolt], make: Callable[[list[Any]], Any]) -> None:
    things = in_cycles(bolt(), make)
    KEPT.clear()
    gc.collect()
    assert [each() for each in things] == [None, None]


def test_an_emission_is_left_out_unless_its_id_or_a_value_may_be_in_a_cycle() -> None:
    ROWS[:] = [(1,), ("its id is an object",), (2,)]
    task = lone_spout(Emits(), 1, lambda: 1000.0)
    task.run()
    emissions = {emission[1][0]: emission for emission in task.tracker.emissions if emission is not None}
    tracked = {value: gc.is_tracked(emission) for value, emission in emissions.items()}
    assert tracked == {1: not CHOICE.compiled, 2: not CHOICE.compiled, "its id is an object": True}


def test_an_open_tree_whose_row_leads_to_its_task_is_freed_with_it() -> None:
    thing = Thing()
    ROWS[:] = [([thing],)]
    task = lone_spout(Emits(), 1, lambda: 1000.0)
    task.run()
    thing.held = task
    assert task.tracker.pending == 1
    gone = weakref.ref(thing)
    del thing, task
    gc.collect()
    assert gone() is None
