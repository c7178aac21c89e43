"""Failures and replays: which component is blamed, when a tree is emitted again, and which call is final."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.recording import (
    JOURNAL,
    Journal,
    Keep,
    Numbers,
    Pass,
    advance_until,
    chain,
    message_ids,
    run_to_the_end,
)
from topology_api import Bolt, Context, FailTuple, Failure, Fields, Replay, TopologyBuilder, Tuple


@pytest.fixture(autouse=True)
def journal() -> Journal:
    JOURNAL.clear()
    return JOURNAL


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(simulated_time=True) as cluster:
        yield cluster


class Raises(Bolt):
    """Raises for the numbers in `bad`, every time or only the first `times` times."""

    outputs = Fields("number")

    def __init__(self, *bad: int, times: int = 10**9) -> None:
        self.left = dict.fromkeys(bad, times)

    def prepare(self, context: Context) -> None:
        self.now = context.now

    def execute(self, tup: Tuple) -> None:
        number = tup["number"]
        JOURNAL.note("try", number, self.now())
        if self.left.get(number, 0) > 0:
            self.left[number] -= 1
            raise ValueError(f"number {number} is bad")  # the user's own line
        self.emit((number,))


class Refuses(Bolt):
    """Fails its tuples without an error report, in one of the three possible ways."""

    def __init__(self, how: str) -> None:
        self.how = how

    def execute(self, tup: Tuple) -> None:
        if self.how == "FailTuple":
            raise FailTuple("not wanted")
        if self.how == "FailTuple without a reason":
            raise FailTuple
        self.fail(tup, "not wanted")


class Letters(Bolt):
    """Takes dead letters."""

    def execute(self, tup: Tuple) -> None:
        JOURNAL.note("letter", *tup.values, tuple(tup.fields), tup.component)


class SameId(Numbers):
    """Numbers, all under one message id."""

    def next_tuple(self) -> None:
        if self.next >= self.count:
            return self.finish()
        self.next += 1
        return self.emit((self.next - 1,), message_id="the one")


def tries(number: int) -> list[float]:
    """When the bolt got this number."""
    return [time for tried, time in JOURNAL.of("try") if tried == number]


def users_line() -> int:
    """The number of the raising line in this file."""
    with open(__file__, encoding="utf-8") as lines:
        return next(number for number, line in enumerate(lines, 1) if "# the user's own line" in line)


# Which component is blamed.


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bolt_that_raises_fails_that_tuple_only_and_the_failure_says_where(
    cluster: LocalCluster, workers: int
) -> None:
    topology = chain("raises", Numbers(10), Pass(), Raises(3), Pass(), conf={"topology.workers": workers})
    cluster.submit(topology)
    status = run_to_the_end(cluster, "raises")
    ((number, _, failure),) = JOURNAL.of("fail")
    assert number == 3
    assert (failure.reason, failure.component, failure.task, failure.attempts) == ("failed", "bolt2", 3, 1)
    assert "ValueError: number 3 is bad" in failure.error
    assert f"{__file__}:{users_line()}" in failure.error
    assert message_ids(JOURNAL.of("ack")) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert status.components["bolt2"].errors == 1
    assert (status.components["bolt2"].executed, status.components["bolt2"].failed) == (10, 1)
    assert status.components["bolt3"].executed == 9


@pytest.mark.parametrize(
    ("how", "error"),
    [("FailTuple", "not wanted"), ("FailTuple without a reason", None), ("self.fail", "not wanted")],
)
def test_a_tuple_can_be_failed_without_an_error_report(
    cluster: LocalCluster, how: str, error: str | None
) -> None:
    cluster.submit(chain("refused", Numbers(1), Refuses(how)))
    status = run_to_the_end(cluster, "refused")
    assert [failure for _, _, failure in JOURNAL.of("fail")] == [Failure("failed", "bolt1", 2, error, 1)]
    assert status.components["bolt1"].errors == 0
    assert status.components["bolt1"].failed == 1


def test_one_failure_in_a_tree_is_enough_and_leads_to_one_final_call(cluster: LocalCluster) -> None:
    builder = TopologyBuilder("diamond")
    spout = builder.set_spout("numbers", Numbers(6))
    left = builder.set_bolt("left", Raises(2, 4)).shuffle_grouping(spout)
    right = builder.set_bolt("right", Raises(4, 5)).shuffle_grouping(spout)
    builder.set_bolt("join", Pass()).shuffle_grouping(left).shuffle_grouping(right)
    cluster.submit(builder.build())
    run_to_the_end(cluster, "diamond")
    assert message_ids(JOURNAL.of("ack")) == [0, 1, 3]
    assert message_ids(JOURNAL.of("fail")) == [2, 4, 5]


# When a tree is emitted again.


def test_replays_have_doubling_delays_up_to_max_delay_and_then_fail(
    cluster: LocalCluster,
) -> None:
    replay = Replay(max_attempts=6, first_delay=1.0, max_delay=5.0)
    cluster.submit(chain("delays", Numbers(1, replay), Raises(0)))
    cluster.advance(60.0)
    times = tries(0)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == pytest.approx([1.0, 2.0, 4.0, 5.0, 5.0], abs=0.01)
    ((number, failed, failure),) = JOURNAL.of("fail")
    assert (number, failure.attempts, failure.component) == (0, 6, "bolt1")
    assert "number 0 is bad" in failure.error
    assert failed == pytest.approx(17.0, abs=0.05)


def test_a_tree_that_succeeds_on_a_replay_is_acked_once_and_never_failed(cluster: LocalCluster) -> None:
    cluster.submit(chain("third", Numbers(4, Replay()), Raises(1, times=2)))
    status = run_to_the_end(cluster, "third")
    assert message_ids(JOURNAL.of("ack")) == [0, 1, 2, 3]
    assert JOURNAL.of("fail") == []
    totals = status.components["numbers"]
    assert (totals.emitted, totals.replayed, totals.acked, totals.failed) == (4, 2, 4, 0)
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries(1))]
    assert gaps == pytest.approx([1.0, 2.0], abs=0.01)


def test_the_default_is_three_attempts(cluster: LocalCluster) -> None:
    assert Replay() == Replay(max_attempts=3, first_delay=1.0, max_delay=60.0)
    cluster.submit(chain("default", Numbers(1, Replay()), Raises(0)))
    run_to_the_end(cluster, "default")
    assert [failure.attempts for _, _, failure in JOURNAL.of("fail")] == [3]
    assert len(tries(0)) == 3


def test_without_a_replay_the_first_failure_is_final(cluster: LocalCluster) -> None:
    cluster.submit(chain("storm", Numbers(3, replay=None), Raises(1)))
    status = run_to_the_end(cluster, "storm")
    assert [(number, failure.attempts) for number, _, failure in JOURNAL.of("fail")] == [(1, 1)]
    assert status.components["numbers"].replayed == 0
    assert status.components["numbers"].errors == 0  # the spout was informed; nothing was dropped silently


def test_replays_belong_to_the_instance_so_two_tasks_of_a_class_may_differ(cluster: LocalCluster) -> None:
    builder = TopologyBuilder("two")
    often = builder.set_spout("often", Numbers(1, Replay(max_attempts=4, first_delay=0.5)))
    never = builder.set_spout("never", Numbers(1, Replay(max_attempts=1)))
    builder.set_bolt("bad", Raises(0)).shuffle_grouping(often).shuffle_grouping(never)
    cluster.submit(builder.build())
    status = run_to_the_end(cluster, "two")
    assert sorted(failure.attempts for _, _, failure in JOURNAL.of("fail")) == [1, 4]
    assert status.components["often"].replayed == 3
    assert status.components["never"].replayed == 0


def test_message_ids_may_repeat_and_each_emission_gets_its_own_final_call(cluster: LocalCluster) -> None:
    cluster.submit(chain("same", SameId(10, Replay(max_attempts=2)), Raises(2, 3, 7)))
    status = run_to_the_end(cluster, "same")
    assert message_ids(JOURNAL.of("ack")) == ["the one"] * 7
    assert message_ids(JOURNAL.of("fail")) == ["the one"] * 3
    assert (status.components["numbers"].acked, status.components["numbers"].failed) == (7, 3)


# Waiting for a replay.


def test_pending_includes_trees_that_wait_for_a_replay(cluster: LocalCluster) -> None:
    replay = Replay(max_attempts=2, first_delay=50.0, max_delay=50.0)
    cluster.submit(chain("waits", Numbers(4, replay, finishes=False), Raises(0, 1)))
    cluster.advance(20.0)
    totals = cluster.status("waits").components["numbers"]
    assert (totals.pending, totals.acked, totals.failed, totals.replayed) == (2, 2, 0, 0)
    cluster.advance(40.0)
    totals = cluster.status("waits").components["numbers"]
    assert (totals.pending, totals.acked, totals.failed, totals.replayed) == (0, 2, 2, 2)


def test_trees_that_wait_for_a_replay_limit_the_spout_apart_from_max_pending(cluster: LocalCluster) -> None:
    replay = Replay(max_attempts=2, first_delay=100.0, max_delay=100.0)
    conf = {"topology.max.spout.pending": 5}
    cluster.submit(chain("bound", Numbers(1000, replay), Raises(*range(1000)), conf=conf))
    cluster.advance(90.0)
    status = cluster.status("bound").components["numbers"]
    assert 5 <= status.emitted < 10
    assert status.pending == status.emitted
    assert status.idle == "waiting for replays"
    cluster.advance(15.0)  # they were emitted again, have failed for good, and made room
    assert cluster.status("bound").components["numbers"].failed >= 5


def test_a_few_waiting_trees_do_not_stop_the_spout(cluster: LocalCluster) -> None:
    replay = Replay(max_attempts=2, first_delay=100.0, max_delay=100.0)
    conf = {"topology.max.spout.pending": 5}
    cluster.submit(chain("goes-on", Numbers(1000, replay), Raises(0, 1, 2, 3), conf=conf))
    cluster.advance(90.0)
    totals = cluster.status("goes-on").components["numbers"]
    assert (totals.emitted, totals.acked, totals.pending) == (1000, 996, 4)


def test_a_spout_that_has_finished_waits_for_its_replays(cluster: LocalCluster) -> None:
    replay = Replay(max_attempts=2, first_delay=30.0, max_delay=30.0)
    cluster.submit(chain("finished", Numbers(2, replay), Raises(1, times=1)))
    cluster.advance(25.0)
    assert cluster.status("finished").state == "ACTIVE"
    took = advance_until(cluster, lambda: cluster.status("finished").state == "COMPLETED", 10.0)
    assert took <= 6.0
    assert message_ids(JOURNAL.of("ack")) == [0, 1]


def test_a_deactivated_spout_still_replays(cluster: LocalCluster) -> None:
    cluster.submit(chain("paused", Numbers(1, Replay(), finishes=False), Raises(0, times=1)))
    cluster.advance(0.5)
    cluster.deactivate("paused")
    cluster.advance(5.0)
    assert message_ids(JOURNAL.of("ack")) == [0]


# Dead letters.


def letters_topology(spout: Any, *bolts: Bolt) -> Any:
    builder = TopologyBuilder("letters", {"topology.message.timeout.secs": 10})
    source: Any = builder.set_spout("numbers", spout)
    builder.set_bolt("letters", Letters()).dead_letters("numbers")
    for number, bolt in enumerate(bolts, 1):
        source = builder.set_bolt(f"bolt{number}", bolt).shuffle_grouping(source)
    return builder.build()


def test_dead_letters_get_message_id_values_stream_and_failure(cluster: LocalCluster) -> None:
    cluster.submit(letters_topology(Numbers(4, Replay(max_attempts=2)), Raises(1, 2)))
    status = run_to_the_end(cluster, "letters")
    fields = ("message_id", "values", "stream", "failure")
    letters = sorted(JOURNAL.of("letter"))
    assert [letter[:3] for letter in letters] == [(1, (1,), "default"), (2, (2,), "default")]
    assert all(letter[4:] == (fields, "numbers") for letter in letters)
    assert all(letter[3].attempts == 2 and letter[3].component == "bolt1" for letter in letters)
    assert message_ids(JOURNAL.of("fail")) == [1, 2]  # the spout has its final call too
    totals = status.components["numbers"]
    assert (totals.emitted, totals.errors) == (4, 0)


def test_a_timed_out_tuple_becomes_a_dead_letter(cluster: LocalCluster) -> None:
    cluster.submit(letters_topology(Numbers(1, Replay(max_attempts=1)), Keep()))
    run_to_the_end(cluster, "letters")
    ((message_id, _, _, failure, *_),) = JOURNAL.of("letter")
    assert (message_id, failure.reason, failure.attempts) == (0, "timeout", 1)


def test_a_spent_tuple_without_a_dead_letter_bolt_is_a_counted_error(cluster: LocalCluster) -> None:
    cluster.submit(chain("spent", Numbers(3, Replay(max_attempts=2)), Raises(1)))
    status = run_to_the_end(cluster, "spent")
    assert status.components["numbers"].errors == 1
    (report,) = [report.render() for report in status.errors if report.component == "numbers"]
    for part in ("spent", "numbers", "after 2 attempts", "message id 1", "(1,)", "bolt1", "number 1 is bad"):
        assert part in report
