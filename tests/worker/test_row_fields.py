"""Rows in a snapshot whose streams have other fields in this version of the topology."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from topology_api import Bolt, Fields, Spout, StateError, Topology, TopologyBuilder, Tuple
from worker.epochs.after_commit import LETTERS, ROWS, EpochOutcome
from worker.epochs.snapshot_files import TaskSnapshot
from worker.loop.row_fields import match_fields


class Pass(Bolt):
    def execute(self, tup: Tuple) -> None:
        """Takes all."""


def topology(read: tuple[str, ...], written: tuple[str, ...]) -> Topology:
    """A spout and a bolt with these fields."""

    class In(Spout):
        outputs = Fields(*read)

        def next_tuple(self) -> None:
            """Emits nothing."""

    class Out(Pass):
        outputs = Fields(*written)

    builder = TopologyBuilder("t")
    builder.set_spout("in", In())
    builder.set_bolt("out", Out()).shuffle_grouping("in")
    builder.set_bolt("last", Pass()).shuffle_grouping("out")
    return builder.build()


BEFORE = [("in", "default", ["a", "b"]), ("out", "default", ["x", "y"])]


def snapshot(**more: Any) -> TaskSnapshot:
    return TaskSnapshot("out/0", 3, 1, 0, {}, fields=list(BEFORE), **more)


def full() -> TaskSnapshot:
    letters = [{"id": "1", "item": ["in", 1, "default", pickle.dumps((7, 8))], "failure": "f", "attempts": 1}]
    return snapshot(
        outboxes=[("last/0", "default", [pickle.dumps([("x1", "y1")])])],
        held=[["in", 1, "default", True, pickle.dumps([(1, 2), (3, 4)])]],
        recorded=[("in/0", ["in", 1, "default", True, pickle.dumps([(5, 6)])])],
        parked=[
            (["in", 1, "default", pickle.dumps((1, 2))], 3, 0.5),
            (["", 0, "", pickle.dumps(("key", "late", 7.5))], 1, 0.5),
        ],
        outcomes=[EpochOutcome(2, 0, LETTERS, letters), EpochOutcome(2, 0, ROWS, b"rows")],
    )


def test_rows_are_matched_with_the_fields_of_now_by_name() -> None:
    found = full()
    match_fields(found, topology(("b", "a"), ("y",)))
    assert pickle.loads(found.outboxes[0][2][0]) == [("y1",)]
    assert found.held[0][:4] == ["in", 1, "default", True]
    assert pickle.loads(found.held[0][4]) == [(2, 1), (4, 3)]
    assert pickle.loads(found.recorded[0][1][4]) == [(6, 5)]
    (tup, failures, secs), (timer, *_) = found.parked
    assert (pickle.loads(tup[3]), failures, secs) == ((2, 1), 3, 0.5)
    assert pickle.loads(timer[3]) == ("key", "late", 7.5)
    assert found.fields == [("in", "default", ["b", "a"]), ("out", "default", ["y"])]
    again = [*found.held], [*found.outboxes]
    match_fields(found, topology(("b", "a"), ("y",)))
    assert (found.held, found.outboxes) == again, "what was matched is matched"


def test_a_dead_letter_that_is_not_shown_yet_keeps_the_fields_that_it_had() -> None:
    found = snapshot(outcomes=full().outcomes)
    match_fields(found, topology(("other",), ("x", "y")))
    assert found.outcomes[0].value[0]["item"] == ["in", 1, "default", pickle.dumps((7, 8)), ["a", "b"]]
    assert found.outcomes[1].value == b"rows"


def test_what_a_spout_is_to_emit_again_is_matched_too() -> None:
    kept = [("m1", ("default", 0, (1, 2)))]
    found = TaskSnapshot(
        "in/0", 3, 1, 0, {}, again=[(None, pickle.dumps(kept))], fields=[("in", "default", ["a", "b"])]
    )
    match_fields(found, topology(("b", "a"), ("x",)))
    assert pickle.loads(found.again[0][1]) == [("m1", ("default", 0, (2, 1)))]


@pytest.mark.parametrize("name", ["outboxes", "held", "recorded", "parked"])
def test_rows_that_lack_a_field_are_refused_with_component_stream_and_fields(name: str) -> None:
    found = snapshot(**{name: getattr(full(), name)})
    with pytest.raises(StateError) as raised:
        match_fields(found, topology(("a", "c", "d"), ("y", "c", "d")))
    component, before = ("out", "x, y") if name == "outboxes" else ("in", "a, b")
    first = before.split(", ")[name == "outboxes"]
    assert str(raised.value) == (
        f"out/0 has tuples of stream 'default' of component '{component}' with the fields ({before}), and the stream has other "
        f"fields now ({first}, c, d), of which these tuples have no 'c' and no 'd': submit the topology as it was, remove "
        "its state (kill it, then `squall state drop NAME`), or set another topology.state.path"
    )


def test_without_such_rows_the_fields_of_a_stream_may_change_in_any_way() -> None:
    found = snapshot()
    match_fields(found, topology(("n",), ("m",)))
    assert found.fields == [("in", "default", ["n"]), ("out", "default", ["m"])]


def test_rows_of_earlier_releases_stay_as_they_are() -> None:
    found = full()
    found.fields = []
    match_fields(found, topology(("b", "a"), ("y",)))
    assert pickle.loads(found.held[0][4]) == [(1, 2), (3, 4)]
