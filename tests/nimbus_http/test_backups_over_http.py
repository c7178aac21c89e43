"""Backups over real HTTP: what Nimbus gives for a backup brings a topology back in another cluster, and nothing half done."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nimbus.daemon import NimbusDaemon
from squall.cluster import paths
from squall.cluster.blobs import get_bundle
from squall.cluster.memory import InMemoryStore
from squall.cluster.registry import Registry
from squall.http.client import Client, Refused, at
from tests.nimbus_http.nimbuses import PICKLE, Cluster, PlayedSupervisor, client_of, submission, until, words
from tests.nimbus_http.test_versions_over_http import hows, replaced_once, versions_of

#: What a cluster has that never had a topology.
EMPTY = {"cluster", "leadership", "nimbuses", "presence", "keys"}


class Other:
    """Another cluster, which is empty."""

    def __init__(self, folder: Path) -> None:
        self.store = InMemoryStore()
        self.registry = Registry(self.store)
        self._cluster = Cluster(self.store, folder)
        self.leader: NimbusDaemon = self._cluster.start_leader()
        self.client = client_of(self.leader)
        self.folder = folder

    def stop(self) -> None:
        self.client.close()
        self._cluster.stop()

    def send(self, value: object) -> str:
        """Send a value as a file; return its SHA-256."""
        data = json.dumps(value).encode()
        path, sha256 = self.folder / "sent", hashlib.sha256(data).hexdigest()
        path.write_bytes(data)
        self.client.put_file(at("files", sha256), path)
        return sha256

    def wrote_nothing(self) -> bool:
        return set(self.store.children("/")) <= EMPTY


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Other]:
    found = Other(tmp_path / "other")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Other]:
    """A cluster for tests that restore nothing."""
    found = Other(tmp_path_factory.mktemp("empty"))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The backup of a topology "words", as JSON."""
    cluster = Other(tmp_path_factory.mktemp("taken"))
    cluster.client.post("topologies", submission())
    body = json.dumps(backed_up(cluster.client))
    cluster.stop()
    return body


def backed_up(client: Client, name: str = "words") -> dict[str, Any]:
    """The body of a request to restore a topology, with its bundles instead of their digests."""
    backup = client.get(f"topologies/{name}/backup")
    records = [backup["topology"], backup["waiting"], backup["replaced"], *backup["versions"]]
    ids = {each["id"] for each in records if each}
    bundles = {id: client.get(f"topologies/{name}/bundles/{id}") for id in ids}
    return {"submission": "a key", "backup": backup, "bundles": bundles}


