"""A topology whose state is in a folder that hosts do not share is refused; each host here has file systems of its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nimbus.daemon import NimbusDaemon
from nimbus.http import folder_probes
from squall.cluster.memory import InMemoryStore
from squall.http.client import Client, Refused
from supervisor.directories import Directories
from supervisor.folder_probes import FolderProbes
from supervisor.log_server import LogServer
from tests.nimbus_http.nimbuses import PlayedSupervisor, submission, words


class Hosts:
    """Supervisors whose HTTP servers are real, each with a view of its own of all files."""

    def __init__(self, folder: Path, store: InMemoryStore, leader: NimbusDaemon) -> None:
        self.folder, self.store, self.leader = folder, store, leader
        self.servers: list[LogServer] = []

    def add(self, name: str) -> Path:
        root = self.folder / f"root-{name}"
        (root / "mnt").mkdir(parents=True)
        probes = FolderProbes(str(root))
        server = LogServer(
            "127.0.0.1", 0, Directories(self.folder / name), lambda _: None, lambda _: True, probes=probes
        )
        server.start()
        self.servers.append(server)
        url = f"http://127.0.0.1:{server.port}"
        PlayedSupervisor(self.store, self.leader, name, url=url, state_folder=f"/mnt/{name}/kept")
        return root


@pytest.fixture
def hosts(tmp_path: Path, store: InMemoryStore, leader: NimbusDaemon) -> Iterator[Hosts]:
    found = Hosts(tmp_path, store, leader)
    yield found
    for server in found.servers:
        server.stop()


def at_a_path(workers: int = 2, path: str = "file:///mnt/state", **others: Any) -> dict[str, Any]:
    conf = {"topology.workers": workers, "topology.state.path": path}
    return submission(words(conf=conf), **others)


def counting(**others: Any) -> dict[str, Any]:
    """A topology that keeps state, and says nowhere where."""
    topology = words()
    specs = [
        replace(each, keeps={"states": {}}) if each.kind == "bolt" else each for each in topology.components
    ]
    return submission(replace(topology, components=tuple(specs)), **others)


def test_state_without_a_path_is_kept_on_the_one_host_and_does_not_move_to_another_that_joins(
    hosts: Hosts, client: Client
) -> None:
    hosts.add("s1")
    for place in ("checks", "topologies"):
        assert client.post(place, counting())["state_path"] == "file:///mnt/s1/kept"
    assert (
        client.get("topologies/words/configuration")["conf"]["topology.state.path"] == "file:///mnt/s1/kept"
    )
    hosts.add("s2")
    for place, body in (
        ("topologies", counting(replace=True)),
        ("checks", counting(replace=True)),
        ("topologies/words/rebalance", {"workers": 2}),
    ):
        with pytest.raises(Refused, match="is seen on host host-s1, and not on host host-s2"):
            client.post(place, body)


def test_several_hosts_refuse_state_without_a_path(hosts: Hosts, client: Client) -> None:
    hosts.add("s1")
    hosts.add("s2")
    for place in ("checks", "topologies"):
        with pytest.raises(Refused, match=r"the hosts \(host-s1, host-s2\) share no folder") as refused:
            client.post(place, counting())
        assert refused.value.status == 422
    assert client.get("topologies")["topologies"] == []


def test_hosts_that_do_not_share_the_folder_refuse_the_topology_and_nothing_is_left(
    hosts: Hosts, client: Client
) -> None:
    one, two = hosts.add("s1"), hosts.add("s2")
    for place in ("checks", "topologies"):
        with pytest.raises(Refused, match="is seen on host host-s1, and not on host host-s2") as refused:
            client.post(place, at_a_path())
        assert refused.value.status == 422
    assert "file:///mnt/state" in str(refused.value) and "/mnt of host host-s1" in str(refused.value)
    assert client.get("topologies")["topologies"] == []
    assert [*one.rglob("*")] == [one / "mnt"] and [*two.rglob("*")] == [two / "mnt"]
    (two / "mnt").rmdir()
    (two / "mnt").symlink_to(one / "mnt")  # of root, or of this user: what is not known refuses nothing
    client.post("topologies", at_a_path())
    assert [*one.rglob("*")] == [one / "mnt"]


def test_hosts_that_share_the_folder_run_the_topology(hosts: Hosts, client: Client) -> None:
    one = hosts.add("s1")
    hosts.add("s1-too")
    for server in hosts.servers[1:]:
        server._probes._root = str(one)
    body = at_a_path()
    assert client.post("topologies", body)["name"] == "words"
    hosts.add("s2")  # a host that came later refuses no repeated request
    assert client.post("topologies", body)["name"] == "words"
    with pytest.raises(Refused, match="not on host host-s2"):
        client.post("topologies", at_a_path(replace=True))


def test_one_worker_needs_a_shared_folder_too_since_another_host_may_start_it_again(
    hosts: Hosts, client: Client
) -> None:
    hosts.add("s1")
    client.post("checks", at_a_path(1))  # one host
    hosts.add("s2")
    with pytest.raises(Refused, match="not on host host-s2"):
        client.post("checks", at_a_path(1))


def test_a_path_elsewhere_asks_no_host(hosts: Hosts, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(FolderProbes, "answer", lambda _, step, __: asked.append(step))
    for name in ("s1", "s2"):
        hosts.add(name)
    client.post("checks", at_a_path(path="hdfs://host:9000/state"))
    client.post("checks", submission(words(conf={"topology.workers": 2})))
    assert asked == []


def test_a_supervisor_that_does_not_answer_is_named_and_refuses_nothing(
    hosts: Hosts, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_probes, "STEP_SECS", 0.4)
    hosts.add("s2")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        PlayedSupervisor(hosts.store, hosts.leader, "s1", url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        PlayedSupervisor(hosts.store, hosts.leader, "s3")
        began = time.monotonic()
        client.post("topologies", at_a_path(), timeout=30)
        assert time.monotonic() - began < 9
    told = [each.getMessage() for each in caplog.records if "it is not known whether" in each.getMessage()]
    assert sorted(text.partition("whether ")[2].partition(" sees")[0] for text in told) == [
        "supervisor s1 on host-s1",
        "supervisor s3 on host-s3",
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_rebalance_that_may_place_workers_on_another_host_is_refused_too(
    hosts: Hosts, client: Client, workers: int
) -> None:
    hosts.add("s1")
    client.post("topologies", at_a_path(1))
    hosts.add("s2")
    with pytest.raises(Refused, match="not on host host-s2"):
        client.post("topologies/words/rebalance", {"workers": workers})
