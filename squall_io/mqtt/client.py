"""The session of one task of an MqttSpout at its broker: what it receives, and what it acknowledges.

Messages are acknowledged in the order in which they came, as MQTT demands: one that takes long holds back the acknowledgements
of all later ones, which the broker sends again if the connection ends before.
Must not know: tuples, how a connection is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from squall_io.kit.queue_client import QueueAway, QueueClient, Received
from squall_io.mqtt.connection import MqttConnection, loaded
from squall_io.mqtt.messages import filters_of, raw_of, row_of
from topology_api import SquallError

if TYPE_CHECKING:
    from squall_io.mqtt.spout import MqttSpout
    from topology_api import Context


class LostSession(SquallError):
    """The broker has forgotten the session of a task, with the messages that it kept for it."""


class MqttClient(QueueClient):
    """The session of one task."""

    def __init__(self, spout: MqttSpout, context: Context) -> None:
        self._spout = spout
        self._component = type(spout).__name__
        loaded(self._component)
        name = spout.client_id or f"{context.topology}-{context.component}"
        self._client_id = f"{name}-{context.index}"
        self.what = f"{spout.broker}"
        self._log = context.log
        self._row = row_of(spout.fields, spout.decode)
        self._dropped = context.counter("messages dropped")
        self._rejected = context.counter("messages rejected")
        self._connection: MqttConnection | None = None
        #: The numbers of messages with QoS 1 in the order in which they came, from the first that is not acknowledged.
        self._order: deque[int] = deque()
        self._unanswered: set[int] = set()
        self._settled: set[int] = set()
        self._unconfirmed = 0
        self._dropped_before = 0
        #: Whether the broker has a session of this task, as far as this process knows.
        self._had_session = False

    def connect(self) -> None:
        """Connect, and subscribe. Raises LostSession once if the broker has forgotten the session of this task: it has a new
        one then."""
        spout = self._spout
        connection = MqttConnection(
            self._component, spout.broker, self._client_id, spout.session_expiry, spout.max_in_flight
        )
        connection.open()
        self._connection = connection
        self._order.clear()
        self._unanswered.clear()
        self._settled.clear()
        self._dropped_before = 0
        # With a session that was there, too: the topics may be other ones than before.
        connection.subscribe(filters_of(spout.topics, spout.group), spout.qos)
        had, self._had_session = self._had_session, True
        if had and not connection.session_was_there:
            self._had_session = False  # so that the next connection reads on, also if the broker keeps none
            raise LostSession(
                f"{spout.broker} has forgotten session {self._client_id!r}: what it kept for it, and what came until now, is"
                " lost. Let the broker keep its sessions on disk, and raise session_expiry; see docs/mqtt.md"
            )

    def receive(self, most: int, seconds: float) -> list[Received]:
        """Return the next messages."""
        connection = self._connected
        messages = connection.receive(most, seconds)
        if connection.dropped > self._dropped_before:
            self._dropped.add(connection.dropped - self._dropped_before)
            self._dropped_before = connection.dropped
        # Some brokers send again on the same connection what is not answered for long: it is in flight already.
        fresh = [message for message in messages if message.qos == 0 or message.mid not in self._unanswered]
        return [Received(self._id_of(message), message) for message in fresh]

    def acknowledge(self, ids: Sequence[Any]) -> None:
        """Acknowledge messages, as far as no earlier one is open."""
        order, settled = self._order, self._settled
        settled.update(number for number in ids if number > 0)
        while order and order[0] in settled:
            number = order.popleft()
            settled.discard(number)
            self._unanswered.discard(number)
            self._connected.acknowledge(number)

    def reject(self, ids: Sequence[Any], reason: str) -> None:
        """Count messages that failed for good, and acknowledge them: MQTT knows no other answer."""
        self._rejected.add(len(ids))
        self._log.warning("%d message(s) of %s are given up: %s", len(ids), self.what, reason)
        self.acknowledge(ids)

    def values(self, message: Any) -> Sequence[object]:
        """Return the values of a tuple."""
        return self._row(message)

    def raw(self, message: Any) -> Sequence[object]:
        """Return topic and payload."""
        return raw_of(message)

    def close(self) -> None:
        """End the connection; the broker keeps the session."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _id_of(self, message: Any) -> int:
        """Return the number of a message: that of the protocol, or with QoS 0, which has none, a negative one."""
        if message.qos == 0:
            self._unconfirmed -= 1
            return self._unconfirmed
        number: int = message.mid
        self._order.append(number)
        self._unanswered.add(number)
        return number

    @property
    def _connected(self) -> MqttConnection:
        if self._connection is None:
            raise QueueAway("there is no connection")
        return self._connection
