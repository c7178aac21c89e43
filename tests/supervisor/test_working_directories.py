"""A worker of a supervisor daemon works in a directory of its own, made with its process and removed with the worker."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from squall.worker_files import WORK
from tests.squall_cli.small_cluster import small_cluster
from tests.supervisor.hosts import Hosts
from tests.supervisor.programs import until
from tests.supervisor.supervisor_daemons import Cluster


def work_of(pid: int) -> Path:
    """The working directory of a process."""
    return Path(os.readlink(f"/proc/{pid}/cwd"))


def folder_of(cluster: Cluster, topology_id: str, worker: str) -> Path:
    return cluster.tmp / "s1" / "topologies" / topology_id / "workers" / worker / WORK


def test_each_worker_of_a_daemon_has_an_empty_directory_of_its_own(cluster: Cluster) -> None:
    cluster.start()
    record = cluster.submit("words", workers=2)
    cluster.until(lambda: cluster.opened("w1", "w2"))
    for worker, pid in cluster.pids().items():
        assert work_of(pid) == folder_of(cluster, record.id, worker)
        assert os.listdir(work_of(pid)) == []
        assert work_of(pid).stat().st_mode & 0o777 == 0o700
        assert f"PWD={work_of(pid)}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert len({work_of(pid) for pid in cluster.pids().values()}) == 2


def test_workers_without_a_daemon_work_where_their_supervisor_does(hosts: Hosts) -> None:
    hosts.submit(workers=1)
    hosts.until(lambda: hosts.opened("w1"))
    assert work_of(hosts.pids()["w1"]) == Path.cwd()


def test_a_restarted_worker_finds_nothing_of_the_previous_one(cluster: Cluster) -> None:
    cluster.start()
    record = cluster.submit("words", workers=1)
    cluster.until(lambda: cluster.opened("w1"))
    (first,) = cluster.pids().values()
    (work_of(first) / "half-written").write_text("1,2,")
    os.kill(first, signal.SIGKILL)
    cluster.until(lambda: set(cluster.pids().values()) - {first})
    (second,) = cluster.pids().values()
    assert work_of(second) == folder_of(cluster, record.id, "w1")
    assert os.listdir(work_of(second)) == []


def test_a_worker_keeps_it_through_a_restart_of_its_supervisor_until_the_topology_ends(
    cluster: Cluster,
) -> None:
    first = cluster.start()
    record = cluster.submit("words", workers=1)
    cluster.until(lambda: cluster.opened("w1"))
    (pid,) = cluster.pids().values()
    (work_of(pid) / "kept").write_text("")
    cluster.stop(first)
    said = len(cluster.nimbus.posts)
    cluster.start()
    cluster.until(
        lambda: len(cluster.nimbus.posts) > said, "its first sign of life, after it has taken the worker over"
    )
    assert work_of(pid) == folder_of(cluster, record.id, "w1")
    assert os.listdir(work_of(pid)) == ["kept"]
    cluster.kill()
    cluster.until(lambda: cluster.registry.topologies.get("words") is None)
    cluster.until(lambda: not list((cluster.tmp / "s1" / "topologies").iterdir()))
    gone = cluster.tmp / "s1" / "gone"  # made when code or an environment is removed; this topology has none
    cluster.until(lambda: not gone.exists() or not list(gone.iterdir()), "an empty disk")


def test_if_none_can_be_made_the_worker_waits_and_reports_why(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, full = Path.mkdir, [True]

    def mkdir(path: Path, *args: int, **options: int) -> None:
        if path.name == WORK and full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        make(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", mkdir)
    cluster.start()
    cluster.submit("words", workers=1)
    cluster.until(lambda: any("cannot be started" in note for note in cluster.nimbus.notes()))
    assert any(f"No space left on device: '{cluster.tmp}" in note for note in cluster.nimbus.notes())
    assert not cluster.pids()
    full.clear()
    cluster.until(lambda: cluster.opened("w1"))


TOPOLOGY = """
import os, shutil
from pathlib import Path
from topology_api import Fields, Spout, TopologyBuilder

class Untidy(Spout):
    outputs = Fields("number")

    def __init__(self, told):
        self.told = Path(told)

    def open(self, context):
        self.number = 0
        self.words = Path(__file__).with_name("words.txt").read_text()
        with open("output.txt", "x") as file:
            file.write(self.words)
        self.tell(f"{os.getpid()} {os.getcwd()} {self.words}")

    def next_tuple(self):
        self.number += 1
        self.emit((self.number,), message_id=self.number)
        return 0.01

    def ack(self, message_id):
        if message_id == 1:
            shutil.rmtree(os.getcwd())
        if message_id == 50:
            self.tell(f"{os.getpid()} went on")

    def tell(self, text):
        with self.told.open("a") as file:
            file.write(f"{text}\\n")

def topology(told):
    builder = TopologyBuilder("untidy", conf={"topology.workers": 1})
    builder.set_spout("untidy", Untidy(told))
    return builder.build()
"""


def lines_of(told: Path, count: int) -> list[str]:
    """The lines that the spouts have written, once there are enough."""
    until(lambda: told.exists() and told.read_text().count("\n") >= count)
    return told.read_text().splitlines()


@pytest.mark.slow
def test_a_worker_that_removes_it_goes_on_with_its_topologys_files_and_the_next_has_it_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "untidy.py").write_text(TOPOLOGY)
    (tmp_path / "words.txt").write_text("brought")
    told = tmp_path / "told"
    with small_cluster(tmp_path / "cluster") as small:
        command = ("submit", "untidy.py", "--resource", "words.txt", "--wait", "--", str(told))
        done = small.squall(*command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        opened, went_on = lines_of(told, 2)[:2]
        first, work, brought = opened.split()
        assert went_on == f"{first} went on" and brought == "brought"
        assert Path(work).is_relative_to(tmp_path / "cluster" / "supervisor" / "topologies")
        os.kill(int(first), signal.SIGKILL)
        second, *others = lines_of(told, 3)[2].split()
        assert second != first and others == [work, "brought"]
        assert small.squall("kill", "untidy", "-w", "0", "--wait").returncode == 0
        until(lambda: not Path(work).parent.exists())
    assert not list((tmp_path / "cluster" / "supervisor" / "topologies").iterdir())
