"""How one task of a NatsSink publishes: messages in their order, some hundreds before the first is confirmed.

Must not know: tuples' streams, how a connection is made.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from squall_io.kit.codecs import encoder
from squall_io.kit.payloads import named_by, payload_maker, text_of, value_of
from squall_io.kit.publishing import Confirmations, Publisher
from squall_io.nats.connection import (
    ANSWER_SECONDS,
    NatsAway,
    NatsConnection,
    NatsRefused,
    loaded,
    shown_server,
)
from squall_io.nats.subjects import subject_problem
from topology_api import FailTuple, SquallError
from topology_api.wording import typed

if TYPE_CHECKING:
    from squall_io.nats.sink import NatsSink
    from topology_api import Context, Tuple

#: The most messages that are sent and not confirmed.
WINDOW: Final = 256
#: The header by which a stream knows that it has a message already.
ID_HEADER: Final = "Nats-Msg-Id"
#: Codes of JetStream for a message that a stream will not take: too large for the stream, for a subject, headers too large.
_REFUSED: Final = (10054, 10102, 10097)


class NatsMessage(NamedTuple):
    """A message to publish."""

    subject: str
    payload: bytes
    headers: dict[str, str] | None


class NatsPublisher(Publisher):
    """The connection of one task."""

    def __init__(self, sink: NatsSink, context: Context) -> None:
        self._sink = sink
        self._component = type(sink).__name__
        loaded(self._component)
        self.what = shown_server(sink.server)
        self._name = f"{context.topology}-{context.component}-{context.index}"
        subject = f"{sink.subject}-value" if isinstance(sink.subject, str) else ""
        self._payload = payload_maker(sink.fields, encoder(sink.encode, subject))
        self._connection: NatsConnection | None = None
        #: Whether a message of this connection was stored.
        self._begun = False

    def message(self, tup: Tuple) -> NatsMessage:
        """Return the message of a tuple. Raises FailTuple."""
        sink = self._sink
        subject = sink.subject
        if not isinstance(subject, str):
            subject = named_by(subject, "subject", tup)
            if (problem := subject_problem(subject)) is not None:
                raise FailTuple(f"the function that names the subject returned {problem}")
        headers = {} if sink.headers is None else _headers_of(tup, sink.headers)
        if sink.message_id is not None:
            headers[ID_HEADER] = text_of(tup, sink.message_id)
        return NatsMessage(subject, self._payload(tup) or b"", headers or None)

    def connect(self) -> None:
        """Connect."""
        sink = self._sink
        self._begun = False
        self._connection = NatsConnection(self._component, sink.server, sink.credentials, self._name)
        self._connection.open()

    def publish(self, messages: Sequence[NatsMessage], confirmations: Confirmations) -> None:
        """Publish messages, and await what the stream says of each."""
        connection = self._connected
        connection.check()
        seconds = 2 * ANSWER_SECONDS + len(messages) / WINDOW * ANSWER_SECONDS
        connection.run(self._published(connection, messages, confirmations), seconds)

    def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def keep_alive(self) -> None:
        """See whether the connection is there; its own thread answers the server."""
        self._connected.check()

    async def _published(
        self, connection: NatsConnection, messages: Sequence[NatsMessage], confirmations: Confirmations
    ) -> None:
        waiting: deque[tuple[int, asyncio.Task[Any]]] = deque()
        fault: SquallError | None = None
        for at, message in enumerate(messages):
            if (size := _size(message)) > connection.client.max_payload:
                most = connection.client.max_payload
                confirmations.refused(
                    at, f"the message has {size} bytes, and the server takes {most} (`max_payload`)"
                )
                continue
            # Tasks begin in their order, and send before they wait; only the first of a connection asks for an address before.
            stored = connection.stream.publish(message.subject, message.payload, headers=message.headers)
            waiting.append((at, asyncio.create_task(stored)))
            while len(waiting) >= (WINDOW if self._begun else 1):
                fault = await self._confirmed(connection, messages, waiting, confirmations) or fault
            if fault is not None:
                break
        while waiting:
            fault = await self._confirmed(connection, messages, waiting, confirmations) or fault
        if fault is not None:
            raise fault

    async def _confirmed(
        self,
        connection: NatsConnection,
        messages: Sequence[NatsMessage],
        waiting: deque[tuple[int, asyncio.Task[Any]]],
        confirmations: Confirmations,
    ) -> SquallError | None:
        """Await the word about the oldest message; return what keeps it, and further ones, from being stored now."""
        at, stored = waiting.popleft()
        errors, failures = loaded(self._component, "nats.errors"), loaded(self._component, "nats.js.errors")
        try:
            await stored
        except failures.NoStreamResponseError:
            subject = messages[at].subject
            return NatsRefused(
                f"no stream of {connection.where} keeps subject {subject!r}: create one that does, with JetStream"
            )
        except (errors.BadHeaderError, errors.BadSubjectError) as error:
            confirmations.refused(at, str(error).removeprefix("nats: "))
        except failures.APIError as error:
            if error.err_code not in _REFUSED:
                return self._kept_away(connection, error)
            confirmations.refused(at, f"the stream refuses the message: {error.description}")
        except Exception as error:
            return connection.explained(error)
        else:
            self._begun = True
            confirmations.sent(at)
        return None

    def _kept_away(self, connection: NatsConnection, error: Any) -> SquallError:
        """Return what a stream's error means that is not about the message. A stream that is full may have room again."""
        if str(error.description).startswith("maximum"):
            return NatsAway(f"the stream is full: {error.description}")
        return connection.explained(error)

    @property
    def _connected(self) -> NatsConnection:
        assert self._connection is not None, "connect was called"
        return self._connection


def _size(message: NatsMessage) -> int:
    """Return how many bytes count for `max_payload`: headers and payload."""
    headers = message.headers or {}
    head = sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())
    return len(message.payload) + (head + 12 if headers else 0)


def _headers_of(tup: Tuple, field: str) -> dict[str, str]:
    """Return the headers that a field has. Raises FailTuple."""
    value = value_of(tup, field)
    if value is None:
        return {}
    if isinstance(value, dict) and all(isinstance(each, str) for pair in value.items() for each in pair):
        return dict(value)
    raise FailTuple(f"field {field!r} is {typed(value)}: give a dict of texts")
