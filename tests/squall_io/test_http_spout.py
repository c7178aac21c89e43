"""HttpSpout over real HTTP: what is answered 202 is emitted, whatever ends; what is refused is not stored."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from local_cluster.testing import check_rewindable_spout
from squall.stores.files import FilesUnavailable
from squall_io.files import FileSink
from squall_io.http import HttpSpout
from squall_io.http.admitting import RateLimit
from squall_io.http.log_files import LogFiles
from squall_io.http.receiving import ReceivingTask
from squall_io.http.stored_requests import StoredRequest, packed
from tests.certificates import make_certificates
from tests.port_ranges import free_range
from tests.squall_io.webhook_posts import accepted, keeping, kept, post
from tests.zookeeper_servers import eventually
from topology_api import InvalidConfig, StatefulBolt, Topology, TopologyBuilder, Tuple, ValueState
from topology_api.guarantees import guarantees


@pytest.fixture
def port() -> int:
    return free_range(2)[0]


@pytest.fixture
def running(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HOOK_TOKEN", "s3cret")
    spout = HttpSpout(
        str(tmp_path / "log"),
        port=port,
        path="/hooks",
        token="env:HOOK_TOKEN",
        fields=["value", "headers", "path", "query", "id"],
        max_body=1000,
    )
    with LocalCluster() as cluster:
        cluster.submit(keeping(spout, tmp_path / "kept"))
        eventually(lambda: post(port, b"", "/nothing")[0] == 404, 20)
        yield tmp_path / "kept"


GOOD = {"authorization": "Bearer s3cret", "x-event": "push", "cookie": "c=1"}


def test_a_request_becomes_a_tuple_without_its_secrets(running: Path, port: int) -> None:
    id = accepted(port, b'{"n": 1}', **GOOD)
    [(value, headers, path, query, seen)] = eventually(lambda: kept(running))
    assert (value, path, query, seen) == ({"n": 1}, "/hooks", "", id)
    assert headers["x-event"] == "push"
    assert not {"authorization", "cookie"} & headers.keys()
    eventually(lambda: not list((running.parent / "log").glob("*.requests")))  # what is settled is deleted


@pytest.mark.parametrize(
    ("status", "body", "path", "headers"),
    [
        (401, b"{}", "/hooks", {}),
        (401, b"{}", "/hooks", {"authorization": "Bearer s3cre"}),
        (401, b"{}", "/hooks", {"authorization": "s3cret"}),
        (404, b"{}", "/other", GOOD),
        (400, b"{", "/hooks", GOOD),
        (413, b"x" * 1001, "/hooks", GOOD),
        (415, b"{}", "/hooks", {**GOOD, "content-encoding": "gzip"}),
    ],
)
def test_what_is_refused_is_not_stored(
    running: Path, port: int, status: int, body: bytes, path: str, headers: dict[str, str]
) -> None:
    assert post(port, body, path, **headers)[0] == status
    assert not list((running.parent / "log").glob("*.requests"))


def test_the_health_check_shows_no_token_and_other_methods_are_refused(running: Path, port: int) -> None:
    assert urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/hooks", timeout=5)


@pytest.mark.parametrize("secret", ["", " ", "s3cret ", "s3cret\n", "\ts3cret", "s3cr\u00e9t", "s3\ncret"])
def test_a_token_that_no_request_can_show_starts_no_server(
    tmp_path: Path, port: int, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", secret)
    spout = HttpSpout(str(tmp_path / "log"), port=port, token="env:HOOK_TOKEN")
    with LocalCluster() as cluster:
        cluster.submit(keeping(spout, tmp_path / "kept"))
        errors = eventually(lambda: cluster.status("hooks").errors, 20)
        assert "token is env:HOOK_TOKEN, which" in errors[-1].render()
        assert "s3cr" not in errors[-1].render()
        assert post(port, b"{}", authorization="Bearer ")[0] == 0


def test_the_rate_is_limited(tmp_path: Path, port: int) -> None:
    spout = HttpSpout(str(tmp_path / "log"), port=port, rate=0.01)
    with LocalCluster() as cluster:
        cluster.submit(keeping(spout, tmp_path / "kept"))
        accepted(port, b"1")
        status, _, headers = post(port, b"2")
        assert status == 429
        assert 1 <= int(headers["retry-after"]) <= 100


def test_a_full_directory_is_answered_503(tmp_path: Path, port: int) -> None:
    spout = HttpSpout(str(tmp_path / "log"), port=port, decode="bytes", max_backlog=1 << 20)
    with LocalCluster() as cluster:
        cluster.submit(keeping(spout, tmp_path / "kept"))
        accepted(port, b"x")
        cluster.deactivate("hooks")
        sent = [post(port, b"x" * 300_000) for _ in range(5)]
        assert [status for status, _, _ in sent][:3] == [202] * 3
        assert sent[-1][0] == 503 and sent[-1][2]["retry-after"] == "5"
        cluster.activate("hooks")
        eventually(lambda: post(port, b"x" * 300_000)[0] == 202, 20)


def test_a_spout_that_does_not_read_keeps_few_requests_in_memory(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory: list[bool] = []
    stored = ReceivingTask._stored

    def watched(self: ReceivingTask, *segment: Any) -> None:
        stored(self, *segment)
        in_memory.extend(requests is not None for _, _, requests in list(self._notices)[-1:])

    monkeypatch.setattr(ReceivingTask, "_stored", watched)
    monkeypatch.setattr("squall_io.http.receiving.CACHE_BYTES", 2500)
    with LocalCluster() as cluster:
        spout = HttpSpout(str(tmp_path / "log"), port=port, fields="id", decode="bytes")
        cluster.submit(keeping(spout, tmp_path / "kept"))
        ids = [accepted(port, b"x")]
        eventually(lambda: kept(tmp_path / "kept"))
        cluster.deactivate("hooks")
        in_memory.clear()
        ids += [accepted(port, b"x" * 1000) for _ in range(5)]
        assert in_memory == [True, True, False, False, False]
        cluster.activate("hooks")
        eventually(lambda: kept(tmp_path / "kept") == [[id] for id in ids], 20)


def test_what_is_committed_makes_room_though_it_is_not_deleted_yet(tmp_path: Path, port: int) -> None:
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.1}
    spout = HttpSpout(str(tmp_path / "log"), port=port, decode="bytes", fields="id", max_backlog=1 << 20)
    with LocalCluster() as cluster:
        cluster.submit(keeping(spout, tmp_path / "kept"), conf)
        for _ in range(8):
            accepted(port, b"x" * 300_000)
        assert len(list((tmp_path / "log").glob("*.requests"))) == 8


@pytest.mark.parametrize("head", ["content-length: 1000000", "transfer-encoding: chunked"])
def test_bodies_that_are_on_their_way_are_limited(tmp_path: Path, port: int, head: str) -> None:
    spout = HttpSpout(str(tmp_path / "log"), port=port, decode="bytes", fields="id", max_backlog=1 << 20)
    with LocalCluster() as cluster:
        cluster.submit(keeping(spout, tmp_path / "kept"))
        accepted(port, b"x")
        with ExitStack() as stack:
            for _ in range(2):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                client.sendall(f"POST /hooks HTTP/1.1\r\nhost: h\r\n{head}\r\n\r\n".encode())
            eventually(lambda: post(port, b"x")[0] == 503, 20)
        accepted(port, b"x")


def stored(folder: Path, bodies: list[bytes], index: int = 0) -> None:
    """Store requests as a task that has ended would have."""
    files = LogFiles(str(folder), None, None)
    writer = files.begin(index, 1)
    for number, start in enumerate(range(0, len(bodies), 3), 1):
        requests = [StoredRequest(body, {}, "/", "", 0.0) for body in bodies[start : start + 3]]
        files.put(writer, number, packed(requests))
    files.close()


@pytest.mark.slow
def test_the_spout_keeps_the_contract_of_positions(tmp_path: Path) -> None:
    for index in (0, 1):
        stored(tmp_path / "log", [b"%d" % (100 * index + n) for n in range(6)], index)
    expected = [(100 * index + n,) for index in (0, 1) for n in range(6)]
    check_rewindable_spout(lambda: HttpSpout(str(tmp_path / "log"), port=0), expected, parallelism=2)


@pytest.mark.slow
def test_a_request_that_was_answered_is_emitted_by_the_successor_of_a_killed_worker(
    tmp_path: Path, port: int
) -> None:
    with LocalCluster(processes=True) as cluster:
        cluster.submit(keeping(HttpSpout(str(tmp_path / "log"), port=port), tmp_path / "kept"))
        accepted(port, b"0")
        cluster.deactivate("hooks")  # it is stored, and not emitted
        eventually(lambda: [0] in kept(tmp_path / "kept"))
        id = accepted(port, b"1")
        [worker] = cluster.workers("hooks")
        os.kill(worker.pid, signal.SIGKILL)
        assert id.count(".") == 2
        cluster.activate("hooks")
        eventually(lambda: [1] in kept(tmp_path / "kept"), 60)


class Count(StatefulBolt):
    """Counts each number, and passes it on with its count."""

    key = "value"
    outputs = ("value", "times")
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        self.emit((tup["value"], self.times.value))


def counting(spout: HttpSpout, folder: Path) -> Topology:
    builder = TopologyBuilder("hooks")
    builder.set_spout("hooks", spout)
    builder.set_bolt("count", Count()).fields_grouping("hooks", "value")
    builder.set_bolt("out", FileSink(folder, "jsonl")).shuffle_grouping("count")
    return builder.build()


class Sender(threading.Thread):
    """Posts numbers, each until one is answered at all, and records those that were answered 202."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__(daemon=True)
        self.ports = ports
        self.taken: list[int] = []
        self.sent = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            status, _, _ = post(self.ports[self.sent % len(self.ports)], b"%d" % self.sent)
            if status == 202:
                self.taken.append(self.sent)
            elif not self.over.wait(0.02):
                pass
            self.sent += 1

    def stop(self) -> list[int]:
        self.over.set()
        self.join(30)
        return self.taken


