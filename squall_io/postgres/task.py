"""The work of the task of a PostgresChanges: it connects, reads, confirms, and waits while the server is away.

Must not know: the fields of tuples' streams, libpq.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from squall_io.kit.waiting import Waiting
from squall_io.lines.polling import AT_ONCE
from squall_io.postgres.confirming import Emitted, KeptPositions
from squall_io.postgres.connection import (
    Keepalive,
    ReplicationConnection,
    ServerAway,
    ServerRefuses,
)
from squall_io.postgres.pgoutput import UnknownMessage, parsed
from squall_io.postgres.slot import (
    SlotSettings,
    UnusableSlot,
    bytes_behind,
    ensured,
    explained,
    log_end,
    must_have,
    start,
)
from squall_io.postgres.transactions import Change, ChangeReader, LostChanges
from topology_api.epoch_rules import state_path

if TYPE_CHECKING:
    from topology_api import Context

#: Emits values with a message id.
Emit = Callable[..., object]

#: Seconds for which a call waits for a message.
WAIT: Final = 0.1
#: Seconds between two messages to the server, which ends connections that are silent for wal_sender_timeout (60 s).
CONFIRM: Final = 1.0
#: Seconds of silence after which the server is asked for a sign, and after which the connection is given up.
ASK, SILENCE = 10.0, 30.0
#: Seconds between two looks at how much of its log the server keeps.
MEASURE: Final = 30.0
#: What is wrong with the server or its setup, and not with this task's place in it.
TROUBLE: Final = (ServerAway, ServerRefuses, UnusableSlot, UnknownMessage)


class ChangesTask:
    """One slot. All methods are called in the task's own thread."""

    def __init__(self, url: str, password: str | None, settings: SlotSettings, context: Context) -> None:
        self._url, self._password, self._settings = url, password, settings
        self._shown = shown_url(url)
        self._context = context
        self._waiting = Waiting(self._shown, context.log, context.progress, context.now)
        self._link: ReplicationConnection | None = None
        #: None until it is known where the slot begins.
        self._reader: ChangeReader | None = None
        self._emitted = Emitted(0)
        self._kept: KeptPositions | None = None
        if state_path(context.conf) is not None:
            self._kept = KeptPositions(int(str(context.conf["topology.epoch.keep"])))
        self._confirmed = 0
        self._received = 0
        self._heard = self._said = self._measured = 0.0
        #: When a connection counts as one that works: a server may begin a stream that it cannot continue.
        self._works_at = 0.0
        self._behind = 0
        self._lost_until = 0.0
        self._schema_changes = context.counter("schema changes")

    def open(self) -> None:
        """Look at the slot, if the server can be reached. Raises UnusableSlot and ServerRefuses."""
        self._context.gauge("bytes behind", lambda: self._behind)
        self._look()

    def rewind(self, position: Sequence[int] | None) -> None:
        """Continue at a position; None: where the slot begins. Raises LostChanges, if the server can be reached now."""
        self.close()
        self._reader = None
        lsn, read = position or (0, 0)
        if lsn:
            self._begin(lsn, read)
        self._look()

    def _look(self) -> None:
        """Look whether the slot can be read from where reading is, if the server can be reached now."""
        try:
            link = self._new_link()
            try:
                begin, end = ensured(link, self._settings, self._context.log), log_end(link)
            finally:
                link.close()
        except ServerAway as error:
            self._waiting.failed(str(error))
        else:
            self._begins_at(begin, end)

    def _begins_at(self, begin: int, end: int) -> ChangeReader:
        """Return the reader, for a slot that begins at a place, in a log that ends at another. Raises LostChanges."""
        if self._reader is None:
            return self._begin(begin, 0)
        must_have(self._settings, self._shown, begin, end, self._reader.lsn)
        return self._reader

    def position(self) -> list[int]:
        """Return where reading is: [0, 0] is where the slot begins."""
        reader = self._reader
        if reader is None:
            return [0, 0]
        if self._kept is not None:
            self._kept.ask(self._emitted.count, reader.lsn)
        return [reader.lsn, reader.read]

    def settle(self, number: int) -> None:
        """Note that a change is acked, or failed for good."""
        self._emitted.settle(number)

    def next(self, emit: Emit) -> float | None:
        """Emit the next changes; return the seconds until the next call."""
        if (left := self._lost_until - self._context.now()) > 0:
            return left
        try:
            link = self._link
            if link is None:
                link = self._connected()
            self._read(link, emit)
            if self._waiting.reason and self._context.now() >= self._works_at:
                self._waiting.succeeded()
            self._confirm(link)
            self._measure(link)
        except TROUBLE as error:
            self._drop()
            if isinstance(error, ServerRefuses):
                error = explained(error, self._settings)
            return self._waiting.failed(str(error))
        except LostChanges:
            self._drop()
            self._lost_until = self._context.now() + SILENCE
            raise
        return None

    def close(self) -> None:
        """Say what was settled, and end the connection."""
        if self._link is not None:
            try:
                self._said = 0.0
                self._confirm(self._link)
            except TROUBLE as error:
                self._context.log.info("the end of the stream was not confirmed: %s", error)
        self._drop()

    def _new_link(self) -> ReplicationConnection:
        return ReplicationConnection(self._url, self._password, self._shown)

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _begin(self, lsn: int, read: int) -> ChangeReader:
        self._reader = reader = ChangeReader(lsn, read, self._schema_changed)
        self._emitted.restart(lsn)
        if self._kept is not None:
            self._kept.restart(self._emitted.count, lsn)
        return reader

    def _schema_changed(self, text: str) -> None:
        self._schema_changes.add()
        self._context.log.warning("the schema of a table has changed: %s", text)

    def _connected(self) -> ReplicationConnection:
        """Connect, and begin where reading is."""
        link = self._new_link()
        try:
            begin = ensured(link, self._settings, self._context.log)
            reader = self._begins_at(begin, log_end(link))
            reader.restart()
            start(link, self._settings, reader.lsn)
        except BaseException:
            link.close()
            raise
        self._link, self._works_at = link, self._context.now() + CONFIRM
        self._received, self._confirmed = reader.lsn, begin
        self._heard = self._said = self._context.now()
        return link

    def _read(self, link: ReplicationConnection, emit: Emit) -> None:
        """Emit what there is; wait a moment if there is nothing."""
        reader = self._reader
        assert reader is not None
        count, wait = 0, WAIT
        while count < AT_ONCE and (message := link.read(wait)) is not None:
            wait = 0.0
            self._heard = self._context.now()
            if isinstance(message, Keepalive):
                reader.idle(message.lsn)
                self._received = max(self._received, message.lsn)
                if message.asks:
                    self._said = 0.0
                continue
            self._works_at = self._heard
            for change in reader.next(parsed(message.data)):
                count += 1
                emit(values_of(change), message_id=self._emitted.add(change.lsn))
            if self._heard - self._said >= CONFIRM:
                return  # the server ends a connection that confirms nothing, also while a long transaction is skipped

    def _confirm(self, link: ReplicationConnection) -> None:
        """Say what was received, and what the slot may forget."""
        reader, now = self._reader, self._context.now()
        assert reader is not None
        silent = now - self._heard
        if silent > SILENCE:
            raise ServerAway(f"the server has said nothing for {silent:.0f} s")
        if 0 <= now - self._said < CONFIRM:
            return
        place = self._emitted.place(reader.lsn)
        if self._kept is not None:
            place = min(place, self._kept.place(self._emitted.settled))
        news = place if place > self._confirmed else 0
        self._received = max(self._received, reader.lsn)
        link.confirm(self._received, news, silent > ASK)
        self._said, self._confirmed = now, max(self._confirmed, news)

    def _measure(self, link: ReplicationConnection) -> None:
        """Ask, in another connection, how much of its log the server keeps."""
        now = self._context.now()
        if 0 <= now - self._measured < MEASURE:
            return
        self._measured = now
        try:
            other = ReplicationConnection(self._url, self._password, self._shown, logical=False)
            try:
                self._behind = bytes_behind(other, self._settings.slot)
            finally:
                other.close()
        except (ServerAway, ServerRefuses) as error:
            self._context.log.info("cannot see how much of its log the server keeps: %s", error)


def values_of(change: Change) -> tuple[object, ...]:
    """Return the values of a tuple."""
    return change.table, change.op, change.row, change.old, change.lsn, change.at


def shown_url(url: str) -> str:
    """Return an address for people: without its query, which may name files of keys."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
