"""Tasks are even over the workers, however unequal their hosts are, and only lost tasks ever move.

Two workers of a topology that was placed as a whole differ by at most one task of each component, and by at most one task in
total. Hosts that die and come back make a topology uneven; a rebalance makes it even again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nimbus.placement.scheduler import Slot, schedule
from squall.values import TaskRow

Chosen = dict[Slot, tuple[int, ...]]
Places = dict[int, Slot]


def tasks_of(counts: tuple[int, ...]) -> list[TaskRow]:
    copies = [(f"c{number}", index) for number, count in enumerate(counts) for index in range(count)]
    return [TaskRow(task, component, index) for task, (component, index) in enumerate(copies, 1)]


def slots_of(rooms: tuple[int, ...]) -> list[Slot]:
    return [Slot(f"s{host}", number) for host, room in enumerate(rooms) for number in range(room)]


def by_task(chosen: Chosen) -> Places:
    return {task: slot for slot, tasks in chosen.items() for task in tasks}


def counts_of(tasks: list[TaskRow], where: Mapping[int, Slot]) -> dict[str, Counter[Slot]]:
    """The number of tasks of each component by worker; the key "" counts all of them."""
    counts: dict[str, Counter[Slot]] = {"": Counter()}
    for spec in tasks:
        counts[""][where[spec.task]] += 1
        counts.setdefault(spec.component, Counter())[where[spec.task]] += 1
    return counts


def spread_of(counter: Counter[Slot], workers: set[Slot]) -> int:
    sizes = [counter[worker] for worker in workers]
    return max(sizes) - min(sizes)


def assert_even(tasks: list[TaskRow], chosen: Chosen, wanted: int, slots: list[Slot]) -> None:
    assert len(chosen) == min(wanted, len(slots), len(tasks))
    for counter in counts_of(tasks, by_task(chosen)).values():
        assert spread_of(counter, set(chosen)) <= 1
    workers = Counter(slot.host_name for slot in chosen)
    rooms = Counter(slot.host_name for slot in slots)
    for host, other in product(rooms, repeat=2):
        assert workers[host] <= workers[other] + 1 or workers[other] == rooms[other], "a host is full"


def dealt_one_by_one(
    tasks: list[TaskRow], where: Places, workers: list[Slot], stays: Places
) -> dict[int, set[Slot]]:
    """The workers among which each lost task could go, given where the tasks before it went."""
    there = dict(stays)
    could: dict[int, set[Slot]] = {}
    for spec in tasks:
        if spec.task in stays:
            continue
        mine = Counter(
            there[other.task] for other in tasks if other.component == spec.component and other.task in there
        )
        loads = Counter(there.values())
        best = min((mine[worker], loads[worker]) for worker in workers)
        could[spec.task] = {worker for worker in workers if (mine[worker], loads[worker]) == best}
        there[spec.task] = where[spec.task]
    return could


COUNTS = st.lists(st.integers(1, 7), min_size=1, max_size=5).map(tuple)
ROOMS = st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(any).map(tuple)
WORKERS = st.integers(1, 20)


@given(COUNTS, WORKERS, ROOMS)
def test_workers_differ_by_at_most_one_task_of_each_component_and_in_total(
    counts: tuple[int, ...], wanted: int, rooms: tuple[int, ...]
) -> None:
    tasks, slots = tasks_of(counts), slots_of(rooms)
    assert_even(tasks, schedule(tasks, wanted, slots, {}), wanted, slots)


def test_every_small_case_is_even() -> None:
    cases = 0
    for rooms in (rooms for hosts in (1, 2, 3) for rooms in product(range(1, 4), repeat=hosts)):
        for counts in (counts for number in (1, 2, 3) for counts in product(range(1, 4), repeat=number)):
            tasks, slots = tasks_of(counts), slots_of(rooms)
            for wanted in range(1, len(slots) + 2):
                cases += 1
                assert_even(tasks, schedule(tasks, wanted, slots, {}), wanted, slots)
    assert cases > 8_000


@given(COUNTS, st.lists(st.tuples(WORKERS, ROOMS), min_size=2, max_size=8))
def test_while_hosts_die_and_come_back_only_lost_tasks_move_each_to_the_least_loaded_worker(
    counts: tuple[int, ...], history: list[tuple[int, tuple[int, ...]]]
) -> None:
    tasks = tasks_of(counts)
    where: Places = {}
    for wanted, rooms in history:
        slots = slots_of(rooms)
        chosen = schedule(tasks, wanted, slots, where)
        now = by_task(chosen)
        stays = {task: slot for task, slot in where.items() if slot in slots}
        assert stays.items() <= now.items()
        for task, could in dealt_one_by_one(tasks, now, list(chosen), stays).items():
            assert now[task] in could
        where = now
        assert_even(tasks, schedule(tasks, wanted, slots, {}), wanted, slots)  # a rebalance


@given(COUNTS, WORKERS, ROOMS, st.data())
def test_tasks_of_a_lost_slot_fill_free_slots_first_and_nothing_else_moves(
    counts: tuple[int, ...], wanted: int, rooms: tuple[int, ...], data: st.DataObject
) -> None:
    tasks = tasks_of(counts)
    before = by_task(schedule(tasks, wanted, slots_of(rooms), {}))
    after_rooms = data.draw(st.tuples(*(st.integers(0, 6) for _ in (*rooms, 1))).filter(any))
    slots = slots_of(after_rooms)
    chosen = schedule(tasks, wanted, slots, before)
    kept = {task: slot for task, slot in before.items() if slot in slots}
    used, missing = len(set(kept.values())), len(tasks) - len(kept)
    assert kept.items() <= by_task(chosen).items()
    assert len(chosen) == min(max(wanted, used), used + missing, len(slots))


@given(COUNTS, WORKERS, ROOMS, st.data())
def test_any_placement_of_running_tasks_stays_as_it_is(
    counts: tuple[int, ...], wanted: int, rooms: tuple[int, ...], data: st.DataObject
) -> None:
    tasks, slots = tasks_of(counts), slots_of(rooms)
    where = {spec.task: data.draw(st.sampled_from(slots)) for spec in tasks}
    assert by_task(schedule(tasks, wanted, slots, where)) == where


def test_a_worker_alone_on_its_host_gets_no_more_than_workers_that_share_one() -> None:
    chosen = schedule(tasks_of((6,)), 3, slots_of((1, 2)), {})
    assert {slot: len(theirs) for slot, theirs in chosen.items()} == {
        Slot("s0", 0): 2,
        Slot("s1", 0): 2,
        Slot("s1", 1): 2,
    }


def test_tasks_of_a_component_go_to_different_hosts_in_turn() -> None:
    chosen = schedule(tasks_of((2, 2)), 4, slots_of((2, 2)), {})
    assert chosen == {
        Slot("s0", 0): (1,),
        Slot("s0", 1): (3,),
        Slot("s1", 0): (2,),
        Slot("s1", 1): (4,),
    }


def test_a_task_that_is_left_over_goes_to_the_host_with_fewer_workers() -> None:
    chosen = schedule(tasks_of((4,)), 3, slots_of((2, 1)), {})
    assert {slot: len(theirs) for slot, theirs in chosen.items()} == {
        Slot("s0", 0): 1,
        Slot("s0", 1): 1,
        Slot("s1", 0): 2,
    }


@pytest.mark.parametrize("counts", [(5000, 3000, 2000), (1,) * 10_000], ids=["three", "single"])
def test_ten_thousand_tasks_over_a_thousand_slots_of_unequal_hosts_have_ten_each(
    counts: tuple[int, ...],
) -> None:
    slots = slots_of((*([2] * 150), *([5] * 60), *([200] * 2)))
    chosen = schedule(tasks_of(counts), 1000, slots, {})
    assert [len(theirs) for theirs in chosen.values()] == [10] * 1000
