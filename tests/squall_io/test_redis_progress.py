"""What is gone of a stream, decided from what Redis says of it: any order of appends, trims, deletions and reads."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_io.redis.ids import before_time, id_of, id_text
from squall_io.redis.progress import (
    EARLIEST,
    MISSING,
    StreamProgress,
    StreamState,
    beginning,
    checked_positions,
    own_streams,
)
from topology_api import SquallError


class Model:
    """A stream as Redis keeps it."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.last = self.deleted = self.added = 0

    def add(self, count: int) -> None:
        for _ in range(count):
            self.last += 3
            self.ids.append(self.last)
            self.added += 1

    def trim(self, left: int) -> list[int]:
        gone = self.ids[: max(0, len(self.ids) - left)]
        del self.ids[: len(gone)]
        return gone

    def delete(self, at: int) -> list[int]:
        if not self.ids:
            return []
        gone = self.ids.pop(at % len(self.ids))
        self.deleted = max(self.deleted, gone)
        return [gone]

    def state(self) -> StreamState:
        return StreamState(len(self.ids), self.ids[0] if self.ids else 0, self.last, self.deleted, self.added)

    def read(self, progress: StreamProgress, most: int) -> None:
        found = [each for each in self.ids if each > progress.id][:most]
        for each in found:
            progress.emitted(each, tracked=False)
        if not found:
            progress.ended()


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "trim", "delete", "read", "read"]), st.integers(0, 6)),
    max_size=40,
)


@given(STEPS, st.booleans())
def test_trimmed_entries_are_counted_exactly_and_nothing_else_is_an_alarm(
    steps: list[tuple[str, int]], deletes: bool
) -> None:
    model = Model()
    progress = StreamProgress("orders", *beginning(EARLIEST, model.state()))
    trimmed, deleted = list[int](), list[int]()
    for step, number in steps:
        if step == "add":
            model.add(number)
        elif step == "trim":
            trimmed += [each for each in model.trim(number) if each > progress.id]
        elif step == "delete" and deletes:
            deleted += [each for each in model.delete(number) if each > progress.id]
        elif step == "read":
            loss = progress.seen(model.state())
            if not trimmed and not deleted:
                assert loss is None
            elif trimmed and not deletes:
                assert loss is not None and loss.strict and loss.count == len(trimmed)
            elif loss is not None:
                assert loss.count <= len(trimmed) + len(deleted)
            trimmed, deleted = [], []
            model.read(progress, number)
            if not deletes:
                assert progress.count == model.added - sum(each > progress.id for each in model.ids)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_ids_are_numbers_in_the_same_order(first: int, second: int) -> None:
    text = f"{first}-{second}"
    assert id_text(id_of(text)) == text == id_text(id_of(text.encode()))
    assert id_of(f"{first}") <= id_of(text)


@pytest.mark.parametrize("text", ["", "-", "1-", "x", "1-1-1", "-1", str(2**64), f"1-{2**64}", "+", "$"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="id"):
        id_of(text)


def test_a_time_is_before_the_entries_of_its_millisecond() -> None:
    when = datetime(2026, 11, 29, tzinfo=timezone.utc)
    first = f"{int(when.timestamp() * 1000)}-0"
    assert before_time(when) == id_of(first) - 1
    assert before_time(datetime(1960, 1, 1, tzinfo=timezone.utc)) == 0


@pytest.mark.parametrize("position", [3, {"a": 3}, {"a": ["x", 1]}, {"a": ["1-1"]}, [["a", "1-1"]]])
def test_a_position_of_another_spout_is_refused(position: object) -> None:
    with pytest.raises(SquallError, match="is none of a RedisStreamSpout"):
        checked_positions(position)


def test_each_stream_has_one_task() -> None:
    streams = [f"orders:{n}" for n in range(50)]
    shares = [own_streams(streams, index, 3) for index in range(3)]
    assert sorted(name for share in shares for name in share) == sorted(streams)
    assert all(shares)


def test_a_stream_that_never_was_there_is_no_loss() -> None:
    progress = StreamProgress("orders", *beginning(EARLIEST, MISSING))
    assert progress.seen(MISSING) is None and progress.behind() == 0


def test_a_stream_that_lost_its_last_entries_goes_on_behind_what_is_settled() -> None:
    progress = StreamProgress("orders", 0, 0)
    assert progress.seen(StreamState(10, 1, 10, 0, 10)) is None
    settles = [progress.emitted(id, tracked=True) for id in range(1, 11)]
    for each in settles[:4]:
        progress.items.settle(each)
    loss = progress.seen(StreamState(7, 1, 7, 0, 7))
    assert loss is not None and loss.is_new
    again = progress.again()
    assert again.settled() == (4, None) and again.place == ("orders", 1)
    for id in range(5, 8):
        again.emitted(id, tracked=True)
    assert again.id == 7 and again.count == 7


@pytest.mark.parametrize("state", [MISSING, StreamState(1, 3, 3, 0, 1)])
def test_a_stream_that_is_gone_is_missed_also_if_its_entries_were_not_counted(state: StreamState) -> None:
    whole = StreamState(9, 1, 9, 0, 9)
    progress = StreamProgress("orders", *beginning(5, whole))
    assert progress.count is None and progress.seen(state) is None  # `start` may be in the future
    progress.emitted(6, tracked=False)
    for each in (progress, StreamProgress("orders", 6, None, was_read=True)):
        assert each.seen(whole) is None
        loss = each.seen(state)
        assert loss is not None and loss.strict and loss.is_new
