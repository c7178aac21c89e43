"""Other numbers of tasks than at the last commit: each key, timer and row is in exactly one task, the one that gets its tuples
now."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.settings import Overrides, merged
from squall.values import Incarnation, TaskRow
from tests.local_cluster.words_with_state import Pass, Words
from topology_api import (
    Bolt,
    BroadcastState,
    Fields,
    StateError,
    StatefulBolt,
    TopologyBuilder,
    Tuple,
    ValueState,
)
from worker.epochs.after_commit import EpochOutcome
from worker.epochs.records import CommitRecord, SnapshotFile
from worker.epochs.snapshot_files import TaskSnapshot
from worker.loop.plan import WorkerPlan
from worker.loop.rescale import KeyShare, Rescale, files_for, misfits, range_wanted
from worker.routing.key_groups import GroupRange, group_of, range_of, task_of
from worker.state.saving import Part

KEYS = st.sets(st.text(max_size=3) | st.integers(0, 50) | st.tuples(st.text(max_size=2), st.integers(0, 3)))
COUNTS = st.integers(1, 5)
#: Few, so that tasks share some of them out unevenly.
GROUPS = 7


class KeepsAll(StatefulBolt):
    key = ("word",)
    outputs = Fields("word", "number")
    total = ValueState(int, default=0)
    rules = BroadcastState(dict)

    def execute(self, tup: Tuple) -> None:
        self.total.value += 1


class Shown(Bolt):
    def execute(self, tup: Tuple) -> None:
        """Takes all."""


def plan_of(keeps: int, shown: int = 2) -> WorkerPlan:
    """A plan with these numbers of tasks of the two bolts behind `pass`."""
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words(1))
    builder.set_bolt("pass", Pass(), 2).shuffle_grouping("words")
    keeper = builder.set_bolt("keeps", KeepsAll(), keeps).fields_grouping("pass", "word")
    keeper.all_grouping("words")
    builder.set_bolt("shown", Shown(), shown).all_grouping("keeps")
    topology = builder.build()
    state = {"topology.state.path": "file:///nonexistent", "topology.state.groups": GROUPS}
    conf, of_components = merged(topology, {}, {}, Overrides(state))
    names = [(spec.id, index) for spec in topology.components for index in range(spec.parallelism)]
    rows = tuple(TaskRow(at, component, index) for at, (component, index) in enumerate(names, 1))
    return WorkerPlan(
        "w1",
        topology,
        rows,
        {row.task: "w1" for row in rows},
        conf,
        of_components,
        "/nonexistent",
        incarnation=Incarnation(1, 0),
    )


def counts_of(plan: WorkerPlan, **other: int) -> dict[str, int]:
    """The numbers of tasks of a commit."""
    return {**{component: len(tasks) for component, tasks in plan.tasks_of.items()}, **other}


def owned(keys: set[Any], count: int) -> list[list[Any]]:
    """The keys of each of `count` tasks."""
    shares: list[list[Any]] = [[] for _ in range(count)]
    for key in sorted(keys, key=repr):
        shares[task_of(key, count, GROUPS)].append(key)
    return shares


def snapshot_of(index: int, keys: list[Any], **more: Any) -> TaskSnapshot:
    """What a task of `keeps` has written that has these keys."""
    state = {
        "end_called": False,
        "ended": False,
        "states": {
            "total": saved("ValueState", keys, [f"total {key!r}" for key in keys], [1.5] * len(keys)),
            "rules": saved("BroadcastState", [None], [f"rules of {index}"], []),
        },
        "timers": pickle.dumps([(key, "late", 7.5) for key in keys]),
        "retried": pickle.dumps([(key, "late", 8.0, 7.5, 2.0) for key in keys]) if keys else b"",
        **more,
    }
    return TaskSnapshot(f"keeps/{index}", 9, 3, 0, state)


def saved(kind: str, keys: list[Any], values: list[Any], times: list[float]) -> dict[str, Any]:
    """A saved state."""
    packed = pickle.dumps(keys) if keys else b""
    return {"kind": kind, "keys": packed, "values": values, "times": times, "ttl": None}


def unpickled(packed: bytes) -> list[Any]:
    """A pickled list; b"" is empty."""
    return list(pickle.loads(packed)) if packed else []


@given(KEYS, COUNTS, COUNTS)
def test_each_key_goes_to_the_task_that_gets_its_tuples_with_all_that_belongs_to_it(
    keys: set[Any], before: int, now: int
) -> None:
    plan = plan_of(now)
    rescale = Rescale(plan, counts_of(plan, keeps=before), GROUPS)
    old = [snapshot_of(index, share) for index, share in enumerate(owned(keys, before))]
    for index, share in enumerate(owned(keys, now)):
        given_files = old if before != now else [old[index]]
        begun = rescale.begin(f"keeps/{index}", list(given_files)).state
        total: Mapping[str, Any] = begun["states"]["total"]
        assert sorted(unpickled(total["keys"]), key=repr) == share
        assert total["values"] == [f"total {key!r}" for key in unpickled(total["keys"])]
        assert total["times"] == [1.5] * len(share)
        assert sorted((key for key, *_ in unpickled(begun["timers"])), key=repr) == share
        assert sorted((key for key, *_ in unpickled(begun["retried"])), key=repr) == share
        assert begun["states"]["rules"]["values"] == [f"rules of {0 if before != now else index}"]


@given(st.integers(1, 4), st.integers(1, 4), st.lists(st.text(max_size=2), max_size=8))
def test_parked_tuples_and_outcomes_are_in_one_task(before: int, now: int, words: list[str]) -> None:
    plan = plan_of(now)
    old = [snapshot_of(index, []) for index in range(before)]
    for at, word in enumerate(words):
        item = ["pass", 2, "default", pickle.dumps((word, at))]
        old[task_of(word, before, GROUPS)].parked.append((item, 1, 0.5))
    for each in range(before):
        old[each].outcomes.append(EpochOutcome(9, each, "rows", f"rows of {each}"))
    rescale = Rescale(plan, counts_of(plan, keeps=before), GROUPS)
    found = [
        rescale.begin(f"keeps/{index}", list(old) if before != now else [old[index]]) for index in range(now)
    ]
    for index, begun in enumerate(found):
        rows = [pickle.loads(parked[0][3]) for parked in begun.parked]
        assert {task_of(word, now, GROUPS) for word, _ in rows} <= {index}
        assert {outcome.index % now for outcome in begun.outcomes} <= {index}
    assert sorted(
        at for begun in found for parked in begun.parked for _, at in [pickle.loads(parked[0][3])]
    ) == (list(range(len(words))))
    assert sorted(outcome.index for begun in found for outcome in begun.outcomes) == list(range(before))


def outboxes_of(rescale: Rescale, name: str, boxes: list[tuple[str, str, list[Any]]]) -> dict[str, list[Any]]:
    """target -> the rows that are on their way to it now."""
    snapshot = TaskSnapshot(name, 9, 3, 0, {"end_called": False, "ended": False})
    snapshot.outboxes = boxes
    found: dict[str, list[Any]] = {}
    for target, _, packed in rescale.begin(name, [snapshot]).outboxes:
        found.setdefault(target, []).extend(pickle.loads(packed[0]))
    return found


def test_rows_on_their_way_go_to_the_tasks_that_get_them_now() -> None:
    plan = plan_of(3)
    rows = [(f"word {number}", number) for number in range(20)]
    found = outboxes_of(
        Rescale(plan, counts_of(plan, keeps=1), GROUPS),
        "pass/0",
        [("keeps/0", "default", [pickle.dumps(rows)])],
    )
    assert sorted(row for each in found.values() for row in each) == sorted(rows)
    assert len(found) == 3
    for target, there in found.items():
        assert {f"keeps/{task_of(word, 3, GROUPS)}" for word, _ in there} == {target}


@pytest.mark.parametrize(
    ("before", "now", "wanted"),
    [
        (2, 4, {"shown/0": ["a"], "shown/1": ["b"], "shown/2": ["a"], "shown/3": ["a"]}),
        (2, 1, {"shown/0": ["a"]}),
        (2, 2, {"shown/0": ["a"], "shown/1": ["b"]}),
    ],
)
def test_what_all_tasks_get_each_gets_once(before: int, now: int, wanted: dict[str, list[Any]]) -> None:
    plan = plan_of(2, now)
    boxes = [("shown/0", "default", [pickle.dumps(["a"])]), ("shown/1", "default", [pickle.dumps(["b"])])]
    assert outboxes_of(Rescale(plan, counts_of(plan, shown=before), GROUPS), "keeps/0", boxes) == wanted


def test_tasks_with_broadcast_states_of_the_first_one_get_what_was_on_its_way_to_it() -> None:
    plan = plan_of(3)
    boxes = [("keeps/0", "default", [pickle.dumps(["a"])]), ("keeps/1", "default", [pickle.dumps(["b"])])]
    found = outboxes_of(Rescale(plan, counts_of(plan, keeps=2), GROUPS), "words/0", boxes)
    assert found == {"keeps/0": ["a"], "keeps/1": ["a"], "keeps/2": ["a"]}


@pytest.mark.parametrize(
    ("ended", "wanted"),
    [
        (["keeps/0", "keeps/1"], ["keeps/0", "keeps/1", "keeps/2"]),
        (["keeps/0"], []),
    ],
)
def test_an_input_has_ended_if_all_tasks_before_it_had(ended: list[str], wanted: list[str]) -> None:
    plan = plan_of(3)
    snapshot = TaskSnapshot("shown/0", 9, 3, 0, {"end_called": False, "ended": False})
    snapshot.ended = ended
    assert Rescale(plan, counts_of(plan, keeps=2), GROUPS).begin("shown/0", [snapshot]).ended == wanted


def test_where_the_input_of_some_tasks_has_ended_the_change_is_refused() -> None:
    plan = plan_of(3)
    old = [snapshot_of(0, []), snapshot_of(1, [], end_called=True)]
    with pytest.raises(StateError, match="the input of some tasks of component 'keeps' had ended"):
        Rescale(plan, counts_of(plan, keeps=2), GROUPS).begin("keeps/0", old)


def files_of(count: int, groups: int = GROUPS, ending: tuple[int, ...] = ()) -> dict[str, SnapshotFile]:
    """What a commit says of the snapshots of `keeps`; without groups as an earlier release has written them."""
    return {
        f"keeps/{at}": SnapshotFile(
            f"file {at}", "d", groups=range_of(at, count, groups) if groups else None, ending=at in ending
        )
        for at in range(count)
    }


@pytest.mark.parametrize(
    ("before", "now", "read"),
    [
        (2, 2, [[0], [1]]),
        (2, 3, [[0], [0, 1], [1]]),
        (3, 2, [[0, 1, 2], [1, 2]]),  # groups of tasks 0 and 1, and what task 2 had besides keys
        (1, 3, [[0], [0], [0]]),
        (4, 1, [[0, 1, 2, 3]]),
    ],
)
def test_a_task_reads_the_snapshots_that_have_one_of_its_groups(
    before: int, now: int, read: list[list[int]]
) -> None:
    files = files_of(before)
    for index, wanted in enumerate(read):
        own = range_of(index, now, GROUPS)
        found = files_for(f"keeps/{index}", files, now, own)
        assert list(found) == [f"keeps/{at}" for at in wanted]
        assert range_wanted(f"keeps/{index}", found, own) == (None if before == now else own)


def test_a_task_reads_all_snapshots_where_its_keys_may_be_in_each() -> None:
    own = range_of(1, 2, GROUPS)
    old, other, ending = files_of(2, 0), files_of(2, 16), files_of(3, ending=(2,))
    assert files_for("keeps/1", old, 2, own) == old, "of an earlier release"
    assert files_for("keeps/1", other, 2, own) == other, "of a lineage with another number of groups"
    assert files_for("keeps/1", ending, 2, own) == ending, "whether all inputs have ended is to be known"
    assert files_for("keeps/0", files_of(1, 0), 1, range_of(0, 1, GROUPS)) == files_of(1, 0)
    assert range_wanted("keeps/0", files_of(1, 0), range_of(0, 1, GROUPS)) is None
    assert files_for("keeps/0", {}, 3, range_of(0, 3, GROUPS)) == {}


def test_the_tasks_of_a_bolt_without_state_read_all_snapshots() -> None:
    files = files_of(2, 0)
    assert files_for("keeps/1", files, 2) == {"keeps/1": files["keeps/1"]}
    assert files_for("keeps/1", files, 3) == files
    assert range_wanted("keeps/1", files, None) is None


@given(KEYS, st.integers(1, 3), st.integers(0, 4))
def test_snapshots_without_groups_are_divided_among_the_same_number_of_tasks(
    keys: set[Any], count: int, other: int
) -> None:
    """Their keys were in other tasks: those of another hash, here."""
    plan = plan_of(count)
    rescale = Rescale(plan, counts_of(plan, keeps=count))
    shares: list[list[Any]] = [[] for _ in range(count)]
    for at, key in enumerate(sorted(keys, key=repr)):
        shares[(at + other) % count].append(key)
    old = [snapshot_of(index, share) for index, share in enumerate(shares)]
    for index, share in enumerate(owned(keys, count)):
        begun = rescale.begin(f"keeps/{index}", list(old))
        assert sorted(unpickled(begun.state["states"]["total"]["keys"]), key=repr) == share


def part_of(keys: list[Any], groups: GroupRange | None) -> Part:
    """A part with a value for each key."""
    packed = pickle.dumps(keys)
    kind = "ValueState"
    found = {"state": "total", "kind": kind, "keys": packed, "values": keys, "times": [], "gone": b""}
    return {**found, "groups": groups}


@given(KEYS, st.integers(1, 5), st.integers(0, 4))
def test_a_part_that_has_keys_of_other_tasks_is_divided_by_its_keys(
    keys: set[Any], count: int, index: int
) -> None:
    share = KeyShare(index % count, count, GROUPS)
    inside = [key for key in keys if share.owns(key)]
    for groups in (GroupRange(0, GROUPS, GROUPS), GroupRange(0, 64, 64), None):
        [found] = share.parts([[part_of(list(keys), groups)]])
        assert unpickled(found["keys"]) == found["values"] == [key for key in keys if share.owns(key)]
        assert "groups" not in found
    if inside:
        numbers = [group_of(key, GROUPS) for key in inside]
        label = GroupRange(min(numbers), max(numbers) + 1, GROUPS)
        part = {**part_of(inside, label), "keys": b"is not opened"}
        [found] = share.parts([[part]])
        assert found["keys"] == b"is not opened"


def test_state_with_another_number_of_groups_is_refused() -> None:
    plan = plan_of(2)
    here = list(plan.names.values())
    before = {name: SnapshotFile("file", "d") for name in here}
    [problem] = misfits(CommitRecord("t", 1, 1, before, groups=64), here, plan.topology, 1024)
    assert "its state has 64 key groups, and topology.state.groups is 1,024 now" in problem
    assert "leave it out" in problem
    assert misfits(CommitRecord("t", 1, 1, before, groups=64), here, plan.topology, 64) == []


def test_what_does_not_fit_is_named() -> None:
    plan = plan_of(2)
    here = list(plan.names.values())
    before = {name: SnapshotFile("file", "d") for name in here}
    assert misfits(CommitRecord("t", 1, 1, before), here, plan.topology, GROUPS) == []
    [spout] = plan.topology.spouts
    more = {**before, f"{spout.id}/9": SnapshotFile("file", "d")}
    assert misfits(CommitRecord("t", 1, 1, more), here, plan.topology, GROUPS) == [
        f"spout {spout.id!r} has 1 tasks and had 2, and has no merge_positions"
    ]


def test_components_may_go_and_come_unless_the_input_of_a_new_one_has_ended() -> None:
    plan = plan_of(2)
    here = list(plan.names.values())
    [spout] = plan.topology.spouts
    files = {name: SnapshotFile("file", "d") for name in ("gone/0", "gone/1", f"{spout.id}/0")}
    assert misfits(CommitRecord("t", 1, 1, files), here, plan.topology, GROUPS) == []
    found = misfits(CommitRecord("t", 1, 1, files, (f"{spout.id}/0",)), here, plan.topology, GROUPS)
    assert f"bolt 'keeps' is new and reads {spout.id!r}, whose input has ended" in found
    assert Rescale(plan, {"gone": 2, spout.id: 1}).changed == frozenset()
