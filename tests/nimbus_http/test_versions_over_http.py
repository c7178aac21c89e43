"""The versions of a topology over real HTTP: how each of them stands or ended."""

from __future__ import annotations

from typing import Any

import pytest

from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.cluster.registry import Registry
from squall.http.client import Client, Refused
from tests.nimbus_http.nimbuses import PlayedSupervisor, submission, until

TIMEOUT = "topology.message.timeout.secs"


def versions_of(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("topologies/words/history")["versions"]
    return found


def hows(client: Client) -> list[str]:
    return [each["how"] for each in versions_of(client)]


def test_each_version_is_listed_with_its_submitter_its_options_and_its_end(
    client: Client, supervisor: PlayedSupervisor
) -> None:
    first = client.post(
        "topologies", submission(options={"topology": {TIMEOUT: 7, "db.password": "swordfish"}})
    )
    supervisor.assignment()
    supervisor.say()
    [only] = versions_of(client)
    assert (only["id"], only["how"], only["state"], only["ended"]) == (first["id"], "running", "ACTIVE", None)
    assert only["by"] == "operator at 127.0.0.1"
    assert only["options"] == {TIMEOUT: 7, "db.password": "(hidden)"}
    second = client.post("topologies", submission(replace=True, reset_options=True))
    assert hows(client) == ["waiting", "running"]
    supervisor.say(drained=True)
    supervisor.say(stopped=True)
    supervisor.assignment()
    assert hows(client) == ["on trial", "on standby"]
    supervisor.say(crash="ValueError: boom")
    supervisor.say(stopped=True, crash="ValueError: boom")
    present, bad = versions_of(client)
    assert (present["id"], present["how"]) == (first["id"], "running")
    assert (bad["id"], bad["how"], bad["error"]) == (second["id"], "rolled back", "ValueError: boom")
    assert bad["options"] == {} and bad["ended"] is not None


def test_a_topology_of_an_earlier_release_has_a_history_too(
    client: Client, supervisor: PlayedSupervisor, store: InMemoryStore
) -> None:
    client.post("topologies", submission())
    record = Registry(store).topologies.get("words")
    assert record is not None
    path = Registry(store).topologies.path("words")
    found = store.get(path)
    assert found is not None
    store.put(path, found[0].replace(b',"by":"operator at 127.0.0.1"', b""))
    assert [each["by"] for each in versions_of(client)] == [""]


def test_there_is_no_history_without_a_topology(client: Client) -> None:
    with pytest.raises(Refused, match="there is no topology named 'words'"):
        versions_of(client)


def drains_and_stops(supervisor: PlayedSupervisor) -> None:
    supervisor.say(drained=True)
    supervisor.say(stopped=True)
    supervisor.assignment()


def replaced_once(client: Client, supervisor: PlayedSupervisor) -> tuple[str, str]:
    """The ids of a version with options and a file, and of one that replaced it and ends its trial by completion."""
    first = client.post("topologies", submission(options={"topology": {TIMEOUT: 7}}, conf={TIMEOUT: 7}))
    supervisor.assignment()
    supervisor.say()
    client.post("topologies/words/rebalance", {"parallelism": {"count": 3}, "wait_secs": 0})
    supervisor.say()
    second = client.post("topologies", submission(replace=True, reset_options=True))
    drains_and_stops(supervisor)
    supervisor.say(ended=True)
    until(lambda: hows(client) == ["running", "replaced"])
    return first["id"], second["id"]


def test_a_rollback_submits_the_earlier_version_again_with_its_settings(
    client: Client, supervisor: PlayedSupervisor, store: InMemoryStore
) -> None:
    first, _ = replaced_once(client, supervisor)
    body = {"submission": "a key", "wait_secs": 0}
    answer = client.post("topologies/words/rollback", body)
    assert answer["repeats"] == first
    assert answer["changed"][TIMEOUT] == [30, 7] and answer["changed"]["count:tasks"] == [2, 3]
    again = client.post("topologies/words/rollback", body)
    assert (again["id"], again["repeats"]) == (answer["id"], first), "the request was repeated"
    supervisor.say(stopped=True)
    supervisor.assignment()
    record = Registry(store).topologies.get("words")
    assert record is not None and record.id == answer["id"] and record.conf[TIMEOUT] == 7
    assert [row.component for row in record.tasks].count("count") == 3
    present, *earlier = versions_of(client)
    assert (present["how"], present["repeats"]) == ("on trial", first)
    assert present["options"] == {TIMEOUT: 7, "count:tasks": 3}
    assert [each["how"] for each in earlier] == ["on standby", "replaced"]
    with pytest.raises(Refused, match=r"is on trial.*end it with `squall rollback words`"):
        client.post("topologies/words/rollback", {"submission": "another key", "version": "1"})


def test_a_rollback_of_a_version_on_trial_ends_it_once(client: Client, supervisor: PlayedSupervisor) -> None:
    _, second = replaced_once(client, supervisor)
    third = client.post("topologies", submission(replace=True))
    drains_and_stops(supervisor)
    body = {"submission": "a key"}
    answer = client.post("topologies/words/rollback", body)
    assert (answer["id"], answer["state"], answer["rolled_back"]) == (second, "COMPLETED", third["id"])
    assert answer["repeats"] is None
    assert client.post("topologies/words/rollback", body) == answer
    supervisor.say(stopped=True)
    until(lambda: hows(client) == ["running", "rolled back", "replaced"])
    present, ended, _ = versions_of(client)
    assert (present["id"], present["state"]) == (second, "COMPLETED")
    assert (ended["id"], ended["error"]) == (third["id"], "an operator rolled it back")
    assert client.post("topologies/words/rollback", body)["id"] == second, "not the version before it"


def test_a_rollback_that_is_impossible_is_refused_and_changes_nothing(
    client: Client, supervisor: PlayedSupervisor, store: InMemoryStore
) -> None:
    with pytest.raises(Refused, match="there is no topology named 'words'"):
        client.post("topologies/words/rollback", {"submission": "k"})
    first, second = replaced_once(client, supervisor)
    for version, why in (("77", "no version '77'.*kept are: words-1"), (second, "is the present version")):
        with pytest.raises(Refused, match=why) as refused:
            client.post("topologies/words/rollback", {"submission": "k", "version": version})
        assert (refused.value.status, refused.value.kind) == (409, "NoRollback")
    store.delete(paths.description(first))
    with pytest.raises(Refused, match=f"no rollback to {first} is possible: there is no blob"):
        client.post("topologies/words/rollback", {"submission": "k", "version": first})
    assert hows(client) == ["running", "replaced"]
