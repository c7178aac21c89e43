"""How one task of an MqttSink publishes: as many messages at a time as the broker allows, each until it is acknowledged.

A broker may end the connection when it gets a message that it does not like, and would do so for ever. So after a lost
connection messages go one by one until one is acknowledged, and one at which the connection ends again and again is refused.
Must not know: tuples' streams, how a connection is made.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from squall_io.kit.codecs import encoder
from squall_io.kit.payloads import named_by, payload_maker
from squall_io.kit.publishing import Confirmations, Publisher
from squall_io.kit.waiting import SystemAway
from squall_io.mqtt.connection import ANSWER_SECONDS, FAILURE, MqttAway, MqttConnection, loaded
from squall_io.mqtt.messages import PACKET_HEAD, topic_problem
from topology_api import FailTuple

if TYPE_CHECKING:
    from squall_io.mqtt.sink import MqttSink
    from topology_api import Context, Tuple

#: The number of connections that may end at one message, sent alone, before it is refused.
MOST_ENDS: Final = 3
#: Codes of failures that pass: unspecified, implementation specific, quota exceeded.
_PASSING: Final = frozenset((0x80, 0x83, 0x97))


class Outgoing(NamedTuple):
    """A message to publish."""

    topic: str
    payload: bytes


class MqttPublisher(Publisher):
    """The connection of one task."""

    def __init__(self, sink: MqttSink, context: Context) -> None:
        self._sink = sink
        self._component = type(sink).__name__
        loaded(self._component)
        self.what = f"{sink.broker}"
        self._client_id = "" if sink.client_id is None else f"{sink.client_id}-{context.index}"
        subject = f"{sink.topic}-value" if isinstance(sink.topic, str) else ""
        self._payload = payload_maker(sink.fields, encoder(sink.encode, subject))
        self._connection: MqttConnection | None = None
        #: Whether messages go one by one.
        self._careful = False
        #: The message at which a connection ended last, and how many have ended at it.
        self._suspect: Outgoing | None = None
        self._ends = 0

    def message(self, tup: Tuple) -> Outgoing:
        """Return the message of a tuple. Raises FailTuple."""
        topic = self._sink.topic
        if not isinstance(topic, str):
            topic = named_by(topic, "topic", tup)
            if (problem := topic_problem(topic)) is not None:
                raise FailTuple(f"the function that names the topic returned {problem}")
        return Outgoing(topic, self._payload(tup) or b"")

    def connect(self) -> None:
        """Connect."""
        connection = MqttConnection(self._component, self._sink.broker, self._client_id, 0, 1)
        connection.open()
        self._connection = connection

    def publish(self, messages: Sequence[Outgoing], confirmations: Confirmations) -> None:
        """Publish messages, and await their acknowledgements. Raises MqttAway for those that are not acknowledged."""
        connection = self._connected
        #: Positions of messages that are sent and not answered, by their numbers.
        open_numbers: dict[int, int] = {}
        try:
            for at, message in enumerate(messages):
                if (why := _too_large(message, connection.most_bytes)) is not None:
                    confirmations.refused(at, why)
                    continue
                while len(open_numbers) >= (1 if self._careful else connection.window):
                    self._await(connection, open_numbers, confirmations, all_of_them=False)
                number = connection.publish(*message, self._sink.qos, self._sink.retain)
                if number is None:
                    confirmations.refused(
                        at, f"a message of {len(message.payload)} bytes is too large for MQTT"
                    )
                else:
                    open_numbers[number] = at
            while open_numbers:
                self._await(connection, open_numbers, confirmations, all_of_them=True)
        except SystemAway:
            if open_numbers and connection.is_lost:
                self._suspected([(at, messages[at]) for at in open_numbers.values()], confirmations)
            raise

    def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _await(
        self,
        connection: MqttConnection,
        open_numbers: dict[int, int],
        confirmations: Confirmations,
        all_of_them: bool,
    ) -> None:
        """Wait for answers. Raises MqttAway if none comes for too long."""
        end = time.monotonic() + ANSWER_SECONDS
        while not (found := connection.confirmed(set(open_numbers), all_of_them, end - time.monotonic())):
            if time.monotonic() >= end:
                raise MqttAway(f"no acknowledgement within {ANSWER_SECONDS:g} s")
        self._careful = False
        for number, (code, reason) in found.items():
            at = open_numbers.pop(number)
            if code < FAILURE:
                confirmations.sent(at)
            elif code not in _PASSING:
                confirmations.refused(at, f"the broker refuses the message: {reason} (0x{code:02x})")
            else:
                raise MqttAway(f"the broker takes a message later: {reason}")

    def _suspected(self, unanswered: list[tuple[int, Outgoing]], confirmations: Confirmations) -> None:
        """Note that a connection has ended while these messages were not answered."""
        self._careful = True
        if len(unanswered) > 1:
            return
        at, message = unanswered[0]
        self._ends = self._ends + 1 if message == self._suspect else 1
        self._suspect = message
        if self._ends >= MOST_ENDS:
            self._suspect, self._ends = None, 0
            confirmations.refused(
                at, f"{self.what} has ended {MOST_ENDS} connections when this message came, without an answer"
            )

    @property
    def _connected(self) -> MqttConnection:
        assert self._connection is not None, "connect was called"
        return self._connection


def _too_large(message: Outgoing, most: int | None) -> str | None:
    size = len(message.topic.encode()) + len(message.payload) + PACKET_HEAD
    if most is None or size <= most:
        return None
    return f"the message has {size} bytes with its topic, and the broker takes {most} (`max_packet_size`)"
