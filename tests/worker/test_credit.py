"""Credit: no more frames than granted, and all credit returns when everything is confirmed, whatever happens to grants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.transport.credit import ReceiveWindow, SendWindow, frame_limits
from tests.worker.chain_of_numbers import chain
from worker.loop.plan import WorkerPlan


def test_a_new_window_allows_its_size_and_no_more() -> None:
    window = SendWindow(3)
    assert [window.next_frame() for _ in range(3)] == [1, 2, 3]
    assert not window.room
    with pytest.raises(ValueError, match="3 frames sent, 3 granted"):
        window.next_frame()


def test_a_refused_frame_changes_nothing() -> None:
    window = SendWindow(1)
    window.next_frame()
    for _ in range(3):
        with pytest.raises(ValueError, match="no credit"):
            window.next_frame()
    assert window.grant(2)
    assert window.next_frame() == 2


def test_repeated_and_older_grants_give_nothing() -> None:
    window = SendWindow(2)
    assert window.grant(5)
    assert not window.grant(5)
    assert not window.grant(3)
    assert not window.grant(0)
    assert window.granted == 5


@given(window=st.integers(2, 12), data=st.data())
def test_whatever_happens_to_grants_a_link_holds_no_more_than_its_window(
    window: int, data: st.DataObject
) -> None:
    """Frames are executed in order; grants are lost, repeated and reordered, and the last one is repeated (as in HELLO) when
    nothing else is in flight.
    """
    sender, receiver = SendWindow(window), ReceiveWindow(window)
    under_way: list[int] = []  # frames sent and not executed
    grants: list[int] = []  # grants sent, reordered, some never delivered
    latest = window
    executed = 0
    for step in data.draw(st.lists(st.sampled_from(["send", "execute", "grant", "lose"]), max_size=120)):
        if step == "send" and sender.room:
            under_way.append(sender.next_frame())
        elif step == "execute" and under_way:
            executed = under_way.pop(0)
            latest = receiver.confirm(executed)
            grants.append(latest)
        elif step == "grant" and grants:
            chosen = data.draw(st.sampled_from(grants))  # it stays: it may be delivered again
            gave_room = chosen > sender.granted
            assert sender.grant(chosen) == gave_room
        elif step == "lose" and grants:
            grants.remove(data.draw(st.sampled_from(grants)))
        assert len(under_way) <= window
        assert sender.sent <= sender.granted <= executed + window
    for frame in under_way:
        latest = receiver.confirm(frame)
    sender.grant(latest)
    assert sender.granted - sender.sent == window  # all credit has returned


@given(window=st.integers(2, 12), frames=st.integers(1, 40), data=st.data())
def test_confirmations_out_of_order_never_reduce_credit(
    window: int, frames: int, data: st.DataObject
) -> None:
    receiver = ReceiveWindow(window)
    given_so_far = 0
    for frame in data.draw(st.permutations(range(1, frames + 1))):
        grant = receiver.confirm(frame)
        assert grant >= given_so_far
        given_so_far = grant
    assert given_so_far == frames + window


@given(st.integers(16, 10_000_000))
def test_a_full_window_of_full_frames_fits_into_the_queue(queue_size: int) -> None:
    frame, window = frame_limits(queue_size)
    assert 1 <= frame <= 512
    assert window >= 2  # one frame is executed while the next one is in flight
    assert frame * window <= queue_size
    assert frame * window > queue_size // 2  # and the queue is used


@pytest.mark.parametrize(("queue_size", "emissions"), [(2, 1), (400, 100), (4096, 1024), (100_000, 1024)])
def test_a_run_ends_after_a_quarter_of_the_queue_and_at_most_1024_emissions(
    queue_size: int, emissions: int
) -> None:
    plan = WorkerPlan("w1", chain("any", 1), (), {}, {"topology.queue.size": queue_size}, {}, "")
    assert plan.limits_of("any").emits == emissions
