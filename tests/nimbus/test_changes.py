"""What Nimbus looks at when something has changed, and that it misses nothing for it."""

from __future__ import annotations

import pytest

from nimbus.leader.dirty import DirtySet
from nimbus.leader.master import Nimbus
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
    """Whether there is anything to look at after these events, at which topologies, and whether at the supervisors."""
    dirty = DirtySet()
    dirty.pop()
    dirty.supervisors = False
    for path in told:
        dirty.mark(path)
    return bool(dirty), dirty.pop(), dirty.supervisors


@pytest.mark.parametrize("path", ["/", "/supervisors", "/supervisors/s1", "/drained/s1"])
def test_supervisors_are_looked_at_when_they_may_have_changed(path: str) -> None:
    assert taken(path) == (True, None, True)


@pytest.mark.parametrize(
    "path", ["/topologies/words", "/assignments/words-1-0", "/leaving/x", "/reports", "/new"]
)
def test_everything_else_has_all_topologies_looked_at(path: str) -> None:
    assert taken(path) == (True, None, False)


def test_a_report_has_its_own_topology_looked_at() -> None:
    reports = paths.report("a b/c-1-0", "w1"), paths.report("words-2-0", "w2"), paths.reports("words-2-0")
    assert taken(*reports) == (True, {"a b/c-1-0", "words-2-0"}, False)
    assert taken(*reports, "/topologies/x") == (True, None, False)


@pytest.mark.parametrize(
    "path",
    ["/keys/x/y", "/blobs/x", "/counters/x", "/cluster", "/former/x", "/nimbuses/x", "/leadership/epoch"],
)
def test_what_leads_to_nothing_is_not_looked_at(path: str) -> None:
    assert taken(path) == (False, set(), False)


class DeafStore(InMemoryStore):
    """Tells nobody of any change."""

    def watch(self, prefix: str, callback: Watch) -> Cancel:
        return super().watch("/nothing/of/ours", callback)


def test_where_what_the_store_tells_is_lost_nimbus_looks_by_itself() -> None:
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
    assert nimbus.topologies() == []


def test_what_else_there_is_to_look_at_does_not_put_off_the_look_for_supervisors() -> None:
    store, clock = DeafStore(), ManualClock()
    registry = Registry(store)
    nimbus = Nimbus(store, clock, poll_secs=5.0)
    record = nimbus.submit(Submission(a_topology("words", 1), defaults(), {}))
    registry.supervisors.put(SupervisorRecord("s1", "s1", 1))
    for second in range(1, 7):
        clock.move_to(float(second))
        nimbus.heard("s1")  # a supervisor that Nimbus does not know gives its first sign of life each time
        nimbus.tick()
    assert registry.assignments.get(record.id) is not None


def test_what_nimbus_has_written_itself_is_looked_at_though_the_store_tells_nothing() -> None:
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
