"""The state of topologies on a real HDFS, by WebHDFS and by Java, and whatever is killed or frozen."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from local_cluster import ComponentStatus, LocalCluster
from squall.stores.files import FilesFull, FilesRefused, FilesUnavailable
from squall.stores.java import steady
from squall.stores.webhdfs import WebHdfsFiles
from squall_cli.main import squall
from squall_cli.terminal.epoch_lines import wait_sentences
from tests.hdfs_servers import HdfsServer
from tests.local_cluster.words_with_state import (
    Count,
    Finite,
    Pass,
    Words,
    eventually,
    expected,
    words,
)
from worker.epochs.log import PutAnswer
from worker.epochs.records import LeadRecord, RewindRecord
from worker.epochs.snapshot_files import SweepFiles, TaskSnapshot, encode_snapshot
from worker.loop.epoch_store import EpochFiles

pytestmark = pytest.mark.slow

LEAD = LeadRecord("a:1", "a", 1)
#: What takes a quota away.
NO_QUOTA = -1


def webhdfs(hdfs: HdfsServer, method: str, path: str, op: str, user: str = "", **arguments: str) -> None:
    """Make a call that the stores do not make."""
    user = user or WebHdfsFiles("hdfs://h/t", hdfs.webhdfs)._user
    query = "&".join(f"{name}={value}" for name, value in {"op": op, "user.name": user, **arguments}.items())
    url = f"http://{hdfs.webhdfs}/webhdfs/v1{path.removeprefix(hdfs.url)}?{query}"
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60):
        pass


def quota(hdfs: HdfsServer, folder: str, space: int) -> None:
    """Let the files below a folder take this many bytes, as `hdfs dfsadmin -setSpaceQuota` does."""
    webhdfs(hdfs, "PUT", folder, "SETQUOTA", storagespacequota=str(space))


def state(hdfs: HdfsServer, action: str, *arguments: str) -> Result:
    command = ["state", action, *arguments, "--webhdfs", hdfs.webhdfs]
    return CliRunner().invoke(squall, command, prog_name="squall")


@pytest.fixture(params=["webhdfs", "java"])
def way(request: pytest.FixtureRequest, hdfs: HdfsServer) -> Iterator[str | None]:
    """The value of topology.state.webhdfs."""
    yield hdfs.webhdfs if request.param == "webhdfs" else None


def test_a_jvm_that_dies_is_started_again_and_ends_with_its_last_store(
    hdfs: HdfsServer, hdfs_path: str
) -> None:
    files = EpochFiles(hdfs_path, "words")
    assert files.put_record(1, LEAD) is PutAnswer.STORED
    webhdfs(hdfs, "PUT", files.folder, "SETPERMISSION", permission="750")
    other = EpochFiles(hdfs_path, "words")
    with pytest.raises(FilesRefused, match=rf"other users have access to {files.folder} \(mode 750\)"):
        other.records_after(0)
    other.close()
    webhdfs(hdfs, "PUT", files.folder, "SETPERMISSION", permission="700")
    [shared] = steady._shared.values()
    process = shared.jvm.gateway.proc
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with pytest.raises(FilesUnavailable):
        files.put_record(2, RewindRecord("a:2", 1))
    assert files.put_record(2, RewindRecord("a:2", 1)) is PutAnswer.STORED
    assert EpochFiles(hdfs_path, "words", hdfs.webhdfs).records_after(0) == [LEAD, RewindRecord("a:2", 1)]
    files.close()
    assert not steady._shared


def test_log_and_snapshots_are_kept_on_hdfs(hdfs: HdfsServer, hdfs_path: str, way: str | None) -> None:
    first, second = (EpochFiles(hdfs_path, "words", way) for _ in range(2))
    assert first.records_after(0) == []
    assert first.put_record(1, LEAD) is PutAnswer.STORED
    assert second.put_record(1, RewindRecord("b:1", 1)) is PutAnswer.TAKEN
    assert second.put_record(2, RewindRecord("b:2", 1)) is PutAnswer.STORED
    assert first.put_record(4, RewindRecord("b:4", 1)) is PutAnswer.STORED
    assert first.records_after(0) == [LEAD, RewindRecord("b:2", 1)]
    assert second.records_after(1) == [RewindRecord("b:2", 1)]
    assert second.records_after(2) == []
    snapshots = [encode_snapshot(TaskSnapshot("count/0", epoch, 2, 0)) for epoch in (1, 2, 3)]
    for file, data in snapshots:
        for _ in range(2):  # the first answer was lost
            first.write_snapshot(file, data)
    kept = {"count/0": snapshots[1][0]}
    [found] = second.restore_point(kept, 2)
    assert found.epoch == 2
    tmp = WebHdfsFiles(f"{hdfs_path}/words/_squall/tmp", hdfs.webhdfs)
    leftovers = ["1-2-0-count.0.0123456789abcdef", "000000000002.0123456789abcdef"]
    in_use = ["3-2-0-count.0.0123456789abcdef", "000000000005.0123456789abcdef"]
    for name in leftovers + in_use:
        tmp._write(name, b"half of i")
    second.sweep(SweepFiles(frozenset({snapshots[1][0].name}), 2, 2))
    left = [status.name for status in first.files.list("snapshots")]
    assert left == [snapshots[1][0].name, snapshots[2][0].name]
    assert [status.name for status in tmp.list("")] == sorted(in_use)


def test_a_folder_that_others_may_enter_is_refused_by_name(hdfs: HdfsServer, hdfs_path: str) -> None:
    assert EpochFiles(hdfs_path, "words", hdfs.webhdfs).records_after(0) == []
    folder = f"{hdfs_path}/words"
    webhdfs(hdfs, "PUT", folder, "SETPERMISSION", permission="750")
    with pytest.raises(FilesRefused, match=rf"other users have access to {folder} \(mode 750\)"):
        EpochFiles(hdfs_path, "words", hdfs.webhdfs).records_after(0)
    webhdfs(hdfs, "PUT", folder, "SETPERMISSION", permission="700")
    webhdfs(hdfs, "PUT", folder, "SETOWNER", owner="mallory")
    with pytest.raises(FilesRefused, match=f"{folder} belongs to the user 'mallory', not to"):
        EpochFiles(hdfs_path, "words", hdfs.webhdfs).records_after(0)


def test_a_file_in_place_of_the_folder_and_a_used_up_quota_are_named(
    hdfs: HdfsServer, hdfs_path: str
) -> None:
    WebHdfsFiles(hdfs_path, hdfs.webhdfs).put_if_absent("words", b"")
    with pytest.raises(FilesRefused, match=f"cannot make folder {hdfs_path}/words: it is a file"):
        EpochFiles(hdfs_path, "words", hdfs.webhdfs).records_after(0)
    files = EpochFiles(hdfs_path, "full", hdfs.webhdfs)
    assert files.put_record(1, LEAD) is PutAnswer.STORED
    webhdfs(hdfs, "PUT", files.folder, "SETQUOTA", namespacequota="5")
    with pytest.raises(FilesFull, match=f"cannot write {files.folder}/.*quota of a folder above is used up"):
        files.put_record(2, LEAD)


def counted(hdfs: HdfsServer, folder: str) -> dict[str, tuple[Any, ...]]:
    """Of each word: how often it was counted, the sum of its numbers, and what the last bolt has seen of it."""
    result = state(hdfs, "export", folder)
    assert result.exit_code == 0, result.stderr
    found: dict[str, dict[str, Any]] = {}
    for line in result.stdout.splitlines():
        row = json.loads(line)
        found.setdefault(row["key"], {})[row["state"]] = row["value"]
    return {
        word: tuple(each[name] for name in ("times", "total", "seen", "most")) for word, each in found.items()
    }


class Allowed(Words):
    """Emits as far as a file says, so that something is left to emit after each fault; "end" behind the number ends it."""

    def __init__(self, allowed: Path) -> None:
        super().__init__(0, 400)
        self.allowed = str(allowed)

    def next_tuple(self) -> float | None:
        if self.at >= self.count:
            number, _, end = Path(self.allowed).read_text().partition(" ")
            self.count = int(number)
            if end and self.at >= self.count:
                self.finish()
                return None
        return super().next_tuple()


class Running:
    """A topology that counts words, with its state on HDFS, and faults of this HDFS."""

    #: Uncommitted emissions with which its spout pauses.
    MOST = 200
    #: The interval of epochs: none can be written in so short a time, so the next one waits for its commit.
    SECS = 0.02
    #: How many more are allowed with each step: no step needs as many.
    MORE = 500

    def __init__(
        self, cluster: LocalCluster, hdfs: HdfsServer, path: str, folder: Path, webhdfs: str | None
    ) -> None:
        """`webhdfs`: the value of topology.state.webhdfs."""
        self.cluster, self.hdfs, self.folder = cluster, hdfs, f"{path}/words"
        self.file, self.total = folder / "allowed", 0
        conf = {
            "topology.state.path": path,
            "topology.state.webhdfs": webhdfs,
            "topology.epoch.secs": self.SECS,
            "topology.epoch.uncommitted": self.MOST,
            "topology.workers": 2,
        }
        self.allow()
        cluster.submit(words(Allowed(self.file), Pass(0.01), Count(0.01)), conf)
        eventually(lambda: self.spout().acked > 0, 120)

    def allow(self, end: str = "") -> None:
        self.total += self.MORE
        fresh = self.file.with_suffix(".tmp")
        fresh.write_text(f"{self.total}{end}")
        fresh.rename(self.file)

    def complete(self) -> None:
        """Wait until all tuples are committed."""
        self.goes_on()
        epoch = self.cluster.status("words").epoch
        assert epoch is not None and epoch.duration is not None and epoch.duration > self.SECS
        self.allow(" end")
        self.cluster.wait("words", 180)

    def spout(self) -> ComponentStatus:
        return self.cluster.status("words").components["words"]

    def goes_on(self) -> None:
        """Wait until more tuples are committed."""
        before = self.spout().acked
        self.allow()
        eventually(lambda: self.spout().acked > before, 120)

    def kill(self, number: int) -> None:
        """Kill a worker, and wait until it has another process."""
        victim = self.cluster.workers("words")[number]
        os.kill(victim.pid, signal.SIGKILL)
        eventually(
            lambda: (
                len(self.cluster.workers("words")) == 2
                and all(each.pid != victim.pid for each in self.cluster.workers("words"))
            ),
            120,
        )

    def waits(self, began: float, *texts: str) -> None:
        """Wait until tuples have gone on to the limit, and the status says in one sentence what waits for the store, since
        when, and why; nothing is committed meanwhile."""

        def at_limit() -> bool:
            # Its worker has this of the epoch after the last commit, so no ack can come any more.
            spout = self.spout()
            return (
                spout.idle.startswith("waits for the state store: ") and (spout.uncommitted or 0) >= self.MOST
            )

        def sentence() -> str:
            return wait_sentences(self.cluster.status("words").epoch).get("store", "")

        self.allow()
        eventually(at_limit, 120)
        acked = self.spout().acked
        eventually(lambda: all(text in sentence() for text in texts), 120)
        status = self.cluster.status("words")
        assert status.state == "ACTIVE"
        found = re.fullmatch(r"the topology waits for the state store since (.{19}): (.+)", sentence())
        assert found, sentence()
        since = time.mktime(time.strptime(found[1], "%Y-%m-%d %H:%M:%S"))
        assert began - 1 <= since <= time.time() + 1
        assert self.spout().acked == acked

    @contextmanager
    def full(self) -> Iterator[float]:
        """No room for one more block below the folder of the state; yields when that began."""
        quota(self.hdfs, self.folder, 1)
        try:
            yield time.time()
        finally:
            quota(self.hdfs, self.folder, NO_QUOTA)

    @contextmanager
    def gone(self) -> Iterator[float]:
        """No NameNode; yields when that began. Then it is started again, and has registered its DataNodes."""
        self.hdfs.namenode.kill()
        try:
            yield time.time()
        finally:
            self.hdfs.namenode.start()
        self.hdfs.wait_ready()


def test_each_tuple_counts_once_though_a_worker_is_killed_and_hdfs_is_full_and_frozen(
    troubled_hdfs: HdfsServer, hdfs_path: str, tmp_path: Path
) -> None:
    hdfs = troubled_hdfs
    with LocalCluster(processes=True) as cluster:
        run = Running(cluster, hdfs, hdfs_path, tmp_path, hdfs.webhdfs)
        run.kill(1)
        run.goes_on()
        with run.full() as began:
            run.waits(began, "cannot write", run.folder, "the quota of a folder above is used up")
        run.goes_on()
        hdfs.namenode.freeze()
        try:
            run.allow()
            eventually(lambda: "waits" in run.spout().idle, 60)
        finally:
            hdfs.namenode.thaw()
        run.complete()
    total = run.total
    assert counted(hdfs, f"{hdfs_path}/words") == expected(list(range(total)))
    shown = state(hdfs, "list", hdfs_path, "--json")
    assert shown.exit_code == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert (found["folder"], found["damaged"]) == (f"{hdfs_path}/words", [])
    assert found["epochs"][0]["end"] == "completed"
    result = state(hdfs, "get", f"{hdfs_path}/words", "count", "w0", "--json")
    assert json.loads(result.stdout)["rows"][0]["value"] == expected(list(range(total)))["w0"][0]


@pytest.mark.soak  # a NameNode starts in 10 s, and is then called again after up to 10 s
def test_each_tuple_counts_once_though_hdfs_is_gone_and_a_worker_is_killed_meanwhile(
    troubled_hdfs: HdfsServer, hdfs_path: str, tmp_path: Path, way: str | None
) -> None:
    with LocalCluster(processes=True) as cluster:
        run = Running(cluster, troubled_hdfs, hdfs_path, tmp_path, way)
        with run.full() as began:
            run.waits(began, "cannot write", run.folder, "the quota of a folder above is used up")
        run.goes_on()
        with run.gone() as began:
            run.waits(began, run.folder, "onnection refused")
            run.kill(0)  # nothing can be read either
        run.complete()
    assert counted(troubled_hdfs, f"{hdfs_path}/words") == expected(list(range(run.total)))


def javas() -> dict[int, int]:
    """The Java processes with Spark's classes on this machine, and their parents."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"org.apache.spark.deploy.SparkSubmit" in (folder / "cmdline").read_bytes():
                found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return found


