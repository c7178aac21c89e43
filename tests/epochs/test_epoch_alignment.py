"""Alignment promises: a snapshot holds what was sent before the barriers of all inputs,
and nothing that was sent behind one.
"""

from __future__ import annotations

from worker.epochs.alignment import Alignment
from worker.epochs.messages import Barrier, EndMark, Rows, SnapshotMarker

ONE, TWO, THREE = Rows((1,)), Rows((2,)), Rows((3,))
MARKER = SnapshotMarker(1)


def test_what_is_behind_a_barrier_follows_the_marker() -> None:
    alignment = Alignment(["a", "b"])
    assert alignment.arrive("a", ONE) == [("a", ONE)]
    assert alignment.arrive("a", Barrier(1)) == []
    assert alignment.arrive("a", TWO) == []
    assert alignment.arrive("b", THREE) == [("b", THREE)]
    assert alignment.arrive("b", Barrier(1)) == [MARKER, ("a", TWO)]
    assert alignment.whole


def test_an_input_that_has_ended_counts_as_having_every_barrier() -> None:
    alignment = Alignment(["a", "b"])
    assert alignment.arrive("a", EndMark()) == [("a", EndMark())]
    assert alignment.arrive("b", Barrier(1)) == [MARKER]
    assert alignment.arrive("b", Barrier(2)) == [SnapshotMarker(2)]


def test_an_end_behind_a_barrier_belongs_to_the_next_epoch() -> None:
    alignment = Alignment(["a", "b"])
    alignment.arrive("a", Barrier(1))
    assert alignment.arrive("a", EndMark()) == []
    assert alignment.arrive("b", Barrier(1)) == [MARKER, ("a", EndMark())]


def test_a_task_without_living_inputs_gets_the_marker_from_the_coordinator_once() -> None:
    assert Alignment([]).begin(1, False) == [MARKER]
    alignment = Alignment(["a"])
    assert alignment.begin(1, False) == []
    assert alignment.arrive("a", EndMark()) == [("a", EndMark()), MARKER]
    assert alignment.begin(1, False) == []


def test_a_late_message_of_the_coordinator_changes_nothing() -> None:
    alignment = Alignment(["a"])
    assert alignment.arrive("a", Barrier(1, True)) == [SnapshotMarker(1, True)]
    assert alignment.begin(1, True) == []
    assert alignment.arrive("a", ONE) == [("a", ONE)]


def test_what_comes_over_a_closing_edge_before_its_barrier_is_recorded() -> None:
    alignment = Alignment(["a", "loop"], ["loop"])
    assert alignment.arrive("loop", ONE) == [("loop", ONE)]
    assert alignment.arrive("a", Barrier(1)) == [MARKER], "a cycle does not wait for itself"
    assert not alignment.whole
    assert alignment.arrive("loop", TWO) == [("loop", TWO)]
    assert alignment.arrive("loop", Barrier(1)) == []
    assert alignment.whole
    assert alignment.arrive("loop", THREE) == [("loop", THREE)]
    assert alignment.recorded == [("loop", TWO)]


def test_a_barrier_that_comes_early_over_a_closing_edge_is_waited_behind() -> None:
    alignment = Alignment(["a", "loop"], ["loop"])
    assert alignment.arrive("loop", Barrier(1)) == []
    assert alignment.arrive("loop", ONE) == []
    assert alignment.arrive("a", Barrier(1)) == [MARKER, ("loop", ONE)]
    assert alignment.whole and alignment.recorded == []


def test_old_barriers_of_a_cycle_that_has_ended_begin_no_epoch_again() -> None:
    alignment = Alignment(["a", "loop"], ["loop"])
    alignment.arrive("a", EndMark())
    alignment.end_closing()
    assert alignment.begin(1, False) == [MARKER]
    assert alignment.begin(2, False) == [SnapshotMarker(2)]
    assert alignment.arrive("loop", Barrier(1)) == []
    assert alignment.arrive("loop", Barrier(2)) == []
