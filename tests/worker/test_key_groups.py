"""Key groups: each key is in exactly one task, whatever their number, and only groups move that get another owner."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.routing.key_groups import GroupRange, by_group, cut, group_of, owner_of, range_of, task_of
from worker.routing.key_hash import key_hash

KEYS = st.text(max_size=3) | st.integers(0, 10**6) | st.tuples(st.text(max_size=2), st.integers(0, 3))
GROUPS = st.sampled_from([1, 2, 3, 7, 64, 1000, 1024, 32_768])


@st.composite
def divisions(draw: st.DrawFn) -> tuple[int, int]:
    """Numbers of tasks and of groups."""
    groups = draw(GROUPS)
    return draw(st.integers(1, min(groups, 300))), groups


@given(divisions())
def test_the_ranges_of_all_tasks_follow_each_other_and_none_is_empty(division: tuple[int, int]) -> None:
    tasks, groups = division
    ranges = [range_of(index, tasks, groups) for index in range(tasks)]
    assert (ranges[0].first, ranges[-1].end) == (0, groups)
    assert all(before.end == after.first for before, after in pairwise(ranges))
    sizes = [each.end - each.first for each in ranges]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


@given(divisions(), KEYS)
def test_each_key_is_in_exactly_one_task_that_of_its_group(division: tuple[int, int], key: object) -> None:
    tasks, groups = division
    group, index = group_of(key, groups), task_of(key, tasks, groups)
    owners = [
        at for at in range(tasks) if range_of(at, tasks, groups).covers(GroupRange(group, group + 1, groups))
    ]
    assert owners == [index] == [owner_of(group, tasks, groups)]
    assert by_group(range(tasks), groups)[group] == index, "the list that the routes have"


@given(divisions(), st.data())
def test_with_another_number_of_tasks_a_task_finds_its_keys_in_those_whose_ranges_meet_its_own(
    division: tuple[int, int], data: st.DataObject
) -> None:
    before, groups = division
    now = data.draw(st.integers(1, min(groups, 300)))
    index = data.draw(st.integers(0, now - 1))
    own = range_of(index, now, groups)
    read = [at for at in range(before) if own.meets(range_of(at, before, groups))]
    assert {owner_of(group, before, groups) for group in range(own.first, own.end)} == set(read)
    moved = {group for group in range(own.first, own.end) if owner_of(group, before, groups) != index}
    if before == now:
        assert not moved
        assert read == [index]
    # All tasks together read each file, and those at the edges once more.
    total = sum(
        own.meets(range_of(at, before, groups))
        for own in (range_of(each, now, groups) for each in range(now))
        for at in range(before)
    )
    assert total <= before + now - 1


@given(divisions(), st.data())
def test_a_range_is_cut_into_pieces_that_follow_each_other(
    division: tuple[int, int], data: st.DataObject
) -> None:
    tasks, groups = division
    own = range_of(data.draw(st.integers(0, tasks - 1)), tasks, groups)
    pieces = cut(own, data.draw(st.integers(1, min(own.end - own.first, 100))))
    assert (pieces[0].first, pieces[-1].end) == (own.first, own.end)
    assert all(before.end == after.first for before, after in pairwise(pieces))
    assert all(each.first < each.end for each in pieces)
    assert pieces[0].joined(pieces[-1]) == own


@given(st.integers(1, 9), KEYS)
def test_the_keys_of_bolts_without_state_are_divided_as_they_always_were(tasks: int, key: object) -> None:
    assert task_of(key, tasks, 0) == key_hash(key) % tasks


@pytest.mark.parametrize(
    ("key", "group"), [("squall", 500), (7, 452), (("a", 1), 252), (None, 693), (b"x", 972)]
)
def test_the_groups_of_keys_never_change(key: object, group: int) -> None:
    """Snapshots are in their order."""
    assert group_of(key, 1024) == group


def test_of_different_totals_nothing_is_known() -> None:
    assert GroupRange(0, 1, 8).meets(GroupRange(7, 8, 16))
    assert not GroupRange(0, 16, 16).covers(GroupRange(0, 1, 8))
    assert not GroupRange(0, 4, 8).meets(GroupRange(4, 8, 8))
