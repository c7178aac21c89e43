"""moto's S3 in a process of its own, with what servers differ in, and with faults: `python tests/s3_moto.py PORT`.

A bucket's name says what the server honours in it, see `BUCKETS`. A POST to /faults lets requests fail. Requests are answered
one after another: moto looks at a condition and puts the object in two steps.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

#: Conditional puts, and copies in one call or in parts, as Amazon has them.
COPIES = "copies"
#: Conditional puts, and copies in parts: moto's own way.
PARTS = "parts"
#: Only conditional puts.
PUTS = "puts"
#: No conditions: the header is ignored.
IGNORES = "ignores"
#: No conditions: the header is refused.
REFUSES = "refuses"
BUCKETS = (COPIES, PARTS, PUTS, IGNORES, REFUSES)

Start = Callable[..., Any]
CONDITION = "HTTP_IF_NONE_MATCH"


class Server:
    """The application, around moto's."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        #: Each with method, a part of the path and the query, and how the request fails.
        self._faults: list[dict[str, str]] = []
        self._requests: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path == "/faults" and method == "GET":
            return _answer(start, "200 OK", json.dumps(self._faults).encode())
        if path == "/faults":
            self._faults = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            return _answer(start, "200 OK", b"")
        if path == "/requests":
            done, self._requests = self._requests, []
            return _answer(start, "200 OK", json.dumps(done).encode())
        line = f"{path}?{environ.get('QUERY_STRING', '')}"
        self._requests.append(f"{method} {line}")
        for fault in self._faults:
            if fault["method"] == method and fault["part"] in line:
                self._faults.remove(fault)
                return self._fail(fault["how"], environ, start)
        return self._ask(environ, start)

    def _fail(self, how: str, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """How: "before" or "after", the connection ends without an answer, before or after the request was done; otherwise a
        status with a code, as in "503 SlowDown".
        """
        if how == "after":
            for _ in self._ask(environ, lambda *given: lambda data: None):
                pass
        if how in ("before", "after"):
            raise ConnectionResetError
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))  # the client has sent it all
        status, _, code = how.partition(" ")
        body = f"<Error><Code>{code}</Code><Message>as the test wants</Message></Error>".encode()
        return _answer(start, f"{status} {code}", body)

    def _ask(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        bucket = environ["PATH_INFO"].split("/")[1]
        copies = environ["REQUEST_METHOD"] == "PUT" and "HTTP_X_AMZ_COPY_SOURCE" in environ
        if CONDITION in environ and bucket == IGNORES:
            del environ[CONDITION]
        elif CONDITION in environ and bucket == REFUSES:
            return _answer(start, "501 Not Implemented", b"<Error><Code>NotImplemented</Code></Error>")
        elif CONDITION in environ and bucket == PUTS and (copies or environ["REQUEST_METHOD"] == "POST"):
            del environ[CONDITION]
        elif CONDITION in environ and bucket == COPIES and copies and self._is_there(environ):
            return _answer(
                start, "412 Precondition Failed", b"<Error><Code>PreconditionFailed</Code></Error>"
            )
        answer: Iterable[bytes] = self._moto(environ, start)
        return answer

    def _is_there(self, environ: dict[str, Any]) -> bool:
        """Whether there is an object where one is to be put."""
        found: list[str] = []
        asked = {key: value for key, value in environ.items() if not key.startswith("HTTP_X_AMZ_COPY")}
        asked |= {"REQUEST_METHOD": "HEAD", "CONTENT_LENGTH": "0"}
        del asked[CONDITION]
        for _ in self._moto(asked, lambda status, *given: found.append(status)):
            pass
        return found[0].startswith("200")


def _answer(start: Start, status: str, body: bytes) -> list[bytes]:
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def _log_nothing(*given: object) -> None:
    """Write no line for each request."""


if __name__ == "__main__":
    quiet = type("Quiet", (WSGIRequestHandler,), {"log_request": _log_nothing})
    run_simple("127.0.0.1", int(sys.argv[1]), Server(), threaded=False, request_handler=quiet)