def rows(folder: Path) -> list[Any]:
    paths = [path for path in folder.glob("*") if path.is_file()] if folder.is_dir() else []
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_every_202_counts_once_while_workers_are_killed_and_tasks_become_more_and_fewer(
    tmp_path: Path, port: int
) -> None:
    """With epochs. What was not answered 202 may be there too, once each: a sender that sends it again makes a new request."""
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.2}
    spout = HttpSpout(str(tmp_path / "log"), port=port)
    out = tmp_path / "out"
    with LocalCluster(processes=True) as cluster:
        cluster.submit(counting(spout, out), conf)
        accepted(port, b"1000000")
        senders = [Sender([port, port + 1]) for _ in range(4)]
        for sender in senders:
            sender.sent = 10_000 * senders.index(sender)
            sender.start()
        for tasks in (0, 2, 0, 1):
            target = sum(len(each.taken) for each in senders) + 60
            eventually(lambda target=target: sum(len(each.taken) for each in senders) >= target, 60)  # type: ignore[misc]
            if tasks:
                cluster.rebalance("hooks", parallelism={"hooks": tasks})
            else:
                worker = next(each for each in cluster.workers("hooks") if each.pid)
                os.kill(worker.pid, signal.SIGKILL)
        target = sum(len(each.taken) for each in senders) + 60
        eventually(lambda: sum(len(each.taken) for each in senders) >= target, 60)
        taken = {number for each in senders for number in each.stop()}
        eventually(lambda: taken <= {row["value"] for row in rows(out)}, 60, every=0.1)
        assert cluster.dead_letters("hooks") == []
    counts = Counter(row["value"] for row in rows(out))
    assert set(counts.values()) == {1}
    assert len(taken) >= 200


