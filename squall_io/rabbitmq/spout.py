"""RabbitSpout: the messages of a queue of RabbitMQ.

    builder.set_spout("orders", RabbitSpout("orders", url="amqp://app@broker/shop", password="env:BROKER_PASSWORD"))

Must not know: clients, how messages are received.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from squall_io.kit.codecs import Decode, MessageCodec
from squall_io.kit.message_fields import VALUE, field_problems
from squall_io.kit.queue_spout import QueueSpout, queue_problems
from squall_io.kit.server_address import ServerAddress
from squall_io.rabbitmq.address import address_problems, short_problem
from topology_api import InvalidConfig
from topology_api.wording import listed, typed

if TYPE_CHECKING:
    from squall_io.kit.queue_client import QueueClient
    from topology_api import Context, Replay

#: What a tuple can have of a message.
FIELDS: Final = (
    VALUE, "routing_key", "exchange", "headers", "message_id", "timestamp", "redelivered", "properties",
)  # fmt: skip
#: The fields of the stream of messages that cannot be read, without the error.
RAW_FIELDS: Final = ("routing_key", "value")
#: What may happen to a message that failed for good.
REJECT, REQUEUE = "reject", "requeue"


class RabbitSpout(QueueSpout):
    """The messages of a queue, one tuple each. Needs the extra `rabbitmq`.

    Its tasks are consumers of the queue, which the server gives its messages in turn. Classic and quorum queues are read; they
    are not declared here. A message is acknowledged when its tree is acked, so it is delivered at least once.

    queue: the queue.
    url: the server, "amqp://HOST:PORT/VHOST", or "amqps://HOST:PORT/VHOST" for TLS; with a user, "amqp://USER@HOST/VHOST". The
        ports are 5672 and 5671 by default, the virtual host is "/", and the user is `guest` with its well-known password, which
        servers take from their own host only.
    fields: which of "value", "routing_key", "exchange", "headers" (a dict), "message_id", "timestamp" (a datetime or None),
        "redelivered" (whether it may have been delivered before) and "properties" (a dict of all others that are set) a tuple
        has, in this order.
    decode: what a body becomes: "json", "str", "bytes", a function from bytes, or a codec with a schema registry.
    password: the password of the user: "env:NAME" or "file:PATH".
    tls: paths on the hosts of workers: "ca" of the certificates that sign the server's, "certificate" and "key" of this client.
    failed: what happens to a message that failed for good: "reject" has the server move it to the queue's dead-letter exchange,
        or drop it if there is none; "requeue" gives it back to the queue, which delivers it again at once.
    max_in_flight: the most messages of a task that are neither acked nor failed. The server sends no more (its prefetch).
    replay: as `Spout.replay`.
    """

    def __init__(
        self,
        queue: str,
        *,
        url: str,
        fields: Sequence[str] = (VALUE,),
        decode: str | Decode | MessageCodec = "json",
        password: str | None = None,
        tls: Mapping[str, str] | None = None,
        failed: str = REJECT,
        max_in_flight: int = 1000,
        replay: Replay | None = QueueSpout.replay,
    ) -> None:
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        problems = [
            *filter(None, [short_problem("queue", queue)]),
            *address_problems(url, password, tls),
            *field_problems(names, FIELDS, decode),
            *queue_problems(max_in_flight, replay),
        ]
        if failed not in (REJECT, REQUEUE):
            problems.append(f"failed is {typed(failed)}: give one of {listed((REJECT, REQUEUE))}")
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.queue = queue
        self.server = ServerAddress(url, password, dict(tls or {}))
        self.fields, self.decode = names, decode
        self.failed = failed
        self.set_up(names, RAW_FIELDS, max_in_flight, replay)

    def make_client(self, context: Context) -> QueueClient:
        """Return the client of a task."""
        from squall_io.rabbitmq.client import RabbitClient

        return RabbitClient(self, context)
