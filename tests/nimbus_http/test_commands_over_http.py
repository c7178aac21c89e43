"""Commands that change topologies and supervisors, over real HTTP, and the reports of supervisors."""

from __future__ import annotations

from typing import Any

import pytest

from nimbus.daemon import NimbusDaemon
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import WorkerReport
from squall.http.client import Client, Refused, at
from squall.values import Incarnation
from tests.nimbus_http.nimbuses import PlayedSupervisor, closing, counters_of, submission, until


@pytest.fixture
def running(client: Client, supervisor: PlayedSupervisor) -> PlayedSupervisor:
    """A topology "words" whose worker is up."""
    client.post("topologies", submission())
    supervisor.assignment()
    supervisor.say()
    return supervisor


def state_of(client: Client, name: str = "words") -> str:
    return str(client.get(at("topologies", name))["state"])


def test_a_topology_is_deactivated_and_activated(client: Client, running: PlayedSupervisor) -> None:
    assert client.post("topologies/words/deactivate") == {"name": "words", "state": "INACTIVE"}
    assert client.post("topologies/words/deactivate", {})["state"] == "INACTIVE", "said twice"
    assert client.post("topologies/words/activate") == {"name": "words", "state": "ACTIVE"}


def test_a_killed_topology_drains_and_its_name_is_free_when_its_workers_are_gone(
    client: Client, running: PlayedSupervisor
) -> None:
    assert client.delete("topologies/words", wait_secs=600) == {"name": "words", "state": "KILLED"}
    assert state_of(client) == "KILLED"
    running.say(drained=True)
    running.say(stopped=True)
    with pytest.raises(Refused, match="there is no topology named 'words'"):
        client.get("topologies/words")
    assert client.post("topologies", submission())["state"] == "ACTIVE"


def test_a_topology_without_workers_is_gone_at_once(client: Client) -> None:
    client.post("topologies", submission())
    assert client.delete("topologies/words", wait_secs=0)["state"] == "KILLED"
    until(lambda: client.get("topologies") == {"topologies": []})


def test_a_rebalance_waits_for_the_drain_and_changes_the_number_of_tasks(
    client: Client, running: PlayedSupervisor
) -> None:
    body = {"parallelism": {"count": 3}, "workers": 2, "wait_secs": 600}
    assert client.post("topologies/words/rebalance", body) == {"name": "words", "state": "REBALANCING"}
    running.say(drained=True)
    assert state_of(client) == "ACTIVE"
    assert client.get("topologies/words/components/count")["parallelism"] == 3


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("topologies/nobody/activate", None, 404, "NoSuchTopology"),
        ("topologies/nobody/rebalance", {"workers": 2}, 404, "NoSuchTopology"),
        ("topologies/words/rebalance", {"workers": 0}, 422, "InvalidConfig"),
        ("topologies/words/rebalance", {"parallelism": {"nobody": 2}}, 422, "InvalidConfig"),
        ("topologies/words/rebalance", {"workers": "two"}, 400, "BadRequest"),
        ("topologies/words/rebalance", {"wait_secs": -1}, 400, "BadRequest"),
        ("topologies/words/rebalance", [], 400, "BadRequest"),
        ("topologies/words/activate", {"wait": 3}, 400, "BadRequest"),
        ("supervisors/nobody/drain", None, 404, "NotFound"),
    ],
)
def test_an_impossible_command_is_refused_with_the_reason(
    client: Client, running: object, path: str, body: Any, status: int, kind: str
) -> None:
    with pytest.raises(Refused) as refused:
        client.post(path, body)
    assert (refused.value.status, refused.value.kind) == (status, kind)
    assert state_of(client) == "ACTIVE"


@pytest.mark.parametrize("wait_secs", ["soon", -1, "nan", "inf"])
def test_a_wait_is_a_number_of_seconds(client: Client, running: object, wait_secs: object) -> None:
    with pytest.raises(Refused) as refused:
        client.delete("topologies/words", wait_secs=wait_secs)
    assert refused.value.status == 400 and state_of(client) == "ACTIVE"


