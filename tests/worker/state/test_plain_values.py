"""The cells of plain values: how those that were written are divided, and that cells without a value do not stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topology_api import StatefulBolt, ValueState
from worker.routing.key_groups import GroupRange, group_of
from worker.state import build
from worker.state.plain_values import MOST_LISTS, PlainValueHandle, RecentValues
from worker.state.table import MarkingTable, StateTable


class Counts(StatefulBolt):
    key = ("word",)
    times = ValueState(int, default=0)


def handle_of(table: StateTable) -> PlainValueHandle:
    found = build.handles(table, Counts)["times"]
    assert isinstance(found, PlainValueHandle)
    return found


def write(table: StateTable, handle: PlainValueHandle, key: str, value: int | None) -> None:
    table.begin(key)
    if value is None:
        handle.clear()
    else:
        handle.value = value
    table.commit()
    table.end()


@given(
    st.sets(st.text(max_size=3), max_size=60),
    st.integers(min_value=0, max_value=40),
    st.integers(min_value=1, max_value=3 * MOST_LISTS),
    st.integers(min_value=1, max_value=20),
)
def test_what_was_written_is_in_one_share_each_by_its_group(
    keys: set[str], first: int, number: int, least: int
) -> None:
    own = GroupRange(first, first + number, first + number + 7)
    table = MarkingTable("counts[0]", lambda: 0.0)
    handle = handle_of(table)
    handle.groups = own
    handle.begin_epoch()
    for key in keys:
        write(table, handle, key, 1)
    recent = handle.touched
    assert isinstance(recent, RecentValues) and len(recent) == len(keys)
    assert {cell.key for cell in recent.every_cell()} == keys
    shared, last = [], own.first
    for groups, cells in recent.shares(least):
        assert last <= groups.first < groups.end <= own.end, "in the order of groups, and none twice"
        last = groups.end
        for cell in cells[::2]:
            assert groups.first <= group_of(cell.key, own.groups) < groups.end
            shared.append(cell.key)
    assert sorted(shared) == sorted(key for key in keys if own.first <= group_of(key, own.groups) < own.end)


def test_without_epochs_keys_that_come_and_go_leave_no_cells() -> None:
    table = StateTable("counts[0]", lambda: 0.0)
    handle = handle_of(table)
    for number in range(1_000):
        write(table, handle, f"key {number}", 1)
        write(table, handle, f"key {number}", None)
        assert handle.count() == 0 and len(handle.cells) <= 2
    write(table, handle, "key 7", 3)
    assert (handle.count(), handle.at("key 7")) == (1, 3)


def test_with_epochs_they_stay_until_a_snapshot_has_said_that_they_are_gone() -> None:
    table = MarkingTable("counts[0]", lambda: 0.0)
    handle = handle_of(table)
    for number in range(100):
        write(table, handle, f"key {number}", 1)
    handle.begin_epoch()
    for number in range(90):
        write(table, handle, f"key {number}", None)
    changed = handle.touched
    handle.begin_epoch()
    assert handle.count() == 10 and len(handle.cells) == 100
    assert isinstance(changed, RecentValues)
    cells = changed.every_cell()
    keys, values, gone = handle.at_marker_of(cells, 0, len(cells), 1)
    assert (keys, values, sorted(gone)) == ([], [], sorted(f"key {number}" for number in range(90)))
    assert handle.count() == 10 and len(handle.cells) == 10


def test_a_cell_that_was_looked_up_and_removed_since_is_not_written() -> None:
    table = StateTable("counts[0]", lambda: 0.0)
    handle = handle_of(table)
    keys = ["first", "second", "first", "new", "new"]
    for key in keys[:2]:
        write(table, handle, key, 1)
    handle.look_ahead(keys, 0, len(keys))
    assert handle.ahead_count == len(keys)
    for key, value in zip(keys, (None, None, 5, 6, 7)):
        write(table, handle, key, value)
    assert handle.current() == {"first": 5, "new": 7}
    assert handle.count() == 2


def test_cells_are_looked_up_beforehand_only_where_calls_use_the_state() -> None:
    table = StateTable("counts[0]", lambda: 0.0)
    handle = handle_of(table)
    write(table, handle, "first", 1)
    table.begin("second")
    handle.look_ahead(["first"], 0, 1)
    assert handle.ahead_count == 0