def test_a_directory_of_another_host_is_not_read_and_explain_says_so(tmp_path: Path, port: int) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    stored(there, [b"1"])
    local = HttpSpout(str(here), port=port)
    with LocalCluster() as cluster:
        cluster.submit(keeping(local, tmp_path / "kept"))
        accepted(port, b"2")
        eventually(lambda: kept(tmp_path / "kept"))
    assert kept(tmp_path / "kept") == [[2]]
    assert len(list(there.glob("*.requests"))) == 1
    [pair] = guarantees(keeping(local, tmp_path / "kept"), {}).pairs
    assert any("runs on the same host" in each and str(here) in each for each in pair.conditions)
    shared = HttpSpout("hdfs://namenode:9000/hooks", port=port)
    [pair] = guarantees(keeping(shared, tmp_path / "kept"), {}).pairs
    assert not any("same host" in each for each in pair.conditions)


@pytest.mark.parametrize("local", [False, True])
def test_a_wiped_directory_that_all_hosts_share_is_an_error(
    tmp_path: Path, port: int, local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_io.http.receiving.is_host_local", lambda directory: local)
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.1}
    spout, out = HttpSpout(str(tmp_path / "log"), port=port), tmp_path / "out"
    with LocalCluster() as cluster:
        cluster.submit(counting(spout, out), conf)
        accepted(port, b"1")
        eventually(lambda: [row["value"] for row in rows(out)] == [1], 20)  # it is committed
    shutil.rmtree(tmp_path / "log")
    with LocalCluster() as cluster:
        cluster.submit(counting(spout, out), conf)
        if local:  # it may be the folder of another host
            accepted(port, b"2")
            eventually(lambda: {row["value"] for row in rows(out)} == {1, 2}, 20)
        else:
            errors = eventually(lambda: cluster.status("hooks").errors, 20)
            assert "is not the directory in which" in errors[-1].render()
            assert post(port, b"2")[0] == 0


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"directory": "relative"}, "it is relative"),
        ({"directory": "hdfs:///hooks"}, "address of its NameNode"),
        ({"port": -1}, "port is -1"),
        ({"token": "s3cret"}, "has the secret itself"),
        ({"path": "/health"}, "is not /health"),
        ({"path": "/a?x"}, "has no query"),
        ({"fields": ["body"]}, "give some of 'value'"),
        ({"fields": 5}, "give some of 'value'"),
        ({"fields": [[]]}, "give some of 'value'"),
        ({"fields": ["id", "id"]}, "each once"),
        ({"s3_endpoint": 5}, "s3_endpoint is no URL"),
        ({"s3_endpoint": "http://u:s3cret@h"}, "s3_endpoint is no URL"),
        ({"max_body": 0}, "max_body is 0"),
        ({"rate": 0}, "rate is 0"),
        ({"key": "/k.pem"}, "without certificate"),
        ({"decode": "xml"}, "decode is 'xml'"),
    ],
)
def test_wrong_arguments_are_refused_where_the_topology_is_built(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text) as error:
        HttpSpout(**{"directory": "/log", "port": 80, **wrong})
    assert "s3cret" not in str(error.value)


