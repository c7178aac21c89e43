"""A cluster with marked secrets: they are in no log, no process table, no answer, no error and no node of ZooKeeper."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.security import make_digest_acl_credential

from nimbus.http.table import TABLE
from squall.cluster.zookeeper.access import own_ids
from squall.http.client import Client, Refused, Unreachable
from squall.packages.versions import own_versions
from squall.security.redaction import HIDDEN
from tests.nimbus_http.nimbuses import text_at
from tests.security.canaries import as_submitted, canary, full_of_canaries, heard
from tests.security.closed_cluster import USER, ClosedCluster
from tests.zookeeper_servers import ZooKeeperServer
from topology_api.options import defaults

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, tls_zookeeper: ZooKeeperServer
) -> Iterator[ClosedCluster]:
    with ClosedCluster(tmp_path_factory.mktemp("closed"), tls_zookeeper) as cluster:
        cluster.run_topology()
        yield cluster


def found_in(text: str | bytes, cluster: ClosedCluster, but: tuple[str, ...] = ()) -> list[str]:
    data = text.encode() if isinstance(text, str) else text
    return [name for name, secret in cluster.secrets.items() if secret.encode() in data and name not in but]


def every_answer(cluster: ClosedCluster) -> Iterator[tuple[str, str]]:
    """The answer of each GET of the table, with each existing name."""
    status = cluster.client.get("topologies/guarded")
    names = {
        "name": ["guarded", "no-such"],
        "component": ["numbers", "fails", "no-such"],
        "worker": [each["worker"] for each in status["workers"]],
        "id": cluster.supervisors_there(),
        "sha256": list(status["files"].values()),
    }
    for endpoint in TABLE:
        if endpoint.method != "GET":
            continue
        paths = [endpoint.path]
        for field, values in names.items():
            paths = [path.replace(f"{{{field}}}", value) for path in paths for value in values]
        for path in dict.fromkeys(paths):
            for query in ("",) if not path.endswith("/log") else ("", "?file=output", "?file=build"):
                try:
                    yield path, text_at(cluster.client, path + query)
                except Refused as refused:
                    yield path, f"{refused} {refused.problems}"


def refusal_of(cluster: ClosedCluster, header: str | None) -> str:
    with (
        closing(Client(cluster.urls, lambda url: header, cluster.ca)) as client,
        pytest.raises(Refused) as refused,
    ):
        client.get("topologies")
    assert refused.value.status == 401
    return str(refused.value)


def test_no_answer_of_the_api_contains_a_secret(cluster: ClosedCluster) -> None:
    seen = dict(every_answer(cluster))
    assert len(seen) > 15
    told = {path: found for path, text in seen.items() if (found := found_in(text, cluster))}
    assert told == {"/api/v1/topologies/guarded/backup": ["conf"]}, (
        "only a backup has the settings as they are"
    )
    assert HIDDEN in seen["/api/v1/topologies/guarded/configuration"]
    assert HIDDEN in seen["/api/v1/topologies/guarded/components/numbers"]


@pytest.mark.parametrize(
    "command",
    ["list", "status guarded", "errors guarded", "logs guarded", "logs guarded --file output", "supervisors", "config",
     "version", "status no-such", "kill no-such", "logs guarded --worker no-such", "rebalance guarded -n 100000"],
)  # fmt: skip
def test_no_command_prints_a_secret(cluster: ClosedCluster, command: str) -> None:
    for more in ((), ("--json",)):
        status, text = cluster.command_here(*command.split(), *more)
        assert found_in(text, cluster) == [], (status, text)
        assert text.strip() or "output" in command  # not written to by anyone


def test_refusals_show_no_secret(cluster: ClosedCluster, tmp_path: Path) -> None:
    shown = (None, "Bearer false", f"Squall-Daemon {cluster.supervisors_there()[0]}:{'0' * 64}")
    texts = [refusal_of(cluster, header) for header in shown]
    with pytest.raises(Unreachable, match="certificate"):
        Client(cluster.urls, cluster._authorization).get("topologies")
    open_file = tmp_path / "open"
    open_file.write_text(cluster.secrets["token"])
    open_file.chmod(0o644)
    cluster.environment["SQUALL_TOKEN_FILE"] = str(open_file)
    try:
        texts.append(cluster.command("list")[1])
    finally:
        del cluster.environment["SQUALL_TOKEN_FILE"]
    assert "chmod 600" in texts[-1]
    assert found_in("\n".join(texts), cluster) == []


def test_no_process_shows_a_secret_in_its_arguments_or_environment(cluster: ClosedCluster) -> None:
    daemons = [daemon.pid for daemon in (*cluster.nimbuses, *cluster.supervisors)]
    workers = [started.pid for started in cluster.processes().values()]
    assert len(workers) >= 2
    for pid in (*daemons, *workers):
        for file in ("cmdline", "environ"):
            assert found_in(Path(f"/proc/{pid}/{file}").read_bytes(), cluster) == [], (pid, file)


def test_no_log_contains_a_secret(cluster: ClosedCluster) -> None:
    logs = [path for path in cluster.folder.rglob("*.log*") if path.is_file()]
    assert len(logs) >= 6
    assert {str(path): found for path in logs if (found := found_in(path.read_bytes(), cluster))} == {}


def test_files_with_secrets_are_accessible_only_to_their_owner(cluster: ClosedCluster) -> None:
    seen = 0
    for path in cluster.folder.rglob("*"):
        if not path.is_file() or path.is_symlink() or not found_in(path.read_bytes(), cluster):
            continue
        seen += 1
        above = [
            folder
            for folder in path.parents
            if folder.is_relative_to(cluster.folder) and folder != cluster.folder
        ]
        closed = any(stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0 for folder in above)
        assert closed or stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert seen >= 8


def test_every_node_of_zookeeper_is_accessible_only_with_the_credentials(cluster: ClosedCluster) -> None:
    own = own_ids((USER, cluster.secrets["zookeeper"]))
    assert make_digest_acl_credential(USER, cluster.secrets["zookeeper"]) in own
    with cluster.in_zookeeper(cluster.secrets["zookeeper"]) as client:
        nodes = cluster.nodes(client)
        assert len(nodes) > 20
        for node in nodes:
            acls, _ = client.get_acls(node)
            assert {(acl.perms, acl.id.scheme) for acl in acls} == {(31, "digest")}, node
            assert own >= {acl.id.id for acl in acls}, node


@pytest.mark.parametrize("password", [None, "another"])
def test_without_credentials_nothing_in_zookeeper_can_be_read_or_changed(
    cluster: ClosedCluster, password: str | None
) -> None:
    with cluster.in_zookeeper(cluster.secrets["zookeeper"]) as client:
        nodes = cluster.nodes(client)
    with cluster.in_zookeeper(password) as stranger:
        for node in nodes:
            tries: list[Any] = [
                lambda node=node: stranger.get(node),
                lambda node=node: stranger.get_children(node),
                lambda node=node: stranger.set(node, b"x"),
                lambda node=node: stranger.create(f"{node}/x", b"x"),
            ]
            for attempt in tries:
                with pytest.raises((NoAuthError, NoNodeError)):  # nodes removed meanwhile are gone for all
                    attempt()


def test_no_node_of_zookeeper_contains_a_key_or_a_token(cluster: ClosedCluster) -> None:
    with cluster.in_zookeeper(cluster.secrets["zookeeper"]) as client:
        values = []
        for node in cluster.nodes(client):
            try:
                values.append((node, client.get(node)[0]))
            except NoNodeError:
                continue
    assert {node: found for node, data in values if (found := found_in(data, cluster, but=("conf",)))} == {}
    assert [node for node, _ in values if "/keys/operator/" in node]
    # The configuration of a topology is stored in the clear: docs/security.md says so.
    assert any("/topologies/" in node for node, data in values if found_in(data, cluster))


def submission_of_canaries(mark: Path) -> dict[str, Any]:
    """A submission of a topology full of canaries."""
    description, pickles = as_submitted(full_of_canaries(mark, "canaries"))
    versions = own_versions()
    own = {
        "topology.workers": 2,
        "topology.message.timeout.secs": 2,
        "an.own": base64.b64encode(canary(mark)).decode(),
    }
    conf = {**defaults(), **own}
    return {
        "submission": uuid.uuid4().hex, "description": description, "pickles": pickles, "conf": conf,
        "component_confs": {"words": conf, "count": conf}, "python": versions["python"],
        "cloudpickle": versions["cloudpickle"], "squall": versions["squall"], "active": True, "files": {},
    }  # fmt: skip


def use_every_door(cluster: ClosedCluster) -> None:
    """Have Nimbus and supervisors perform every operation on it."""
    changes = {"deactivate": None, "activate": None, "rebalance": {"workers": 1, "parallelism": {"count": 3}}}
    for path, value in changes.items():
        try:
            cluster.client.post(f"topologies/canaries/{path}", value)
        except Refused as refused:
            assert refused.status == 409
    parts = (
        "",
        "/components/count",
        "/components/words",
        "/errors",
        "/workers",
        "/configuration",
        "/counters",
    )
    for part in parts:
        json.dumps(cluster.client.get(f"topologies/canaries{part}"))
    leader = cluster.leader()
    assert leader is not None
    cluster.nimbuses[leader].stop()  # the other one reads everything again
    cluster.nimbuses[leader].start()
    cluster.wait_for(lambda: cluster.leader() is not None, "a leader")
    cluster.supervisors[0].stop()
    cluster.supervisors[0].start()
    cluster.wait_for(lambda: len(cluster.supervisors_there()) == 2, "both supervisors")


def test_pickles_through_every_door_are_opened_only_by_workers(
    cluster: ClosedCluster, tmp_path: Path
) -> None:
    mark, file = tmp_path / "mark", tmp_path / "song"
    body = submission_of_canaries(mark)
    file.write_bytes(canary(mark))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(Refused, match=r"sha256|SHA-256"):
        cluster.client.put_file(f"files/{'0' * 64}", file)
    cluster.client.put_file(f"files/{digest}", file)
    with pytest.raises(Refused, match=r"archive|gzip|tar"):
        cluster.client.post("topologies", {**body, "files": {"code": digest}})
    assert cluster.client.post("topologies", body)["name"] == "canaries"
    cluster.wait_for(lambda: heard(mark), "a worker that opens them")
    use_every_door(cluster)
    assert cluster.command("kill", "canaries", "-w", "0", "--wait")[0] == 0
    assert all(re.search(r"worker/__main__\.py", line) for line in heard(mark)), heard(mark)
    with cluster.in_zookeeper(cluster.secrets["zookeeper"]) as client:
        left = [node for node in cluster.nodes(client) if "canaries" in node]
        assert [node for node in left if "/ended/" not in node] == [], "only its errors and counters are kept"
