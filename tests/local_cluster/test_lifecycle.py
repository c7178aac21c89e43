"""The life of a topology in a local cluster: inactive, active, rebalanced, completed, killed, gone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest

from local_cluster import LocalCluster
from nimbus.lifecycle.states import IllegalTransition
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
from topology_api import (
    Bolt,
    Context,
    Failure,
    Fields,
    InvalidConfig,
    NameTaken,
    NoSuchTopology,
    Replay,
    Spout,
    SquallError,
    TopologyBuilder,
    TopologyFailed,
    Tuple,
)


@pytest.fixture(autouse=True)
def journal() -> Journal:
    JOURNAL.clear()
    return JOURNAL


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(simulated_time=True) as cluster:
        yield cluster


class Endless(Numbers):
    """Numbers without end, one each tenth of a second."""

    def __init__(self, replay: Replay | None = None) -> None:
        super().__init__(10**9, replay)

    def next_tuple(self) -> float:  # type: ignore[override]
        super().next_tuple()
        return 0.1


class AcksAfter(Keep):
    """Acks its kept tuples at its tick, after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.tick_interval = seconds

    def tick(self) -> None:
        while self.kept:
            self.ack(self.kept.pop())

    def cleanup(self) -> None:
        JOURNAL.note("cleanup", "keep", self.context.now())


def emitted() -> int:
    return len(JOURNAL.of("emit"))


# Inactive and active.


@pytest.mark.parametrize("workers", [1, 2])
def test_a_topology_submitted_inactive_opens_and_prepares_nothing_before_activate(
    cluster: LocalCluster, workers: int
) -> None:
    topology = chain("rests", Numbers(3), Pass(), conf={"topology.workers": workers})
    cluster.submit(topology, active=False)
    cluster.advance(100.0)
    assert JOURNAL.kinds() == []
    status = cluster.status("rests")
    assert status.state == "INACTIVE"
    assert status.components["numbers"].idle == "inactive"
    cluster.activate("rests")
    run_to_the_end(cluster, "rests")
    assert sorted(JOURNAL.kinds()[:2]) == ["open", "prepare"]
    assert message_ids(JOURNAL.of("ack")) == [0, 1, 2]


def test_the_first_activate_does_not_call_spout_activate(cluster: LocalCluster) -> None:
    cluster.submit(chain("first", Endless(), Pass()), active=False)
    cluster.activate("first")
    cluster.advance(1.0)
    assert "activate" not in JOURNAL.kinds()  # Spout.activate is for "again, after deactivate"
    assert emitted() > 0


@pytest.mark.parametrize("workers", [1, 2])
def test_deactivate_stops_next_tuple_and_tuples_in_flight_finish(cluster: LocalCluster, workers: int) -> None:
    topology = chain("pauses", Endless(), AcksAfter(7.0), conf={"topology.workers": workers})
    cluster.submit(topology)
    cluster.advance(5.0)
    cluster.deactivate("pauses")
    before = emitted()
    assert before > 40
    status = cluster.status("pauses")
    assert (status.state, status.components["numbers"].idle) == ("INACTIVE", "inactive")
    assert status.components["numbers"].pending == before
    cluster.advance(50.0)
    assert emitted() == before
    assert message_ids(JOURNAL.of("ack")) == list(range(before))
    cluster.activate("pauses")
    cluster.advance(5.0)
    assert emitted() > before
    assert [kind for kind in JOURNAL.kinds() if kind.endswith("activate")] == ["deactivate", "activate"]
    assert "close" not in JOURNAL.kinds()


def test_repeated_deactivate_and_activate_take_effect_once(cluster: LocalCluster) -> None:
    cluster.submit(chain("twice", Endless(), Pass()))
    for command in (cluster.deactivate, cluster.deactivate, cluster.activate, cluster.activate):
        command("twice")
        cluster.advance(1.0)
    assert [kind for kind in JOURNAL.kinds() if kind.endswith("activate")] == ["deactivate", "activate"]


# Kill.


def test_kill_drains_then_closes_and_cleans_up_and_the_name_is_free_again(cluster: LocalCluster) -> None:
    cluster.submit(chain("drains", Endless(), AcksAfter(7.0)))
    cluster.advance(5.0)
    cluster.kill("drains")
    before = emitted()
    assert cluster.status("drains").state == "KILLED"
    cluster.advance(1.0)
    assert cluster.topologies() == ["drains"]  # trees are pending: it may take up to the message timeout
    with pytest.raises(NameTaken):
        cluster.submit(chain("drains", Numbers(1), Pass()))
    cluster.advance(3.0)
    assert emitted() == before
    assert message_ids(JOURNAL.of("ack")) == list(range(before))
    assert JOURNAL.of("fail") == []
    assert JOURNAL.kinds()[-2:] == ["close", "cleanup"]
    assert cluster.topologies() == []
    with pytest.raises(NoSuchTopology, match="drains"):
        cluster.status("drains")
    cluster.submit(chain("drains", Numbers(1), Pass()))
    assert run_to_the_end(cluster, "drains").state == "COMPLETED"


