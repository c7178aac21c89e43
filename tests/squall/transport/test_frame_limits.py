"""Frames promise: as many tuples as fit, so that a window of frames is a bounded number of bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from squall.transport.credit import FIRST_TUPLES, FRAME_BYTES, FrameLimit


def test_small_tuples_fill_frames_after_the_first_few() -> None:
    limit = FrameLimit(256, FIRST_TUPLES)
    seen = []
    for _ in range(6):
        seen.append(limit.tuples)
        limit.packed(limit.tuples, 22 * limit.tuples)
    assert seen == [16, 32, 64, 128, 256, 256]


def test_large_tuples_travel_alone() -> None:
    limit = FrameLimit(256, FIRST_TUPLES)
    limit.packed(16, 16 * 1_000_000)
    assert limit.tuples == 1
    limit.packed(1, 1_000_000)
    assert limit.tuples == 1


@given(st.integers(1, 2_000_000), st.integers(1, 4096))
def test_a_frame_of_equal_tuples_never_exceeds_the_limit_by_more_than_a_tuple(size: int, most: int) -> None:
    limit = FrameLimit(most, FIRST_TUPLES)
    limit.packed(limit.tuples, size * limit.tuples)
    for _ in range(20):
        assert 1 <= limit.tuples <= most
        assert limit.tuples == 1 or limit.tuples * size <= FRAME_BYTES
        limit.packed(limit.tuples, size * limit.tuples)


def test_tuples_that_become_small_again_fill_frames_again() -> None:
    limit = FrameLimit(256, FIRST_TUPLES)
    limit.packed(16, 16 * 1_000_000)
    for _ in range(10):
        limit.packed(limit.tuples, 20 * limit.tuples)
    assert limit.tuples == 256
