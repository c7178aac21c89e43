"""A stand-in for a schema registry: an HTTP server on the loopback that answers as Confluent's API does.

It is no registry (`tests/registry_servers.py` has one): it keeps schemas in memory, and "compatible" is what a test says.
Must not know: codecs.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class StandIn:
    """The schemas, by id and by subject."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        #: Subjects that take no further schema.
        self.closed: set[str] = set()
        #: Requests so far.
        self.asked: list[str] = []
        #: Status of the answer to each request; None: as it should be.
        self.broken: int | None = None
        #: User and password that every request needs.
        self.user: tuple[str, str] | None = None
        self.url = ""

    def add(self, subject: str, schema: Any, kind: str = "AVRO", **more: Any) -> int:
        """Add a version of a subject; return the schema's id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        one = {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind}), **more}
        if one not in self.schemas:
            self.schemas.append(one)
        number = self.schemas.index(one) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, path: list[str], body: Any) -> tuple[int, Any]:
        """Answer one request."""
        match path:
            case ["schemas", "ids", number]:
                if not 0 < int(number) <= len(self.schemas):
                    return 404, {"error_code": 40403, "message": "Schema not found"}
                return 200, self.schemas[int(number) - 1]
            case ["subjects", subject, "versions"] if body is not None:
                old = self.subjects.get(subject, [])
                if subject in self.closed and body not in [self.schemas[number - 1] for number in old]:
                    return 409, {"error_code": 409, "message": "Schema being registered is incompatible: age"}
                kind = body.get("schemaType", "AVRO")
                more = {"references": body["references"]} if "references" in body else {}
                return 200, {"id": self.add(subject, body["schema"], kind, **more)}
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                numbers = self.subjects[subject]
                chosen = numbers[-1 if version == "latest" else int(version) - 1]
                return 200, {"id": chosen, "version": len(numbers), **self.schemas[chosen - 1]}
            case ["subjects", subject] if subject in self.subjects and body in self.schemas:
                known = self.schemas.index(body) + 1
                return 200, {"id": known, "version": self.subjects[subject].index(known) + 1}
            case ["subjects", subject] if subject in self.subjects:
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 40401, "message": "Subject not found"}


@contextmanager
def registry(port: int = 0, stand_in: StandIn | None = None) -> Iterator[StandIn]:
    """A stand-in that answers, until the end."""
    known = stand_in or StandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(None)

        def do_POST(self) -> None:
            self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def reply(self, body: Any) -> None:
            known.asked.append(self.path)
            status, answer = known.answer([unquote(part) for part in self.path.strip("/").split("/")], body)
            if known.user is not None:
                word = base64.b64encode(":".join(known.user).encode()).decode()
                if self.headers.get("Authorization") != f"Basic {word}":
                    status, answer = 401, {"error_code": 40101, "message": "Unauthorized"}
            if known.broken is not None:
                status, answer = known.broken, {"error_code": 50003, "message": "no leader"}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    known.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