@pytest.mark.parametrize("workers", [1, 2])
def test_trees_left_at_the_deadline_of_a_kill_fail_as_stopped_before_close(
    cluster: LocalCluster, workers: int
) -> None:
    spout = Numbers(5, Replay(), finishes=False)
    conf = {"topology.workers": workers}
    cluster.submit(chain("stopped", spout, AcksAfter(500.0), conf=conf))
    cluster.advance(2.0)
    cluster.kill("stopped", wait_secs=10.0)
    cluster.advance(9.5)
    assert JOURNAL.of("fail") == []
    cluster.advance(1.0)
    assert [(number, failure.reason) for number, _, failure in JOURNAL.of("fail")] == [
        (number, "stopped") for number in range(5)
    ]
    assert {failure.attempts for _, _, failure in JOURNAL.of("fail")} == {1}
    assert sorted(JOURNAL.kinds()[-2:]) == ["cleanup", "close"]
    assert JOURNAL.kinds().index("close") > JOURNAL.kinds().index("fail")
    assert cluster.topologies() == []


def test_kill_without_waiting_ends_at_once(cluster: LocalCluster) -> None:
    cluster.submit(chain("now", Endless(), AcksAfter(500.0)))
    cluster.advance(1.0)
    cluster.kill("now", wait_secs=0)
    assert cluster.topologies() == []
    assert {failure.reason for _, _, failure in JOURNAL.of("fail")} == {"stopped"}
    assert len(JOURNAL.of("fail")) == emitted()
    assert JOURNAL.kinds()[-2:] == ["close", "cleanup"]


def test_a_kill_waits_for_replays_too(cluster: LocalCluster) -> None:
    spout = Numbers(1, Replay(first_delay=5.0), finishes=False)
    cluster.submit(chain("replays", spout, FailsOnce()))
    cluster.advance(1.0)
    cluster.kill("replays")
    took = advance_until(cluster, lambda: not cluster.topologies(), 30.0)
    assert took <= 6.0
    assert message_ids(JOURNAL.of("ack")) == [0]
    assert JOURNAL.of("fail") == []


class FailsOnce(Bolt):
    """Fails its first tuple."""

    def prepare(self, context: Context) -> None:
        self.first = True

    def execute(self, tup: Tuple) -> None:
        if self.first:
            self.first = False
            self.fail(tup)


def test_an_inactive_topology_that_never_ran_can_be_killed(cluster: LocalCluster) -> None:
    cluster.submit(chain("unborn", Numbers(1), Pass()), active=False)
    cluster.kill("unborn")
    cluster.advance(1.0)
    assert cluster.topologies() == []
    assert JOURNAL.kinds() == []


def test_a_completed_topology_keeps_its_name_and_counters_until_kill(cluster: LocalCluster) -> None:
    cluster.submit(chain("done", Numbers(4), Pass()))
    run_to_the_end(cluster, "done")
    cluster.advance(1000.0)
    status = cluster.status("done")
    assert (status.state, status.components["numbers"].acked, status.workers) == ("COMPLETED", 4, 0)
    assert sorted(JOURNAL.kinds()[-2:]) == ["cleanup", "close"]
    with pytest.raises(NameTaken):
        cluster.submit(chain("done", Numbers(1), Pass()))
    cluster.kill("done")
    cluster.advance(1.0)
    assert cluster.topologies() == []


# Names and illegal steps.


def test_topologies_are_listed_by_name_the_oldest_first(cluster: LocalCluster) -> None:
    for name in ("b", "a", "c"):
        cluster.submit(chain(name, Numbers(2, finishes=False), Pass()))
        cluster.advance(1.0)
    cluster.submit(chain("a", Numbers(1), Pass()), name="other")
    assert cluster.topologies() == ["b", "a", "c", "other"]
    with pytest.raises(NameTaken, match="'a'"):
        cluster.submit(chain("a", Numbers(1), Pass()))
    assert cluster.status("other").name == "other"


@pytest.mark.parametrize("command", ["kill", "activate", "deactivate", "rebalance", "status", "wait"])
def test_commands_on_an_unknown_name_are_refused(cluster: LocalCluster, command: str) -> None:
    with pytest.raises(NoSuchTopology, match="'nobody'"):
        getattr(cluster, command)("nobody")


