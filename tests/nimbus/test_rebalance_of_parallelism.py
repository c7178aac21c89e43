"""A rebalance to other numbers of tasks: ids stay, none is given again, and no change is left unfinished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.cluster.blobs import get_bundle
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import TopologyRecord
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from tests.flaky_store import AFTER, Death, FlakyStore, nothing_fails
from tests.nimbus.transcripts import Play, Scenario, a_topology
from topology_api.errors import InvalidConfig


def test_new_tasks_get_new_ids_and_the_others_keep_theirs(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=2; submit words tasks=1 count=2 workers=2
        words ACTIVE
          w1 s1/0 (1,0): 1 3
          w2 s1/1 (1,0): 2
        @ 1 rebalance words count=4
        words REBALANCING until 31
          w1 s1/0 (1,0): 1 3
          w2 s1/1 (1,0): 2
        @ 2 report words w1 drained
        = nothing changes
        @ 3 report words w2 drained
        words ACTIVE
          w1 s1/0 (1,0): 1 3 5
          w2 s1/1 (1,0): 2 4
        @ 4 rebalance words count=1 lines=2
        words REBALANCING until 34
          w1 s1/0 (1,0): 1 3 5
          w2 s1/1 (1,0): 2 4
        @ 34 tick
        words ACTIVE
          w3 s1/0 (3,0): 1 2
          w4 s1/1 (3,0): 6
          leaving w1 s1/0 (1,0): 1 3 5
          leaving w2 s1/1 (1,0): 2 4
    """)


def test_a_freed_id_is_not_given_again(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1 count=3
        words ACTIVE
          w1 s1/0 (1,0): 1 2 3 4
        @ 1 rebalance words count=1
        words REBALANCING until 31
          w1 s1/0 (1,0): 1 2 3 4
        @ 2 report words w1 drained
        words ACTIVE
          w2 s1/0 (2,0): 1 2
          leaving w1 s1/0 (1,0): 1 2 3 4
        @ 3 report words w1 stopped
        words ACTIVE
          w2 s1/0 (2,0): 1 2
        @ 4 rebalance words count=2
        words REBALANCING until 34
          w2 s1/0 (2,0): 1 2
        @ 5 report words w2 drained
        words ACTIVE
          w2 s1/0 (2,0): 1 2 5
    """)


def test_a_rebalance_that_a_kill_ends_changes_no_number(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=1 count=1
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 1 rebalance words count=9
        words REBALANCING until 31
          w1 s1/0 (1,0): 1 2
        @ 2 kill words
        words KILLED until 32
          w1 s1/0 (1,0): 1 2
        @ 3 report words w1 drained
        words KILLED until 32
          leaving w1 s1/0 (1,0): 1 2
        @ 4 report words w1 stopped
        no topology
    """)


def test_tasks_are_numbered_even_without_any_slot(play: Play) -> None:
    play("""
        @ 0 submit words tasks=1 count=1
        words ACTIVE
        @ 1 rebalance words count=2
        = nothing changes
        @ 2 supervisor s1 slots=1
        words ACTIVE
          w1 s1/0 (1,0): 1 2 3
    """)


