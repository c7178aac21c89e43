"""The records that Nimbus reads after a change; it misses no change."""

from __future__ import annotations

import pytest

from nimbus.leader.master import Nimbus
from nimbus.leader.rounds import DirtySet
from nimbus.submission.submission import Submission
from squall.clock import ManualClock
from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import SupervisorRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.cluster.store import Cancel, Watch
from squall.values import Incarnation
from tests.nimbus.transcripts import a_topology
from topology_api.options import defaults


def taken(*told: str) -> tuple[bool, set[str] | None, bool]:
    """Whether there is anything to read after these events, for which topologies, and whether for the supervisors."""
    dirty = DirtySet()
    dirty.pop()
    dirty.supervisors = False
    for path in told:
        dirty.mark(path)
    return bool(dirty), dirty.pop(), dirty.supervisors


@pytest.mark.parametrize("path", ["/", "/supervisors", "/supervisors/s1", "/drained/s1"])
def test_supervisors_are_read_when_they_may_have_changed(path: str) -> None:
    assert taken(path) == (True, None, True)


@pytest.mark.parametrize(
    "path", ["/topologies/words", "/assignments/words-1-0", "/leaving/x", "/reports", "/new"]
)
def test_any_other_change_makes_nimbus_read_all_topologies(path: str) -> None:
    assert taken(path) == (True, None, False)


def test_a_report_makes_nimbus_read_its_own_topology() -> None:
    reports = paths.report("a b/c-1-0", "w1"), paths.report("words-2-0", "w2"), paths.reports("words-2-0")
    assert taken(*reports) == (True, {"a b/c-1-0", "words-2-0"}, False)
    assert taken(*reports, "/topologies/x") == (True, None, False)


@pytest.mark.parametrize(
    "path",
    ["/keys/x/y", "/blobs/x", "/counters/x", "/cluster", "/former/x", "/nimbuses/x", "/leadership/epoch"],
)
def test_changes_without_consequences_are_not_read(path: str) -> None:
    assert taken(path) == (False, set(), False)


class DeafStore(InMemoryStore):
    """Reports no changes."""

    def watch(self, prefix: str, callback: Watch) -> Cancel:
        return super().watch("/nothing/of/ours", callback)


def test_nimbus_looks_by_itself_when_notifications_are_lost() -> None:
    store, clock = DeafStore(), ManualClock()
    registry = Registry(store)
    nimbus = Nimbus(store, clock, poll_secs=5.0)
    record = nimbus.submit(Submission(a_topology("words", 1), defaults(), {}))
    registry.supervisors.put(SupervisorRecord("s1", "s1", 1))
    assert nimbus.due == 5.0
    clock.move_to(4.9)
    nimbus.tick()
    assert registry.assignments.get(record.id) is None
    clock.move_to(5.0)
    nimbus.tick()
    placed = registry.assignments.get(record.id)
    assert placed is not None
    nimbus.kill("words")
    assert nimbus.report("words", "w1", WorkerReport("w1", Incarnation(1, 0), True, False, True, False, None))
    assert registry.assignments.get(record.id) is None
    assert nimbus.report("words", "w1", WorkerReport("w1", Incarnation(1, 0), True, False, True, True, None))
    assert nimbus.registry.all_topologies() == []


def test_other_changes_do_not_postpone_the_look_at_supervisors() -> None:
    store, clock = DeafStore(), ManualClock()
    registry = Registry(store)
    nimbus = Nimbus(store, clock, poll_secs=5.0)
    record = nimbus.submit(Submission(a_topology("words", 1), defaults(), {}))
    registry.supervisors.put(SupervisorRecord("s1", "s1", 1))
    for second in range(1, 7):
        clock.move_to(float(second))
        nimbus.heard("s1")  # the first heartbeat of a supervisor that Nimbus does not know, each time
        nimbus.tick()
    assert registry.assignments.get(record.id) is not None


def test_nimbus_reads_its_own_writes_without_notifications() -> None:
    store, clock = DeafStore(), ManualClock()
    registry = Registry(store)
    registry.supervisors.put(SupervisorRecord("s1", "s1", 1))
    nimbus = Nimbus(store, clock, poll_secs=5.0)
    nimbus.tick()
    first = nimbus.submit(Submission(a_topology("words", 1), defaults(), {}))
    assert registry.assignments.get(first.id) is not None
    nimbus.submit(Submission(a_topology("words", 2), defaults(), {}, replace=True, wait_secs=0))
    assert nimbus.report("words", "w1", WorkerReport("w1", Incarnation(1, 0), True, False, True, True, None))
    second = nimbus.topology("words")
    assert second.replaces == first.id and registry.assignments.get(second.id) is not None
    nimbus.heard("s1")
    while clock.now() < 30.0:
        clock.move_to(clock.now() + 1.0)
        nimbus.tick()
    assert registry.all_supervisors() == [] and registry.assignments.get(second.id) is None
