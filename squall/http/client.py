"""The HTTP client of the command, the supervisors and the Nimbuses: chooses the server, retries, and raises errors.

A `Client` has one or more addresses and tries them in turn. If a request changes something, a Nimbus that is not the leader
answers it with a redirect to the leader. Several threads may use one client. This module uses only the standard library, so
that a command starts fast.

A server may be silent, because it is frozen or its host is gone. The client remembers silent servers and tries them
last. Before a request that may take long or must not be repeated, it sends a short request, so that a silent server never gets
the long request.

There are two errors: `Unreachable` (no server answered) and `Refused` (a server answered with an error). A request that changes
something (POST) is not sent again once it may have arrived, because only the caller can decide whether repeating it is
harmless.
Must not know: what the paths mean, where tokens come from, how connections are kept (`pool.py`).
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote, urlencode

from squall.http.pool import Address, ConnectionPool, is_of_tls, reason, set_timeout
from topology_api.errors import SquallError

API: Final = "/api/v1/"
#: Seconds for each answer, unless the caller says otherwise.
TIMEOUT: Final = 5.0
#: The request that tests whether a server answers; any answer will do.
AWAKE: Final = "/health"
_SECONDS: Final = re.compile("[0-9]{1,9}")

#: The most bytes of an answer in JSON; a longer answer is not from Squall.
LONGEST_ANSWER: Final = 64 * 1024 * 1024
_PIECE: Final = 256 * 1024

IS_IT_RUNNING: Final = (
    "is it running? Start it with `squall nimbus` or `squall dev`, or say where it is with --nimbus URL"
)

ALL_OF_THEM: Final = "if it is a Nimbus of yours, name all Nimbuses in nimbus.url of the site's file, SQUALL_NIMBUS or --nimbus"

#: Called with the number of bytes transferred so far.
Progress = Callable[[int], object]


# Bodies: the bytes of files, in pieces; and answers, which are read completely or not at all


class OfTheFile(Exception):
    """Reading or writing the caller's file failed; the argument is the error. The connection is not at fault, so the caller
    gets that error."""


def pieces_of(source: Path, start: int, size: int, progress: Progress | None) -> Iterator[bytes]:
    """Yield exactly `size` bytes of a file, even if the file grows meanwhile."""
    done = 0
    with source.open("rb") as file:
        file.seek(start)
        while done < size:
            try:
                piece = file.read(min(_PIECE, size - done))
            except OSError as error:
                raise OfTheFile(error) from error
            if not piece:
                raise OfTheFile(OSError(f"{source} has become shorter while it was sent"))
            yield piece
            done += len(piece)
            if progress is not None:
                progress(done)


def copy_to(target: BinaryIO, response: http.client.HTTPResponse, limit: int | None) -> str:
    """Write an answer into `target`, and return its SHA-256. Raises SquallError if it has more than `limit` bytes."""
    digest = hashlib.sha256()
    done = 0
    while piece := response.read(_PIECE):
        done += len(piece)
        if limit is not None and done > limit:
            raise SquallError(f"the file is larger than the {limit} bytes that are allowed")
        digest.update(piece)
        try:
            target.write(piece)
        except OSError as error:
            raise OfTheFile(error) from error
    if response.length:  # read() with a size does not complain when the connection ends early
        raise http.client.IncompleteRead(b"", response.length)
    return digest.hexdigest()


def read_json(response: http.client.HTTPResponse) -> Any:
    """Return the JSON of an answer, None for an empty one."""
    data = read_all(response)
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError) as error:
        raise SquallError(f"the answer is not JSON ({error}): is it from Squall? {data[:80]!r}") from None


def read_all(response: http.client.HTTPResponse) -> bytes:
    """Return all bytes of an answer; raise IncompleteRead if it ended early."""
    if len(data := response.read(LONGEST_ANSWER + 1)) > LONGEST_ANSWER:
        raise SquallError(f"the answer is longer than {LONGEST_ANSWER} bytes: it is not read")
    if response.length:
        raise http.client.IncompleteRead(data, response.length)
    return data


# Errors and requests


class Unreachable(SquallError):
    """No server answered. `sent`: the request may still have arrived and been carried out."""

    def __init__(self, message: str, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent


class Refused(SquallError):
    """The answer is an error: its HTTP status, its kind ("NameTaken"), its message, and all problems if it lists them.

    retry_after: seconds after which a retry may succeed, if the answer names them.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        problems: Sequence[str] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(status, kind, message, tuple(problems), retry_after)
        self.status = status
        self.kind = kind
        self.message = message
        self.problems = tuple(problems)
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message


