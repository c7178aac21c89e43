"""The consumer of a queue, as one task of a RabbitSpout uses it: the server sends messages ahead, as many as may be in flight.

Must not know: tuples, how a connection is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from squall_io.kit.message_fields import values_maker
from squall_io.kit.queue_client import QueueClient, Received
from squall_io.kit.queue_task import UNREADABLE
from squall_io.rabbitmq.address import shown_server
from squall_io.rabbitmq.connection import RabbitConnection, loaded
from squall_io.rabbitmq.faults import RabbitRefused, explained
from squall_io.rabbitmq.settling import acknowledgements
from squall_io.rabbitmq.spout import REQUEUE

if TYPE_CHECKING:
    from squall_io.rabbitmq.spout import RabbitSpout
    from topology_api import Context

#: Properties of the protocol that the field `properties` has.
_PROPERTIES: Final = (
    "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "priority", "type", "user_id", "app_id",
    "delivery_mode",
)  # fmt: skip


class Delivery(NamedTuple):
    """A message with the frame that announced it."""

    frame: Any
    properties: Any
    body: bytes


class RabbitClient(QueueClient):
    """The consumer of one task."""

    keep_alive_interval = 5.0

    def __init__(self, spout: RabbitSpout, context: Context) -> None:
        self._spout = spout
        self._component = type(spout).__name__
        loaded(self._component)
        self.what = f"queue {spout.queue} of {shown_server(spout.server)}"
        self._name = f"{context.topology}-{context.component}-{context.index}"
        self._log = context.log
        self._rejected = context.counter("messages rejected")
        self._values = values_maker(
            spout.fields,
            spout.decode,
            lambda message: message.body,
            {
                "routing_key": lambda message: message.frame.routing_key,
                "exchange": lambda message: message.frame.exchange,
                "headers": lambda message: dict(message.properties.headers or {}),
                "message_id": lambda message: message.properties.message_id,
                "timestamp": _timestamp,
                "redelivered": lambda message: message.frame.redelivered,
                "properties": _properties,
            },
        )
        self._connection: RabbitConnection | None = None
        self._channel: Any = None
        self._consumer: str | None = None
        #: What has arrived and was not received; changed under `RabbitConnection.changed`.
        self._arrived: deque[Delivery] = deque()
        #: The numbers of messages that are not settled, in order; used in the connection's thread only.
        self._open: dict[int, None] = {}

    def connect(self) -> None:
        """Connect and consume."""
        connection = RabbitConnection(self._component, self._spout.server, self._name)
        self._connection = connection
        self._arrived.clear()
        self._open.clear()
        self._consumer = None
        connection.open()
        self._channel = channel = connection.channel(
            lambda code, text: connection.fail(explained(connection.where, code, text))
        )
        channel.add_on_cancel_callback(self._on_cancel)
        connection.ask(
            lambda done: channel.basic_qos(prefetch_count=self._spout.max_in_flight, callback=done)
        )
        self._consume()

    def receive(self, most: int, seconds: float) -> list[Received]:
        """Return the next messages."""
        connection = self._connected
        connection.check()
        if self._consumer is None:
            self._consume()
        arrived = self._arrived
        with connection.changed:
            if not arrived:
                connection.changed.wait_for(lambda: arrived or connection.fault is not None, seconds)
            connection.check()
            found = [arrived.popleft() for _ in range(min(most, len(arrived)))]
        return [Received(each.frame.delivery_tag, each) for each in found]

    def acknowledge(self, ids: Sequence[Any]) -> None:
        """Acknowledge messages."""

        def send() -> None:
            for tag, multiple in acknowledgements(self._open, ids):
                self._channel.basic_ack(tag, multiple)
            for tag in ids:
                self._open.pop(tag, None)

        self._connected.do(send)

    def reject(self, ids: Sequence[Any], reason: str) -> None:
        """Have messages dead-lettered, or delivered again, as the spout says."""
        # What cannot be decoded is never given back: it would come again at once, for ever.
        requeue = self._spout.failed == REQUEUE and not reason.startswith(f"{UNREADABLE}: ")
        self._rejected.add(len(ids))
        self._log.warning(
            "%d message(s) of %s are %s: %s",
            len(ids),
            self.what,
            "given back" if requeue else "rejected",
            reason,
        )
        self._connected.do(lambda: self._give_up(ids, requeue))

    def values(self, message: Any) -> Sequence[object]:
        """Return the values of a tuple."""
        return self._values(message)

    def raw(self, message: Any) -> Sequence[object]:
        """Return routing key and body."""
        return message.frame.routing_key, message.body

    def keep_alive(self, ids: Sequence[Any]) -> None:
        """See whether the connection is there; its own thread answers heartbeats."""
        self._connected.check()

    def pause(self) -> None:
        """Consume no more, and give back what was sent ahead."""
        connection, channel, tag = self._connected, self._channel, self._consumer
        if tag is None:
            return
        self._consumer = None
        connection.ask(lambda done: channel.basic_cancel(tag, callback=done))
        with connection.changed:
            tags = [each.frame.delivery_tag for each in self._arrived]
            self._arrived.clear()
        connection.do(lambda: self._give_back(tags))

    def waiting(self) -> int | None:
        """Return how many messages wait in the queue."""
        answer = self._connected.ask(
            lambda done: self._channel.queue_declare(self._spout.queue, passive=True, callback=done)
        )
        return int(answer.method.message_count)

    def close(self) -> None:
        """End the connection. The server delivers at once to others what is not acknowledged."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _consume(self) -> None:
        tags: list[str] = []
        self._connected.ask(
            lambda done: tags.append(
                self._channel.basic_consume(self._spout.queue, self._on_message, callback=done)
            )
        )
        self._consumer = tags[0]

    def _give_up(self, tags: Sequence[int], requeue: bool) -> None:
        for tag in tags:
            self._channel.basic_reject(tag, requeue=requeue)
            self._open.pop(tag, None)

    def _give_back(self, tags: Sequence[int]) -> None:
        """Return messages that were not looked at. A rejection would count as a failed delivery of a quorum queue."""
        for tag in tags:
            self._channel.basic_nack(tag, requeue=True)
            self._open.pop(tag, None)

    def _on_message(self, channel: Any, frame: Any, properties: Any, body: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        self._open[frame.delivery_tag] = None
        with connection.changed:
            self._arrived.append(Delivery(frame, properties, body))
            connection.changed.notify_all()

    def _on_cancel(self, frame: Any) -> None:
        connection = self._connection
        if connection is not None:
            connection.fail(
                RabbitRefused(
                    f"{connection.where} has cancelled the consumer of queue {self._spout.queue!r}: the queue was deleted, or"
                    " its node has stopped"
                )
            )

    @property
    def _connected(self) -> RabbitConnection:
        assert self._connection is not None, "connect was called"
        return self._connection


def _timestamp(message: Delivery) -> datetime | None:
    seconds = message.properties.timestamp
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
    except (ValueError, OverflowError, OSError):  # no seconds: any sender may write any number
        return None


def _properties(message: Delivery) -> dict[str, object]:
    found = {name: getattr(message.properties, name) for name in _PROPERTIES}
    return {name: value for name, value in found.items() if value is not None}
