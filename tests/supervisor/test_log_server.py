"""Nimbus alone reads the logs of workers, over HTTP; a request never leaves the workers' directories."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from squall.cluster.memory import InMemoryStore
from squall.cluster.records import NimbusRecord
from squall.cluster.registry import Registry
from squall.reports.stacks import CallStack, StackFrame, WorkerStacks
from squall.security.sealing import NIMBUS_TO_SUPERVISOR, SUPERVISOR_TO_NIMBUS, KeyPair, daemon_header
from squall.worker_files import QUESTION, STACKS, read, write
from supervisor import stack_questions
from supervisor.directories import Directories
from supervisor.kept_logs import KeptLogs
from supervisor.log_server import MOST_CONNECTIONS, LogServer
from supervisor.nimbus_http import Nimbuses
from supervisor.removals import delete
from tests.flaky_store import FlakyStore


class Served:
    """A log server with one worker, and its clients."""

    def __init__(self, tmp_path: Path, days: float = 0.0) -> None:
        self.logs = KeptLogs(tmp_path, days, delete, time.time)
        self.directories = Directories(tmp_path, logs=self.logs)
        self.worker = self.directories.make_worker("words-1-0", "w1")
        (self.worker / "worker.log").write_text("one\ntwo\nthree\n")
        (self.worker / "output.log").write_text("written past Python\n")
        self.built = tmp_path / "build.log"
        (tmp_path / "key").write_text("a secret of the supervisor\n")
        self.nimbus, self.own = KeyPair.make(), KeyPair.make()
        self.store = FlakyStore(InMemoryStore())
        Registry(self.store).nimbuses.put(NimbusRecord("n1", "http://n1:6627", "n1", self.nimbus.public))
        nimbuses = Nimbuses(self.store, "s1", self.own)
        self.server = LogServer(
            "127.0.0.1",
            0,
            self.directories,
            lambda topology_id: self.built if topology_id == "words-1-0" else None,
            nimbuses.comes_from_one,
        )
        self.server.start()
        self.header = daemon_header("n1", self.nimbus.token_with(self.own.public, NIMBUS_TO_SUPERVISOR))

    def ask(self, path: str, header: str | None = None, method: str = "GET") -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            shown = self.header if header is None else header
            if shown:
                connection.putheader("Authorization", shown)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path / "state")
    yield found
    found.server.stop()


def test_a_nimbus_reads_the_log_of_a_worker(served: Served) -> None:
    status, answer = served.ask("/logs/words-1-0/w1?offset=4&limit=4")
    assert status == 200
    assert answer == {
        "worker": "w1", "incarnation": None, "offset": 4, "next_offset": 8, "size": 14, "text": "two\n",
    }  # fmt: skip
    assert served.ask("/logs/words-1-0/w1?offset=-7")[1]["text"] == "three\n"
    assert served.ask("/logs/words-1-0/w1?file=output")[1]["text"] == "written past Python\n"


def test_the_build_log_of_an_environment_is_read_the_same_way(served: Served) -> None:
    assert served.ask("/logs/words-1-0/w1?file=build")[0] == 404
    served.built.write_text("ERROR: no matching distribution\n")
    assert served.ask("/logs/words-1-0/w1?file=build")[1]["text"] == "ERROR: no matching distribution\n"
    assert served.ask("/logs/other-1-0/w1?file=build")[0] == 404


def credentials(served: Served) -> dict[str, str]:
    stranger = KeyPair.make()
    good = served.header.rpartition(":")[2]
    return {
        "none": "",
        "a stranger's": daemon_header("n1", stranger.token_with(served.own.public, NIMBUS_TO_SUPERVISOR)),
        "of an unknown Nimbus": daemon_header("n2", good),
        "for the other way": daemon_header("n1", served.nimbus.token_with(served.own.public, SUPERVISOR_TO_NIMBUS)),
        "an operator's": "Bearer x",
        "garbage": "Squall-Daemon ::::",
    }  # fmt: skip


@pytest.mark.parametrize(
    "which", ["none", "a stranger's", "of an unknown Nimbus", "for the other way", "an operator's", "garbage"]
)
def test_only_a_nimbus_can_read_anything(served: Served, which: str) -> None:
    status, answer = served.ask("/logs/words-1-0/w1", credentials(served)[which])
    assert status == 401
    assert answer["error"]["kind"] == "Unauthorized"
    assert "one" not in json.dumps(answer["error"]["message"]).split()


def test_any_client_may_ask_whether_the_server_is_there(served: Served) -> None:
    assert served.ask("/health", "") == (200, {"status": "ok"})


def test_a_known_nimbus_can_read_while_the_store_is_away(served: Served) -> None:
    assert served.ask("/logs/words-1-0/w1")[0] == 200
    served.store.away = True
    assert served.ask("/logs/words-1-0/w1")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/logs/../key",
        "/logs/words-1-0/..",
        "/logs/words-1-0/../../../key",
        "/logs/words-1-0/..%2F..%2F..%2Fkey",
        "/logs/%2e%2e/%2e%2e",
        "/logs/..%2F../key",
        "/logs/words-1-0/w1/../../../../key",
        "/logs/words-1-0/%00",
        "/logs//w1",
        "/logs/words-1-0/",
        "/logs/words-1-0",
        "/",
        "//etc/passwd",
        "/logs/words-1-0/" + "x" * 300,
    ],
)
def test_no_path_leads_out_of_the_workers_directories(served: Served, path: str) -> None:
    status, answer = served.ask(path)
    assert status == 404
    assert "secret" not in json.dumps(answer)


@pytest.mark.parametrize("name", ["../../../../key", "%2e%2e%2fkey", "worker.log", "", "key"])
def test_no_other_file_of_the_directory_is_readable(served: Served, name: str) -> None:
    status, _ = served.ask(f"/logs/words-1-0/w1?file={name}")
    assert status == (200 if name == "" else 400)


@pytest.mark.parametrize(
    "query", ["offset=x", "limit=1e9", "offset=--1", "offset=" + "9" * 30, "limit=%C2%B2"]
)
def test_an_invalid_number_is_named(served: Served, query: str) -> None:
    status, answer = served.ask(f"/logs/words-1-0/w1?{query}")
    assert status == 400
    assert "give a whole number" in answer["error"]["message"]


def test_logs_cannot_be_changed(served: Served) -> None:
    for method in ("DELETE", "PUT", "POST"):
        assert served.ask("/logs/words-1-0/w1", method=method)[0] == 405
    assert (served.worker / "worker.log").exists()


def test_a_link_made_by_user_code_in_its_directory_is_no_log(served: Served) -> None:
    (served.worker / "worker.log").unlink()
    (served.worker / "worker.log").symlink_to(served.directories.root.parent / "key")
    assert served.ask("/logs/words-1-0/w1")[0] == 404


def test_it_ends_though_a_client_holds_a_connection(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port)) as held:
        held.sendall(b"GET /health HTTP/1.1\r\n")
        assert served.ask("/health")[0] == 200
        served.server.stop()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", served.server.port), timeout=5).close()


def test_a_worker_is_asked_for_its_stacks_and_one_that_does_not_answer_is_named(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = CallStack("MainThread", "count", 4, 7.5, "", (StackFrame("count.py", 12, "execute"),))
    write(served.worker, STACKS, WorkerStacks(time.time_ns() + 10**12, 4711, (stack,)))
    status, answer = served.ask("/stacks/words-1-0/w1")
    assert (status, answer["answered"], answer["pid"], answer["stacks"][0]["task"]) == (200, True, 4711, 4)
    assert read(served.worker, QUESTION) is not None
    monkeypatch.setattr(stack_questions, "PATIENCE", 0.1)
    for answered in (WorkerStacks(1, 4711, (stack,)), {"number": "many"}):  # an old answer, and a damaged one
        write(served.worker, STACKS, answered)
        status, answer = served.ask("/stacks/words-1-0/w1")
        assert (status, answer["answered"], answer["stacks"]) == (200, False, [])
    assert served.ask("/stacks/words-1-0/w9")[0] == 404
    assert served.ask("/stacks/words-1-0/w1", "Bearer x")[0] == 401


def test_strangers_who_hold_connections_do_not_keep_a_nimbus_out(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    assert served.server.closed() == {}
    with ExitStack() as stack:
        for _ in range(2 * MOST_CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", served.server.port), timeout=30))
        status, answer = served.ask("/logs/words-1-0/w1")
        assert status == 200 and answer["text"]
    # They are counted, and the first of a minute is logged.
    closed = served.server.closed()
    assert sum(closed.values()) >= MOST_CONNECTIONS and closed.keys() <= {"address", "unknown", "full"}
    told = [
        each for each in caplog.messages if each.startswith(f"port {served.server.port}: closed a connection")
    ]
    assert len(told) == 1 and "127.0.0.1" in told[0]


def test_the_log_of_a_topology_that_has_ended_is_read_while_it_is_kept(tmp_path: Path) -> None:
    served = Served(tmp_path / "state", days=7.0)
    try:
        served.directories.remove_topologies([])
        status, answer = served.ask("/logs/words-1-0/w1")
        assert (status, answer["text"], answer["incarnation"]) == (200, "one\ntwo\nthree\n", None)
        delete(served.logs.root)
        assert served.ask("/logs/words-1-0/w1")[0] == 404
    finally:
        served.server.stop()
