"""A Nimbus with the real master behind a small HTTP server of its own, for supervisor daemons in these tests.

It can be unavailable (`down`) or slow. It records the reports of supervisors.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from nimbus.leader.master import Nimbus
from nimbus.security.keyring import KeyRing
from squall.clock import RealClock
from squall.cluster import paths
from squall.cluster.records import NimbusRecord, WorkerReport, decode
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from squall.security.sealing import (
    NIMBUS_TO_SUPERVISOR,
    SUPERVISOR_TO_NIMBUS,
    KeyPair,
    daemon_header,
    read_daemon_header,
)
from squall.transport.carriers.sockets import make_keys


class FakeNimbus:
    """Leader or standby; several may share one store."""

    def __init__(self, store: Store, id: str = "n1", leads: bool = True) -> None:
        self.id = id
        self.store = store
        self.registry = Registry(store)
        self.pair = KeyPair.make()
        self.lock = threading.RLock()
        self.posts: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.refused: list[str] = []
        #: The keys of supervisors, also of those that have left.
        self.known: dict[str, str] = {}
        self.answer_with = 200
        #: A body with this text is rejected; "": none is.
        self.rejects = ""
        self.server: ThreadingHTTPServer | None = None
        self.master: Nimbus | None = None
        self.port = 0
        self.up()
        self.registry.nimbuses.put(self.record)
        if leads:
            self.lead()

    @property
    def record(self) -> NimbusRecord:
        return NimbusRecord(self.id, f"http://127.0.0.1:{self.port}", "here", self.pair.public)

    def lead(self) -> None:
        """This one leads from now on."""
        self.store.put(paths.LEADER, self.id.encode())
        ring = KeyRing(Registry(self.store), self.pair, self.id, lambda: asdict(make_keys()))
        self.master = Nimbus(self.store, RealClock(), keyring=ring)

    @property
    def nimbus(self) -> Nimbus:
        assert self.master is not None
        return self.master

    def do(self, command: Callable[[Nimbus], Any]) -> Any:
        """Only one thread at a time uses the master."""
        with self.lock:
            return command(self.nimbus)

    def up(self) -> None:
        """Start answering, on the earlier port if there was one."""
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), handler_of(self))
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def down(self) -> None:
        """Stop answering."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def close(self) -> None:
        self.down()
        if self.master is not None:
            self.master.close()

    def header_for(self, supervisor: str) -> str:
        """The token with which this Nimbus identifies itself to a supervisor."""
        (record,) = [record for record in self.registry.all_supervisors() if record.id == supervisor]
        return daemon_header(self.id, self.pair.token_with(record.public_key, NIMBUS_TO_SUPERVISOR))

    def knows(self, header: str | None) -> str | None:
        """The supervisor with this token."""
        self.known |= {record.id: record.public_key for record in self.registry.all_supervisors()}
        found = read_daemon_header(header or "")
        if found is None or found[0] not in self.known:
            return None
        shown = self.pair.is_token_of(self.known[found[0]], SUPERVISOR_TO_NIMBUS, found[1])
        return found[0] if shown else None

    def take(self, supervisor: str, body: dict[str, Any]) -> None:
        with self.lock:
            self.posts.append(body)
            if self.master is None:
                return
            self.master.heard(supervisor)
            for each in body["reports"]:
                report = decode(WorkerReport, json.dumps(each["report"]).encode())
                self.master.report(each["topology"], report.worker, report)

    def said(self, what: str) -> list[Any]:
        """All "reports" or "counters" received."""
        with self.lock:
            return [each for post in self.posts for each in post[what]]

    def notes(self) -> list[str]:
        """The notes about workers, each text once."""
        found = [each["report"]["note"] for each in self.said("reports")]
        return list(dict.fromkeys(note for note in found if note is not None))


def handler_of(nimbus: FakeNimbus) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            supervisor = self.path.split("/")[4]
            if nimbus.knows(self.headers["Authorization"]) != supervisor:
                nimbus.refused.append(self.path)
                self.answer(401, error("Unauthorized"))
            elif nimbus.answer_with != 200:
                self.answer(nimbus.answer_with, error("Unavailable"))
            elif nimbus.rejects and nimbus.rejects in json.dumps(body):
                self.answer(400, error("BadRequest"))
            else:
                nimbus.take(supervisor, body)
                self.answer(200, b'{"refused": []}')

        def do_GET(self) -> None:
            found = nimbus.files.get(self.path.rsplit("/", 1)[1])
            if nimbus.knows(self.headers["Authorization"]) is None:
                self.answer(401, error("Unauthorized"))
            elif found is None:
                self.answer(404, error("NotFound"))
            else:
                self.answer(200, found)

        def answer(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            with suppress(ConnectionError):  # the client was killed
                self.end_headers()
                self.wfile.write(data)

    return Handler


def error(kind: str) -> bytes:
    return json.dumps({"error": {"kind": kind, "message": kind, "problems": []}}).encode()
