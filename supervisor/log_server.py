"""The supervisor's HTTP: the logs of its workers, for the Nimbuses, which pass them on to operators.

`GET /logs/<topology id>/<worker>?file=worker|output|build&offset=N&limit=N` answers
`{"worker", "incarnation", "offset", "next_offset", "size", "text"}`; `GET /health` answers anybody. Only a Nimbus of this
cluster may ask, known by its key pair. It runs in a thread of its own, and touches nothing but files.
Must not know: processes, the supervisor's loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote

import uvicorn

from squall.http_connections import BACKLOG, Listener, server_config
from squall.tls import ServerFiles
from squall.worker_files import LOG, OUTPUT, BadFile, read_orders
from supervisor.directories import Directories
from supervisor.log_files import SOME, read_piece
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds that it has to end, and that an idle connection is kept.
STOP_SECS: Final = 2.0
KEEP_SECS: Final = 30
#: Seconds that requests have to end when the server stops.
GRACE_SECS: Final = 1
#: Requests at the same time; more are told to come again.
MOST_REQUESTS: Final = 64
_MOST_QUERY: Final = 2048
_NO_ANSWER: Final = "there is nothing at {path}: it is /logs/<topology id>/<worker>"


class CannotListen(SquallError):
    """The address that the supervisor's HTTP was to have."""


class _Wrong(Exception):
    """What is answered instead: a status, its kind and why."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


@dataclass(frozen=True)
class Logs:
    """Finds and reads the logs of one supervisor's workers."""

    directories: Directories
    build_log: Callable[[str], Path | None]

    def read(self, topology_id: str, worker: str, file: str, offset: int, limit: int) -> dict[str, Any]:
        """What a request is answered with."""
        directory = self.directories.worker(topology_id, worker)
        path = self._path(topology_id, directory, file)
        found = None if path is None else read_piece(path, offset, limit)
        if found is None:
            what = {"build": "build log of an environment", "output": "output"}.get(file, "log")
            why = f"there is no {what} of worker {worker!r} of {topology_id!r} on this host"
            raise _Wrong(404, "NoSuchLog", why)
        return {
            "worker": worker,
            "incarnation": _incarnation(directory),
            "offset": found.offset,
            "next_offset": found.next_offset,
            "size": found.size,
            "text": found.text,
        }

    def _path(self, topology_id: str, directory: Path, file: str) -> Path | None:
        if file == "build":
            return self.build_log(topology_id)
        names = {"worker": LOG, "output": OUTPUT}
        if file not in names:
            raise _Wrong(400, "BadRequest", f"there is no file {file!r:.40}: give worker, output or build")
        return directory / names[file]


class LogServer:
    """Answers in a thread. `may_ask` gets the Authorization header."""

    def __init__(
        self,
        host: str,
        port: int,
        logs: Logs,
        may_ask: Callable[[str], bool],
        tls: ServerFiles | None = None,
    ) -> None:
        self._logs = logs
        self._may_ask = may_ask
        self._socket = Listener.of(_listen(host, port))
        #: The port that was bound.
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(server_config(self._answer, tls, KEEP_SECS, MOST_REQUESTS, GRACE_SECS))
        self._thread = threading.Thread(target=self._serve, name="squall-logs", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End, with requests that are under way cut off after a moment."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(STOP_SECS)
            self._server.force_exit = True
            self._thread.join(STOP_SECS)
        self._socket.close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException:  # the supervisor goes on without
            _log.exception("the supervisor's HTTP has ended: logs cannot be read from outside any more")

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """The whole application (ASGI)."""
        try:
            status, body = 200, await asyncio.to_thread(self._result, scope)
        except _Wrong as wrong:
            status, body = wrong.status, _error(wrong.kind, wrong.message)
        except Exception:
            _log.exception("a request for a log failed: %.200r", scope.get("path"))
            status, body = 500, _error("InternalError", "the supervisor's log says what went wrong")
        data = json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    def _result(self, scope: Mapping[str, Any]) -> dict[str, Any]:
        path = scope["raw_path"].decode("latin-1")
        if scope["method"] != "GET":
            raise _Wrong(405, "MethodNotAllowed", "logs are only read: GET")
        if path == "/health":
            return {"status": "ok"}
        if not self._may_ask(_header(scope, b"authorization")):
            raise _Wrong(401, "Unauthorized", "only a Nimbus of this cluster may read logs here")
        parts = path.split("/")
        if len(parts) != 4 or parts[:2] != ["", "logs"] or not (parts[2] and parts[3]):
            raise _Wrong(404, "NoSuchPage", _NO_ANSWER.format(path=repr(path[:80])))
        query = _query(scope["query_string"])
        file = query.get("file", "worker")
        offset, limit = _whole(query, "offset", 0), _whole(query, "limit", SOME)
        return self._logs.read(unquote(parts[2]), unquote(parts[3]), file, offset, limit)


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens on a name or an address; `CannotListen`."""
    bare = host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            bare or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(BACKLOG)
        except BaseException:
            found.close()
            raise
    except (OSError, UnicodeError, OverflowError) as error:
        raise CannotListen(f"{host}:{port} cannot be listened on (--listen): {error}") from error
    return found


def _incarnation(directory: Path) -> list[int] | None:
    try:
        orders = read_orders(directory)
    except BadFile:
        return None
    return None if orders is None else list(orders.incarnation)


def _header(scope: Mapping[str, Any], name: bytes) -> str:
    values = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else ""


def _query(text: bytes) -> dict[str, str]:
    if len(text) > _MOST_QUERY:
        raise _Wrong(400, "BadRequest", f"a query of {len(text)} bytes: at most {_MOST_QUERY} are read")
    return {name: values[-1] for name, values in parse_qs(text.decode("latin-1")).items()}


def _whole(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    digits = text.removeprefix("-")
    if not text:
        return default
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise _Wrong(400, "BadRequest", f"{name} is {text!r:.40}: give a whole number")
    return int(text)


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message, "problems": []}}
