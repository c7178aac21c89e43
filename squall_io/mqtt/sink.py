"""MqttSink: a bolt that publishes a message for each tuple to a broker of MQTT.

    builder.set_bolt("publish", MqttSink("shop/orders", url="mqtt://broker")).shuffle_grouping("orders")

Must not know: clients, connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from squall_io.kit.codecs import Encode, MessageCodec, format_problem
from squall_io.kit.payloads import chosen_of, chosen_problems, missing_fields, used_names
from squall_io.kit.publishing import Publisher, PublishingSink
from squall_io.mqtt.broker import Broker, broker_problems
from squall_io.mqtt.messages import topic_problem
from topology_api import InvalidConfig
from topology_api.wording import typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology_api import Context, Fields, Tuple


class MqttSink(PublishingSink):
    """Publishes a message for each tuple. Needs the extra `mqtt`.

    With QoS 1 a tuple is acked when the broker has acknowledged its message, so that each message is there at least once. What
    is not acknowledged when a connection is lost is published again.

    topic: the topic, or a function that can be imported, from the tuple to its topic.
    url: the broker, "mqtt://HOST:PORT", or "mqtts://HOST:PORT" for TLS; with a user, "mqtt://USER@HOST". The ports are 1883 and
        8883 by default.
    fields: the field that is the payload (None in it makes an empty one), or a list of fields, which are written as one object.
        None: an object of all fields.
    encode: how the payload becomes bytes: "json", "str", "bytes", a function, or a codec with a schema registry.
    qos: 1, or 0: a tuple is acked when its message was sent, and messages may be lost.
    retain: whether the broker keeps the last message of each topic for those who subscribe later. An empty one removes it.
    client_id: what names the client at the broker, with the number of the task behind it; None: the broker chooses.
    password: the password of the user: "env:NAME" or "file:PATH".
    tls: paths on the hosts of workers: "ca" of the certificates that sign the broker's, "certificate" and "key" of this client.
    keepalive: seconds of silence after which the broker is asked whether it is there.
    version: the version of the protocol, "5" or "3.1.1". With 3.1.1 a broker cannot refuse a message: what a user may not
        publish is acknowledged, and lost.
    """

    def __init__(
        self,
        topic: str | Callable[[Tuple], str],
        *,
        url: str,
        fields: str | Sequence[str] | None = None,
        encode: str | Encode | MessageCodec = "json",
        qos: int = 1,
        retain: bool = False,
        client_id: str | None = None,
        password: str | None = None,
        tls: Mapping[str, str] | None = None,
        keepalive: int = 15,
        version: str = "5",
    ) -> None:
        problems = [
            *_topic_problems(topic),
            *broker_problems(url, password, tls, keepalive, version),
            *chosen_problems(fields),
            *filter(None, [format_problem("encode", encode)]),
        ]
        if callable(topic) and isinstance(encode, MessageCodec) and encode.subject is None:
            problems.append("encode has no subject, and the topic is a function: give the codec subject=")
        if qos not in (0, 1) or isinstance(qos, bool):
            problems.append(
                f"qos is {typed(qos)}: give 1 or 0; 2 would promise no more when a connection is lost"
            )
        if not isinstance(retain, bool):
            problems.append(f"retain is {typed(retain)}: give True or False")
        if client_id is not None and not (isinstance(client_id, str) and client_id):
            problems.append(f"client_id is {typed(client_id)}: give text, or None")
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.topic = topic
        self.broker = Broker(url, password, dict(tls or {}), keepalive, version)
        self.fields = chosen_of(fields)
        self.encode = encode
        self.qos, self.retain = qos, retain
        self.client_id = client_id

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Yield each input that lacks a field."""
        return missing_fields(inputs, self.used_fields())

    def used_fields(self) -> list[str]:
        """Return the fields that arguments name."""
        return used_names(self.fields)

    def make_publisher(self, context: Context) -> Publisher:
        """Return the publisher of a task."""
        from squall_io.mqtt.publishing import MqttPublisher

        return MqttPublisher(self, context)


def _topic_problems(topic: object) -> Iterator[str]:
    if not callable(topic) and (problem := topic_problem(topic)) is not None:
        yield f"topic {problem}; or give a function from the tuple to its topic"