@pytest.mark.soak  # a worker that is killed is above, a JVM that dies in the test before
def test_by_java_each_tuple_counts_once_though_a_worker_and_a_jvm_are_killed(
    troubled_hdfs: HdfsServer, hdfs_path: str
) -> None:
    conf = {"topology.state.path": hdfs_path, "topology.epoch.secs": 0.3, "topology.workers": 2}
    total = 3_000

    def acked() -> int:
        return cluster.status("words").components["words"].acked

    def goes_on() -> None:
        last = acked()
        eventually(lambda: acked() > last, 120)

    with LocalCluster(processes=True) as cluster:
        cluster.submit(words(Finite(total, 200), Pass(0.01), Count(0.01)), conf)
        eventually(lambda: acked() > 0, 120)
        survivor, victim = cluster.workers("words")
        mine = {pid for pid, parent in javas().items() if parent in (survivor.pid, victim.pid)}
        assert len(mine) == 2
        os.kill(victim.pid, signal.SIGKILL)
        eventually(lambda: all(each.pid != victim.pid for each in cluster.workers("words")), 120)
        goes_on()
        [java] = [pid for pid, parent in javas().items() if parent == survivor.pid]
        os.kill(java, signal.SIGKILL)
        eventually(lambda: java not in javas(), 60)
        goes_on()
        pids = [each.pid for each in cluster.workers("words")]
        mine |= {pid for pid, parent in javas().items() if parent in pids}
        cluster.wait("words", 180)
    assert counted(troubled_hdfs, f"{hdfs_path}/words") == expected(list(range(total)))
    eventually(lambda: not mine & javas().keys(), 60)
