"""HttpSpout: POSTs to a server in the worker as a stream; each is on disk before it is answered.

    builder.set_spout("hooks", HttpSpout("hdfs://namenode:9000/hooks", port=8080, token="env:HOOK_TOKEN"))

Must not know: servers, files, how requests are stored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from squall.stores.paths import InvalidPath, check_path
from squall_io.http.log_files import is_host_local, path_problem
from squall_io.http.receiving import UNREADABLE, ReceivingTask
from squall_io.http.segments import merged
from squall_io.http.stored_requests import UNREADABLE_FIELDS, field_problems, names_of
from squall_io.http.webhooks import HEALTH
from squall_io.kit.codecs import Decode
from squall_io.kit.replays import replay_problems
from squall_io.kit.secrets import secret_problem
from topology_api import Fields, InvalidConfig, Replay, RewindableSpout
from topology_api.wording import typed

if TYPE_CHECKING:
    from topology_api import Context, Failure

#: The least and the most of a body, and of what may wait, in bytes.
_BODIES: Final = (1, 64 << 20)
_LEAST_BACKLOG: Final = 1 << 20
_QUERY: Final = re.compile("[?#]")
_ENDPOINT: Final = re.compile(r"https?://[^/@\s]+/?")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class HttpSpout(RewindableSpout):
    """The POSTs that a server in the worker receives, one tuple each. A request is answered 202 when it is stored in a
    directory, where a successor of the task finds it.

    Each task has a server of its own. A request that is answered otherwise, or not at all, may be sent again.

    directory: where requests are stored until they are processed: a folder that only this spout uses. `hdfs://HOST:PORT/PATH`
        and `s3://BUCKET/PATH` are read by a successor on any host; `/PATH` is a folder of the host: what lies there is read by
        a successor on the same host only, unless all hosts mount it.
    port: the port of the first task; task i has `port + i`. 0: any free port, which `squall status` shows.
    host: the address to listen at; "0.0.0.0" is every IPv4 address of the host.
    path: the only path that takes requests, "/hooks"; None: any.
    token: the name of the secret that a request must show, as `Authorization: Bearer TOKEN`: `env:NAME` or `file:PATH`.
    token_header: the header that has the token. Any other than "authorization" has the token alone.
    decode: what a body becomes: "json", "str", "bytes", or a function from bytes. A body that cannot be read is answered 400.
    fields: which of "value", "headers", "path", "query", "received" and "id" a tuple has, in this order.
    max_body: the most bytes of a body; a larger one is answered 413.
    rate: the most requests a second and task; further ones are answered 429. None: no limit.
    max_backlog: the most bytes of stored requests of a task that are not processed yet; further ones are answered 503.
    certificate: a file of PEM on the workers' hosts; with it the server speaks TLS.
    key: the file of its private key, if `certificate` does not have it.
    webhdfs: the address of WebHDFS, "HOST:PORT"; None: port 9870 of the NameNode.
    s3_endpoint: the URL of a server that speaks S3 and is not Amazon's.
    replay: as `Spout.replay`.
    """

    threaded = True  # reading blocks
    _task: ReceivingTask

    def __init__(
        self,
        directory: str,
        *,
        port: int,
        host: str = "127.0.0.1",
        path: str | None = None,
        token: str | None = None,
        token_header: str = "authorization",
        decode: str | Decode = "json",
        fields: Sequence[str] = ("value",),
        max_body: int = 1 << 20,
        rate: float | None = None,
        max_backlog: int = 1 << 30,
        certificate: str | None = None,
        key: str | None = None,
        webhdfs: str | None = None,
        s3_endpoint: str | None = None,
        replay: Replay | None = RewindableSpout.replay,
    ) -> None:
        names = names_of(fields)
        problems = [
            *_directory_problems(directory, webhdfs, s3_endpoint),
            *_address_problems(port, host, path),
            *_token_problems(token, token_header),
            *field_problems(names, decode),
            *_limit_problems(max_body, rate, max_backlog),
            *_tls_problems(certificate, key),
            *replay_problems(replay),
        ]
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.directory = check_path(directory)
        self.port, self.host, self.path = port, host, path
        self.token, self.token_header = token, token_header
        self.decode, self.fields = decode, names
        self.max_body, self.rate, self.max_backlog = max_body, rate, max_backlog
        self.certificate, self.key = certificate, key
        self.webhdfs, self.s3_endpoint = webhdfs, s3_endpoint
        self.replay = replay
        self.outputs = {"default": Fields(*names), UNREADABLE: Fields(*UNREADABLE_FIELDS)}

    def guarantee_conditions(self, component: str) -> Iterable[str]:
        """Say what a folder of the host means."""
        if is_host_local(self.directory):
            yield (
                f"the successor of a task of {component!r} runs on the same host: the requests that it has answered 202 are in"
                f" {self.directory}, which belongs to its host (a directory on HDFS or S3 is read from any host)"
            )
        yield f"senders post again to {component!r} what was not answered 202"

    def open(self, context: Context) -> None:
        """Look up the token. Raises SquallError."""
        self._task = ReceivingTask(self, context)

    def next_tuple(self) -> float | None:
        """Emit the next requests."""
        return self._task.next(self.emit)

    def position(self) -> dict[str, list[int]]:
        """Return how far the requests of each writer are emitted."""
        return self._task.position()

    def rewind(self, position: Mapping[str, Sequence[int]] | None) -> None:
        """Continue after these requests. Raises LostRequests if those behind them are gone."""
        self._task.rewind(position)

    def merge_positions(self, positions: list[Any]) -> dict[str, Any]:
        """Return the union: a writer is read by one task."""
        return merged(positions)

    def ack(self, message_id: Any) -> None:
        """Let the request go."""
        self._task.settle(message_id)

    def fail(self, message_id: Any, failure: Failure) -> None:
        """Let a request go that failed for good; one that was cut off is read again."""
        if failure.reason != "stopped":
            self._task.settle(message_id)

    def close(self) -> None:
        """Answer what is under way, and end the server."""
        if hasattr(self, "_task"):
            self._task.close()


def _directory_problems(directory: object, webhdfs: object, s3_endpoint: object) -> Iterator[str]:
    if s3_endpoint is not None and not (isinstance(s3_endpoint, str) and _ENDPOINT.fullmatch(s3_endpoint)):
        yield "s3_endpoint is no URL of a server: give http://HOST:PORT or https://HOST:PORT"
    if not isinstance(directory, (str, os.PathLike)):
        yield f"directory is {typed(directory)}: give a path"
        return
    if webhdfs is not None and not isinstance(webhdfs, str):
        yield f"webhdfs is {typed(webhdfs)}: give HOST:PORT"
        return
    try:
        path = check_path(directory)
    except InvalidPath as error:
        yield f"directory: {error}"
        return
    if (problem := path_problem(path, webhdfs)) is not None:
        yield problem


def _address_problems(port: object, host: object, path: object) -> Iterator[str]:
    if type(port) is not int or not 0 <= port < 65_536:
        yield f"port is {typed(port)}: give a number from 0 (any free port) to 65535"
    if not isinstance(host, str) or not host:
        yield f'host is {typed(host)}: give an address to listen at, "127.0.0.1" or "0.0.0.0"'
    if path is not None and (
        not isinstance(path, str) or not path.startswith("/") or path == HEALTH or _QUERY.search(path)
    ):
        yield f'path is {typed(path)}: give a path that begins with "/", has no query, and is not {HEALTH}, or None for any'


def _token_problems(token: object, token_header: object) -> Iterator[str]:
    if token is not None and (problem := secret_problem("token", token)) is not None:
        yield problem
    if not isinstance(token_header, str) or not _HEADER.fullmatch(token_header):
        yield f"token_header is {typed(token_header)}: give the name of a header"


def _limit_problems(max_body: object, rate: object, max_backlog: object) -> Iterator[str]:
    if type(max_body) is not int or not _BODIES[0] <= max_body <= _BODIES[1]:
        yield f"max_body is {typed(max_body)}: give a number of bytes, {_BODIES[0]} to {_BODIES[1]}"
    if rate is not None and (type(rate) not in (int, float) or not 0 < rate < float("inf")):  # type: ignore[operator]
        yield f"rate is {typed(rate)}: give requests a second, more than 0, or None for no limit"
    if type(max_backlog) is not int or max_backlog < _LEAST_BACKLOG:
        yield f"max_backlog is {typed(max_backlog)}: give a number of bytes, at least {_LEAST_BACKLOG}"


def _tls_problems(certificate: object, key: object) -> Iterator[str]:
    for name, file in (("certificate", certificate), ("key", key)):
        if file is not None and (not isinstance(file, str) or not os.path.isabs(file)):
            yield f"{name} is {typed(file)}: give the absolute path of a file on the workers' hosts"
    if key is not None and certificate is None:
        yield "key is given without certificate: give both, or neither"
