"""The durable consumer of a stream, as one task of a NatsSpout uses it: it asks for messages, acknowledges, and prolongs.

A message is named by the subject to which its acknowledgement goes. That is valid on any connection, so what is acked while the
connection is away is acknowledged on the next one.
Must not know: tuples, how a connection is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from squall_io.kit.message_fields import values_maker
from squall_io.kit.queue_client import QueueClient, Received
from squall_io.nats.connection import (
    NO_CONSUMER,
    NO_STREAM,
    NatsConnection,
    NatsRefused,
    loaded,
    shown_server,
)
from squall_io.nats.spout import LATEST

if TYPE_CHECKING:
    from squall_io.nats.spout import NatsSpout
    from topology_api import Context

#: What the protocol calls the answers to a message.
_ACK, _TERM, _PROGRESS = b"+ACK", b"+TERM", b"+WPI"
#: The least number of messages that all tasks of a new consumer may hold together: the server's own default.
_LEAST_PENDING: Final = 1000


class NatsClient(QueueClient):
    """The consumer of one task."""

    keeps_ids = True

    def __init__(self, spout: NatsSpout, context: Context) -> None:
        self._spout = spout
        self._component = type(spout).__name__
        loaded(self._component)
        self.what = f"stream {spout.stream} of {shown_server(spout.server)}"
        self._name = f"{context.topology}-{context.component}-{context.index}"
        self._tasks = context.parallelism
        self._log = context.log
        self._rejected = context.counter("messages rejected")
        self._values = values_maker(
            spout.fields,
            spout.decode,
            lambda message: bytes(message.data),
            {
                "subject": lambda message: message.subject,
                "headers": lambda message: dict(message.headers or {}),
                "sequence": lambda message: message.metadata.sequence.stream,
                "timestamp": lambda message: message.metadata.timestamp,
                "deliveries": lambda message: message.metadata.num_delivered,
            },
        )
        self._connection: NatsConnection | None = None
        self._pull: Any = None

    def connect(self) -> None:
        """Connect, and find the consumer; create it if it is not there."""
        spout = self._spout
        connection = NatsConnection(self._component, spout.server, spout.credentials, self._name)
        self._connection = connection
        connection.open()
        stream = connection.stream
        try:
            found = connection.run(stream.consumer_info(spout.stream, spout.consumer))
        except NatsRefused as error:
            if error.code == NO_STREAM:
                raise NatsRefused(f"{connection.where} has no stream {spout.stream!r}: create it") from None
            if error.code != NO_CONSUMER:
                raise
            found = connection.run(stream.add_consumer(spout.stream, self._new_consumer()))
            self._log.info("created consumer %s of stream %s", spout.consumer, spout.stream)
        self._check(found.config)
        self.keep_alive_interval = (found.config.ack_wait or 30.0) / 3
        self._pull = connection.run(stream.pull_subscribe_bind(spout.consumer, spout.stream))

    def receive(self, most: int, seconds: float) -> list[Received]:
        """Return the next messages."""
        connection = self._connected
        messages = connection.run(self._fetched(most, seconds))
        connection.check()
        return [Received(message.reply, message) for message in messages]

    def acknowledge(self, ids: Sequence[Any]) -> None:
        """Acknowledge messages, and wait until the server has read that."""
        self._answer(ids, _ACK)

    def reject(self, ids: Sequence[Any], reason: str) -> None:
        """Terminate messages."""
        self._rejected.add(len(ids))
        self._log.warning("%d message(s) of %s are given up: %s", len(ids), self.what, reason)
        self._answer(ids, _TERM)  # servers before 2.10 take no reason with it

    def values(self, message: Any) -> Sequence[object]:
        """Return the values of a tuple."""
        return self._values(message)

    def raw(self, message: Any) -> Sequence[object]:
        """Return subject, number and payload."""
        return message.subject, message.metadata.sequence.stream, bytes(message.data)

    def keep_alive(self, ids: Sequence[Any]) -> None:
        """Say that these messages are worked on."""
        self._connected.check()
        if ids:
            self._answer(ids, _PROGRESS)

    def waiting(self) -> int | None:
        """Return how many messages no task has got yet."""
        spout, connection = self._spout, self._connected
        found = connection.run(connection.stream.consumer_info(spout.stream, spout.consumer))
        return int(found.num_pending)

    def close(self) -> None:
        """End the connection. The server delivers what is not acknowledged after `ack_wait`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _fetched(self, most: int, seconds: float) -> list[Any]:
        try:
            found: list[Any] = await self._pull.fetch(most, timeout=seconds)
        except asyncio.TimeoutError:
            return []
        return found

    def _answer(self, ids: Sequence[str], what: bytes) -> None:
        connection = self._connected
        connection.check()
        connection.run(_sent(connection.client, ids, what))

    def _new_consumer(self) -> Any:
        """Return the settings of a consumer that this spout creates."""
        api = loaded(self._component, "nats.js.api")
        spout = self._spout
        start: dict[str, Any] = {"deliver_policy": api.DeliverPolicy.ALL}
        if isinstance(spout.start, datetime):
            start = {"deliver_policy": api.DeliverPolicy.BY_START_TIME, "opt_start_time": spout.start}
        elif isinstance(spout.start, int):
            start = {"deliver_policy": api.DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": spout.start}
        elif spout.start == LATEST:
            start = {"deliver_policy": api.DeliverPolicy.NEW}
        return api.ConsumerConfig(
            durable_name=spout.consumer,
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=spout.ack_wait,
            filter_subject=spout.subject,
            max_ack_pending=max(_LEAST_PENDING, spout.max_in_flight * self._tasks),
            **start,
        )

    def _check(self, config: Any) -> None:
        """Raise NatsRefused for a consumer that cannot be used."""
        spout, wrong = self._spout, ""
        if config.deliver_subject:
            wrong = "sends messages by itself (push): give another consumer"
        elif config.ack_policy != "explicit":
            wrong = f"has ack policy {config.ack_policy!r}: its messages cannot be acknowledged one by one; give another one"
        elif spout.subject is not None and config.filter_subject != spout.subject:
            wrong = f"was created for subject {config.filter_subject!r}, not {spout.subject!r}: give another one, or delete it"
        if wrong:
            raise NatsRefused(f"consumer {spout.consumer!r} of stream {spout.stream!r} {wrong}")

    @property
    def _connected(self) -> NatsConnection:
        assert self._connection is not None, "connect was called"
        return self._connection


async def _sent(client: Any, subjects: Sequence[str], payload: bytes) -> None:
    """Send one payload to many subjects; return when the server has read it."""
    send: Callable[..., Awaitable[None]] = client.publish
    for subject in subjects:
        await send(subject, payload)
    await client.flush()
