"""Hosts of unequal size: as many slots are used as workers are wanted, and tasks are as even as that allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations_with_replacement, product

from hypothesis import given
from hypothesis import strategies as st

from nimbus.placement.scheduler import Slot, schedule
from squall.values import TaskRow

Chosen = dict[Slot, tuple[int, ...]]


def tasks_of(counts: tuple[int, ...]) -> list[TaskRow]:
    copies = [(f"c{number}", index) for number, count in enumerate(counts) for index in range(count)]
    return [TaskRow(task, component, index) for task, (component, index) in enumerate(copies, 1)]


def slots_of(rooms: tuple[int, ...]) -> list[Slot]:
    return [Slot(f"s{host}", number) for host, room in enumerate(rooms) for number in range(room)]


def by_task(chosen: Chosen) -> dict[int, Slot]:
    return {task: slot for slot, tasks in chosen.items() for task in tasks}


def small_cases() -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(tasks of each component, slots of each host)"""
    for hosts in (1, 2, 3):
        for rooms in product(range(1, 5 - hosts // 3), repeat=hosts):
            for components in (1, 2, 3):
                for counts in product(range(1, 5 - components // 3), repeat=components):
                    yield counts, rooms


def unevenness(tasks: list[TaskRow], chosen: Chosen) -> int:
    """A measure of unevenness of the components over hosts."""
    where = by_task(chosen)
    return sum(
        count * count
        for count in Counter((spec.component, where[spec.task].host_name) for spec in tasks).values()
    )


def least_unevenness(counts: tuple[int, ...], rooms: tuple[int, ...]) -> int:
    """The least possible value when every worker has a task."""
    found = {tuple(0 for _ in rooms): 0}
    for count in counts:
        after: dict[tuple[int, ...], int] = {}
        for totals, so_far in found.items():
            for share in shares(count, len(rooms)):
                key = tuple(map(sum, zip(totals, share, strict=True)))
                after[key] = min(after.get(key, 10**9), so_far + sum(part * part for part in share))
        found = after
    return min(
        so_far
        for totals, so_far in found.items()
        if all(total >= room for total, room in zip(totals, rooms, strict=True))
    )


def shares(count: int, hosts: int) -> Iterator[tuple[int, ...]]:
    """All ways to spread this many tasks over this many hosts."""
    for dividers in combinations_with_replacement(range(count + 1), hosts - 1):
        edges = (0, *dividers, count)
        yield tuple(edges[at + 1] - edges[at] for at in range(hosts))


def test_in_every_small_case_as_many_slots_are_used_as_workers_are_wanted() -> None:
    cases = 0
    for counts, rooms in small_cases():
        tasks, slots = tasks_of(counts), slots_of(rooms)
        for wanted in range(1, len(slots) + 2):
            cases += 1
            chosen = schedule(tasks, wanted, slots, {})
            assert len(chosen) == min(wanted, len(slots), len(tasks)), (counts, rooms, wanted)
            assert all(chosen.values()), (counts, rooms, wanted)
            assert sorted(by_task(chosen)) == [spec.task for spec in tasks], (counts, rooms, wanted)
    assert cases > 8_000


def test_in_every_small_case_components_are_nearly_as_even_over_hosts_as_full_workers_allow() -> None:
    """The best placement, or one that differs by one task; and the best in nearly all cases."""
    cases = worse = 0
    for counts, rooms in small_cases():
        tasks, slots = tasks_of(counts), slots_of(rooms)
        if len(tasks) >= len(slots):
            cases += 1
            more = unevenness(tasks, schedule(tasks, len(slots), slots, {})) - least_unevenness(counts, rooms)
            assert more in (0, 2), (counts, rooms)
            worse += more > 0
    assert cases > 1_000
    assert worse < cases / 50


COUNTS = st.lists(st.integers(1, 7), min_size=1, max_size=5).map(tuple)
ROOMS = st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(any).map(tuple)
WORKERS = st.integers(1, 20)


@given(COUNTS, WORKERS, ROOMS)
def test_a_component_is_uneven_over_hosts_only_where_every_worker_of_the_fuller_host_has_one_task(
    counts: tuple[int, ...], wanted: int, rooms: tuple[int, ...]
) -> None:
    tasks = tasks_of(counts)
    chosen = schedule(tasks, wanted, slots_of(rooms), {})
    assert len(chosen) == min(wanted, sum(rooms), len(tasks))
    component = {spec.task: spec.component for spec in tasks}
    on: dict[str, Counter[str]] = {slot.host_name: Counter() for slot in chosen}
    for slot, theirs in chosen.items():
        on[slot.host_name].update(component[task] for task in theirs)
    with_more = {slot.host_name for slot, theirs in chosen.items() if len(theirs) > 1}
    for name in set(component.values()):
        for host in with_more:
            assert on[host][name] <= min(of[name] for of in on.values()) + 1


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


def test_a_worker_is_filled_with_a_task_whose_component_stays_even() -> None:
    """A spout and a bolt of two tasks, over three slots: the bolt keeps one task on each host, the spout's go to the bigger
    host.
    """
    chosen = schedule(tasks_of((1, 2)), 3, slots_of((1, 2)), {})
    assert chosen == {Slot("s0", 0): (3,), Slot("s1", 0): (1,), Slot("s1", 1): (2,)}


def test_the_tasks_that_fill_a_big_host_are_those_of_all_components() -> None:
    """Thirty tasks are 15 on each host if even; the bigger host has 20 workers."""
    tasks = tasks_of((10, 10, 10))
    chosen = schedule(tasks, 21, slots_of((1, 20)), {})
    component = {spec.task: spec.component for spec in tasks}
    assert {len(theirs) for slot, theirs in chosen.items() if slot.host_name == "s1"} == {1}
    left = Counter(component[task] for task in chosen[Slot("s0", 0)])
    assert sorted(left.values()) == [3, 3, 4]


def test_ten_thousand_tasks_over_a_thousand_slots_of_unequal_hosts_use_every_slot() -> None:
    tasks = tasks_of((5000, 3000, 2000))
    chosen = schedule(tasks, 1000, slots_of((*([2] * 150), *([5] * 60), *([200] * 2))), {})
    assert len(chosen) == 1000
