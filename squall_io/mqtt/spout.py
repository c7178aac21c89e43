"""MqttSpout: the messages of topics of an MQTT broker as a stream.

    builder.set_spout("orders", MqttSpout("shop/+/orders", url="mqtt://broker", group="shop"), parallelism=4)

Must not know: clients, how messages are received.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from squall_io.kit.codecs import Decode, MessageCodec
from squall_io.kit.queue_spout import QueueSpout, queue_problems
from squall_io.mqtt.broker import Broker, broker_problems
from squall_io.mqtt.messages import RAW_FIELDS, filter_problems, row_problems
from topology_api import InvalidConfig, SquallError
from topology_api.wording import typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from squall_io.kit.queue_client import QueueClient
    from topology_api import Context, Replay

#: The most seconds of the protocol's field for the end of a session: this number means that it never ends.
_NEVER = 0xFFFF_FFFF


class MqttSpout(QueueSpout):
    """The messages of topics, one tuple each. Needs the extra `mqtt`.

    Each task has a session at the broker, which keeps messages with QoS 1 while the task is away; they are delivered at least
    once. What publishers send with QoS 0 is delivered at most once. MQTT gives no message back: one that fails for good is
    acknowledged and counted as `messages rejected`.

    topics: a topic, or a list of topics, with the wildcards "+" (a level) and "#" (the rest): "shop/+/orders".
    url: the broker, "mqtt://HOST:PORT", or "mqtts://HOST:PORT" for TLS; with a user, "mqtt://USER@HOST". The ports are 1883 and
        8883 by default.
    group: the group of a shared subscription, whose members divide the messages. Several tasks need one: without it each of
        them would get all messages.
    client_id: what names the sessions at the broker, with the number of the task behind it; None: the names of topology and
        component. Two topologies that read a broker need different ones.
    fields: which of "value", "topic", "qos", "retain" and "properties" (of MQTT 5, a dict) a tuple has, in this order.
    decode: what a payload becomes: "json", "str", "bytes", a function from bytes, or a codec with a schema registry.
    qos: the most that is asked for, 1 or 0. With 0 nothing is acknowledged, and what comes while the task is away is lost.
    password: the password of the user: "env:NAME" or "file:PATH".
    tls: paths on the hosts of workers: "ca" of the certificates that sign the broker's, "certificate" and "key" of this client.
    keepalive: seconds of silence after which the broker is asked whether it is there; without an answer for as long again, it
        is away.
    version: the version of the protocol, "5" or "3.1.1".
    session_expiry: seconds for which the broker keeps the session of a task that is away, with its messages. MQTT 3.1.1 has
        no such number: the broker decides.
    max_in_flight: the most messages of a task that are neither acked nor failed. With MQTT 5 the broker sends no more.
    replay: as `Spout.replay`.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        url: str,
        group: str | None = None,
        client_id: str | None = None,
        fields: Sequence[str] = ("value",),
        decode: str | Decode | MessageCodec = "json",
        qos: int = 1,
        password: str | None = None,
        tls: Mapping[str, str] | None = None,
        keepalive: int = 15,
        version: str = "5",
        session_expiry: int = 86_400,
        max_in_flight: int = 1000,
        replay: Replay | None = QueueSpout.replay,
    ) -> None:
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        problems = [
            *filter_problems(topics, group),
            *broker_problems(url, password, tls, keepalive, version),
            *row_problems(names, decode),
            *_session_problems(client_id, qos, session_expiry),
            *queue_problems(max_in_flight, replay),
        ]
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self.broker = Broker(url, password, dict(tls or {}), keepalive, version)
        self.group = group
        self.client_id = client_id
        self.fields = names
        self.decode = decode
        self.qos = qos
        self.session_expiry = session_expiry
        self.set_up(names, RAW_FIELDS, max_in_flight, replay)

    def make_client(self, context: Context) -> QueueClient:
        """Return the client of a task. Raises SquallError if several tasks would each get all messages."""
        from squall_io.mqtt.client import MqttClient

        if context.parallelism > 1 and self.group is None:
            raise SquallError(
                f"{context.component} has {context.parallelism} tasks and no group, so that each of them would get all"
                " messages: give group=, or one task"
            )
        return MqttClient(self, context)


def _session_problems(client_id: object, qos: object, session_expiry: object) -> Iterator[str]:
    if client_id is not None and not (isinstance(client_id, str) and client_id):
        yield f"client_id is {typed(client_id)}: give text, or None"
    if qos not in (0, 1) or isinstance(qos, bool):
        yield f"qos is {typed(qos)}: give 1 or 0; what is published with 2 is delivered with 1"
    if type(session_expiry) is not int or not 1 <= session_expiry <= _NEVER:
        yield f"session_expiry is {typed(session_expiry)}: give seconds, 1 to {_NEVER}, which means for ever"