def sent(other: Other, body: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The same, after the bundles were sent."""
    bundles = {id: other.send(bundle) for id, bundle in body["bundles"].items()}
    return {**body, "bundles": bundles, **changes}


def test_a_topology_comes_back_with_its_versions_its_options_and_its_ids(
    client: Client, supervisor: PlayedSupervisor, other: Other
) -> None:
    first, second = replaced_once(client, supervisor)
    body = sent(other, backed_up(client))
    before = versions_of(client)
    assert other.client.post("restore-checks", body)["id"] == second
    assert other.wrote_nothing()
    answer = other.client.post("restores", body)
    assert answer == {"name": "words", "id": second, "state": "COMPLETED"}
    assert other.client.post("restores", body) == answer, "the request was repeated"
    assert versions_of(other.client) == before and hows(other.client) == ["running", "replaced"]
    again = other.client.post("topologies/words/rollback", {"submission": "k", "version": first})
    assert again["repeats"] == first and again["changed"]["count:tasks"] == [2, 3]
    assert int(again["id"].split("-")[1]) > int(second.split("-")[1])


def test_assignments_go_on_above_every_number_that_another_cluster_may_have_used(
    client: Client, other: Other, supervisor: PlayedSupervisor
) -> None:
    client.post("topologies", submission())
    supervisor.assignment()
    PlayedSupervisor(other.store, other.leader)
    began = int(time.time())
    other.client.post("restores", sent(other, backed_up(client)))
    restored = PlayedSupervisor(other.store, other.leader).assignment()
    assert restored.version > began > supervisor.assignment().version
    assert restored.topology_id == supervisor.assignment().topology_id


@pytest.mark.parametrize(("asked", "state"), [({}, "ACTIVE"), ({"inactive": True}, "INACTIVE")])
def test_spouts_rest_only_if_they_did_or_if_it_is_asked_for(
    client: Client, other: Other, asked: dict[str, bool], state: str
) -> None:
    client.post("topologies", submission())
    client.post("topologies", submission(words("resting"), active=False))
    assert other.client.post("restores", sent(other, backed_up(client), **asked))["state"] == state
    body = sent(other, backed_up(client, "resting"), submission="b", **asked)
    assert other.client.post("restores", body)["state"] == "INACTIVE"


def test_a_version_that_waits_still_replaces_the_present_one(
    client: Client, other: Other, supervisor: PlayedSupervisor
) -> None:
    first = client.post("topologies", submission())["id"]
    supervisor.assignment()
    supervisor.say()
    second = client.post("topologies", submission(replace=True))["id"]
    body = backed_up(client)
    assert (body["backup"]["topology"]["id"], body["backup"]["waiting"]["id"]) == (first, second)
    other.client.post("restores", sent(other, body))
    until(lambda: hows(other.client) == ["on trial", "on standby"])
    assert [each["id"] for each in versions_of(other.client)] == [second, first]


def test_a_name_that_is_taken_is_refused_by_name_and_nothing_is_changed(taken: str, other: Other) -> None:
    body = sent(other, json.loads(taken))
    there = other.client.post("topologies", submission())["id"]
    for place in ("restore-checks", "restores"):
        with pytest.raises(Refused, match="a topology named 'words' exists already") as refused:
            other.client.post(place, body)
        assert (refused.value.status, refused.value.kind) == (409, "NameTaken")
    assert [each["id"] for each in versions_of(other.client)] == [there]


def test_a_file_or_a_bundle_that_was_not_sent_is_named(taken: str, empty: Other) -> None:
    body = json.loads(taken)
    unsent = {**body, "bundles": dict.fromkeys(body["bundles"], "0" * 64)}
    assert empty.client.post("restore-checks", unsent)["name"] == "words"
    with pytest.raises(Refused, match="lacks the bundle of words-1") as refused:
        empty.client.post("restores", unsent)
    assert (refused.value.status, refused.value.kind) == (422, "FileMissing")
    body["backup"]["topology"]["files"] = {"code": "1" * 64}
    with pytest.raises(Refused, match="lacks the 'code' file"):
        empty.client.post("restores", sent(empty, body))
    assert empty.wrote_nothing()


def changed(body: dict[str, Any], *path: str, value: object) -> None:
    *above, last = path
    for name in above:
        body = body[name]
    body[last] = value


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("backup", "topology", "format"), 99, "format 99: this Squall reads"),
        (("backup", "topology", "state"), "KILLED", "it was being killed"),
        (("backup", "topology", "state"), "ASLEEP", "TopologyRecord.state"),
        (("backup", "topology", "id"), "words-1-../x", "it has a version 'words-1-../x'"),
        (("backup", "topology", "id"), "words-9999999999999999-1", "it has a version"),
        (("backup", "topology", "name"), "clicks", "with the name 'clicks'"),
        (("backup", "topology", "version"), 2**63, "has an assignment 9223372036854775808"),
        (("backup", "topology", "version"), -1, "has an assignment -1"),
        (("backup", "topology", "files"), {"code": "../../etc/passwd"}, "is not a SHA-256"),
        (("backup", "topology", "files"), {"shell": "0" * 64}, "files names 'shell'"),
        (("backup", "topology", "conf"), {}, "TopologyRecord.conf"),
        (("backup", "topology", "conf", "topology.wrokers"), 3, "topology.wrokers"),
        (("backup", "topology", "tasks"), [[1, "nobody", 0]], "it has no component 'nobody'"),
        (("backup", "name"), "../words", "contains '/'"),
        (("backup", "versions"), [{"kind": "VersionRecord"}], "a VersionRecord of format None"),
        (("backup", "waiting"), {}, "these bytes hold no TopologyRecord"),
        (("bundles", "words-7-7"), {}, "a bundle of 'words-7-7', but no such version"),
        (("bundles",), {}, "the bundle of words-1-"),
        (("submission",), "k" * 101, "submission"),
        (("shell",), "rm", "there is no field 'shell'"),
    ],
)  # fmt: skip
def test_a_backup_that_squall_would_not_write_is_refused_and_writes_nothing(
    taken: str, empty: Other, path: tuple[str, ...], value: object, why: str
) -> None:
    body = json.loads(taken)
    changed(body, *path, value=value)
    for place in ("restore-checks", "restores"):
        with pytest.raises(Refused) as refused:
            empty.client.post(place, sent(empty, body))
        assert refused.value.status in (400, 422) and why in str(refused.value)
    assert empty.wrote_nothing()


@pytest.mark.parametrize(
    ("bundle", "why"),
    [
        ([], "a JSON object was expected"),
        ({"id": "x", "description": {}, "pickles": {}}, "the description's"),
        ({"id": "x", "description": words("clicks").describe(), "pickles": {"lines": "", "count": ""}}, "'clicks'"),
        ({"id": "x", "description": words().describe(), "pickles": {"lines": "?", "count": ""}}, "is not base64"),
        (json.loads("[" * 200 + "]" * 200), "nested more than"),
        ({"padding": "x" * (16 * 1024 * 1024)}, "16,777,216 bytes that are allowed"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_the_bundle_of_the_version_is_refused(
    taken: str, empty: Other, bundle: object, why: str
) -> None:
    body = json.loads(taken)
    with pytest.raises(Refused) as refused:
        empty.client.post(
            "restores", sent(empty, {**body, "bundles": dict.fromkeys(body["bundles"], bundle)})
        )
    assert 400 <= refused.value.status < 500 and why in str(refused.value)
    assert empty.wrote_nothing()


def test_what_a_restore_that_was_cut_off_left_behind_does_not_matter(taken: str, other: Other) -> None:
    body = sent(other, json.loads(taken))
    (id,) = body["bundles"]
    for path in (
        paths.description(id),
        paths.pickle(id, "lines"),
        paths.assignment(id),
        paths.report(id, "w"),
    ):
        other.store.put(path, b"left over")
    other.client.post("restores", body)
    assert get_bundle(other.store, id).pickles["lines"] == PICKLE
    assert other.registry.reports(id) == {}


def test_a_topology_that_cannot_be_read_is_refused_by_name(client: Client, store: InMemoryStore) -> None:
    client.post("topologies", submission())
    store.put(paths.topology("words"), b"{}")
    with pytest.raises(Refused, match="'words' cannot be read") as refused:
        client.get("topologies/words/backup")
    assert refused.value.kind == "BadTopology"


def test_only_bundles_of_the_named_topology_are_given(client: Client) -> None:
    id = client.post("topologies", submission())["id"]
    client.post("topologies", submission(words("clicks")))
    for name, wanted in (
        ("clicks", id),
        ("words", "words-9-9"),
        ("words", "../words"),
        ("words", id + "/pickles"),
    ):
        with pytest.raises(Refused) as refused:
            client.get(at("topologies", name, "bundles", wanted))
        assert (refused.value.status, refused.value.kind) == (404, "NotFound")


def test_topologies_of_another_python_are_refused(taken: str, empty: Other) -> None:
    body = json.loads(taken)
    body["backup"]["topology"]["python"] = "2.7"
    with pytest.raises(Refused, match=r"packed with Python 2\.7"):
        empty.client.post("restore-checks", sent(empty, body))
