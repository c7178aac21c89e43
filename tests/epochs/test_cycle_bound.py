"""The bound of a cycle promises: at the limit the spouts pause until half has been executed, and never more than twice the
limit waits. All spouts pause as long as any task is full.
"""

from __future__ import annotations

from worker.epochs.cycle_bound import CycleBound
from worker.epochs.spout_hold import SpoutHold


def test_spouts_pause_at_the_limit_until_half_of_it_is_executed() -> None:
    bound = CycleBound(10)
    assert bound.admit(9) == 9 and not bound.changed(1.0)
    assert bound.admit(1) == 1 and bound.changed(2.0) and bound.full_since == 2.0
    assert not bound.changed(3.0)  # it is said once
    bound.executed(4)
    assert not bound.changed(4.0)
    bound.executed(1)
    assert bound.changed(5.0) and bound.full_since is None


def test_what_is_more_than_twice_the_limit_does_not_enter() -> None:
    bound = CycleBound(10)
    assert [bound.admit(15), bound.admit(15), bound.admit(1)] == [15, 5, 0]
    assert (bound.waiting, bound.given_up) == (20, 11)
    bound.executed(3)
    assert bound.admit(5) == 3


def test_all_spouts_pause_while_any_task_is_full() -> None:
    hold = SpoutHold()
    assert hold.heard("a/0", "full", "cycle") == ("full", "cycle")
    assert hold.heard("a/1", "full, too", "cycle") is None
    assert hold.heard("a/0", "", "cycle") is None
    assert hold.heard("a/0", "", "cycle") is None
    assert hold.heard("a/1", "", "cycle") == ("", "cycle")
    assert hold.heard("a/1", "", "cycle") is None


def test_of_two_reasons_of_a_task_the_first_is_said() -> None:
    hold = SpoutHold()
    assert hold.heard("a/0", "a cycle", "cycle") == ("a cycle", "cycle")
    assert hold.heard("a/0", "many bytes", "commit") is None
    assert hold.heard("a/0", "", "cycle") == ("many bytes", "commit")
    assert hold.heard("a/0", "", "commit") == ("", "commit")
