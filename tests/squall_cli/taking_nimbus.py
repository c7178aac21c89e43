"""A Nimbus that accepts submissions over real HTTP, checks them like the real one, and has the faults that a test chooses."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nimbus.files.stored_files import KINDS
from nimbus.submission.parse import read_submission
from nimbus.submission.submission import Submission
from squall.packages import archives
from squall.packages.versions import own_versions
from tests.squall_cli.fake_nimbus import FakeNimbus, Handler, Refusal, Server, topology, worker
from topology_api.errors import SquallError


class TakingNimbus(FakeNimbus):
    """It keeps files by their hash and submissions by their key; `faults` are used up, one for each POST."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.limit = 1 << 24
        self.puts: list[str] = []
        self.submissions: dict[str, Submission] = {}
        #: `kept` and `changed` of its answers.
        self.settings: dict[str, Any] = {}
        self.faults: deque[str | Refusal] = deque()
        #: How many requests about files are refused because no Nimbus leads.
        self.leaderless = 0
        self.supervisors = [{**each, "versions": own_versions()} for each in self.supervisors]
        #: The states of a topology, one for each query.
        self.story: deque[Callable[[dict[str, Any]], object]] = deque()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        if (method, path) == ("POST", "topologies"):
            self.asked.append((method, path, query, body))
            return self.take(body)
        if method == "GET" and path.startswith("topologies/") and self.story:
            self.story.popleft()(self.topologies[path.split("/")[1]])
        return super().answer(method, path, query, body)

    def cluster(self) -> dict[str, Any]:
        found = super().cluster()
        return {**found, "nimbuses": [{**each, "versions": own_versions()} for each in found["nimbuses"]]}

    def take(self, body: Any) -> dict[str, Any]:
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, Refusal):
            raise fault
        if fault == "lost on the way":
            raise ConnectionAbortedError
        try:
            submission = read_submission(body)
            for kind, sha256 in submission.files.items():
                self.check(kind, sha256)
        except SquallError as error:
            raise Refusal(422, type(error).__name__, str(error)) from None
        name = submission.topology.name
        if submission.key not in self.submissions:
            if name in self.topologies and not submission.replace:
                raise Refusal(409, "NameTaken", f"a topology named {name!r} exists already")
            self.submissions[submission.key] = submission
            status = topology(name, "ACTIVE" if submission.active else "INACTIVE", workers=[])
            for each in status["components"].values():
                each.update(emitted=0, executed=0, acked=0, pending=0)
            self.put({**status, "id": f"{name}-{len(self.submissions)}"})
        if fault == "answer lost":
            raise ConnectionAbortedError
        status = self.topologies[name]
        return {**{key: status[key] for key in ("name", "id", "state")}, **self.settings}

    def check(self, kind: str, sha256: str) -> None:
        path = self.folder / sha256
        if not path.exists():
            raise Refusal(422, "FileMissing", f"the file of {kind!r} is not here: send it first")
        if KINDS[kind]:
            archives.check(path, self.limit, self.limit)


class TakingHandler(Handler):
    nimbus: TakingNimbus

    def answer(self) -> None:
        try:
            super().answer()
        except ConnectionAbortedError:
            self.close_connection = True  # without an answer

    def do_HEAD(self) -> None:
        if self.refused():
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        there = (self.nimbus.folder / self.path.rpartition("/")[2]).exists()
        self.send_response(200 if there else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def refused(self) -> bool:
        if "/files/" not in self.path or not self.nimbus.leaderless:
            return False
        self.nimbus.leaderless -= 1
        return True

    def do_PUT(self) -> None:
        size, sha256 = int(self.headers["Content-Length"]), self.path.rpartition("/")[2]
        data = self.rfile.read(size)
        if self.refused():
            self.send(503, {"error": {"kind": "NoLeader", "message": "nobody leads", "problems": []}})
            return
        if size > self.nimbus.limit:
            self.send(
                413, {"error": {"kind": "TooLarge", "message": "the file is too large", "problems": []}}
            )
            return
        assert hashlib.sha256(data).hexdigest() == sha256
        (self.nimbus.folder / sha256).write_bytes(data)
        self.nimbus.puts.append(sha256)
        self.send(201, {"sha256": sha256})

    do_GET = do_POST = do_DELETE = answer


@contextmanager
def taking_nimbus(folder: Path, kind: type[TakingNimbus] = TakingNimbus) -> Iterator[TakingNimbus]:
    """A server on a free port that keeps its files in a folder."""
    nimbus = kind(folder)
    server = Server(("127.0.0.1", 0), type("HandlerOfOne", (TakingHandler,), {"nimbus": nimbus}))
    nimbus.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield nimbus
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def scheduled(status: dict[str, Any]) -> None:
    status["workers"] = [worker("w1", opened=False), worker("w2", "host-2", opened=False)]


def up(status: dict[str, Any]) -> None:
    for each in status["workers"]:
        each["opened"] = True


def acked(status: dict[str, Any]) -> None:
    status["components"]["words"].update(emitted=10, acked=7)
