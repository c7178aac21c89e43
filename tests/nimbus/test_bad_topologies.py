"""A topology with an unreadable record is reported and stops no other one; `kill` removes all of it."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from nimbus.counters.counting import Statuses
from nimbus.files.housekeeping import needed_files
from nimbus.leader.master import Nimbus
from nimbus.lifecycle.cleanup import BadTopology
from nimbus.submission.submission import Submission
from squall.cluster import paths
from squall.cluster.records import Assignment, Placement, SupervisorRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.values import Incarnation, TopologyState
from supervisor.store_view import StoreView
from tests.nimbus.transcripts import Scenario, a_topology
from topology_api.errors import NameTaken
from topology_api.options import defaults

NEWER = json.dumps({"kind": "TopologyRecord", "format": 99}).encode()
BAD = [b"\x00\xff nonsense", NEWER, b"x" * 900_000, b"[]"]
#: Fields with impossible values.
ODD: list[dict[str, object]] = [{"state": "BOGUS"}, {"conf": {}}, {"deadline": float("nan")}]


@pytest.fixture
def two(scenario: Scenario) -> Scenario:
    """Two topologies that run."""
    scenario.say("@ 0 supervisor s1 slots=3; submit one tasks=1; submit two tasks=2")
    return scenario


def the_report(worker: str, version: int, stopped: bool = False) -> WorkerReport:
    return WorkerReport(worker, Incarnation(version, 0), True, False, False, stopped, None)


@pytest.mark.parametrize("bad", BAD)
def test_other_topologies_go_on_and_the_bad_record_is_logged_once(
    bad: bytes, two: Scenario, caplog: pytest.LogCaptureFixture
) -> None:
    two.store.put(paths.topology("one"), bad)
    for second in range(1, 4):
        two.say(f"@ {second} tick")
    assert [record.name for record in two.nimbus.registry.all_topologies()] == ["two"]
    told = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(told) == 1 and told[0].startswith("one: its record cannot be read, it is left alone:")
    two.say("@ 5 kill two wait=0; report two w1 stopped")
    assert two.nimbus.registry.all_topologies() == []
    assert two.registry.assignments.get("one-1-0") is not None


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: next(iter(odd)))
def test_an_impossible_record_is_bad_for_every_daemon(odd: dict[str, object], two: Scenario) -> None:
    found = two.store.get(paths.topology("one"))
    assert found is not None
    two.store.put(paths.topology("one"), json.dumps(json.loads(found[0]) | odd).encode())
    two.nimbus.tick()
    assert [record.name for record in two.nimbus.registry.all_topologies()] == ["two"]
    supervisor = SupervisorRecord("s1", "s1", 3)
    store_view = StoreView(Registry(two.store), supervisor, lambda: None, lambda: None)
    assert store_view.refresh(1.0, {}) and {topology_id for topology_id, _ in store_view.wanted} == {
        "two-2-0"
    }
    assert list(store_view.unsure) == ["one"], "its workers go on"
    Nimbus(two.store, two.clock)
    two.nimbus.kill("one", wait_secs=0)
    two.say("@ 1 report one w1 stopped")
    assert [record.name for record in two.nimbus.registry.all_topologies()] == ["two"]


@pytest.mark.parametrize("what", ["assignment", "leaving"])
def test_a_bad_assignment_counts_like_a_bad_record(what: str, two: Scenario) -> None:
    path = {"assignment": paths.assignment, "leaving": paths.leaving}[what]("one-1-0")
    two.store.put(path, b"nonsense")
    two.nimbus.tick()
    assert [record.name for record in two.nimbus.registry.all_topologies()] == ["two"]
    with pytest.raises(BadTopology, match=r"topology 'one' cannot be read .*squall kill one"):
        two.nimbus.deactivate("one")
    two.nimbus.kill("one", wait_secs=0)
    if what == "leaving":  # the other workers are known, and waited for
        two.say("@ 1 report one w1 stopped")
    assert [record.name for record in two.nimbus.registry.all_topologies()] == ["two"]
    assert two.registry.known_ids() == {"two-2-0"}


@pytest.mark.parametrize("bad", BAD)
def test_kill_waits_for_its_workers_and_leaves_nothing(bad: bytes, two: Scenario) -> None:
    two.store.put(paths.topology("one"), bad)
    earlier = Assignment("one-0-0", 0, (Placement("w1", "s1", 2, Incarnation(0, 0), (1,)),))
    two.registry.assignments.write(earlier)  # it may belong to the topology, or to none
    two.nimbus.tick()
    with pytest.raises((BadTopology, NameTaken)):
        two.nimbus.submit(Submission(a_topology("one", 1), defaults(), {}))
    two.nimbus.kill("one")
    record = two.nimbus.topology("one")
    assert (record.id, record.state, record.version) == ("one-1-0", "KILLED", 1)
    assert two.registry.assignments.get(record.id) is None
    assert two.nimbus.report("one", "w1", the_report("w1", 1, stopped=True))
    assert two.registry.known_ids() == {"two-2-0"}
    assert two.nimbus.submit(Submission(a_topology("one", 1), defaults(), {})).id == "one-3-0"


def test_a_record_of_another_name_does_not_lead_to_that_topology(two: Scenario) -> None:
    found = two.store.get(paths.topology("two"))
    assert found is not None
    two.store.put(paths.topology("one"), found[0])
    with pytest.raises(BadTopology, match=r"topology 'one' cannot be read .its record is that of 'two'"):
        two.nimbus.deactivate("one")
    assert two.nimbus.topology("two").state == "ACTIVE"


def test_kill_frees_the_name_of_a_topology_of_which_nothing_else_is_known(scenario: Scenario) -> None:
    scenario.store.put(paths.topology("one"), b"nonsense")
    scenario.nimbus.kill("one")
    assert scenario.store.children("/") == ["cluster"]


def test_the_next_nimbus_does_not_take_its_records_for_orphans(two: Scenario) -> None:
    two.store.put(paths.topology("one"), b"nonsense " + b"a" * 64 + b" more")
    known = two.registry.known_ids()
    two.nimbus.close()
    nimbus = Nimbus(two.store, two.clock)
    nimbus.tick()
    assert two.registry.known_ids() == known
    assert needed_files(two.registry)[1] == {"one"}, "and so no file is removed"


def test_the_slots_of_its_workers_are_not_given_away(two: Scenario) -> None:
    two.store.put(paths.topology("one"), b"nonsense")
    two.say("@ 1 submit more tasks=3 workers=3")
    record = two.nimbus.topology("more")
    placed = two.registry.assignments.get(record.id)
    assert placed is not None
    assert [placement.slot for placement in placed.placements] == [2]


def test_reports_of_its_workers_are_neither_kept_nor_refused(two: Scenario) -> None:
    two.store.put(paths.topology("one"), b"nonsense")
    assert two.nimbus.report("one", "w1", the_report("w1", 1))
    assert two.registry.reports("one-1-0") == {}


def test_an_unreadable_report_is_overwritten_by_the_next_one(two: Scenario) -> None:
    two.store.put(paths.report("one-1-0", "w1"), b"nonsense")
    two.nimbus.tick()
    assert two.nimbus.topology("one").state == "ACTIVE"
    assert two.nimbus.report("one", "w1", the_report("w1", 1))
    assert two.registry.reports("one-1-0") == {"w1": the_report("w1", 1)}


def test_its_status_has_the_error(two: Scenario) -> None:
    two.store.put(paths.topology("one"), b"nonsense")
    status = Statuses(two.store, two.nimbus.counters, two.clock.now).status("one")
    assert (status.state, status.workers) == ("BAD", 0)
    assert "/topologies/one: these bytes hold no TopologyRecord" in str(status.error)


def test_a_repaired_topology_goes_on(two: Scenario) -> None:
    sound = two.store.get(paths.topology("one"))
    assert sound is not None
    two.store.put(paths.topology("one"), b"nonsense")
    two.nimbus.tick()
    two.store.put(paths.topology("one"), sound[0])
    two.nimbus.deactivate("one")
    assert two.nimbus.topology("one").state == "INACTIVE"


def test_a_step_that_fails_for_one_topology_is_tried_again_without_harm_to_others(
    two: Scenario, caplog: pytest.LogCaptureFixture
) -> None:
    record = two.registry.topologies.get("one")
    assert record is not None
    nowhere = replace(record, state=TopologyState.REBALANCING, previous=None, deadline=0.0)
    two.registry.topologies.update(record, nowhere)
    two.say("@ 1 lose s1")
    two.say("@ 2 supervisor s2 slots=3")
    two.say("@ 10 ticks")
    placed = two.registry.assignments.get("two-2-0")
    assert placed is not None and placed.placements[0].supervisor == "s2"
    told = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(told) == 1 and told[0].startswith("one: a step failed and is retried: IllegalTransition: ")
    assert two.nimbus.due is not None


@pytest.mark.parametrize(
    ("name", "command"),
    [("a b", "squall kill 'a b'"), ("-x", "squall kill -- -x"), ("one", "squall kill one")],
)
def test_the_command_in_the_message_can_be_copied(name: str, command: str) -> None:
    assert f"`{command}`" in str(BadTopology(name, "no record"))
