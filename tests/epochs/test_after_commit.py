"""Outcomes promise: each is visible once and after its commit, whatever answers are lost; a failed tuple is tried again where
it failed, and is one dead letter.
"""

from __future__ import annotations

import pytest

from topology_api import Replay
from worker.epochs.after_commit import HANDLE, LETTERS, ROWS, AfterCommit, EpochOutcome
from worker.epochs.emissions import Emissions
from worker.epochs.parking import Parked, Parking
from worker.epochs.sinks import CommitHandle, ReadToken, ShowAnswer, Showing, ShowLetters, WriteRows, heir_of
from worker.epochs.snapshot_files import TaskSnapshot


def showing(*outcomes: EpochOutcome, committed: int) -> Showing:
    """The outcomes of a commit's snapshots, about to be shown."""
    found = AfterCommit()
    found.restore(outcomes, committed)
    return Showing(found)


def test_nothing_is_shown_before_its_commit_and_then_in_order() -> None:
    shows = showing(
        EpochOutcome(2, 0, HANDLE, "b"),
        EpochOutcome(1, 0, HANDLE, "a"),
        EpochOutcome(3, 0, LETTERS, ["c"]),
        committed=2,
    )
    assert shows.step() == CommitHandle(1, "a")
    assert shows.step() is None, "one at a time"
    shows.answered(ShowAnswer.UNKNOWN)
    assert shows.step() == CommitHandle(1, "a"), (
        "it may be visible or not: committing it again changes nothing"
    )
    shows.answered(ShowAnswer.DONE)
    assert shows.step() == CommitHandle(2, "b")
    shows.answered(ShowAnswer.DONE)
    assert shows.step() is None and shows.after_commit.shown
    shows.after_commit.commit(3)
    assert shows.step() == ShowLetters(3, ["c"])


def test_rows_whose_answer_was_lost_are_not_written_again_if_the_token_says_that_they_are_there() -> None:
    shows = showing(EpochOutcome(5, 0, ROWS, ["x"]), EpochOutcome(6, 0, ROWS, ["y"]), committed=6)
    assert shows.step() == ReadToken(0)
    shows.token_read(0, 3)
    assert shows.step() == WriteRows(5, 0, ["x"], expected=3)
    shows.answered(ShowAnswer.UNKNOWN)
    assert shows.step() == ReadToken(0)
    shows.token_read(0, 5)
    assert shows.step() == WriteRows(6, 0, ["y"], expected=5)
    shows.answered(ShowAnswer.REFUSED)
    assert shows.step() == ReadToken(0)
    shows.token_read(0, 6)
    assert shows.step() is None and shows.after_commit.shown


def test_refused_rows_are_left_out_after_the_commit_that_has_their_letters() -> None:
    outcomes = EpochOutcome(5, 0, ROWS, ["a", "b", "c"]), EpochOutcome(6, 0, ROWS, ["d"])
    shows = showing(*outcomes, committed=6)
    after_commit = shows.after_commit
    assert shows.step() == ReadToken(0)
    shows.token_read(0, 3)
    assert shows.step() == WriteRows(5, 0, ["a", "b", "c"], expected=3)
    after_commit.refuse([1])
    assert after_commit.waits and shows.step() is None
    after_commit.commit(7)
    assert after_commit.waits and shows.step() is None, "epoch 7 had ended before: its snapshot has no letter"
    assert after_commit.outcomes[0].refused == ()
    after_commit.close(8)
    assert after_commit.waits and shows.step() is None, "a rewind may still take the letter back"
    after_commit.commit(8)
    assert shows.step() == WriteRows(5, 0, ["a", "b", "c"], expected=3, refused=(1,))
    after_commit.refuse([2])
    after_commit.close(9)
    after_commit.restore(after_commit.outcomes, 9)
    shows.restore()
    assert shows.step() == ReadToken(0)
    shows.token_read(0, 3)
    assert shows.step() == WriteRows(5, 0, ["a", "b", "c"], expected=3, refused=(1, 2))
    shows.answered(ShowAnswer.DONE)
    assert shows.step() == WriteRows(6, 0, ["d"], expected=5)
    after_commit.refuse([0])
    after_commit.restore(outcomes, 6)
    assert not after_commit.waits, "a rewind has taken the letter back"


def test_rows_of_an_index_that_is_gone_are_written_under_its_own_token() -> None:
    assert [heir_of(index, 2) for index in range(4)] == [0, 1, 0, 1]
    shows = showing(EpochOutcome(4, 2, ROWS, ["x"]), committed=4)
    assert shows.step() == ReadToken(2)
    shows.token_read(2, 0)
    assert shows.step() == WriteRows(4, 2, ["x"], expected=0)


