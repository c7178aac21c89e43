"""moto's SQS and Kinesis in a process of its own, with faults: `python tests/aws_moto.py PORT`.

A POST to /faults lets operations fail. GET /requests says which operations were asked for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

Start = Callable[..., Any]


class Server:
    """The application, around moto's."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        #: Each with the operation, and how it fails.
        self._faults: list[list[str]] = []
        self._requests: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/faults" and environ["REQUEST_METHOD"] == "GET":
            return _answer(start, "200 OK", json.dumps(self._faults).encode())
        if path == "/faults":
            self._faults = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            return _answer(start, "200 OK", b"")
        if path == "/requests":
            done, self._requests = self._requests, []
            return _answer(start, "200 OK", json.dumps(done).encode())
        operation = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        self._requests.append(operation)
        for fault in self._faults:
            if fault[0] == operation:
                self._faults.remove(fault)
                return self._fail(fault[1], environ, start)
        answer: Iterable[bytes] = self._moto(environ, start)
        return answer

    def _fail(self, how: str, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """How: "after", the connection ends without an answer after the request was done; otherwise a status with a code, as
        in "400 AccessDenied".
        """
        if how == "after":
            for _ in self._moto(environ, lambda *given: lambda data: None):
                pass
            raise ConnectionResetError
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))  # the client has sent it all
        status, _, code = how.partition(" ")
        return _answer(
            start, f"{status} X", json.dumps({"__type": code, "message": "as the test wants"}).encode()
        )


def _answer(start: Start, status: str, body: bytes) -> list[bytes]:
    start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def _log_nothing(*given: object) -> None:
    """Write no line for each request."""


if __name__ == "__main__":
    quiet = type("Quiet", (WSGIRequestHandler,), {"log_request": _log_nothing})
    run_simple("127.0.0.1", int(sys.argv[1]), Server(), threaded=True, request_handler=quiet)
