"""Task ids are the same wherever they are computed, and none is ever given to another task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nimbus.placement.tasks import count_tasks, number_tasks, renumber_tasks
from squall.values import TaskRow
from topology_api.topology import ComponentSpec, Topology

COUNTS = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def topology(counts: list[int]) -> Topology:
    components = tuple(
        ComponentSpec(id=f"c{number}", kind="spout", parallelism=count) for number, count in enumerate(counts)
    )
    return Topology("numbers", {}, components, {})


def test_ids_begin_at_1_and_follow_declaration_and_index() -> None:
    assert number_tasks(topology([2, 1])) == ((1, "c0", 0), (2, "c0", 1), (3, "c1", 0))


@given(COUNTS)
def test_every_task_of_every_component_has_one_id_and_the_ids_have_no_gap(counts: list[int]) -> None:
    specs = number_tasks(topology(counts))
    assert [spec.task for spec in specs] == list(range(1, sum(counts) + 1))
    wanted = [(f"c{number}", index) for number, count in enumerate(counts) for index in range(count)]
    assert [(spec.component, spec.component_index) for spec in specs] == wanted


@given(COUNTS)
def test_numbering_again_changes_nothing(counts: list[int]) -> None:
    first = number_tasks(topology(counts))
    assert number_tasks(topology(counts)) == first
    assert renumber_tasks(first, count_tasks(first), 0) == first


@given(st.lists(st.lists(st.integers(1, 6), min_size=3, max_size=3), min_size=2, max_size=6))
def test_an_id_means_one_task_for_ever_however_parallelism_changes(history: list[list[int]]) -> None:
    meaning: dict[int, tuple[str, int]] = {}
    existing: tuple[TaskRow, ...] = ()
    for counts in history:
        before = {(component, index): task for task, component, index in existing}
        changes = count_tasks(number_tasks(topology(counts)))
        specs = renumber_tasks(existing, changes, max(meaning, default=0))
        for spec in specs:
            copy = (spec.component, spec.component_index)
            assert before.get(copy, spec.task) == spec.task, "a task that stays keeps its id"
            assert copy in before or spec.task not in meaning, "a new task gets a new id"
            meaning[spec.task] = copy
        existing = specs
        assert len({spec.task for spec in specs}) == sum(counts)