def test_a_command_that_the_state_does_not_allow_is_409_and_names_the_possible_ones(
    client: Client, running: PlayedSupervisor
) -> None:
    client.delete("topologies/words", wait_secs=600)
    with pytest.raises(Refused, match="possible now: kill") as refused:
        client.post("topologies/words/activate")
    assert (refused.value.status, refused.value.kind) == (409, "IllegalTransition")


def test_a_drained_supervisor_gets_no_work_until_it_is_undrained(
    client: Client, supervisor: PlayedSupervisor
) -> None:
    assert client.post("supervisors/s1/drain") == {"id": "s1", "drained": True}
    assert client.get("supervisors")["supervisors"][0]["drained"] is True
    client.post("topologies", submission())
    assert client.get("topologies/words/workers") == {"workers": []}
    assert client.post("supervisors/s1/undrain") == {"id": "s1", "drained": False}
    assert supervisor.assignment().placements


def test_counters_of_a_worker_are_counted_once_however_often_they_are_sent(
    client: Client, running: PlayedSupervisor
) -> None:
    for _ in range(3):
        running.send(counters=counters_of(running, 7))
    assert client.get("topologies/words")["components"]["lines"]["emitted"] == 7


def test_reports_of_unwanted_workers_are_refused_by_name(
    running: PlayedSupervisor,
) -> None:
    stray = WorkerReport("w99", Incarnation(1, 0), True, False, False, False, None)
    gone = WorkerReport("w1", Incarnation(1, 0), True, False, False, False, None)
    refused = running.send({"words": [stray], "nobody": [gone]})
    assert {(each["topology"], each["worker"]) for each in refused} == {("words", "w99"), ("nobody", "w1")}


@pytest.mark.parametrize(
    "body",
    [
        {"reports": [{"topology": "words", "report": {"kind": "WorkerReport"}}]},
        {"reports": [{"topology": "words"}]},
        {"reports": "all well"},
        {"counters": [{"topology_id": "x", "worker": "w1", "incarnation": [1], "counters": {}}]},
        {"counters": [7]},
        {"news": []},
        None,
    ],
)
def test_a_supervisors_reports_are_checked(running: PlayedSupervisor, body: Any) -> None:
    with closing(running.client()) as client, pytest.raises(Refused) as refused:
        client.post("supervisors/s1/reports", body)
    assert (refused.value.status, refused.value.kind) == (400, "BadRequest")


def test_a_supervisor_can_only_report_for_itself(
    running: PlayedSupervisor, leader: NimbusDaemon, store: InMemoryStore, client: Client
) -> None:
    other = PlayedSupervisor(store, leader, "s2")
    with closing(other.client()) as stranger, pytest.raises(Refused) as refused:
        stranger.post("supervisors/s1/reports", {"reports": [], "counters": []})
    assert refused.value.status == 401
    with pytest.raises(Refused) as refused:  # and an operator is not a supervisor
        client.post("supervisors/s1/reports", {"reports": [], "counters": []})
    assert refused.value.status == 401


def test_a_silent_supervisor_is_given_up_and_accepted_again_when_it_is_heard(
    cluster: Any, store: InMemoryStore
) -> None:
    leader = cluster.start_leader(conf={"nimbus.supervisor.timeout.secs": 0.3})
    supervisor = PlayedSupervisor(store, leader)
    until(lambda: supervisor.registry.all_supervisors() == [], "the end of patience")
    supervisor.send()
    assert [record.id for record in supervisor.registry.all_supervisors()] == ["s1"]


def test_a_log_comes_from_the_supervisor_of_its_worker(client: Client, running: PlayedSupervisor) -> None:
    with pytest.raises(Refused, match="does not serve logs") as refused:
        client.get("topologies/words/workers/w1/log")
    assert refused.value.status == 404


def test_a_supervisor_that_does_not_answer_is_named(
    client: Client, leader: NimbusDaemon, store: InMemoryStore
) -> None:
    supervisor = PlayedSupervisor(store, leader, url="http://127.0.0.1:9")
    client.post("topologies", submission())
    place = supervisor.assignment().placements[0]
    with pytest.raises(Refused, match="supervisor s1 on host-s1") as refused:
        client.get(at("topologies", "words", "workers", place.worker, "log"))
    assert (refused.value.status, refused.value.kind) == (503, "SupervisorUnreachable")
