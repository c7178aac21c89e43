"""`squall backup` and `squall restore` between two clusters: what comes back, what is refused, and how the commands end."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from click.testing import CliRunner, Result

from squall.api.answers import TopologySummary
from squall.api.backups import BundleAnswer, TopologyBackup
from squall.cluster import paths
from squall.cluster.memory import InMemoryStore
from squall.http.client import Refused, at
from squall_cli.backups.gathering import Gatherer
from squall_cli.backups.layout import FORMAT, Head
from squall_cli.backups.writing import BackupWriter
from squall_cli.main import squall
from tests.nimbus_http.nimbuses import Cluster, PlayedSupervisor, client_of, submission, words
from tests.nimbus_http.test_versions_over_http import replaced_once

REQUIREMENTS = b"# nothing\n"
DIGEST = hashlib.sha256(REQUIREMENTS).hexdigest()


class Site:
    """A cluster of one Nimbus, and its commands."""

    def __init__(self, folder: Path) -> None:
        self.store = InMemoryStore()
        self.cluster = Cluster(self.store, folder)
        self.leader = self.cluster.start_leader()
        self.client = client_of(self.leader)

    def stop(self) -> None:
        self.client.close()
        self.cluster.stop()

    def run(self, command: str) -> Result:
        environ = {"SQUALL_NIMBUS": self.leader.url, **self.cluster.environ}
        return CliRunner().invoke(squall, shlex.split(command), env=environ)

    def submit(self, name: str, **changes: Any) -> str:
        id: str = self.client.post("topologies", submission(words(name), **changes))["id"]
        return id

    def send(self, folder: Path) -> dict[str, str]:
        """Send a file; return what a submission says of it."""
        path = folder / "requirements.txt"
        path.write_bytes(REQUIREMENTS)
        self.client.put_file(at("files", DIGEST), path)
        return {"requirements": DIGEST}

    def states(self) -> dict[str, str]:
        return {each["id"]: each["state"] for each in self.client.get("topologies")["topologies"]}


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "old")
    yield site
    site.stop()


@pytest.fixture
def new(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "new")
    yield site
    site.stop()


def test_all_topologies_of_a_cluster_come_back_in_another(old: Site, new: Site, tmp_path: Path) -> None:
    PlayedSupervisor(old.store, old.leader, "alpha-1")
    first = old.submit("words", files=old.send(tmp_path))
    second = old.submit("clicks", active=False)
    old.client.post("supervisors/alpha-1/drain")
    done = old.run(f"backup {tmp_path}/b.tar")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("2 topologies (") and done.stdout.endswith(
        f" written to {tmp_path}/b.tar.\n"
    )
    again = old.run(f"backup {tmp_path}/b.tar")
    assert again.exit_code == 1 and "b.tar exists: give the name of a new file" in again.stderr
    shown = json.loads(new.run(f"restore {tmp_path}/b.tar --json").stdout)
    assert shown["topologies"] == [
        {"name": "words", "id": first, "state": "ACTIVE"},
        {"name": "clicks", "id": second, "state": "INACTIVE"},
    ]
    assert shown["drained"] == ["alpha-1"] and shown["cluster"] == old.client.get("cluster")["id"]
    assert new.states() == {first: "ACTIVE", second: "INACTIVE"}
    got = BytesIO()
    assert new.client.get_file(at("files", DIGEST), got) == DIGEST and got.getvalue() == REQUIREMENTS


def test_every_name_that_is_taken_is_said_and_nothing_is_restored(
    old: Site, new: Site, tmp_path: Path
) -> None:
    for name in ("words", "clicks", "sales"):
        old.submit(name)
    assert old.run(f"backup {tmp_path}/b.tar").exit_code == 0
    there = {new.submit("words"): "ACTIVE", new.submit("sales"): "ACTIVE"}
    refused = new.run(f"restore {tmp_path}/b.tar")
    assert refused.exit_code == 1 and new.states() == there
    assert "nothing was restored: words: a topology named 'words' exists already" in refused.stderr
    assert "; sales: a topology named 'sales' exists" in refused.stderr and "--replace" not in refused.stderr
    unknown = new.run(f"restore {tmp_path}/b.tar --name clikcs")
    assert unknown.exit_code == 1 and "has no topology 'clikcs'; did you mean 'clicks'?" in unknown.stderr
    done = new.run(f"restore {tmp_path}/b.tar --name clicks --inactive")
    assert done.exit_code == 0 and "1 topology restored, as of 20" in done.stdout
    assert sorted(new.states().values()) == ["ACTIVE", "ACTIVE", "INACTIVE"]


def test_a_restore_that_fails_in_between_says_what_is_there_and_how_to_go_on(
    old: Site, new: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("words", "clicks", "sales"):
        old.submit(name)
    assert old.run(f"backup {tmp_path}/b.tar").exit_code == 0
    taken = submission(words("clicks"))
    monkeypatch.setattr(
        "squall_cli.backups.restoring.RestoreRequests.check_all",
        lambda restorer: new.client.post("topologies", taken),
    )
    done = new.run(f"restore {tmp_path}/b.tar")
    assert done.exit_code == 1
    assert "'clicks' exists already" in done.stderr and "restored before that: words; " in done.stderr
    assert done.stderr.endswith("restore the others with --name clicks --name sales\n")
    assert len(new.states()) == 2


def test_a_topology_or_a_version_that_the_cluster_has_in_part_is_left_out_by_name(
    old: Site, new: Site, tmp_path: Path
) -> None:
    supervisor = PlayedSupervisor(old.store, old.leader)
    first, second = replaced_once(old.client, supervisor)
    old.store.delete(paths.description(first))
    lost = old.submit("lost")
    old.store.delete(paths.description(lost))
    old.submit("bad")
    old.store.put(paths.topology("bad"), b"{}")
    done = old.run(f"backup {tmp_path}/b.tar --json")
    assert done.exit_code == 1, done.output
    shown = json.loads(done.stdout)
    assert [(each["name"], each["versions"]) for each in shown["topologies"]] == [("words", [second])]
    assert shown["left_out"].keys() == {first, "lost", "bad"}
    assert f"not in the backup: {first}: the cluster does not have the bundle of {first}" in done.stderr
    assert "the rest of the cluster is in it" in done.stderr
    assert new.run(f"restore {tmp_path}/b.tar").exit_code == 0
    assert new.states() == {second: "COMPLETED"}


def test_a_damaged_file_is_refused_before_the_cluster_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "b.tar"
    file.write_bytes(b"hello")
    for command, status, said in (
        (f"restore {file}", 1, "is not a backup that `squall backup` wrote"),
        (f"restore {tmp_path}/none", 2, "does not exist"),
        (f"backup {tmp_path}/none/b.tar --nimbus http://127.0.0.1:1", 1, "is not a folder"),
    ):
        done = CliRunner().invoke(squall, shlex.split(command))
        assert (done.exit_code, said in done.stderr) == (status, True), done.stderr


class ChangingCluster:
    """A client of a cluster whose topology is replaced while it is read: after the first records, the old bundle is gone."""

    def __init__(self, records: Sequence[Any]) -> None:
        self.records = deque(records)

    def topologies(self) -> list[TopologySummary]:
        return [TopologySummary(
            name="words", id="", state="ACTIVE", tasks=0, workers=0, components=0, uptime_secs=0.0, emitted=0, acked=0,
            failed=0, pending=0, errors=0, error=None,
        )]  # fmt: skip

    def read(self, kind: type[object], *place: str) -> object:
        if kind is TopologyBackup:
            found = self.records.popleft()
            if isinstance(found, Refused):
                raise found
            return found
        if place[-1] == "words-1-1":
            raise Refused(404, "NotFound", "gone")
        return BundleAnswer(place[-1], {}, {})

    def get_file(self, path: str, target: BinaryIO) -> str:
        target.write(REQUIREMENTS)
        return DIGEST


def read_while_it_changes(*records: object) -> Any:
    writer = BackupWriter(BytesIO(), Head(FORMAT, "", 5, "", 0.0, []))
    client: Any = ChangingCluster(records)
    return Gatherer(client, writer, lambda text: None, lambda text: None).gather()


def test_a_topology_that_is_replaced_meanwhile_is_read_again_as_a_whole() -> None:
    first, second = (
        TopologyBackup(
            "words", {"id": f"words-{number}-1", "state": "ACTIVE", "files": {"requirements": DIGEST}}
        )
        for number in (1, 2)
    )
    gathered = read_while_it_changes(first, second)
    assert [each.topology["id"] for each in gathered.topologies] == ["words-2-1"] and not gathered.left_out


def test_a_topology_that_is_killed_meanwhile_is_not_in_the_backup() -> None:
    first = TopologyBackup("words", {"id": "words-1-1", "state": "ACTIVE", "files": {}})
    for end in (
        Refused(404, "NoSuchTopology", "gone"),
        TopologyBackup("words", {"id": "words-1-1", "state": "KILLED"}),
    ):
        gathered = read_while_it_changes(first, end)
        assert not gathered.topologies and not gathered.left_out
