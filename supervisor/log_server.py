"""The supervisor's HTTP server: the Nimbuses read the workers' logs and stacks from it, and the dead letters of its host.

`GET /logs/<topology id>/<worker>?file=worker|output|build&offset=N&limit=N` answers
`{"worker", "incarnation", "offset", "next_offset", "size", "text"}`; `GET /stacks/<topology id>/<worker>` asks the worker where
its threads are; `POST /state/<topology id>/<worker>` with `{"component", "key", "state"}` asks it for the state of a key;
`letter_requests` has the requests about dead letters; `POST /folder-probes/<step>` those of `folder_probes`, which show whether
hosts share a folder; `GET /health` needs no credentials. Only a Nimbus of
this cluster, known by its key pair, may ask for anything else. The server runs in its own thread and uses only files.
Must not know: processes, the supervisor's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from msgspec import DecodeError, ValidationError, json

from squall.api.answers import LiveStateAnswer, LogAnswer, StacksAnswer
from squall.api.requests import LiveStateRequest
from squall.http.admission import PER_ADDRESS
from squall.http.connections import shows_credentials
from squall.http.json_app import ReadBody, Refusal, json_app
from squall.http.server import HttpServer, listen
from squall.security.tls import ServerFiles
from squall.values import Incarnation
from squall.worker_files import LOG, OUTPUT, BadFile, read_orders
from supervisor import folder_probes, letter_requests
from supervisor.directories import Directories
from supervisor.folder_probes import FolderProbes
from supervisor.host_letters import HostLetters
from supervisor.log_files import SOME, read_piece
from supervisor.stack_questions import ask_stacks
from supervisor.state_questions import QuestionsWait, ask_state

#: How many seconds a connection without a request is kept.
KEEP_SECS: Final = 30
#: The most connections. A quarter of them is for senders that have shown no credentials.
MOST_CONNECTIONS: Final = 128
#: The most bytes of a question about a key.
MOST_KEY: Final = 256 * 1024
_MOST_QUERY: Final = 2048
#: What is asked for with POST: the first part of a path.
_POSTED: Final = ("letters", "state", "folder-probes")
_NO_ANSWER: Final = (
    "there is nothing at {path}: logs are at /logs/<topology id>/<worker>, dead letters at /letters"
)


class LogServer:
    """Finds and reads the logs of one supervisor's workers; answers requests in its own thread. `may_ask` gets a request's
    Authorization header, and returns whether the sender may read logs and use dead letters."""

    def __init__(
        self,
        host: str,
        port: int,
        directories: Directories,
        build_log: Callable[[str], Path | None],
        may_ask: Callable[[str], bool],
        tls: ServerFiles | None = None,
        per_address: int = PER_ADDRESS,
        probes: FolderProbes | None = None,
    ) -> None:
        self._probes = probes or FolderProbes()
        self._directories, self._build_log, self._may_ask = directories, build_log, may_ask
        self._letters = HostLetters(directories.letters)
        self._socket = listen(host, port)
        #: The port that was bound.
        self.port: int = self._socket.getsockname()[1]
        app = json_app(self._answer)
        self._server = HttpServer(
            app, self._socket, "squall-logs", KEEP_SECS, MOST_CONNECTIONS, tls, per_address
        )

    def closed(self) -> dict[str, int]:
        """Return how many connections were closed because there were too many, by reason; only reasons that occurred."""
        return {why: count for why, count in self._socket.admission.closed.items() if count}

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()

    def stop(self) -> None:
        """Stop. Running requests are cut off after a moment."""
        self._server.stop()
        self._server.join()
        self._socket.close()
        self._probes.close()

    def _answer(self, scope: Mapping[str, Any], read: ReadBody) -> object:
        path = scope["raw_path"].decode("latin-1")
        parts = path.split("/")
        posted = parts[1] in _POSTED if len(parts) > 2 else False
        if scope["method"] != ("POST" if posted else "GET"):
            how = f"{parts[1]} is asked for with POST" if posted else "logs can only be read: use GET"
            raise Refusal(405, "MethodNotAllowed", how)
        if path == "/health":
            return {"status": "ok"}
        if not self._may_ask(_header(scope, b"authorization")):
            raise Refusal(401, "Unauthorized", "only a Nimbus of this cluster may read logs here")
        shows_credentials(scope)
        if parts[1] == "folder-probes" and len(parts) == 3:
            return self._probes.answer(parts[2], read(folder_probes.MOST_BODY))
        if parts[1] == "letters" and len(parts) == 4 and parts[2]:
            body = read(letter_requests.MOST_BODY)
            return letter_requests.answer(self._letters, unquote(parts[2]), parts[3], body)
        if (
            len(parts) != 4
            or parts[0]
            or parts[1] not in ("logs", "stacks", "state")
            or not (parts[2] and parts[3])
        ):
            raise Refusal(404, "NoSuchPage", _NO_ANSWER.format(path=repr(path[:80])))
        if parts[1] == "state":
            return self._state(unquote(parts[2]), unquote(parts[3]), read(MOST_KEY))
        if parts[1] == "stacks":
            return self._stacks(unquote(parts[2]), unquote(parts[3]))
        query = _query(scope["query_string"])
        file = query.get("file", "worker")
        offset, limit = _whole(query, "offset", 0), _whole(query, "limit", SOME)
        return self._read(unquote(parts[2]), unquote(parts[3]), file, offset, limit)

    def _read(self, topology_id: str, worker: str, file: str, offset: int, limit: int) -> LogAnswer:
        """Return a piece of a log; raise `Refusal` when there is none."""
        directory = self._directories.worker(topology_id, worker)
        path = self._path(topology_id, worker, file)
        found = None if path is None else read_piece(path, offset, limit)
        if found is None:
            what = {"build": "build log of an environment", "output": "output"}.get(file, "log")
            why = f"there is no {what} of worker {worker!r} of {topology_id!r} on this host"
            raise Refusal(404, "NoSuchLog", why)
        return LogAnswer(
            worker, _incarnation(directory), found.offset, found.next_offset, found.size, found.text
        )

    def _worker(self, topology_id: str, worker: str) -> Path:
        """Return the directory of a worker; raise `Refusal` if the worker is not here."""
        directory = self._directories.worker(topology_id, worker)
        if not directory.is_dir():
            raise Refusal(
                404, "NoSuchWorker", f"worker {worker!r} of {topology_id!r} does not run on this host"
            )
        return directory

    def _state(self, topology_id: str, worker: str, body: bytes) -> LiveStateAnswer:
        """Return what the tasks of a worker have for a key; raise `Refusal` if the worker is not here."""
        directory = self._worker(topology_id, worker)
        try:
            asked = json.decode(body, type=LiveStateRequest)
        except (ValidationError, DecodeError, RecursionError) as error:
            raise Refusal(400, "BadRequest", f"the request cannot be read: {error}") from None
        try:
            found = ask_state(directory, asked.component, asked.key, asked.state)
        except QuestionsWait as error:
            raise Refusal(503, "Unavailable", str(error)) from None
        except OSError as error:
            raise Refusal(503, "Unavailable", f"the worker cannot be asked: {error}") from None
        if found is None:
            return LiveStateAnswer(worker, False)
        return LiveStateAnswer(worker, True, found.tasks, found.states, found.refusal)

    def _stacks(self, topology_id: str, worker: str) -> StacksAnswer:
        """Return where the threads of a worker are; raise `Refusal` if the worker is not here."""
        directory = self._worker(topology_id, worker)
        incarnation = _incarnation(directory)
        try:
            found = ask_stacks(directory)
        except OSError as error:
            raise Refusal(503, "Unavailable", f"the worker cannot be asked: {error}") from None
        if found is None:
            return StacksAnswer(worker, incarnation, False)
        return StacksAnswer(worker, incarnation, True, found.pid, found.stacks, found.more)

    def _path(self, topology_id: str, worker: str, file: str) -> Path | None:
        if file == "build":
            return self._build_log(topology_id)
        names = {"worker": LOG, "output": OUTPUT}
        if file not in names:
            raise Refusal(400, "BadRequest", f"there is no file {file!r:.40}: give worker, output or build")
        return self._directories.log(topology_id, worker, names[file])


def _incarnation(directory: Path) -> Incarnation | None:
    try:
        orders = read_orders(directory)
    except (BadFile, OSError):
        return None
    return None if orders is None else orders.incarnation


def _header(scope: Mapping[str, Any], name: bytes) -> str:
    values = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else ""


def _query(text: bytes) -> dict[str, str]:
    if len(text) > _MOST_QUERY:
        raise Refusal(400, "BadRequest", f"the query has {len(text)} bytes: the limit is {_MOST_QUERY}")
    return {name: values[-1] for name, values in parse_qs(text.decode("latin-1")).items()}


def _whole(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    digits = text.removeprefix("-")
    if not text:
        return default
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise Refusal(400, "BadRequest", f"{name} is {text!r:.40}: give a whole number")
    return int(text)