def test_finished_spout_tasks_stay_finished_and_new_ones_are_not(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=2
        words ACTIVE
          w1 s1/0 (1,0): 1 2
        @ 1 report words w1 finished=2
        words ACTIVE
          w1 s1/0 (1,0): 1 2
          finished: 2
        @ 2 report words w1 finished=1,2
        words ACTIVE
          w1 s1/0 (1,0): 1 2
          finished: 2 1
        @ 3 rebalance words lines=3
        words REBALANCING until 33
          w1 s1/0 (1,0): 1 2
          finished: 2 1
        @ 4 report words w1 finished=1,2 drained
        words ACTIVE
          w1 s1/0 (1,0): 1 2 3
          finished: 2 1
        @ 5 report words w1 finished=1,2,3
        words ACTIVE
          w1 s1/0 (1,0): 1 2 3
          finished: 2 1 3
        @ 6 rebalance words lines=1
        words REBALANCING until 36
          w1 s1/0 (1,0): 1 2 3
          finished: 2 1 3
        @ 7 report words w1 drained
        words ACTIVE
          w2 s1/0 (3,0): 1
          leaving w1 s1/0 (1,0): 1 2 3
          finished: 1
    """)


def test_values_of_unfinished_spout_tasks_are_shared_with_finished_ones_under_new_ids(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=3 count=1
        words ACTIVE
          w1 s1/0 (1,0): 1 2 3 4
        @ 1 report words w1 finished=1
        words ACTIVE
          w1 s1/0 (1,0): 1 2 3 4
          finished: 1
        @ 2 rebalance words count=2
        words REBALANCING until 32
          w1 s1/0 (1,0): 1 2 3 4
          finished: 1
        @ 3 report words w1 finished=1 drained
        words ACTIVE
          w1 s1/0 (1,0): 1 2 3 4 5
          finished: 1
        @ 4 rebalance words lines=2
        words REBALANCING until 34
          w1 s1/0 (1,0): 1 2 3 4 5
          finished: 1
        @ 5 report words w1 finished=1,2 drained
        words ACTIVE
          w2 s1/0 (3,0): 6 7 4 5
          leaving w1 s1/0 (1,0): 1 2 3 4 5
        @ 6 report words w1 finished=1,2 stopped
        words ACTIVE
          w2 s1/0 (3,0): 6 7 4 5
    """)


def test_a_late_report_about_earlier_shares_does_not_finish_the_present_spout_tasks(play: Play) -> None:
    play("""
        @ 0 supervisor s1 slots=1; submit words tasks=2 count=1
        words ACTIVE
          w1 s1/0 (1,0): 1 2 3
        @ 1 rebalance words lines=3
        words REBALANCING until 31
          w1 s1/0 (1,0): 1 2 3
        @ 31 tick
        words ACTIVE
          w1 s1/0 (1,0): 1 2 4 3
        @ 32 report words w1 finished=1 version=1
        = nothing changes
        @ 33 report words w1 finished=1 version=2
        words ACTIVE
          w1 s1/0 (1,0): 1 2 4 3
          finished: 1
        @ 34 rebalance words count=2
        words REBALANCING until 64
          w1 s1/0 (1,0): 1 2 4 3
          finished: 1
        @ 64 tick
        words ACTIVE
          w1 s1/0 (1,0): 1 2 4 3 5
          finished: 1
        @ 65 report words w1 finished=1,2 version=2
        words ACTIVE
          w1 s1/0 (1,0): 1 2 4 3 5
          finished: 1 2
    """)


class Cluster(Scenario):
    """One supervisor, and a topology "words" of a spout and a bolt."""

    def __init__(self, count: int = 2, store: Store | None = None) -> None:
        super().__init__(store)
        self.say(f"@ 0 supervisor s1 slots=3; submit words tasks=1 count={count} workers=3")

    @property
    def record(self) -> TopologyRecord:
        return self.nimbus.topology("words")

    def drain(self) -> None:
        """Every worker reports that it has drained; those that are to leave do."""
        self.workers_drain(self.record)
        self.workers_go(self.record)


@given(st.lists(st.dictionaries(st.sampled_from(["lines", "count"]), st.integers(1, 5)), max_size=8))
def test_an_id_names_one_task_for_ever_and_each_task_runs_once(
    history: list[dict[str, int]],
) -> None:
    cluster = Cluster()
    meaning: dict[int, tuple[str, int]] = {}
    wanted = {"lines": 1, "count": 2}
    for parallelism in history:
        before = {(component, index): task for task, component, index in cluster.record.tasks}
        wanted |= parallelism
        cluster.nimbus.rebalance("words", parallelism=parallelism)
        assert cluster.record.state == "REBALANCING"
        cluster.drain()
        record = cluster.record
        assert record.state == "ACTIVE"
        assert [(component, index) for _, component, index in record.tasks] == [
            (component, index) for component, count in wanted.items() for index in range(count)
        ]
        for task, component, index in record.tasks:
            assert before.get((component, index), task) == task
            assert meaning.setdefault(task, (component, index)) == (component, index)
            assert (component, index) in before or task not in before.values()
        assignment = cluster.registry.assignments.get(record.id)
        assert assignment is not None
        assert assignment.version == record.version
        assert sorted(task for placed in assignment.placements for task in placed.tasks) == sorted(
            task for task, _, _ in record.tasks
        )
        assert max(meaning) <= max(record.highest_task, max(task for task, _, _ in record.tasks))


