"""A connection to PostgreSQL for logical replication, by libpq alone: psycopg has no calls for it.

No call blocks for longer than its seconds, whatever the server does. Must not know: slots, messages of pgoutput, tuples.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from topology_api import SquallError

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

#: Seconds in which a connection is made, and a statement is answered.
PATIENCE: Final = 10.0
#: How values come as texts that `values` reads, and names of the settings that libpq needs.
_OPTIONS: Final = (
    "-c datestyle=ISO -c intervalstyle=iso_8601 -c timezone=UTC -c bytea_output=hex -c extra_float_digits=1"
)
_SETTINGS: Final[Mapping[str, Any]] = {
    "connect_timeout": int(PATIENCE),
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "client_encoding": "utf8",
    "application_name": "squall",
}
#: What a server says to a login that waiting does not help.
_LOGIN: Final = ("authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry")
_RIGHTS: Final = ("permission denied to start WAL sender", "must be superuser or replication role")


class ServerAway(SquallError):
    """The server cannot be reached, has ended the connection, or does not answer."""


class ServerRefuses(SquallError):
    """The server refuses a statement or the login. state: SQL's five characters for the reason, "" for a login."""

    def __init__(self, text: str, state: str = "") -> None:
        self.state = state
        super().__init__(text)


class LogData(msgspec.Struct, frozen=True):
    """A message of the output plugin."""

    data: bytes


class Keepalive(msgspec.Struct, frozen=True):
    """The server has sent everything before a place in its log. asks: whether it wants an answer at once."""

    lsn: int
    asks: bool