@pytest.mark.parametrize("command", ["activate", "deactivate", "rebalance"])
def test_a_step_that_the_life_cycle_does_not_know_is_refused_and_changes_nothing(
    cluster: LocalCluster, command: str
) -> None:
    cluster.submit(chain("done", Numbers(1), Pass()))
    run_to_the_end(cluster, "done")
    with pytest.raises(IllegalTransition, match="COMPLETED"):
        getattr(cluster, command)("done")
    assert cluster.status("done").state == "COMPLETED"


def test_a_cluster_that_was_shut_down_takes_no_commands() -> None:
    cluster = LocalCluster(simulated_time=True)
    cluster.shutdown()
    cluster.shutdown()  # a second shutdown does no harm
    with pytest.raises(SquallError, match="shut down"):
        cluster.submit(chain("late", Numbers(1), Pass()))


# Rebalance.


class Outside:
    """A source outside of the topology: unacked values are still in it."""

    left: deque[int] = deque()
    acked: list[int] = []


class FromOutside(Spout):
    """Takes from the source; failed values go back."""

    outputs = Fields("number")
    replay = None

    def open(self, context: Context) -> None:
        JOURNAL.note("open", context.now())

    def next_tuple(self) -> float | None:
        if Outside.left:
            number = Outside.left.popleft()
            self.emit((number,), message_id=number)
            return 0.01
        return None

    def ack(self, message_id: object) -> None:
        assert isinstance(message_id, int)
        Outside.acked.append(message_id)

    def fail(self, message_id: object, failure: Failure) -> None:
        assert isinstance(message_id, int)
        Outside.left.append(message_id)


@pytest.fixture
def source() -> type[Outside]:
    Outside.left = deque(range(300))
    Outside.acked = []
    return Outside


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (1, 1), (2, 2)])
def test_a_rebalance_goes_on_and_loses_no_acked_tuple(
    cluster: LocalCluster, source: type[Outside], before: int, after: int
) -> None:
    conf = {"topology.workers": before}
    cluster.submit(chain("moves", FromOutside(), Pass(), Pass(), conf=conf))
    cluster.advance(1.0)
    acked = len(source.acked)
    assert 50 < acked < 200
    cluster.rebalance("moves", workers=after)
    advance_until(cluster, lambda: cluster.status("moves").state == "ACTIVE", 60.0)
    assert cluster.status("moves").workers == after
    advance_until(cluster, lambda: not source.left, 60.0)
    cluster.advance(1.0)
    assert sorted(source.acked) == list(range(300))  # each once: the topology drained before it moved
    executed = [number for component, number, _ in JOURNAL.of("execute") if component == "bolt2"]
    assert sorted(executed) == list(range(300))
    status = cluster.status("moves")
    assert status.components["numbers"].acked == 300  # the counts of the earlier workers are included
    assert status.components["bolt2"].executed == 300


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 5)])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_rebalance_to_another_number_of_tasks_goes_on_and_loses_no_acked_tuple(
    cluster: LocalCluster, source: type[Outside], before: int, after: int, workers: int
) -> None:
    conf = {"topology.workers": workers}
    topology = chain("grows", FromOutside(), Pass(), Pass(), conf=conf)
    cluster.submit(topology.with_parallelism({"bolt1": before}))
    cluster.advance(1.0)
    assert 50 < len(source.acked) < 200
    cluster.rebalance("grows", parallelism={"bolt1": after})
    advance_until(cluster, lambda: cluster.status("grows").state == "ACTIVE", 60.0)
    advance_until(cluster, lambda: not source.left, 60.0)
    cluster.advance(1.0)
    assert sorted(source.acked) == list(range(300))
    executed = [number for component, number, _ in JOURNAL.of("execute") if component == "bolt1"]
    assert sorted(executed) == list(range(300))


def test_a_rebalance_with_an_unknown_component_changes_nothing(cluster: LocalCluster) -> None:
    cluster.submit(chain("stays", Endless(), Pass()))
    with pytest.raises(InvalidConfig, match=r"no component 'bolt7'; did you mean 'bolt1'"):
        cluster.rebalance("stays", parallelism={"bolt7": 2})
    assert cluster.status("stays").state == "ACTIVE"


def test_a_rebalance_of_an_inactive_topology_leaves_it_inactive(
    cluster: LocalCluster, source: type[Outside]
) -> None:
    cluster.submit(chain("moves", FromOutside(), Pass()))
    cluster.advance(0.5)
    cluster.deactivate("moves")
    cluster.rebalance("moves", workers=2)
    cluster.advance(5.0)
    assert cluster.status("moves").state == "INACTIVE"
    left = len(source.left)
    cluster.advance(5.0)
    assert len(source.left) == left
    cluster.activate("moves")
    advance_until(cluster, lambda: not source.left, 60.0)
    cluster.advance(1.0)
    assert sorted(source.acked) == list(range(300))


