"""NatsSpout: the messages of a stream of JetStream.

    builder.set_spout("orders", NatsSpout("ORDERS", consumer="shop", url="nats://broker"), parallelism=4)

Must not know: clients, how messages are received.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from squall_io.kit.codecs import Decode, MessageCodec
from squall_io.kit.message_fields import VALUE, field_problems
from squall_io.kit.queue_spout import QueueSpout, queue_problems
from squall_io.kit.server_address import ServerAddress, server_problems
from squall_io.nats.subjects import FORM, filter_problem, name_problem
from topology_api import InvalidConfig
from topology_api.wording import typed

if TYPE_CHECKING:
    from squall_io.kit.queue_client import QueueClient
    from topology_api import Context, Replay

#: Where a consumer that is created begins.
EARLIEST, LATEST = "earliest", "latest"
#: What a tuple can have of a message.
FIELDS: Final = (VALUE, "subject", "headers", "sequence", "timestamp", "deliveries")
#: The fields of the stream of messages that cannot be read, without the error.
RAW_FIELDS: Final = ("subject", "sequence", "value")


class NatsSpout(QueueSpout):
    """The messages of a stream, one tuple each. Needs the extra `nats`.

    All tasks share one durable consumer, by which the server knows which messages are done. It is created if it is not there;
    the stream is not. A message is acknowledged when its tree is acked, and terminated when it has failed for good: the server
    does not deliver it again, and says so to those who listen to its advisories.

    stream: the stream.
    consumer: the durable consumer. Topologies that each need all messages have different ones.
    url: a server, "nats://HOST:PORT", or "tls://HOST:PORT" for TLS;
        with a user, "nats://USER@HOST". The port is 4222 by default.
    subject: which messages of the stream, "orders.*"; None: all. Only for a consumer that is created.
    start: where a consumer that is created begins: "earliest", "latest" (what comes from now on), the number of a message, or
        a datetime with a time zone.
    ack_wait: seconds after which the server delivers a message again that is not acknowledged, for a consumer that is created.
        The spout prolongs this time for what is in flight, so it only delays what a lost worker had.
    fields: which of "value", "subject", "headers", "sequence", "timestamp" and "deliveries" (how often it was delivered) a
        tuple has, in this order.
    decode: what a payload becomes: "json", "str", "bytes", a function from bytes, or a codec with a schema registry.
    password: the password of the user: "env:NAME" or "file:PATH".
    credentials: the path of a file of credentials (JWT and key) on the hosts of workers, instead of a user.
    tls: paths on the hosts of workers: "ca" of the certificates that sign the server's, "certificate" and "key" of this client.
    max_in_flight: the most messages of a task that are neither acked nor failed. The consumer has a limit for all tasks
        together, `max_ack_pending`; one that is created gets the sum of them.
    replay: as `Spout.replay`.
    """

    def __init__(
        self,
        stream: str,
        *,
        consumer: str,
        url: str,
        subject: str | None = None,
        start: str | int | datetime = EARLIEST,
        ack_wait: float = 30.0,
        fields: Sequence[str] = (VALUE,),
        decode: str | Decode | MessageCodec = "json",
        password: str | None = None,
        credentials: str | None = None,
        tls: Mapping[str, str] | None = None,
        max_in_flight: int = 1000,
        replay: Replay | None = QueueSpout.replay,
    ) -> None:
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        problems = [
            *filter(None, [name_problem("stream", stream), name_problem("consumer", consumer)]),
            *server_problems(FORM, url, password, tls),
            *credentials_problems(credentials, password, url),
            *field_problems(names, FIELDS, decode),
            *_consumer_problems(subject, start, ack_wait),
            *queue_problems(max_in_flight, replay),
        ]
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.stream, self.consumer = stream, consumer
        self.server = ServerAddress(url, password, dict(tls or {}))
        self.credentials = credentials
        self.subject, self.start, self.ack_wait = subject, start, float(ack_wait)
        self.fields, self.decode = names, decode
        self.set_up(names, RAW_FIELDS, max_in_flight, replay)

    def make_client(self, context: Context) -> QueueClient:
        """Return the client of a task."""
        from squall_io.nats.client import NatsClient

        return NatsClient(self, context)


def credentials_problems(credentials: object, password: object, url: object) -> Iterator[str]:
    """Yield what is wrong with the argument `credentials` of a connector."""
    if credentials is None:
        return
    if not isinstance(credentials, str) or not os.path.isabs(credentials):
        yield f"credentials is {typed(credentials)}: give the whole path of a file on the hosts of workers, or None"
    elif password is not None or (isinstance(url, str) and "@" in url):
        yield "credentials are given, and a user or a password: leave one of the two out"


def _consumer_problems(subject: object, start: Any, ack_wait: Any) -> Iterator[str]:
    if subject is not None and (problem := filter_problem(subject)) is not None:
        yield f"subject: {problem}"
    if isinstance(start, datetime):
        if start.tzinfo is None:
            yield f"start is {start}, without a time zone: give one, datetime(..., tzinfo=timezone.utc)"
    elif start not in (EARLIEST, LATEST) and (type(start) is not int or start < 1):
        yield f"start is {typed(start)}: give {EARLIEST!r}, {LATEST!r}, the number of a message, or a datetime"
    if type(ack_wait) not in (int, float) or not 1 <= ack_wait <= 86_400:
        yield f"ack_wait is {typed(ack_wait)}: give seconds, 1 to 86400"