def test_void_outcomes_are_given_back_and_committed_ones_stay() -> None:
    shows = showing(EpochOutcome(4, 0, HANDLE, "a"), EpochOutcome(5, 0, HANDLE, "b"), committed=4)
    assert shows.after_commit.void(4) == [EpochOutcome(5, 0, HANDLE, "b")]
    assert shows.step() == CommitHandle(4, "a")


def test_a_parked_tuple_is_tried_after_doubling_delays_and_then_is_one_letter() -> None:
    replay = Replay(max_attempts=3, first_delay=1.0)
    parking = Parking("count/0", limit=1)
    parking.park("tuple", "KeyError", replay, 10.0)
    assert parking.full and parking.due(10.9) is None and parking.next_due() == 11.0
    first = parking.due(11.0)
    assert first is not None
    parking.failed(first, "KeyError", replay, 11.0)
    assert parking.next_due() == 13.0
    second = parking.due(13.0)
    assert second is not None
    parking.failed(second, "KeyError", replay, 13.0)
    assert not parking.full
    (letter,) = parking.close(7)
    assert (letter.id, letter.item, letter.attempts) == ("count/0/7/0", "tuple", 3)
    assert parking.close(8) == []


def test_a_rewind_brings_a_parked_tuple_back_with_its_failures_by_another_clock() -> None:
    parking = Parking("count/0", limit=5)
    parking.park("tuple", "KeyError", Replay(max_attempts=2, first_delay=4.0), 10.0)
    there = Parking("count/0", limit=5)
    there.restore(parking.content(11.0), 500.0)
    assert there.next_due() == 503.0
    again = there.due(503.0)
    assert again is not None
    there.failed(again, "KeyError", Replay(max_attempts=2), 503.0)
    assert len(there.close(1)) == 1


def test_letters_that_their_readers_have_yet_to_get_are_part_of_snapshots() -> None:
    parking = Parking("count/0", limit=5)
    parking.is_read = True
    parking.give_up(Parked("at once", 3, 0.0), "a", read=True)
    parking.give_up(Parked("later", 2, 0.0), "b")
    parking.give_up_in(1, "ends", "c")
    parking.give_up_in(2, "next", "d")
    assert [letter.item for letter in parking.close(1)] == ["at once", "later", "ends"]
    snapshot = TaskSnapshot("count/0", 1, 0, 0)
    parking.fill(snapshot, 0.0)
    parking.unread.pop(0)  # the task has emitted it meanwhile, in the next epoch
    parking.give_up_in(1, "late", "e")
    assert [letter.item for letter in parking.close_late(snapshot)] == ["late"]
    assert parking.unread == [("ends", "c", 1), ("late", "e", 1)]
    assert snapshot.unread == [("later", "b", 2), ("ends", "c", 1), ("late", "e", 1)]
    there = Parking("count/0", limit=5)
    there.restore((), 0.0, unread=snapshot.unread)
    assert there.unread == snapshot.unread
    parking.close(2)
    assert parking.unread[2:] == [("next", "d", 1)]


def test_letters_that_no_bolt_reads_are_not_gathered_for_readers() -> None:
    parking = Parking("count/0", limit=5)
    parking.give_up(Parked("tuple", 1, 0.0), "a")
    snapshot = TaskSnapshot("count/0", 1, 0, 0)
    parking.give_up_in(1, "late", "e")
    parking.close_late(snapshot)
    assert parking.unread == snapshot.unread == []


def test_emissions_are_acked_once_and_those_of_void_epochs_are_not() -> None:
    emissions = Emissions(rewindable=True)
    emissions.add("a", "values")
    emissions.add(None, "untracked")
    emissions.close(1)
    emissions.add("b", "values")
    emissions.close(3)
    assert emissions.commit(1) == ["a"] and emissions.commit(2) == []
    emissions.rewind()
    assert emissions.commit(3) == [] and emissions.next_again() is None


@pytest.mark.parametrize("rewindable", [True, False])
def test_every_emission_counts_until_its_commit_or_a_rewind_with_or_without_a_message_id(
    rewindable: bool,
) -> None:
    emissions = Emissions(rewindable)
    for epoch, emitted in enumerate(["12-", "--", "-"], 1):
        for each in emitted:
            emissions.add(None if each == "-" else each, "values")
        emissions.close(epoch)
    emissions.add(None, "values")
    assert emissions.uncommitted == 7
    emissions.commit(2)
    assert emissions.uncommitted == 2
    emissions.rewind()
    assert emissions.uncommitted == 0, "what is to be emitted again counts when it is"


def test_a_spout_that_cannot_rewind_emits_its_values_again_in_their_order() -> None:
    emissions = Emissions(rewindable=False)
    for number in range(3):
        emissions.add(number, f"values {number}")
        emissions.close(number + 1)
    emissions.add(3, "values 3")
    emissions.commit(1)
    emissions.rewind()
    assert emissions.next_again() == (1, "values 1")
    emissions.add(1, "values 1")
    emissions.rewind()
    assert [kept[0] for kept in emissions.again] == [1, 2, 3]