def test_the_shipped_description_stays_and_the_record_has_the_numbers() -> None:
    cluster = Cluster()
    cluster.nimbus.rebalance("words", parallelism={"count": 5})
    cluster.drain()
    assert get_bundle(cluster.store, cluster.record.id) == a_topology("words", 1, 2)
    assert len(cluster.record.tasks) == 6


def test_hosts_that_read_between_two_writes_notice_that_the_numbers_do_not_agree() -> None:
    cluster = Cluster()
    cluster.nimbus.rebalance("words", parallelism={"count": 3})
    between: list[tuple[bool, bool]] = []

    def look(path: str) -> None:
        registry = Registry(cluster.store)
        record = registry.topologies.get("words")
        assert record is not None
        assignment = registry.assignments.get(record.id)
        assert assignment is not None
        placed = {task for placement in assignment.placements for task in placement.tasks}
        belong = placed == {task for task, _, _ in record.tasks}
        between.append((belong, assignment.version == record.version))

    cancel = cluster.store.watch("/", look)
    cluster.drain()
    cancel()
    assert (False, False) in between
    assert (False, True) not in between


@pytest.mark.parametrize("last", ["/topologies", "/assignments", "/leaving"])
def test_another_nimbus_finishes_a_renumbering_that_was_interrupted_anywhere(last: str) -> None:
    """The first one dies right after a write below `last`."""
    store = FlakyStore(InMemoryStore())
    cluster = Cluster(count=3, store=store)
    cluster.nimbus.rebalance("words", workers=1, parallelism={"count": 2})
    store.error = Death
    store.chooses = lambda call: AFTER if call.write and call.path.startswith(last) else None
    with pytest.raises(Death):
        cluster.drain()
    store.chooses = nothing_fails
    cluster.say("@ 1 another nimbus")
    cluster.drain()
    record = cluster.record
    assert record.state == "ACTIVE"
    assert record.tasks == ((1, "lines", 0), (2, "count", 0), (3, "count", 1))
    assert record.highest_task == 4
    assignment = cluster.registry.assignments.get(record.id)
    assert assignment is not None
    assert [placed.tasks for placed in assignment.placements] == [(1, 2, 3)]
    assert assignment.version == record.version
    assert cluster.registry.leaving.get(record.id) is None


def test_a_rebalance_is_refused_when_the_ids_are_used_up() -> None:
    cluster = Cluster(count=30_000)
    for count in (1, 30_000, 1):
        cluster.nimbus.rebalance("words", parallelism={"count": count})
        cluster.drain()
    assert cluster.record.highest_task == 60_000
    with pytest.raises(
        InvalidConfig, match=r"29,999 new tasks.* 60,000 of 65,535.*kill it and submit it again"
    ):
        cluster.nimbus.rebalance("words", parallelism={"count": 30_000})
    cluster.nimbus.rebalance("words", parallelism={"count": 5000})
    cluster.drain()
    assert cluster.record.highest_task == 64_999


@pytest.mark.parametrize("parallelism", [{}, {"count": 2}, None])
def test_a_rebalance_to_the_present_numbers_moves_nothing(parallelism: dict[str, int] | None) -> None:
    cluster = Cluster()
    before = cluster.registry.assignments.get(cluster.record.id)
    cluster.nimbus.rebalance("words", parallelism=parallelism)
    cluster.drain()
    assert cluster.registry.assignments.get(cluster.record.id) == before
