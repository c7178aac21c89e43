"""Where tasks are placed: deterministically, in as many slots as wanted, and never away from where they run well."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nimbus.placement.scheduler import Slot, schedule
from squall.values import TaskRow

Chosen = dict[Slot, tuple[int, ...]]


def tasks_of(counts: list[int]) -> list[TaskRow]:
    copies = [(f"c{number}", index) for number, count in enumerate(counts) for index in range(count)]
    return [TaskRow(task, component, index) for task, (component, index) in enumerate(copies, 1)]


def slots_of(rooms: list[int]) -> list[Slot]:
    return [Slot(f"s{host}", number) for host, room in enumerate(rooms) for number in range(room)]


def by_task(chosen: Chosen) -> dict[int, Slot]:
    return {task: slot for slot, tasks in chosen.items() for task in tasks}


TASKS = st.lists(st.integers(1, 7), min_size=1, max_size=5).map(tasks_of)
ROOMS = st.lists(st.integers(0, 4), max_size=5)
SOME_ROOMS = ROOMS.filter(any)
WORKERS = st.integers(1, 12)


@given(TASKS, WORKERS, SOME_ROOMS)
def test_with_a_slot_every_task_is_placed_exactly_once(
    tasks: list[TaskRow], workers: int, rooms: list[int]
) -> None:
    chosen = schedule(tasks, workers, slots_of(rooms), {})
    placed = [task for slot_tasks in chosen.values() for task in slot_tasks]
    assert sorted(placed) == [spec.task for spec in tasks]
    assert set(chosen) <= set(slots_of(rooms))


@given(TASKS, WORKERS)
def test_without_a_slot_nothing_is_placed(tasks: list[TaskRow], workers: int) -> None:
    assert schedule(tasks, workers, [], {}) == {}
    assert schedule(tasks, workers, [], {1: Slot("s0", 0)}) == {}


@given(TASKS, WORKERS, ROOMS, st.randoms(use_true_random=False))
def test_the_order_of_the_slots_does_not_matter(
    tasks: list[TaskRow], workers: int, rooms: list[int], random: object
) -> None:
    slots = slots_of(rooms)
    mixed = sorted(slots, key=lambda slot: random.random())  # type: ignore[attr-defined]
    first, second = schedule(tasks, workers, slots, {}), schedule(tasks, workers, mixed, {})
    assert list(first.items()) == list(second.items())


@given(TASKS, WORKERS, SOME_ROOMS)
def test_no_more_slots_are_used_than_wanted_workers_free_slots_or_tasks(
    tasks: list[TaskRow], workers: int, rooms: list[int]
) -> None:
    chosen = schedule(tasks, workers, slots_of(rooms), {})
    assert 1 <= len(chosen) <= min(workers, sum(rooms), len(tasks))
    assert all(chosen.values())


@given(TASKS, WORKERS, SOME_ROOMS, st.data())
def test_a_task_whose_slot_still_exists_stays_in_it(
    tasks: list[TaskRow], workers: int, rooms: list[int], data: st.DataObject
) -> None:
    before = by_task(schedule(tasks, workers, slots_of(rooms), {}))
    rooms_after = data.draw(st.lists(st.integers(0, 4), min_size=len(rooms), max_size=len(rooms) + 2))
    slots = slots_of(rooms_after)
    after = by_task(schedule(tasks, workers, slots, before))
    for task, slot in before.items():
        if slot in slots:
            assert after[task] == slot
    assert (sorted(after) == [spec.task for spec in tasks]) == bool(slots)


@given(TASKS, WORKERS, SOME_ROOMS, WORKERS)
def test_while_all_run_nothing_changes_whatever_else_is_free(
    tasks: list[TaskRow], workers: int, rooms: list[int], wanted: int
) -> None:
    before = schedule(tasks, workers, slots_of(rooms), {})
    more = [*slots_of(rooms), Slot("another", 0), Slot("another", 1)]
    assert schedule(tasks, wanted, more, by_task(before)) == before


@given(TASKS, st.lists(st.tuples(WORKERS, ROOMS), min_size=2, max_size=8))
def test_a_task_moves_only_when_its_slot_is_lost(
    tasks: list[TaskRow], history: list[tuple[int, list[int]]]
) -> None:
    where: dict[int, Slot] = {}
    for workers, rooms in history:
        slots = slots_of(rooms)
        chosen = schedule(tasks, workers, slots, where)
        now = by_task(chosen)
        assert sorted(now) == ([spec.task for spec in tasks] if slots else [])
        assert set(chosen) <= set(slots)
        assert all(now[task] == slot for task, slot in where.items() if slot in slots)
        assert schedule(tasks, workers, slots, now) == chosen
        where = now


@given(TASKS, WORKERS, SOME_ROOMS, TASKS)
def test_new_tasks_move_no_existing_ones(
    tasks: list[TaskRow], workers: int, rooms: list[int], others: list[TaskRow]
) -> None:
    where = by_task(schedule(tasks, workers, slots_of(rooms), {}))
    new = [TaskRow(1000 + spec.task, spec.component, 1000 + spec.component_index) for spec in others]
    now = by_task(schedule([*tasks, *new], workers, slots_of(rooms), where))
    assert {task: slot for task, slot in now.items() if task < 1000} == where
    assert len(now) == len(tasks) + len(new)


@given(SOME_ROOMS, st.integers(1, 60), WORKERS)
def test_components_of_one_task_are_even_over_all_workers(rooms: list[int], count: int, wanted: int) -> None:
    slots = slots_of(rooms)
    chosen = schedule(tasks_of([1] * count), wanted, slots, {})
    assert len(chosen) == min(wanted, len(slots), count)
    sizes = [len(slot_tasks) for slot_tasks in chosen.values()]
    assert max(sizes) - min(sizes) <= 1


def test_two_supervisors_on_one_host_count_as_one_host() -> None:
    slots = [Slot("a1", 0, "a"), Slot("a2", 0, "a"), Slot("b1", 0, "b")]
    tasks = tasks_of([4])
    where = by_task(schedule(tasks, 3, slots, {}))
    assert Counter(slot.host_name for slot in where.values()) == {"a": 2, "b": 2}


def test_a_slot_is_the_same_whether_or_not_its_host_is_known() -> None:
    tasks = tasks_of([1])
    assert schedule(tasks, 1, [Slot("s1", 0, "a"), Slot("s1", 1, "a")], {1: Slot("s1", 1)}) == {
        Slot("s1", 1): (1,)
    }


def test_a_single_worker_goes_to_the_host_with_the_most_room() -> None:
    assert list(schedule(tasks_of([2]), 1, slots_of([1, 3, 3]), {})) == [Slot("s1", 0)]


def test_too_few_slots_are_squeezed() -> None:
    assert schedule(tasks_of([3, 2]), 4, slots_of([1]), {}) == {Slot("s0", 0): (1, 2, 3, 4, 5)}


def test_word_count_over_two_hosts_is_placed_as_one_would_by_hand() -> None:
    chosen = schedule(tasks_of([1, 2, 4]), 4, slots_of([2, 2]), {})
    assert chosen == {
        Slot("s0", 0): (1, 5),
        Slot("s0", 1): (3, 7),
        Slot("s1", 0): (2, 6),
        Slot("s1", 1): (4,),
    }