def test_the_limit_of_a_rate_fills_up_again() -> None:
    now = 0.0
    limit = RateLimit(2, lambda: now)
    assert [limit.wait() for _ in range(3)] == [None, None, 1]
    now = 0.5
    assert [limit.wait(), limit.wait()] == [None, 1]
    assert RateLimit(None, lambda: now).wait() is None


def test_with_a_certificate_the_server_speaks_tls(tmp_path: Path, port: int) -> None:
    files = make_certificates(tmp_path / "tls")
    spout = HttpSpout(str(tmp_path / "log"), port=port, certificate=files.certificate, key=files.key)
    trusted = ssl.create_default_context(cafile=files.ca)
    https = urllib.request.HTTPSHandler(context=trusted)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)

    def healthy() -> bool:
        try:
            with opener.open(f"https://127.0.0.1:{port}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    with LocalCluster() as cluster:
        cluster.submit(keeping(spout, tmp_path / "kept"))
        eventually(healthy, 20)


def test_while_the_port_is_taken_the_task_waits_and_says_so(tmp_path: Path, port: int) -> None:
    stored(tmp_path / "log", [b"1"])
    with LocalCluster() as cluster:
        with socket.create_server(("127.0.0.1", port)):
            cluster.submit(keeping(HttpSpout(str(tmp_path / "log"), port=port), tmp_path / "kept"))
            eventually(lambda: kept(tmp_path / "kept") == [[1]], 20)  # it is read meanwhile
            eventually(lambda: "another program listens there" in str(cluster.status("hooks")), 20)
        accepted(port, b"2")
        eventually(lambda: kept(tmp_path / "kept") == [[1], [2]], 20)


def test_while_the_directory_refuses_nothing_is_answered_202_and_then_all_is_there(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = threading.Event()
    put = LogFiles.put

    def failing(self: LogFiles, writer: str, number: int, data: bytes) -> None:
        if broken.is_set():
            raise FilesUnavailable("the disk is full")
        put(self, writer, number, data)

    monkeypatch.setattr(LogFiles, "put", failing)
    with LocalCluster() as cluster:
        cluster.submit(keeping(HttpSpout(str(tmp_path / "log"), port=port), tmp_path / "kept"))
        accepted(port, b"1")
        broken.set()
        waits = Sender([port])  # its first request is under way until the directory answers again
        waits.sent = 2
        waits.start()
        eventually(lambda: "the disk is full" in str(cluster.status("hooks")), 20)
        assert post(port, b"999")[0] == 503
        broken.clear()
        eventually(lambda: waits.taken, 20)
        taken = waits.stop()
        eventually(lambda: {row[0] for row in kept(tmp_path / "kept")} >= {1, *taken}, 20)
        assert [999] not in kept(tmp_path / "kept")


def test_what_was_stored_by_halves_is_deleted_when_it_is_old(tmp_path: Path, port: int) -> None:
    log = tmp_path / "log"
    stored(log, [b"1"])
    [segment] = [path.name for path in log.glob("*.requests")]
    halves = log / "_squall" / "tmp"
    old, young, other = (halves / name for name in (f"{segment}.0a", f"{segment}.0b", "mine.txt"))
    for path in (old, young, other):
        path.write_bytes(b"half")
    for path in (old, other):
        os.utime(path, (1, 1))
    with LocalCluster() as cluster:
        cluster.submit(keeping(HttpSpout(str(log), port=port), tmp_path / "kept"))
        eventually(lambda: not old.exists(), 20)
        assert young.exists() and other.exists()


def test_a_directory_that_is_refused_is_an_error_and_tried_again(tmp_path: Path, port: int) -> None:
    folder = tmp_path / "log"
    folder.write_text("a file")
    with LocalCluster() as cluster:
        cluster.submit(keeping(HttpSpout(str(folder), port=port), tmp_path / "kept"))
        eventually(lambda: cluster.status("hooks").errors, 20)
        assert str(folder) in cluster.status("hooks").errors[-1].render()
        folder.unlink()
        accepted(port, b"1")
        eventually(lambda: kept(tmp_path / "kept") == [[1]], 20)
