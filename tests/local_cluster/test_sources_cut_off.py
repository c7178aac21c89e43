"""A rebalance of sources that had emitted everything. They are read again only if its drain cut off some of their trees, or if
other tasks of the same spout still have values, which are then shared out again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.recording import (
    JOURNAL,
    Journal,
    Numbers,
    Pass,
    advance_until,
    chain,
    message_ids,
    run_to_the_end,
)
from topology_api import Bolt, Context, Fields, Replay, Spout, TopologyBuilder, Tuple

#: Replays with a delay longer than the drain.
LATE = Replay(max_attempts=5, first_delay=50.0)


@pytest.fixture(autouse=True)
def journal() -> Journal:
    JOURNAL.clear()
    return JOURNAL


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(simulated_time=True) as cluster:
        yield cluster


class FailsFirst(Bolt):
    """Fails the number 3, or keeps it for ever; with `heals`, only in the task that is prepared first."""

    auto_ack = False

    def __init__(self, keeps: bool = False, heals: bool = True) -> None:
        self.keeps = keeps
        self.heals = heals

    def prepare(self, context: Context) -> None:
        JOURNAL.note("prepare", context.component)
        self.healed = self.heals and len(JOURNAL.of("prepare")) > 1

    def execute(self, tup: Tuple) -> None:
        if tup["number"] != 3 or self.healed:
            self.ack(tup)
        elif not self.keeps:
            self.fail(tup)


class Threaded(Numbers):
    threaded = True


class Slow(Numbers):
    """Never ends: one number each ten seconds."""

    def next_tuple(self) -> float:  # type: ignore[override]
        super().next_tuple()
        return 10.0


class Shared(Spout):
    """Its tasks share the numbers up to `count`, and each leaves out those already acked; odd ones take their time."""

    outputs = Fields("number")

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, context: Context) -> None:
        done = set(message_ids(JOURNAL.of("ack")))
        own = range(context.index, self.count, context.parallelism)
        self.left = [number for number in own if number not in done]
        JOURNAL.note("open", context.task)

    def next_tuple(self) -> float | None:
        if not self.left:
            self.finish()
            return None
        number = self.left.pop(0)
        JOURNAL.note("emit", number)
        self.emit((number,), message_id=number)
        return number % 2

    def ack(self, message_id: object) -> None:
        JOURNAL.note("ack", message_id)


def cut_off_and_complete(cluster: LocalCluster, spout: Spout, bolt: Bolt, conf: Mapping[str, object]) -> None:
    """Run a topology until only 3 is open, rebalance it with a drain that is cut off, and run it to its end."""
    cluster.submit(chain("cut", spout, bolt, conf=conf))
    advance_until(cluster, lambda: message_ids(JOURNAL.of("ack")) == [0, 1, 2, 4], 5.0)
    cluster.rebalance("cut", workers=2)
    assert run_to_the_end(cluster, "cut").state == "COMPLETED"


@pytest.mark.parametrize("kind", [Numbers, Threaded])
@pytest.mark.parametrize("keeps", [False, True], ids=["waits for its replay", "open at a bolt"])
def test_an_ended_source_is_read_again_when_the_drain_cuts_off_a_tree(
    cluster: LocalCluster, keeps: bool, kind: type[Numbers]
) -> None:
    cut_off_and_complete(cluster, kind(5, LATE), FailsFirst(keeps), {"topology.message.timeout.secs": 20})
    assert [failure.reason for _, _, failure in JOURNAL.of("fail")] == ["stopped"]
    assert len(JOURNAL.of("open")) == 2
    assert set(message_ids(JOURNAL.of("ack"))) == {0, 1, 2, 3, 4}


def test_a_source_whose_replays_were_spent_is_not_read_again(cluster: LocalCluster) -> None:
    builder = TopologyBuilder("spent")
    builder.set_spout("finite", Numbers(5, Replay(max_attempts=2, first_delay=0.5)))
    builder.set_spout("slow", Slow(10**9))
    builder.set_bolt("fails", FailsFirst(heals=False)).shuffle_grouping("finite")
    builder.set_bolt("pass", Pass()).shuffle_grouping("slow")
    cluster.submit(builder.build())
    advance_until(cluster, lambda: bool(JOURNAL.of("fail")), 5.0)
    cluster.rebalance("spent", workers=2)
    advance_until(cluster, lambda: len(JOURNAL.of("open")) > 2, 60.0)
    cluster.advance(5.0)
    assert cluster.status("spent").state == "ACTIVE"
    assert [failure.reason for _, _, failure in JOURNAL.of("fail")] == ["failed"]
    assert len(JOURNAL.of("open")) == 3  # the slow one twice
    assert [number for number, _ in JOURNAL.of("emit")].count(4) == 1


def test_an_ended_source_whose_component_gets_another_task_is_not_read_again(
    cluster: LocalCluster,
) -> None:
    builder = TopologyBuilder("wider")
    builder.set_spout("finite", Numbers(5))
    builder.set_spout("slow", Slow(10**9))
    builder.set_bolt("pass", Pass()).shuffle_grouping("finite").shuffle_grouping("slow")
    cluster.submit(builder.build())
    cluster.advance(1.0)
    finite, slow = sorted(JOURNAL.of("open"))  # tasks are numbered in the order of their components
    cluster.rebalance("wider", parallelism={"finite": 2})
    cluster.advance(5.0)
    assert cluster.status("wider").state == "ACTIVE"
    assert JOURNAL.of("open").count(finite) == 1
    assert len(set(JOURNAL.of("open")) - {finite, slow}) == 1
    assert [number for number, _ in JOURNAL.of("emit")].count(4) == 2, "the new task has read all of it"


@pytest.mark.parametrize("tasks", [1, 3])
def test_remaining_values_of_a_spouts_tasks_are_shared_with_its_finished_tasks(
    cluster: LocalCluster, tasks: int
) -> None:
    builder = TopologyBuilder("shared")
    builder.set_spout("shared", Shared(20), parallelism=2)
    builder.set_bolt("pass", Pass()).shuffle_grouping("shared")
    cluster.submit(builder.build())
    cluster.advance(3.5)
    assert message_ids(JOURNAL.of("ack")) == sorted([*range(0, 20, 2), 1, 3, 5, 7])
    cluster.rebalance("shared", parallelism={"shared": tasks})
    assert run_to_the_end(cluster, "shared").state == "COMPLETED"
    assert message_ids(JOURNAL.of("emit")) == message_ids(JOURNAL.of("ack")) == list(range(20))


def test_workers_that_other_supervisors_start_later_learn_which_sources_had_ended() -> None:
    builder = TopologyBuilder("spread")
    builder.set_spout("finite", Numbers(5))
    builder.set_spout("shared", Shared(20))
    builder.set_bolt("pass", Pass(), parallelism=3).shuffle_grouping("finite").shuffle_grouping("shared")
    with LocalCluster(simulated_time=True, supervisors=3) as cluster:
        cluster.submit(builder.build(), {"topology.workers": 1})
        cluster.advance(2.0)
        cluster.rebalance("spread", workers=3)
        assert run_to_the_end(cluster, "spread").state == "COMPLETED"
    assert len(JOURNAL.of("open")) >= 2