def test_a_finished_spout_is_not_opened_again_by_a_rebalance(cluster: LocalCluster) -> None:
    builder = TopologyBuilder("half-done")
    builder.set_spout("finite", Numbers(3))
    builder.set_spout("endless", Endless())
    builder.set_bolt("pass", Pass()).shuffle_grouping("finite").shuffle_grouping("endless")
    cluster.submit(builder.build())
    cluster.advance(1.0)
    cluster.rebalance("half-done", workers=2)
    cluster.advance(5.0)
    assert cluster.status("half-done").state == "ACTIVE"
    assert len(JOURNAL.of("open")) == 3  # the endless one twice
    assert [number for number, _ in JOURNAL.of("emit")].count(0) == 3


# Leaving.


@pytest.mark.parametrize("simulated", [True, False])
def test_leaving_with_ends_at_once_fails_pending_trees_and_closes(simulated: bool) -> None:
    with LocalCluster(simulated_time=simulated) as cluster:
        cluster.submit(chain("left", Numbers(5, finishes=False), AcksAfter(10_000.0)))
        if simulated:
            cluster.advance(1.0)
        JOURNAL.wait_for("keep", 5)
    assert [failure.reason for _, _, failure in JOURNAL.of("fail")] == ["stopped"] * 5
    assert JOURNAL.kinds()[-2:] == ["close", "cleanup"]


@pytest.mark.parametrize("simulated", [True, False])
def test_an_exception_inside_with_is_raised_after_everything_was_closed(simulated: bool) -> None:
    with pytest.raises(ZeroDivisionError), LocalCluster(simulated_time=simulated) as cluster:
        cluster.submit(chain("left", Endless(), Pass()))
        JOURNAL.wait_for("open")
        raise ZeroDivisionError
    assert sorted(JOURNAL.kinds()[-2:]) == ["cleanup", "close"]


# Wait and status.


def test_wait_reports_what_is_missing_when_its_time_is_over() -> None:
    with LocalCluster() as cluster:
        cluster.submit(chain("slow", Numbers(3, finishes=False), Keep()))
        JOURNAL.wait_for("keep", 3)
        with pytest.raises(TimeoutError) as caught:
            cluster.wait("slow", timeout=0.05)
    text = str(caught.value)
    for part in (
        "'slow'",
        "0.05 s",
        "ACTIVE",
        "numbers: 3 emitted",
        "3 trees pending",
        "bolt1",
        "3 executed",
    ):
        assert part in text


def test_wait_in_simulated_time_asks_for_time_to_be_advanced(cluster: LocalCluster) -> None:
    cluster.submit(chain("still", Endless(), Pass()))
    with pytest.raises(TimeoutError, match="advance"):
        cluster.wait("still", timeout=10)


@pytest.mark.parametrize("wait_secs", [0.0, 1000.0])
def test_wait_for_a_killed_topology_fails(wait_secs: float) -> None:
    with LocalCluster() as cluster:
        cluster.submit(chain("victim", Numbers(3, finishes=False), KillsAt(cluster, "victim", wait_secs)))
        with pytest.raises(TopologyFailed, match="killed"):
            cluster.wait("victim", timeout=30)


class KillsAt(Bolt):
    """Kills the topology at its first tuple (the cluster is found by name: it cannot be pickled)."""

    clusters: dict[str, LocalCluster] = {}

    def __init__(self, cluster: LocalCluster, name: str, wait_secs: float) -> None:
        self.clusters[name] = cluster
        self.name = name
        self.wait_secs = wait_secs
        self.auto_ack = False

    def execute(self, tup: Tuple) -> None:
        if tup["number"] == 0:
            self.clusters[self.name].kill(self.name, self.wait_secs)


def test_time_cannot_be_advanced_when_it_moves_by_itself() -> None:
    with LocalCluster() as cluster, pytest.raises(SquallError, match="simulated_time"):
        cluster.advance(1.0)


def test_the_status_of_a_running_topology_is_exact_at_every_moment(cluster: LocalCluster) -> None:
    conf = {"topology.max.spout.pending": 10}
    cluster.submit(chain("status", Endless(), Pass(), AcksAfter(2.0), conf=conf))
    for _ in range(40):
        cluster.advance(0.5)
        totals = cluster.status("status").components
        assert totals["numbers"].emitted == emitted()
        assert totals["numbers"].acked == len(JOURNAL.of("ack"))
        assert totals["numbers"].pending == emitted() - len(JOURNAL.of("ack"))
        assert totals["bolt1"].executed == totals["bolt1"].emitted == len(JOURNAL.of("execute"))
        assert totals["bolt2"].executed == len(JOURNAL.of("keep"))
        assert totals["bolt2"].acked == totals["numbers"].acked