class ReplicationConnection:
    """One connection. Raises ServerAway, after which it is of no use, and ServerRefuses.

    url: as for libpq. shown: the same for people. logical: False makes a plain connection, which the server lets anyone have
        who may log in.
    """

    def __init__(self, url: str, password: str | None, shown: str, logical: bool = True) -> None:
        try:
            from psycopg import Error, pq
            from psycopg.conninfo import make_conninfo
        except ImportError:
            raise SquallError(
                "PostgresChanges needs psycopg: install Squall with its extra `postgres`"
            ) from None
        more: dict[str, Any] = dict(_SETTINGS)
        if logical:
            more["replication"] = "database"
        if password is not None:
            more["password"] = password
        self.shown = shown
        self._pq = pq
        try:
            address = make_conninfo(url, options=_OPTIONS, **more)
        except Error as error:  # the text of libpq names the part that it does not know, without values
            raise ServerRefuses(
                f"{shown}: url is no address for libpq: {_line(str(error).encode())}"
            ) from None
        self._link: PGconn = pq.PGconn.connect(address.encode())
        if self._link.status != pq.ConnStatus.OK:
            said = _line(self._link.error_message)
            self._link.finish()
            if any(each in said for each in _LOGIN):
                raise ServerRefuses(
                    f"{shown} refuses the login: {said}; change url or password, and submit again"
                )
            if any(each in said for each in _RIGHTS):
                raise ServerRefuses(
                    f"{shown} refuses to replicate for this user: {said}; run ALTER ROLE ... REPLICATION"
                )
            raise ServerAway(said)
        self._link.nonblocking = 1

    def rows(self, statement: str) -> list[tuple[str | None, ...]]:
        """Return the rows of a statement, as texts."""
        result = self._result(statement)
        if result.status not in (self._pq.ExecStatus.TUPLES_OK, self._pq.ExecStatus.COMMAND_OK):
            raise self._refusal(result)
        return [
            tuple(
                None if (value := result.get_value(row, column)) is None else value.decode()
                for column in range(result.nfields)
            )
            for row in range(result.ntuples)
        ]

    def literal(self, text: str) -> str:
        """Return a text as SQL has it."""
        return self._pq.Escaping(self._link).escape_literal(text.encode()).decode()

    def name(self, text: str) -> str:
        """Return a name as SQL has it, in quotes."""
        return self._pq.Escaping(self._link).escape_identifier(text.encode()).decode()

    def replicate(self, statement: str) -> None:
        """Begin to replicate: from now on there are only `read` and `confirm`."""
        result = self._result(statement)
        if result.status != self._pq.ExecStatus.COPY_BOTH:
            raise self._refusal(result)

    def read(self, seconds: float) -> LogData | Keepalive | None:
        """Return the next message; None if none comes within these seconds."""
        size, data = self._copied()
        if size == 0:
            self._flush()
            if not self._readable(seconds):
                return None
            self._consume()
            size, data = self._copied()
            if size == 0:
                return None
        if size < 0:
            raise self._end(size)
        if data[:1] == b"w":
            return LogData(bytes(data[25:]))
        if data[:1] == b"k":
            lsn, _, asks = struct.unpack("!QQ?", data[1:18])
            return Keepalive(lsn, asks)
        raise ServerAway(f"it sent a message of the unknown kind {bytes(data[:1])!r}")

    def confirm(self, received: int, kept: int, asks: bool) -> None:
        """Say what was received, and before which place in the log nothing is needed any more (0: no news).

        A server that shuts down waits until the last message with a place above 0 says that all was received; with 0 it looks
        at `received`. So a place is followed by 0.
        """
        places = (kept, 0) if kept else (0,)
        for place in places:
            self._send(struct.pack("!cQQQq?", b"r", received, place, 0, 0, asks and place == 0))
        self._flush()

    def close(self) -> None:
        """Close the connection."""
        self._link.finish()

    def _copied(self) -> tuple[int, memoryview | bytes]:
        try:
            return self._link.get_copy_data(1)
        except self._errors() as error:
            raise ServerAway(_line(str(error).encode())) from None

    def _send(self, message: bytes) -> None:
        try:
            sent = self._link.put_copy_data(message)
        except self._errors() as error:
            raise ServerAway(_line(str(error).encode())) from None
        if sent == 0:
            raise ServerAway("it does not read what it is sent")

    def _flush(self) -> None:
        try:
            self._link.flush()
        except self._errors() as error:
            raise ServerAway(_line(str(error).encode())) from None

    def _consume(self) -> None:
        try:
            self._link.consume_input()
        except self._errors() as error:
            raise ServerAway(_line(str(error).encode())) from None

    def _errors(self) -> type[Exception]:
        from psycopg import Error

        return Error

    def _readable(self, seconds: float) -> bool:
        poll = select.poll()  # select() takes no number above 1023
        poll.register(self._link.socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _result(self, statement: str) -> PGresult:
        """Send a statement; return its last result."""
        deadline = time.monotonic() + PATIENCE
        try:
            self._link.send_query(statement.encode())
        except self._errors() as error:
            raise ServerAway(_line(str(error).encode())) from None
        last = None
        while True:
            self._flush()
            while self._link.is_busy():
                if not self._readable(max(0.0, deadline - time.monotonic())):
                    raise ServerAway(f"no answer for {PATIENCE:g} s")
                self._consume()
            result = self._link.get_result()
            if result is None:
                break
            last = result
            if result.status == self._pq.ExecStatus.COPY_BOTH:
                break
        if last is None:
            raise ServerAway("it sent no answer")
        return last

    def _refusal(self, result: PGresult) -> SquallError:
        """Return the error of a result."""
        state = (result.error_field(self._pq.DiagnosticField.SQLSTATE) or b"").decode()
        said = _line(result.error_field(self._pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message)
        # It is shut down or starts, has no room for connections, or the connection is broken.
        if not state or state[:2] in ("57", "08", "53"):
            return ServerAway(said or "the connection has ended")
        return ServerRefuses(said, state)

    def _end(self, size: int) -> SquallError:
        """Return why there is no next message."""
        result = self._link.get_result() if size == -1 else None
        if result is not None and result.status == self._pq.ExecStatus.FATAL_ERROR:
            return self._refusal(result)
        return ServerAway(_line(self._link.error_message) or "the server has ended the stream")


def _line(text: bytes) -> str:
    """Return what libpq says on one line."""
    return " ".join(text.decode(errors="replace").split())
