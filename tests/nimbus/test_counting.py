"""Totals of a topology never fall, whatever happens to its workers; figures of live workers only go with them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nimbus.counters.counting import PAST, Counters, Statuses, component_status
from nimbus.leader.master import Nimbus
from nimbus.submission.submission import Submission
from squall.clock import ManualClock
from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import SupervisorRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.reports.error_reports import ErrorReport
from squall.status import ComponentStatus, TopologyStatus
from squall.values import Incarnation
from topology_api.errors import NoSuchTopology
from topology_api.options import defaults
from topology_api.topology import ComponentSpec, StreamSpec, Topology


class Cluster:
    """A Nimbus over a store with one supervisor, in whose name a test reports."""

    def __init__(self, slots: int = 2) -> None:
        self.clock = ManualClock()
        self.store = InMemoryStore()
        self.nimbus = Nimbus(self.store, self.clock)
        self.registry = Registry(self.store)
        self.registry.supervisors.put(SupervisorRecord("s1", "s1", slots))
        self.statuses = Statuses(self.store, self.nimbus.counters, self.clock.now)

    def submit(self, name: str = "words", workers: int = 2) -> str:
        spec = ComponentSpec("lines", "spout", 2, {}, {"default": StreamSpec(("line",))})
        topology = Topology(name, {}, (spec,), {"lines": b"this is no pickle"})
        conf = {**defaults(), "topology.workers": workers}
        return self.nimbus.submit(Submission(topology, conf, {"lines": conf})).id

    def count(self, topology_id: str, worker: str, incarnation: tuple[int, int], **counts: object) -> None:
        number = counts.pop("number", 0)
        reports = counts.pop("reports", ())
        counters = ComponentCounters(**counts)  # type: ignore[arg-type]
        data = WorkerCounters({"lines": counters}, reports, number).to_bytes()  # type: ignore[arg-type]
        self.nimbus.count(topology_id, worker, Incarnation(*incarnation), data)

    def report(self, name: str, worker: str, incarnation: tuple[int, int], stopped: bool = False) -> None:
        self.nimbus.report(
            name, worker, WorkerReport(worker, Incarnation(*incarnation), True, False, stopped, stopped, None)
        )

    def status(self, name: str = "words") -> TopologyStatus:
        return self.statuses.last_status(name)

    def spout(self, name: str = "words") -> ComponentStatus:
        return self.status(name).components["lines"]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_the_counters_of_all_workers_are_summed(cluster: Cluster) -> None:
    id = cluster.submit()
    cluster.count(id, "w1", (1, 0), emitted=3, pending=1, idle={"": 1}, gauges={"depth": 2})
    cluster.count(id, "w2", (1, 0), emitted=4, pending=2, idle={"finished": 1}, gauges={"depth": 5})
    spout = cluster.spout()
    assert (spout.emitted, spout.pending, spout.idle, spout.metrics) == (7, 3, "", {"depth": 7})
    assert (spout.tasks, cluster.status().workers) == (2, 2)


@pytest.mark.parametrize("told", ["", "the disk is full"])
def test_waits_of_a_bolts_calls_are_shown_and_a_silent_bolt_is_not_idle(told: str) -> None:
    totals = ComponentCounters(executed=3, idle={told: 1} if told else {})
    assert component_status("bolt", 2, totals, "ACTIVE").idle == told


def test_a_later_reading_replaces_an_earlier_one_and_never_vice_versa(cluster: Cluster) -> None:
    id = cluster.submit()
    cluster.count(id, "w1", (1, 0), number=2, emitted=30)
    cluster.count(id, "w1", (1, 0), number=1, emitted=10)
    assert cluster.spout().emitted == 30
    cluster.count(id, "w1", (1, 0), number=3, emitted=31)
    assert cluster.spout().emitted == 31


def test_counts_of_a_worker_before_its_restart_are_kept(cluster: Cluster) -> None:
    id = cluster.submit()
    cluster.count(id, "w1", (1, 0), emitted=10, pending=5, gauges={"depth": 2}, metrics={"seen": 3})
    cluster.count(id, "w1", (1, 1), emitted=1, pending=1, gauges={"depth": 1}, metrics={"seen": 1})
    cluster.report("words", "w1", (1, 1))
    spout = cluster.spout()
    assert (spout.emitted, spout.pending, spout.metrics) == (11, 1, {"seen": 4, "depth": 1})
    cluster.count(id, "w1", (1, 0), number=9, emitted=12)  # too late
    assert cluster.spout().emitted == 11


def test_trees_of_a_restarting_worker_are_not_pending(cluster: Cluster) -> None:
    id = cluster.submit()
    cluster.count(id, "w1", (1, 0), emitted=10, pending=5)
    cluster.report("words", "w1", (1, 1))  # its process is new, and has not counted yet
    assert (cluster.spout().emitted, cluster.spout().pending) == (10, 0)


def test_a_stopped_worker_has_no_pending_trees_and_is_not_counted_as_a_worker(
    cluster: Cluster,
) -> None:
    id = cluster.submit()
    cluster.count(id, "w1", (1, 0), emitted=10, pending=5, gauges={"depth": 2})
    cluster.count(id, "w2", (1, 0), emitted=1, pending=1, gauges={"depth": 1})
    cluster.report("words", "w1", (1, 0), stopped=True)
    assert cluster.status().workers == 1
    assert (cluster.spout().pending, cluster.spout().metrics) == (1, {"depth": 1})


def test_totals_continue_over_a_rebalance(cluster: Cluster) -> None:
    id = cluster.submit(workers=1)
    cluster.count(id, "w1", (1, 0), emitted=10, gauges={"depth": 1})
    cluster.nimbus.rebalance("words", workers=2)
    cluster.nimbus.report(
        "words", "w1", WorkerReport("w1", Incarnation(1, 0), True, False, True, False, None)
    )
    assignment = cluster.registry.assignments.get(id)
    assert assignment is not None
    assert [placed.worker for placed in assignment.placements] == ["w2", "w3"]
    assert cluster.status().workers == 3, "the old one is leaving"
    cluster.report("words", "w1", (1, 0), stopped=True)
    for placed in assignment.placements:
        cluster.count(id, placed.worker, placed.incarnation, emitted=5, gauges={"depth": 7})
    assert (cluster.status().workers, cluster.spout().emitted) == (2, 20)
    for placed in assignment.placements:
        cluster.report("words", placed.worker, placed.incarnation, stopped=True)
    assert cluster.spout().metrics == {"depth": 14}, "gauges of workers that were replaced are gone"


def test_the_final_counters_of_the_latest_ended_topologies_are_kept(cluster: Cluster) -> None:
    for number in range(PAST + 1):
        id = cluster.submit(f"words-{number}", workers=1)
        (placed,) = cluster.registry.assignments.get(id).placements  # type: ignore[union-attr]
        cluster.count(id, placed.worker, placed.incarnation, emitted=number, failed=1)
        cluster.nimbus.kill(f"words-{number}", wait_secs=0)
        cluster.report(f"words-{number}", placed.worker, placed.incarnation, stopped=True)
    with pytest.raises(NoSuchTopology):
        cluster.statuses.status("words-1")
    last = cluster.status(f"words-{PAST}")
    assert (last.state, last.workers, last.components["lines"].emitted) == ("KILLED", 0, PAST)
    with pytest.raises(NoSuchTopology):
        cluster.status("words-0")


def test_trees_open_when_their_worker_was_killed_are_in_the_final_counters(cluster: Cluster) -> None:
    id = cluster.submit(workers=1)
    cluster.count(id, "w1", (1, 0), emitted=3, acked=2, pending=1, idle={"waiting for trees": 1})
    cluster.nimbus.kill("words", wait_secs=0)
    cluster.report("words", "w1", (1, 0), stopped=True)
    assert (cluster.spout().pending, cluster.spout().idle) == (1, "inactive")


def test_invalid_counters_leave_the_last_ones_in_place(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    id = cluster.submit()
    cluster.count(id, "w1", (1, 0), emitted=10)
    cluster.nimbus.count(id, "w1", Incarnation(1, 0), b"no counters")
    assert cluster.spout().emitted == 10
    assert f"{id}: the counters of worker w1 cannot be read" in caplog.text


def test_errors_of_all_workers_are_in_the_order_of_time_and_survive_a_restart(cluster: Cluster) -> None:
    def report(time: float) -> ErrorReport:
        return ErrorReport("words", "lines", 1, "next_tuple", f"at {time}", "", (), None, time)

    id = cluster.submit()
    cluster.count(id, "w1", (1, 0), errors=2, reports=(report(1.0), report(4.0)))
    cluster.count(id, "w2", (1, 0), errors=1, reports=(report(2.0),))
    cluster.count(id, "w1", (1, 1), errors=1, reports=(report(5.0),))
    assert [error.time for error in cluster.status().errors] == [1.0, 2.0, 4.0, 5.0]
    assert cluster.spout().errors == 4


def failed_start(
    time: float, task: int = 1, text: str = "NotInstalled: no Java", call: str = "open"
) -> ErrorReport:
    return ErrorReport("words", "lines", task, call, text, "lines.py:8, in open", (), None, time)


def test_a_start_that_fails_repeatedly_is_shown_once_and_displaces_no_other_error(
    cluster: Cluster,
) -> None:
    id = cluster.submit()
    early = failed_start(0.5, text="ValueError: 7", call="next_tuple")
    cluster.count(id, "w1", (1, 0), errors=1, reports=(early,))
    for restart in range(1, 50):
        both = failed_start(restart), failed_start(restart + 0.25, 2, f"Away: for {restart} s")
        cluster.count(id, f"w{restart % 2 + 1}", (1, restart), errors=2, reports=both)
    ours, again, other = cluster.status().errors
    assert ours == early
    assert (again.task, again.times, again.time) == (1, 49, 49.0)
    assert (other.text, other.times, other.time) == ("Away: for 49 s", 49, 49.25)
    assert cluster.spout().errors == 99


def test_a_repeated_error_is_shown_once_as_the_newest(cluster: Cluster) -> None:
    id = cluster.submit()
    for restart, text in enumerate(("away", "away", "refused", "away")):
        cluster.count(id, "w1", (1, restart), errors=1, reports=(failed_start(restart, text=text),))
    assert [(error.text, error.times) for error in cluster.status().errors] == [("refused", 1), ("away", 3)]


LIVES = st.lists(
    st.tuples(st.sampled_from(["w1", "w2", "w3"]), st.integers(0, 4), st.integers(1, 5)), max_size=40
)


@given(LIVES)
def test_a_total_never_falls(readings: list[tuple[str, int, int]]) -> None:
    counters = Counters()
    cluster = Cluster()
    id = cluster.submit()
    record = cluster.registry.topologies.get("words")
    assert record is not None
    counts: dict[tuple[str, int], int] = {}
    last = 0
    for number, (worker, restart, more) in enumerate(readings):
        counts[worker, restart] = counts.get((worker, restart), 0) + more
        done = ComponentCounters(emitted=counts[worker, restart])
        counters.count(id, worker, Incarnation(1, restart), WorkerCounters({"lines": done}, number=number))
        total = counters.status(record, (("lines", "spout"),), {}, 0.0).components["lines"].emitted
        assert last <= total <= sum(counts.values())
        last = total


def test_a_drain_sees_counters_that_arrive_while_it_reads_the_reports(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, registry = cluster.submit(), cluster.nimbus.registry
    ready, coming = (
        WorkerReport(name, Incarnation(1, 0), name == "w1", False, False, False, None)
        for name in ("w1", "w2")
    )
    for report in (ready, coming):
        cluster.nimbus.report("words", report.worker, report)
    cluster.count(id, "w1", (1, 0))
    cluster.nimbus.kill("words", 60)
    cluster.nimbus.report("words", "w1", replace(ready, drained=True))
    read = registry.reports

    def reports(topology_id: str) -> Mapping[str, WorkerReport]:
        found = read(topology_id)
        cluster.count(id, "w1", (1, 0), emitted=1, number=1)  # from another thread
        return found

    monkeypatch.setattr(registry, "reports", reports)
    cluster.clock.move_to(30)
    cluster.nimbus.tick()
    assert registry.assignments.get(id) is not None, "w2 may have tuples in its tasks, and has time to answer"
