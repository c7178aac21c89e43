"""The work of one task of a QueueSpout: it receives, emits, acknowledges, and waits while the server is away.

The client is called in the task's own thread, and in a second one that keeps the connection alive while the task does not call:
the spout is at its pending limit, or deactivated. A call of `ack` only notes the message, so it never waits for the server.
Must not know: protocols, fields, settings.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from squall_io.kit.codecs import CodecAway, UnreadableMessage
from squall_io.kit.queue_client import QueueClient, Received
from squall_io.kit.waiting import SystemAway, Waiting
from topology_api import EmitError, SquallError
from topology_api.wording import class_name, message_of

if TYPE_CHECKING:
    from topology_api import Context

#: The most messages of a call of `next_tuple`. A call of a threaded spout costs as much as three emissions.
AT_ONCE: Final = 500
#: The longest wait within a call for the next message, while acks wait.
WAIT_SECONDS: Final = 0.05
#: Seconds after which what the server has refused is tried again.
RETRY_SECONDS: Final = 5.0
#: Seconds between two looks at how many messages wait at the server.
MEASURE_SECONDS: Final = 10.0
#: Seconds between two looks of the second thread.
LOOK_SECONDS: Final = 0.5
#: The stream of messages that cannot be decoded.
UNREADABLE: Final = "unreadable"

#: What a message is in the topology: its connection, and its id there.
MessageId = tuple[int, Hashable]
#: Emits values with a message id.
Emit = Callable[..., object]


class QueueTask:
    """The messages of one task, and the connection on which they came."""

    def __init__(self, client: QueueClient, context: Context, max_in_flight: int) -> None:
        self._client = client
        self._context = context
        self._max_in_flight = max_in_flight
        self._waiting = Waiting(client.what, context.log, self._show, context.now)
        self._codec_waits = Waiting("what the codec needs", context.log, self._show, context.now)
        #: Held during calls of the client.
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._connected = False
        #: Names the connection: ids of other ones are void, those of an earlier process too, which an epoch may bring back. It
        #: stays 0 if the client keeps ids.
        self._connection = 0 if client.keeps_ids else time.time_ns()
        #: Messages in flight, each with why it cannot be read; None: it can.
        self._open: dict[MessageId, str | None] = {}
        #: What was received and not emitted yet, with its connection.
        self._received: deque[tuple[int, Received]] = deque()
        #: What the server must learn: messages, each with the reason to reject it; None: it is acknowledged.
        self._settled: deque[tuple[MessageId, str | None]] = deque()
        #: An error of the second thread, for the next call.
        self._error: SquallError | None = None
        #: What is to be reported beside.
        self._report: deque[SquallError] = deque()
        self._retry_at = self._alive_at = self._measure_at = self._alone_at = 0.0
        #: Whether it was ever connected.
        self._begun = False
        self.active = True
        self._pausing = False
        self._at_server = 0
        self._left_out = context.counter("messages left out")
        self._unreadable_known = self._refused = False

    def begin(self) -> None:
        """Show metrics, and start the second thread."""
        self._context.gauge("messages in flight", lambda: len(self._open))
        if type(self._client).waiting is not QueueClient.waiting:
            self._context.gauge("messages waiting", lambda: self._at_server)
        self._thread = threading.Thread(
            target=self._stand_by, name=f"{self._context.component}-queue", daemon=True
        )
        self._thread.start()

    def next(self, emit: Emit) -> float | None:
        """Emit the next messages; return the seconds until the next call (None: soon)."""
        now = self._context.now()
        if now < self._retry_at:
            return self._retry_at - now
        if self._report:
            raise self._report.popleft()
        try:
            if not self._received and not self._receive():
                return WAIT_SECONDS if len(self._open) >= self._max_in_flight else None
            self._emit_received(emit)
        except CodecAway as error:
            return self._codec_waits.failed(str(error))
        except SystemAway as error:
            return self._lost(error)
        return None

    def ack(self, message_id: MessageId) -> None:
        """Have a message acknowledged: soon, in one call with others."""
        self._settle(message_id, None)

    def reject(self, message_id: MessageId, reason: str) -> None:
        """Have a message rejected."""
        self._settle(message_id, reason)

    def deactivate(self) -> None:
        """Receive nothing more. What is acked from now on is acknowledged by the second thread."""
        self.active, self._pausing = False, True

    def close(self) -> None:
        """Acknowledge what is acked, and close the connection."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            try:
                if self._settled and self._client.keeps_ids and not self._connected:
                    self._connect()
                if self._connected:
                    self._send_settled()
            except SquallError as error:
                self._context.log.warning(
                    "%s delivers messages again that are done: %s", self._client.what, error
                )
            self._connected = False
            self._client.close()

    # The connection.

    def _receive(self) -> bool:
        """Do what the server waits for, then receive; return whether there are messages."""
        with self._lock:
            try:
                if (error := self._error) is not None:
                    self._error = None
                    raise error
                if not self._connected:
                    self._connect()
                self._attend()
                room = min(AT_ONCE, self._max_in_flight - len(self._open))
                messages = self._client.receive(room, WAIT_SECONDS) if room > 0 else []
                connection = self._connection
                for each in messages:
                    self._open[connection, each.id] = None
                    self._received.append((connection, each))
            except Exception as error:
                self._disconnect()
                if not isinstance(error, SystemAway):
                    self._retry_at = self._context.now() + RETRY_SECONDS
                    self._refused = True
                    self._show(" ".join(str(error).split()))
                raise
        if self._refused:
            self._refused = False
            self._show("")
        self._waiting.succeeded()
        return bool(messages)

    def _connect(self) -> None:
        self._client.connect()
        self._connected = self._begun = True
        self._alive_at = self._measure_at = 0.0
        if not self._client.keeps_ids:
            self._open.clear()

    def _attend(self) -> None:
        """Tell the server what is done, and keep the connection alive. The caller holds the lock."""
        self._send_settled()
        now, client = self._context.now(), self._client
        if client.keep_alive_interval is not None and now >= self._alive_at:
            self._alive_at = now + client.keep_alive_interval
            client.keep_alive([message for _, message in list(self._open)])
        if now >= self._measure_at:
            self._measure_at = now + MEASURE_SECONDS
            if (count := client.waiting()) is not None:
                self._at_server = count

    def _send_settled(self) -> None:
        """Acknowledge and reject what is done, in groups."""
        settled = self._settled
        done = [settled.popleft() for _ in range(len(settled))]  # the other thread may append meanwhile
        groups: dict[str | None, list[MessageId]] = {}
        for message_id, reason in done:
            if message_id[0] == self._connection:
                groups.setdefault(reason, []).append(message_id)
        try:
            for reason in sorted(groups, key=bool):  # what is acknowledged comes first
                ids = [message for _, message in groups[reason]]
                if reason is None:
                    self._client.acknowledge(ids)
                else:
                    self._client.reject(ids, reason)
                del groups[reason]
        except Exception:  # the rest is void at the next connection, unless the client keeps ids
            rest = [(each, reason) for reason, ids in groups.items() for each in ids]
            settled.extendleft(reversed(rest))
            raise

    def _disconnect(self) -> None:
        """Forget the connection, and the messages that came with it. The caller holds the lock."""
        self._connected = False
        self._client.close()
        if not self._client.keeps_ids:
            self._connection += 1
            self._open.clear()
            self._received.clear()
            self._settled.clear()

    def _lost(self, error: SystemAway) -> float:
        wait = self._waiting.failed(str(error))
        self._retry_at = self._context.now() + wait
        return wait

    # Messages.

    def _emit_received(self, emit: Emit) -> None:
        """Emit what was received. After an error, the next call goes on behind it."""
        received, client = self._received, self._client
        while True:
            try:
                connection, each = received[0]
            except IndexError:  # all are emitted, or the second thread has lost the connection
                return
            fault = None
            try:
                values = client.values(each.message)
            except UnreadableMessage as error:
                fault = error
            except SquallError:  # it is about the codec: the message is decoded again
                raise
            except Exception as error:  # a codec of the user, or a library under one
                fault = UnreadableMessage(f"{class_name(error)}: {message_of(error)}")
            self._codec_waits.succeeded()
            try:
                received.popleft()
            except IndexError:  # the second thread has lost the connection: the server delivers it again
                return
            message_id = (connection, each.id)
            try:
                if fault is None:
                    emit(values, message_id=message_id)
                else:
                    self._leave_out(emit, message_id, each.message, fault)
            except EmitError as error:  # it would be refused for ever
                self._settle(message_id, str(error))
                raise

    def _leave_out(
        self, emit: Emit, message_id: MessageId, message: object, fault: UnreadableMessage
    ) -> None:
        """Count a message that cannot be decoded, and emit it as it is, for who wants to keep it."""
        self._left_out.add()
        self._open[message_id] = f"unreadable: {fault}"
        if not self._unreadable_known:
            self._unreadable_known = True
            self._report.append(
                UnreadableMessage(
                    f"a message of {self._client.what} cannot be decoded: {fault}. It is counted as `messages left out`,"
                    f" emitted on the stream {UNREADABLE!r} and then rejected, as are further ones without a report"
                )
            )
        emit((*self._client.raw(message), str(fault)), message_id=message_id, stream=UNREADABLE)

    def _settle(self, message_id: MessageId, reason: str | None) -> None:
        was_full = len(self._open) >= self._max_in_flight
        try:
            unreadable = self._open.pop(message_id)
        except KeyError:  # its connection is lost: the server delivers it again
            return
        self._settled.append((message_id, unreadable or reason))
        if was_full:
            self._context.wake()

    # The second thread.

    def _stand_by(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            self.stand_by()

    def stand_by(self) -> None:
        """Call the client in the place of the task's thread, if that does not do so now."""
        if not self._lock.acquire(blocking=False):
            return
        client = self._client
        try:
            if client.keeps_ids and self._begun and not self._connected and self._may_connect():
                self._connect()
            if self._connected and self._error is None:
                if self._pausing and not self.active:
                    self._client.pause()
                    self._pausing = False
                self._attend()
        except SystemAway as error:
            self._disconnect()
            if not client.keeps_ids:  # otherwise what is in flight stays valid, and this thread tries again
                self._error = error
        except SquallError as error:
            self._error = error
            self._disconnect()
        except Exception as error:  # the thread must not end: the task's own one reports it
            self._error = SquallError(f"{self._client.what}: {class_name(error)}: {message_of(error)}")
            self._disconnect()
        finally:
            self._lock.release()

    def _may_connect(self) -> bool:
        """Return whether the second thread may try to connect: the task's own thread does not, or has not for a while."""
        now = self._context.now()
        if now < max(self._retry_at, self._alone_at):
            return False
        self._alone_at = now + RETRY_SECONDS
        return True

    def _show(self, text: str) -> None:
        self._context.progress(text)
