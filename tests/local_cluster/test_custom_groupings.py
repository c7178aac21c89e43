"""Custom groupings in running topologies: they choose freely, and their mistakes are reported clearly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.gathering import (
    GATHERED,
    WAYS,
    Gather,
    Gathered,
    Rows,
    advance_to_the_end,
    gathered,
    run,
)
from topology_api import Context, Grouping, Replay, Topology, TopologyBuilder, TopologyFailed, Tuple

__all__ = ["gathered"]


def grouped_by(grouping: Grouping, rows: Sequence[tuple[Any, ...]], tasks: int = 3) -> Topology:
    """spout "rows", two tasks -> bolt "gather" by this grouping."""
    builder = TopologyBuilder("custom")
    builder.set_spout("rows", Rows(rows), parallelism=2)
    builder.set_bolt("gather", Gather(), parallelism=tasks).custom_grouping("rows", grouping)
    return builder.build()


class ByLength(Grouping):
    """Longer words to later tasks; the word "all" to all tasks, "none" to none."""

    def prepare(self, context: Context, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self.targets = target_tasks
        GATHERED.add("prepared", (context.component, context.index, source, stream, tuple(target_tasks)))

    def choose(self, values: tuple[Any, ...]) -> Sequence[int]:
        word = values[0]
        if word in ("all", "none"):
            return self.targets if word == "all" else ()
        return [self.targets[len(word) % len(self.targets)]]


class Broken(Grouping):
    """Makes one mistake, for the word "bad"."""

    def __init__(self, mistake: Any) -> None:
        self.mistake = mistake

    def prepare(self, context: Context, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self.first = target_tasks[0]
        if self.mistake == "prepare":
            raise OSError("no table of cities")

    def choose(self, values: tuple[Any, ...]) -> Any:
        if values[0] != "bad":
            return [self.first]
        if self.mistake == "choose":
            raise LookupError("no such city")
        return self.mistake


@pytest.mark.parametrize("way", WAYS)
def test_a_custom_grouping_chooses_one_task_or_several_or_none(
    way: dict[str, Any], gathered: Gathered
) -> None:
    rows = [("a",), ("bb",), ("ccc",), ("all",), ("none",)]
    run(grouped_by(ByLength(), rows), **way)
    tasks = sorted(gathered["gather tasks"])
    wanted = [
        (tasks[1], ("a",)),
        (tasks[2], ("bb",)),
        (tasks[0], ("ccc",)),
        *((task, ("all",)) for task in tasks),
    ]
    assert sorted(gathered["gather"]) == sorted(wanted)
    assert sorted(gathered["rows acked"]) == [0, 1, 2, 3, 4]
    assert sorted(gathered["prepared"]) == [
        ("rows", index, "rows", "default", tuple(tasks)) for index in (0, 1)
    ]


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (999, "must return a sequence of task ids, not 999"),
        ("2", "must return a sequence of task ids, not '2'"),
        ([999], "choose() returned task 999, which is not one of its target tasks"),
        ("choose", "choose() raised LookupError: no such city"),
    ],
)
def test_a_mistake_in_choose_fails_the_tuple_with_a_clear_error(
    mistake: Any, says: str, gathered: Gathered
) -> None:
    builder = TopologyBuilder("custom")
    builder.set_spout("rows", Rows([("fine",), ("bad",), ("also fine",)]))
    builder.set_bolt("pass", Gather(("value",))).shuffle_grouping("rows")
    builder.set_bolt("gather", Gather(), parallelism=2).custom_grouping("pass", Broken(mistake))
    run(builder.build())
    assert sorted(gathered["rows acked"]) == [0, 2]
    [(message_id, failure)] = gathered["rows failed"]
    assert message_id == 1
    for text in (says, "Broken", "'default'", "'pass'"):
        assert text in failure.error
    assert mistake != "choose" or "test_custom_groupings.py" in failure.error.partition("LookupError")[2]


def test_a_grouping_whose_prepare_raises_fails_the_topology_with_a_clear_error(gathered: Gathered) -> None:
    with pytest.raises(TopologyFailed) as caught:
        run(grouped_by(Broken("prepare"), [("fine",)]))
    for text in (
        "Broken",
        "'default'",
        "'rows'",
        "prepare() raised OSError: no table of cities",
        "test_custom_groupings.py",
    ):
        assert text in str(caught.value)


class FailsOnce(Gather):
    """Fails the first tuple it gets."""

    failed = False

    def execute(self, tup: Tuple) -> None:
        if not self.failed:
            self.failed = True
            raise ValueError("not yet")


class RaisesTheSecondTime(Broken):
    """Raises when it is asked for the same row again."""

    asked = 0

    def choose(self, values: tuple[Any, ...]) -> Any:
        self.asked += 1
        if self.asked > 1:
            raise LookupError("gone")
        return [self.first]


def test_a_choose_that_raises_in_a_replay_is_the_final_failure_of_that_tuple(gathered: Gathered) -> None:

    builder = TopologyBuilder("custom")
    builder.set_spout("rows", Rows([("a",)], replay=Replay(max_attempts=5)))
    builder.set_bolt("gather", FailsOnce()).custom_grouping("rows", RaisesTheSecondTime(None))
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build())
        advance_to_the_end(cluster, "custom")
        assert cluster.status("custom").state == "COMPLETED"
    [(message_id, failure)] = gathered["rows failed"]
    assert message_id == 0 and "choose() raised LookupError: gone" in failure.error