def at(*parts: str) -> str:
    """Quote names and join them into a path: at("topologies", name, "errors")."""
    # A shell may pass bytes that are not valid UTF-8; no name contains them, so nothing is found.
    return "/".join(quote(part, safe="", errors="surrogateescape") for part in parts)


@dataclass(frozen=True)
class _Request:
    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Returns the body; called for each attempt.
    body: Callable[[], Any] = lambda: None
    #: Returns the result of a successful answer.
    read: Callable[[http.client.HTTPResponse], Any] = read_json
    #: Whether the request may be sent again even if the first attempt may have arrived.
    repeatable: bool = True
    #: How long to wait for the answer, in seconds; None: as long as the client usually waits.
    timeout: float | None = None
    #: The value of the Authorization header for the server that is asked now.
    authorization: str | None = field(default=None, repr=False)
    #: The servers that have not answered the request, with their errors.
    silent: dict[Address, Unreachable] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Client:
    """Sends requests to one of several equivalent servers.

    authorization: url -> the value of the Authorization header, or None for no header; also asked for the target of a redirect,
    which never gets the header of another server. ca: a file with the CA certificates that
    a server's certificate is checked against (default: the system's). what: the name of the server in the text of
    `Unreachable`.
    advice: the advice at the end of that text.
    """

    urls: Sequence[str]
    authorization: Callable[[str], str | None] = lambda url: None
    ca: str | None = None
    timeout: float = TIMEOUT
    what: str = "Nimbus"
    advice: str = IS_IT_RUNNING

    def __post_init__(self) -> None:
        if not self.urls:
            raise SquallError(f"no {self.what} to ask: there is no URL")
        self.addresses = [Address.of(url) for url in self.urls]
        self._pool = ConnectionPool(self.ca, self.timeout)
        self._and_advice = f"; {self.advice}" if self.advice else ""
        #: Whether the server at the address answered the last time.
        self._answered: dict[Address, bool] = {}

    # Requests

    def get(self, path: str, **query: object) -> Any:
        """Return the JSON at a path below /api/v1/ (a path that begins with / is absolute)."""
        return self._ask(_Request("GET", _target(path, query)))

    def post(
        self, path: str, body: object = None, repeatable: bool = False, timeout: float | None = None
    ) -> Any:
        """Send JSON, and return the JSON of the answer. `repeatable`: carrying out the request twice is harmless, so if a
        server does not answer, the request is sent to another server even if the first server may have received it. `timeout`:
        how long to wait for this answer, in seconds."""
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = _Request("POST", _target(path), headers, lambda: data, read_json, repeatable, timeout)
        return self._ask(request)

    def delete(self, path: str, **query: object) -> Any:
        """Send DELETE for a path."""
        return self._ask(_Request("DELETE", _target(path, query)))

    def exists(self, path: str) -> bool:
        """Return whether a path exists (HEAD)."""
        try:
            self._ask(_Request("HEAD", _target(path), read=lambda response: None))
        except Refused as error:
            if error.status == 404:
                return False
            raise
        return True

    def put_file(
        self,
        path: str,
        source: Path | str,
        progress: Progress | None = None,
        timeout: float | None = None,
        part: tuple[int, int] | None = None,
    ) -> Any:
        """Send the bytes of a file, and return the JSON of the answer. `timeout`: seconds for this answer; `part`: send only
        the bytes from (start, size)."""
        start, size = (0, Path(source).stat().st_size) if part is None else part
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        body = partial(pieces_of, Path(source), start, size, progress)
        return self._ask(_Request("PUT", _target(path), headers, body, timeout=timeout))

    def get_file(self, path: str, target: BinaryIO, limit: int | None = None) -> str:
        """Write the body of a path into `target`, and return its SHA-256. Raises SquallError if it has more than `limit`
        bytes."""
        start = target.tell()

        def read(response: http.client.HTTPResponse) -> str:
            target.seek(start)  # an earlier attempt may have broken off
            target.truncate()
            return copy_to(target, response, limit)

        return str(self._ask(_Request("GET", _target(path), read=read)))

    def close(self) -> None:
        """Close the connections that are idle."""
        self._pool.close()

    # Attempts

    def _ask(self, request: _Request) -> Any:
        """Try each address until a server answers with anything but 503; silent servers are tried last."""
        failure: Refused | None = None
        for address in sorted(self.addresses, key=lambda address: not self._answered.get(address, True)):
            try:
                return self._ask_one(address, request)
            except OfTheFile as error:
                raise error.args[0] from None
            except Unreachable as error:
                if error.sent and not request.repeatable:
                    raise
            except Refused as error:
                if error.status != 503:
                    raise
                failure = error
        # An answer says more than silence, unless the silent server may have carried out the request.
        changes = request.method in ("POST", "DELETE")
        if failure is not None and not (changes and any(error.sent for error in request.silent.values())):
            raise failure
        raise self._all_silent(list(request.silent.values()), failure)

    def _all_silent(self, silent: Sequence[Unreachable], failure: Refused | None) -> Unreachable:
        """Merge the errors of all addresses into one; the advice appears once."""
        if len(silent) == 1 and failure is None:
            return silent[0]
        texts = [str(error).removesuffix(self._and_advice) for error in silent]
        some = self._and_advice if any(str(error) != text for error, text in zip(silent, texts)) else ""
        texts += [str(failure)] if failure is not None else []
        return Unreachable("; ".join(texts) + some, sent=any(error.sent for error in silent))

    def _ask_one(self, address: Address, request: _Request) -> Any:
        request = replace(request, authorization=self.authorization(address.url))
        status, result = self._try(address, request)
        if status is None:
            return result
        leader = Address.of(result)
        if (address.scheme, leader.scheme) == ("https", "http"):
            raise SquallError(
                f"{address.url} redirects to {leader.url}, which is not encrypted, so the redirect is not followed"
            )
        own = self.authorization(leader.url)
        if own is None and request.authorization is not None:
            raise SquallError(
                f"{address.url} redirects to the leader at {leader.url}, for which there are no credentials, so the"
                f" redirect is not followed; {ALL_OF_THEM}"
            )
        try:
            status, result = self._try(leader, replace(request, authorization=own))
        except Unreachable as error:
            if error.sent:
                raise
            # The leader has died, and the redirecting Nimbus has not noticed yet. Nothing was done, and another Nimbus is about
            # to lead.
            raise _no_leader(
                f"{leader.url} cannot be reached; according to {address.url} it is the leader"
            ) from error
        if status is not None:
            raise _no_leader(f"{leader.url} does not lead any more, ask again in a moment")
        return result

    def _try(self, address: Address, request: _Request) -> tuple[int | None, Any]:
        """Like `_send`, but do not wait again for a server that has already failed to answer this request."""
        if address in request.silent:
            raise request.silent[address]
        try:
            return self._send(address, request)
        except Unreachable as error:
            request.silent[address] = error
            self._answered[address] = False
            raise

    def _send(self, address: Address, request: _Request) -> tuple[int | None, Any]:
        """Return (None, the result of `read`), or (the status of a redirect, its URL). If a connection from the pool turns out
        to be dead, the request is sent again over a new one, provided that it is repeatable or had not been sent yet."""
        seconds = self.timeout if request.timeout is None else request.timeout
        while True:
            kept = self._pool.idle(address)
            connection = kept or self._pool.new(address)
            connected = sent = False
            try:
                if connection.sock is None:
                    connection.connect()
                connected = True
                if seconds > self.timeout or not request.repeatable:
                    self._see_awake(address, connection)
                    kept = None  # the connection is not dead
                sent = True
                set_timeout(connection, seconds)
                return self._exchange(address, connection, request)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if isinstance(error, TimeoutError):
                    why = f"no answer within {seconds if sent else self.timeout:g} s"
                elif kept is not None and (request.repeatable or not sent):
                    continue
                else:
                    in_the_clear = address.scheme == "http" and address not in self._answered
                    why = reason(error, self._pool.ca, in_the_clear)
                where = f"{self.what} at {address.url}"
                # If a program listens at the address, advice on how to start a server would not help.
                if connected or is_of_tls(error):
                    raise Unreachable(f"{where} did not answer: {why}", sent) from error
                raise Unreachable(f"{where} cannot be reached: {why}{self._and_advice}") from error
            except BaseException:
                connection.close()
                raise

    def _see_awake(self, address: Address, connection: http.client.HTTPConnection) -> None:
        """Send a short request and read its answer: a frozen server still accepts connections and data, but does not answer."""
        set_timeout(connection, self.timeout)
        connection.request("HEAD", AWAKE)
        connection.getresponse().read()
        self._answered[address] = True

    def _exchange(
        self, address: Address, connection: http.client.HTTPConnection, request: _Request
    ) -> tuple[int | None, Any]:
        headers = {"Accept": "application/json", **request.headers}
        if request.authorization is not None:
            headers["Authorization"] = request.authorization
        try:
            connection.request(request.method, request.target, request.body(), headers)
        except OSError as broken:
            # The server may have answered and closed the connection before it read the whole body, for example because the body
            # is too big. `SSLEOFError` is recognized by name, so that `ssl` need not be imported.
            cut_off = isinstance(broken, (BrokenPipeError, ConnectionResetError))
            if not cut_off and type(broken).__name__ != "SSLEOFError":
                raise
        response = connection.getresponse()
        self._answered[address] = True
        if response.status in (307, 308):
            location = response.getheader("Location") or ""
            response.read(LONGEST_ANSWER)
            self._pool.give_back(address, connection, response)
            return response.status, "/".join(location.split("/")[:3])  # scheme, host and port
        if not 200 <= response.status < 300:
            error = _refusal(address, response)
            self._pool.give_back(address, connection, response)
            raise error
        result = request.read(response)
        if request.method == "HEAD":
            response.read()
        self._pool.give_back(address, connection, response)
        return None, result


def _no_leader(message: str) -> Refused:
    return Refused(503, "NoLeader", message, retry_after=1.0)


def _target(path: str, query: Mapping[str, object] | None = None) -> str:
    text = path if path.startswith("/") else API + path
    pairs = {name: value for name, value in (query or {}).items() if value is not None}
    return f"{text}?{urlencode(pairs)}" if pairs else text


def _refusal(address: Address, response: http.client.HTTPResponse) -> Refused:
    """Return the error in an answer; for an answer that is not from Squall, its status and its first bytes."""
    status = response.status
    data = read_all(response)
    try:
        error = json.loads(data)["error"]
        kind, message = str(error["kind"]), str(error["message"])
        problems = [str(problem) for problem in error.get("problems", ())]
    except (ValueError, TypeError, KeyError, RecursionError):
        kind, problems = "", []
        message = f"{address.url} answered {status} {response.reason or ''}".rstrip()
        message += f": {data[:200].decode('utf-8', 'replace')}" if data else ""
    seconds = _SECONDS.fullmatch(response.getheader("Retry-After") or "")
    return Refused(status, kind, message, problems, float(seconds[0]) if seconds else None)
