"""RabbitSink: a bolt that publishes a message for each tuple to an exchange of RabbitMQ.

    builder.set_bolt("publish", RabbitSink("orders", routing_key="new", url="amqp://broker")).shuffle_grouping("orders")

Must not know: clients, connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from squall_io.kit.codecs import Encode, MessageCodec, format_problem
from squall_io.kit.payloads import chosen_of, chosen_problems, missing_fields, used_names
from squall_io.kit.publishing import Publisher, PublishingSink
from squall_io.kit.server_address import ServerAddress
from squall_io.rabbitmq.address import address_problems, short_problem
from topology_api import InvalidConfig
from topology_api.wording import typed

if TYPE_CHECKING:
    from topology_api import Context, Fields, Tuple


class RabbitSink(PublishingSink):
    """Publishes a message for each tuple. Needs the extra `rabbitmq`.

    A tuple is acked when the server has confirmed its message: each queue that gets it has it, on its disk if the queue and the
    message are durable. So each message is there at least once. One that no queue gets fails its tuple.

    exchange: the exchange, which must exist. "" is the default exchange, where the routing key names a queue.
    url: the server, "amqp://HOST:PORT/VHOST", or "amqps://HOST:PORT/VHOST" for TLS; with a user, "amqp://USER@HOST/VHOST". The
        ports are 5672 and 5671 by default, the virtual host is "/", and the user is `guest` with its well-known password, which
        servers take from their own host only.
    routing_key: the routing key, or a function that can be imported, from the tuple to its routing key.
    fields: the field that is the body (None in it makes an empty one), or a list of fields, which are written as one object.
        None: an object of all fields.
    encode: how the body becomes bytes: "json", "str", "bytes", a function, or a codec with a schema registry.
    headers: the field with a dict of texts, whole numbers and booleans; None: no headers.
    message_id: the field whose text names the message, for those who read it. None: messages have no id.
    persistent: whether durable queues write the messages to their disks. Quorum queues always do.
    password: the password of the user: "env:NAME" or "file:PATH".
    tls: paths on the hosts of workers: "ca" of the certificates that sign the server's, "certificate" and "key" of this client.
    """

    def __init__(
        self,
        exchange: str,
        *,
        url: str,
        routing_key: str | Callable[[Tuple], str] = "",
        fields: str | Sequence[str] | None = None,
        encode: str | Encode | MessageCodec = "json",
        headers: str | None = None,
        message_id: str | None = None,
        persistent: bool = True,
        password: str | None = None,
        tls: Mapping[str, str] | None = None,
    ) -> None:
        problems = [
            *address_problems(url, password, tls),
            *chosen_problems(fields),
            *filter(
                None, [short_problem("exchange", exchange, empty=True), format_problem("encode", encode)]
            ),
        ]
        if not callable(routing_key):
            if (problem := short_problem("routing_key", routing_key, empty=True)) is not None:
                problems.append(f"{problem}, or a function from the tuple to its routing key")
            elif exchange == "" and routing_key == "":
                problems.append(
                    "exchange is '', the default one, and there is no routing_key: give the name of a queue"
                )
        for name, field in (("message_id", message_id), ("headers", headers)):
            if field is not None and not (isinstance(field, str) and field):
                problems.append(f"{name} is {typed(field)}: give the name of a field, or None")
        if exchange == "" and isinstance(encode, MessageCodec) and encode.subject is None:
            problems.append(
                "encode has no subject, and exchange is '', the default one: give the codec subject="
            )
        if not isinstance(persistent, bool):
            problems.append(f"persistent is {typed(persistent)}: give True or False")
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.exchange, self.routing_key = exchange, routing_key
        self.server = ServerAddress(url, password, dict(tls or {}))
        self.fields = chosen_of(fields)
        self.encode = encode
        self.headers, self.message_id = headers, message_id
        self.persistent = persistent

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Yield each input that lacks a field."""
        return missing_fields(inputs, self.used_fields())

    def used_fields(self) -> list[str]:
        """Return the fields that arguments name."""
        return used_names(self.fields, self.headers, self.message_id)

    def make_publisher(self, context: Context) -> Publisher:
        """Return the publisher of a task."""
        from squall_io.rabbitmq.publishing import RabbitPublisher

        return RabbitPublisher(self, context)
