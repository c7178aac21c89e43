"""Progress of readers: every unit has one reader, records of any owner stay true, and nothing open is skipped."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_io.spark.manifest.envelopes import UnreadableRecord, decode, seal
from squall_io.spark.spouts.positions import (
    TASK_KIND,
    DoneUnits,
    OpenUnit,
    PositionRecord,
    Positions,
    Ranges,
    Unit,
    owner_of,
)

NUMBERS = st.integers(0, 60)
UNITS = st.builds(Unit, st.sampled_from(["", "a.b.0.1", "a.b.1.7"]), NUMBERS)


@given(st.lists(st.tuples(NUMBERS, st.integers(0, 5))))
def test_ranges_contain_the_added_numbers_in_as_few_ranges_as_possible(added: list[tuple[int, int]]) -> None:
    ranges, expected = Ranges(), set()
    for first, more in added:
        ranges.add(first, first + more)
        expected |= set(range(first, first + more + 1))
    assert {number for number in range(70) if number in ranges} == expected
    assert len(ranges) == sum(number - 1 not in expected for number in expected)
    assert {n for first, last in ranges for n in range(first, last + 1)} == expected


@given(st.data())
def test_the_position_is_that_of_the_first_open_item(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    unit = OpenUnit(Unit("", 0), 0)
    order = iter(data.draw(st.permutations(range(count))))
    taken: list[int] = []
    settled: set[int] = set()
    while len(settled) < count:
        if len(taken) < count and (data.draw(st.booleans()) or len(taken) == len(settled)):
            unit.taken(10 * len(taken), 10 * len(taken) + 10)
            taken.append(10 * len(taken))
        else:
            number = next(n for n in order if n < count)
            while len(taken) <= number:
                unit.taken(10 * len(taken), 10 * len(taken) + 10)
                taken.append(10 * len(taken))
            unit.settle(10 * number)
            settled.add(10 * number)
        under_way = [place for place in taken if place not in settled]
        assert unit.position == (under_way[0] if under_way else 10 * len(taken))
        assert not unit.done
    unit.exhausted = True
    assert unit.done


@given(UNITS, st.integers(1, 7))
def test_each_unit_is_read_by_one_task(unit: Unit, parallelism: int) -> None:
    mine = [index for index in range(parallelism) if Positions(index, parallelism).mine(unit)]
    assert mine == [owner_of(unit, parallelism)]


def test_consecutive_units_are_shared_evenly_and_make_one_range_in_each_record() -> None:
    for series in ("", "counts-3.sink.0.4"):
        for parallelism in (1, 2, 3, 5):
            done = [DoneUnits(index, parallelism) for index in range(parallelism)]
            for number in range(30):
                unit = Unit(series, number)
                done[owner_of(unit, parallelism)].add(unit)
            sizes = [len(list(each.series[series])) for each in done]
            assert sizes == [1] * parallelism
            counts = [sum(Unit(series, number) in each for number in range(30)) for each in done]
            assert max(counts) - min(counts) <= 1 and sum(counts) == 30


@given(st.lists(st.tuples(st.integers(1, 4), st.lists(UNITS, max_size=20)), max_size=4), st.integers(1, 4))
def test_finished_units_stay_finished_for_every_later_reader(
    lives: list[tuple[int, list[Unit]]], parallelism: int
) -> None:
    records = []
    expected: set[Unit] = set()
    for tasks, units in lives:
        for index in range(tasks):
            task = Positions(index, tasks)
            for unit in {unit for unit in units if task.mine(unit)}:
                opened = task.begin(unit)
                opened.taken(0, 5)
                opened.settle(0)
                assert task.exhausted(opened)
                expected.add(unit)
            records.append(msgspec.json.decode(msgspec.json.encode(task.record()), type=PositionRecord))
    for index in range(parallelism):
        task = Positions(index, parallelism)
        for record in records:
            task.learn(record)
        every = [Unit(series, number) for series in ("", "a.b.0.1", "a.b.1.7") for number in range(61)]
        assert {unit for unit in every if task.is_done(unit)} == expected


def test_a_started_unit_continues_where_any_owner_got_furthest() -> None:
    unit = Unit("", 3)
    first, second, third = Positions(1, 2), Positions(1, 2), Positions(0, 1)
    for task, settled in ((first, 2), (second, 4)):
        opened = task.begin(unit)
        for place in range(6):
            opened.taken(place, place + 1)
        for place in range(settled):
            opened.settle(place)
    for task in (second, first):
        third.learn(task.record())
    assert third.record().begun == [("", 3, 4)], "kept though it has not been begun yet"
    assert third.begin(unit).next == 4


def test_a_record_does_not_grow_with_units_that_were_finished_elsewhere() -> None:
    unit = Unit("", 0)
    begun = Positions(0, 2)
    begun.begin(unit).taken(0, 1)
    finished = Positions(0, 1)
    finished.exhausted(finished.begin(unit))
    task = Positions(0, 2)
    for before in (begun, finished):
        task.learn(before.record())
    assert task.is_done(unit) and task.record().begun == []


def test_a_unit_whose_last_item_is_acked_after_it_was_read_completely_is_done() -> None:
    unit, task = Unit("", 0), Positions(0, 1)
    opened = task.begin(unit)
    opened.taken(0, 1)
    assert not task.exhausted(opened) and not task.close_if_done(opened)
    assert not task.is_done(unit)
    opened.settle(0)
    assert task.close_if_done(opened)
    assert task.is_done(unit) and not task.open and task.record().begun == []


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"index": 2, "parallelism": 2, "done": {}, "begun": []},
        {"index": 0, "parallelism": 0, "done": {}, "begun": []},
        {"index": 0, "parallelism": 1, "done": {"": [[1]]}, "begun": []},
        {"index": 0, "parallelism": 1, "done": {}, "begun": [["", "x", 0]]},
    ],
)
def test_an_invalid_record_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, PositionRecord)


def test_an_invalid_record_is_reported_as_that_of_a_reader() -> None:
    data = seal(TASK_KIND, {"index": 2, "parallelism": 2, "done": {}, "begun": []})
    why = r"^/p/2of2\.json is not a valid Squall record of a reader's position: task 2 of 2$"
    with pytest.raises(UnreadableRecord, match=why):
        decode(TASK_KIND, PositionRecord, data, "/p/2of2.json")
