"""A worker's orders follow from the store alone, and reports to Nimbus from the worker's own."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from msgspec import structs

from squall.cluster.memory import InMemoryStore
from squall.cluster.records import Assignment, Placement, TopologyRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.reports.event_text import sentence
from squall.reports.events import Cause, Event
from squall.values import Incarnation, TaskRow, TopologyState
from squall.worker_files import HEIR, ON_TRIAL, WorkerHeartbeat, user_conf
from supervisor.desired_state import (
    TopologyView,
    desired_states,
    places_of,
    read_topologies,
)
from supervisor.managed_worker import ManagedWorker
from supervisor.orders import (
    HostSettings,
    Own,
    occasion_of,
    orders_for,
    orders_to_stop,
    ports_of,
)
from supervisor.plan import DesiredState
from supervisor.process_host import Container

RECORD = TopologyRecord(
    id="words-1-0", name="words", state=TopologyState.ACTIVE, previous=None,
    conf=(CONF := {"topology.workers": 2, "topology.message.timeout.secs": 30, "topology.worker.timeout.secs": 7}),
    component_confs={"lines": CONF},
    tasks=(TaskRow(1, "lines", 0), TaskRow(2, "lines", 1), TaskRow(3, "lines", 2)),
    version=4, deadline=None, error=None, submitted=0.0, finished=(3,),
)  # fmt: skip
W1 = Placement("w1", "s1", 0, Incarnation(2, 0), (1,))
W2 = Placement("w2", "s2", 1, Incarnation(4, 0), (2,))
W3 = Placement("w3", "s1", 1, Incarnation(4, 0), (3,))
ADDRESS = ("tcp://127.0.0.1:6701", "tcp://127.0.0.1:6702")
DIED = Event("died", topology="words", worker="w1", pid=7, cause=Cause("unknown"))
SAYS = WorkerReport("w2", Incarnation(4, 0), True, False, False, False, None, address=ADDRESS, version=4)
VIEW = TopologyView(RECORD, Assignment("words-1-0", 4, (W1, W2, W3)), None, {"w2": SAYS})
OWN = Own("w1", Incarnation(2, 1), "/bundle", (6601, 6602), 42)
AROUND = HostSettings("s1", "0.0.0.0", "host-1", 10.0)


def incarnations(view: TopologyView, restarts: dict[str, Incarnation]) -> dict[str, Incarnation]:
    orders = orders_for(view, OWN, AROUND, restarts)
    return {place.worker: place.incarnation for place in orders.placements}


def test_orders_contain_the_values_of_the_store_and_the_supervisor() -> None:
    orders = orders_for(VIEW, OWN, AROUND, {})
    assert (orders.asked, orders.version, orders.finished) == ("run", 4, (3,))
    assert (orders.worker, orders.incarnation, orders.seed) == ("w1", (2, 1), 42)
    assert (orders.bind, orders.host, orders.ports) == ("0.0.0.0", "host-1", (6601, 6602))
    assert orders.addresses == {"w2": ADDRESS}
    assert orders.lease_secs == 10.0


def test_orders_of_a_version_on_trial_say_so_in_a_form_that_older_workers_ignore() -> None:
    on_trial = orders_for(
        structs.replace(VIEW, record=structs.replace(RECORD, replaces="words-0-0")), OWN, AROUND, {}
    )
    assert ON_TRIAL in on_trial.conf and ON_TRIAL not in orders_for(VIEW, OWN, AROUND, {}).conf
    assert user_conf(on_trial) == RECORD.conf


def view_of(state: str, id: str = "words-2-0", replaces: str | None = "words-1-0") -> TopologyView:
    return structs.replace(
        VIEW, record=structs.replace(RECORD, id=id, state=getattr(TopologyState, state), replaces=replaces)
    )


@pytest.mark.parametrize(
    ("views", "heir"),
    [
        ([view_of("FAILED")], "words-1-0"),  # its trial failed
        (
            [view_of("ACTIVE", "words-1-0", None)],
            "words-1-0",
        ),  # it was rolled back while this supervisor was away
        ([view_of("ACTIVE")], None),  # its worker leaves the host
        ([view_of("KILLED", replaces=None)], None),
        ([view_of("FAILED", replaces=None)], None),  # it had proved that it runs
        ([], None),
    ],
)
def test_only_at_a_rollback_the_orders_to_stop_name_the_version_that_returns(
    views: list[TopologyView], heir: str | None
) -> None:
    on_trial = orders_for(view_of("ACTIVE"), OWN, AROUND, {})
    stop = orders_to_stop(on_trial, {view.record.id: view for view in views})
    assert (stop.asked, stop.conf.get(HEIR), HEIR in user_conf(stop)) == ("stop", heir, False)
    assert HEIR not in orders_to_stop(orders_for(VIEW, OWN, AROUND, {}), {"words-1-0": VIEW}).conf


def test_incarnations_are_the_latest_known_ones() -> None:
    assert incarnations(VIEW, {}) == {"w1": (2, 0), "w2": (4, 0), "w3": (4, 0)}
    assert incarnations(VIEW, {"w1": Incarnation(2, 1), "w3": Incarnation(4, 2)}) == {
        "w1": (2, 1),
        "w2": (4, 0),
        "w3": (4, 2),
    }
    again = structs.replace(VIEW, reports={"w2": structs.replace(SAYS, incarnation=Incarnation(4, 3))})
    assert incarnations(again, {})["w2"] == (4, 3)


def test_incarnations_of_another_placement_of_that_name_do_not_count() -> None:
    later = structs.replace(VIEW, reports={"w2": structs.replace(SAYS, incarnation=Incarnation(3, 9))})
    assert incarnations(later, {"w3": Incarnation(3, 5)}) == {"w1": (2, 0), "w2": (4, 0), "w3": (4, 0)}


@pytest.mark.parametrize(
    ("said", "restarts"),
    [
        (structs.replace(SAYS, address=None), {}),
        (structs.replace(SAYS, stopped=True), {}),
        (structs.replace(SAYS, incarnation=Incarnation(3, 0)), {}),
        (SAYS, {"w2": Incarnation(4, 1)}),  # its next process has begun, and is elsewhere
    ],
)
def test_only_the_process_that_runs_now_is_reached(
    said: WorkerReport, restarts: dict[str, Incarnation]
) -> None:
    view = structs.replace(VIEW, reports={"w2": said})
    assert orders_for(view, OWN, AROUND, restarts).addresses == {}


def test_a_worker_does_not_get_its_own_address() -> None:
    view = structs.replace(
        VIEW, reports={"w1": structs.replace(SAYS, worker="w1", incarnation=Incarnation(2, 0))}
    )
    assert orders_for(view, OWN, AROUND, {}).addresses == {}


@pytest.mark.parametrize(
    ("address", "ports"),
    [
        (None, (0, 0)),
        (ADDRESS, (6701, 6702)),
        (("tcp://[::1]:1", "tcp://host:2"), (1, 2)),
        (("ipc:///tmp/x", ""), (0, 0)),
    ],
)
def test_ports_are_read_from_addresses(address: tuple[str, str] | None, ports: tuple[int, int]) -> None:
    assert ports_of(address) == ports


# Reports to Nimbus

HEARTBEAT = WorkerHeartbeat(
    pid=1, started=2, incarnation=Incarnation(2, 1), number=9, orders=5, asked="drain", version=4,
    opened=True, drained=True, finished=(3,), address=ADDRESS,
)  # fmt: skip


def report(
    heartbeat: WorkerHeartbeat | None = HEARTBEAT,
    asked: str = "drain",
    asked_since: int = 5,
    stopped: bool = False,
    event: Event | None = None,
) -> WorkerReport:
    """Of w1 with that heartbeat."""
    worker = ManagedWorker(("words-1-0", "w1"), "words", 2, 0, Mock(Container))
    worker.restart, worker.heartbeat, worker.asked_since, worker.event = 1, heartbeat, asked_since, event
    return worker.report(asked, stopped)


def test_a_report_follows_from_the_heartbeat() -> None:
    assert report() == WorkerReport(
        "w1", Incarnation(2, 1), True, False, True, False, None, address=ADDRESS, finished=(3,), version=4
    )
    crashed = report(structs.replace(HEARTBEAT, crash="boom"), event=DIED)
    assert (crashed.crash, crashed.event, crashed.note) == ("boom", DIED, sentence(DIED))


def test_a_worker_without_a_heartbeat_reports_only_that_it_is_starting() -> None:
    assert report(None, event=DIED) == WorkerReport(
        "w1", Incarnation(2, 1), False, False, False, False, None, version=2, note=sentence(DIED), event=DIED
    )
    assert report(None, stopped=True).stopped


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"asked_since": 6}, id="it drained for an earlier occasion"),
        pytest.param({"asked": "run"}, id="it is not asked to drain any more"),
        pytest.param({"heartbeat": structs.replace(HEARTBEAT, asked="run")}, id="it does not drain"),
        pytest.param({"heartbeat": structs.replace(HEARTBEAT, drained=False)}, id="it has not drained yet"),
    ],
)
def test_drained_refers_to_the_present_request_only(changed: dict[str, Any]) -> None:
    assert not report(**changed).drained


def test_two_drains_in_a_row_are_distinguished() -> None:
    draining = structs.replace(
        VIEW, record=structs.replace(RECORD, state=TopologyState.REBALANCING, deadline=10.0)
    )
    again = structs.replace(
        VIEW, record=structs.replace(RECORD, state=TopologyState.REBALANCING, deadline=11.0)
    )
    killed = structs.replace(VIEW, record=structs.replace(RECORD, state=TopologyState.KILLED, deadline=10.0))
    occasions = {occasion_of(view) for view in (VIEW, draining, again, killed)}
    assert len(occasions) == 4
    assert occasion_of(draining) == occasion_of(structs.replace(draining, reports={}))


# Wanted workers


def test_every_state_of_a_topology_asks_something_of_its_workers() -> None:

    assert {state.asks for state in TopologyState} == {"run", "pause", "drain", "stop"}


def test_the_places_of_a_supervisor_are_wanted_and_no_others() -> None:
    places = places_of([VIEW], "s1")
    assert places == {("words-1-0", "w1"): W1, ("words-1-0", "w3"): W3}
    assert desired_states({"words-1-0": VIEW}, places) == {
        ("words-1-0", "w1"): DesiredState(2, 0, False, 7),
        ("words-1-0", "w3"): DesiredState(4, 1, False, 7),
    }
    ended = structs.replace(VIEW, record=structs.replace(RECORD, state=TopologyState.FAILED))
    assert all(want.stop for want in desired_states({"words-1-0": ended}, places).values())


def test_a_view_has_the_workers_with_a_place_and_those_that_are_leaving() -> None:
    view = structs.replace(
        VIEW, leaving=Assignment("words-1-0", 4, (Placement("w4", "s1", 2, Incarnation(3, 0), (1,)),))
    )
    assert view.knows("w1", 2) and view.knows("w4", 3)
    assert not view.knows("w1", 3)
    assert not view.knows("w5", 3)
    assert not structs.replace(VIEW, assignment=None).knows("w1", 2)


def registry() -> Registry:
    found = Registry(InMemoryStore())
    found.topologies.create(RECORD)
    return found


def test_a_topology_is_read_with_all_its_records() -> None:
    store = registry()
    assert read_topologies(store, {}, "s1").views == {"words-1-0": TopologyView(RECORD, None, None, {})}
    assert VIEW.assignment is not None
    store.assignments.write(VIEW.assignment)
    store.save_report("words-1-0", SAYS)
    views = read_topologies(store, {}, "s1").views
    assert views == {"words-1-0": VIEW}
    assert read_topologies(store, views, "s1").views["words-1-0"] is views["words-1-0"], "nothing has changed"
    store.save_report("words-1-0", structs.replace(SAYS, ended=True))
    assert read_topologies(store, views, "s1").views["words-1-0"].reports["w2"].ended


def test_reports_are_read_only_by_those_they_concern() -> None:
    store = registry()
    assert VIEW.assignment is not None
    store.assignments.write(VIEW.assignment)
    store.save_report("words-1-0", SAYS)
    assert not read_topologies(store, {}, "s3").views["words-1-0"].reports
    assert read_topologies(store, {}, "s3", ["words-1-0"]).views["words-1-0"].reports, "it still has a worker"
    store.leaving.write(Assignment("words-1-0", 4, (structs.replace(W1, supervisor="s3"),)))
    assert read_topologies(store, {}, "s3").views["words-1-0"].reports, "it is to lose one"


def test_an_incomplete_assignment_is_being_written_and_changes_nothing() -> None:
    store = registry()
    store.assignments.write(Assignment("words-1-0", 4, (W1, W2)))
    reading = read_topologies(store, {"words-1-0": VIEW}, "s1")
    assert reading.views == {"words-1-0": VIEW}
    assert "assignment 4 of words-1-0" in reading.unsure["words"]
    assert read_topologies(store, {}, "s1").views == {}


def test_a_damaged_record_is_reported_by_name_and_the_others_are_read() -> None:
    store = registry()
    other = structs.replace(RECORD, id="other-2-0", name="other")
    store.topologies.create(other)
    assert VIEW.assignment is not None
    store.assignments.write(VIEW.assignment)
    store.store.put("/assignments/other-2-0", b"{damaged")
    reading = read_topologies(store, {}, "s1")
    assert set(reading.views) == {"words-1-0"}
    assert set(reading.unsure) == {"other"}
