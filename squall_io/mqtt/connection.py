"""One connection to a broker, from CONNECT to its end. The next connection is a new object: nothing of a lost one can be
acknowledged on another.

paho's own thread reads, writes and pings, so that a task that is busy or paused keeps its connection. All waiting is for a
condition that this thread notifies. Must not know: tuples, tasks, what messages mean.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from squall_io.kit.libraries import load_library
from squall_io.kit.queue_client import QueueAway
from squall_io.kit.secrets import resolve
from squall_io.kit.server_address import tls_context
from squall_io.mqtt.broker import Broker
from topology_api import SquallError
from topology_api.wording import listed

#: Seconds for a TCP connection, and for the answer to CONNECT or SUBSCRIBE.
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 8.0
#: Seconds for the goodbye at the end.
_GOODBYE_SECONDS: Final = 1.0
#: Seconds after which the connection is looked at while nothing is heard of it.
_LOOK_SECONDS: Final = 0.5
#: The most messages with QoS 0 that wait to be read. They have no acknowledgement, so nothing else bounds them.
MOST_UNCONFIRMED: Final = 10_000
#: A topic to which no connection subscribes.
_NO_TOPIC: Final = "squall/none"
#: How many messages may be unanswered if the broker does not say: what mosquitto allows.
WINDOW: Final = 20
#: From here on the codes of MQTT 5 are failures.
FAILURE: Final = 0x80
#: Codes of failures that pass by themselves: unspecified, server unavailable, busy, shutting down, keepalive timeout, maximum
#: connect time, administrative action, quota exceeded, connection rate exceeded.
_PASSING: Final = frozenset((0x80, 0x88, 0x89, 0x8B, 0x8D, 0x97, 0x98, 0x9F, 0xA0))
_TAKEN_OVER: Final = 0x8E
#: What helps against failures that stay.
_ADVICE: Final = {
    0x84: 'give version="3.1.1" for a broker that does not know MQTT 5',
    0x85: "give another client_id",
    0x86: "check the user in url, and password",
    0x87: "check the user in url, and password, and the rights of this user",
    0x8A: "the broker has banned this client",
    _TAKEN_OVER: "another client has connected with the same client_id: give each topology its own",
}

#: Called in the connection's thread with each message of paho.
OnMessage = Callable[[Any], None]


class MqttAway(QueueAway):
    """A broker does not answer, or the connection is lost. Another attempt may succeed."""


class MqttRefused(SquallError):
    """A broker refuses what a connector asks for, and will until something is changed."""


def loaded(component: str, module: str = "paho.mqtt.client") -> Any:
    """Return a module of paho. component: the class that needs it, for the error."""
    return load_library(component, module, library="paho-mqtt", extra="mqtt")


class MqttConnection:
    """A connection. `open` makes it, and only then the other methods may be called, in one thread.

    component: the class that needs it, for errors. client_id: names the session at the broker. session_seconds: how long the
    broker keeps the session after the connection ends; 0: it begins and ends with the connection. receive_maximum: the most
    unacknowledged messages that the broker sends.
    """

    def __init__(
        self, component: str, broker: Broker, client_id: str, session_seconds: int, receive_maximum: int
    ) -> None:
        self._component = component
        self._broker = broker
        self._client_id = client_id
        self._session_seconds = session_seconds
        self._receive_maximum = receive_maximum
        self._client: Any = None
        #: Guards all that follows; paho's thread notifies it.
        self._news = threading.Condition()
        self._accepted = False
        self._lost: SquallError | None = None
        self._subscribed: dict[int, list[int]] = {}
        self._messages: deque[Any] = deque()
        self._unconfirmed = 0
        self._published: dict[int, tuple[int, str]] = {}
        self._has_acknowledged = False
        #: How many messages with QoS 0 were dropped, since nothing read them.
        self.dropped = 0
        #: The largest packet that the broker takes, in bytes; None: it names no limit.
        self.most_bytes: int | None = None
        #: The most messages that may be sent before the broker has answered.
        self.window = WINDOW
        #: Whether the broker had kept the session.
        self.session_was_there = False

    # What the task asks for.

    def open(self) -> None:
        """Connect. Raises MqttAway and MqttRefused."""
        self._client = self._made_client()
        five = self._broker.version == "5"
        more: dict[str, Any] = {}
        if five:
            more = {"clean_start": not self._session_seconds, "properties": self._connect_properties()}
        try:
            self._client.connect(self._broker.host, self._broker.port, self._broker.keepalive, **more)
        except OSError as error:
            self._client = None
            raise self._unreached(error) from None
        self._client.loop_start()
        try:
            if not self._wait(lambda: self._accepted, ANSWER_SECONDS):
                raise MqttAway(f"no answer to CONNECT within {ANSWER_SECONDS:g} s")
        except BaseException:
            self.close()
            raise

    def subscribe(self, filters: Sequence[str], qos: int) -> None:
        """Subscribe to topics. Raises MqttRefused for those that the broker refuses, and MqttAway."""
        _, mid = self._client.subscribe([(each, qos) for each in filters])
        if mid is None or not self._wait(lambda: mid in self._subscribed, ANSWER_SECONDS):
            raise MqttAway(f"no answer to SUBSCRIBE within {ANSWER_SECONDS:g} s")
        codes = self._subscribed.pop(mid)
        if refused := [name for name, code in zip(filters, codes) if code >= FAILURE]:
            shown = ", ".join(f"0x{code:02x}" for code in codes if code >= FAILURE)
            raise MqttRefused(
                f"{self._broker} refuses to subscribe to {listed(refused)} ({shown}): correct `topics`, or give the user the"
                " right to read them"
            )

    def receive(self, most: int, seconds: float) -> list[Any]:
        """Return messages, at most `most`; none if none comes in time. Raises MqttAway once the connection is lost: messages
        that were not returned yet are void, since the broker sends them again."""
        self._wait(lambda: bool(self._messages), seconds)
        with self._news:
            found = [self._messages.popleft() for _ in range(min(most, len(self._messages)))]
            self._unconfirmed -= sum(message.qos == 0 for message in found)
        return found

    def acknowledge(self, mid: int) -> None:
        """Send PUBACK for a message with QoS 1. Of a lost connection it does nothing."""
        if self._lost is None:
            self._has_acknowledged = True
            self._client.ack(mid, 1)

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> int | None:
        """Send a message; return its number, by which `confirmed` knows it. None: it is too large for the protocol, or its
        topic is none. Raises MqttAway."""
        self._check()
        try:
            info = self._client.publish(topic, payload, qos, retain)
        except ValueError:
            return None
        if info.rc != 0:
            raise MqttAway(f"the message cannot be sent: {loaded(self._component).error_string(info.rc)}")
        mid: int = info.mid
        return mid

    def confirmed(self, numbers: set[int], all_of_them: bool, seconds: float) -> dict[int, tuple[int, str]]:
        """Return which messages the broker has answered, with the code and its text; waits until there is one, or all of them,
        at most `seconds`. Raises MqttAway once the connection is lost and nothing is left to return."""

        def there() -> bool:
            answered = self._published.keys()
            return numbers <= answered if all_of_them else not numbers.isdisjoint(answered)

        with suppress(SquallError):
            self._wait(there, seconds)
        with self._news:
            found = {number: self._published.pop(number) for number in numbers & self._published.keys()}
        if not found:
            self._check()
        return found

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended by itself."""
        return self._lost is not None

    def close(self) -> None:
        """End the connection: in good order if the broker answers; else at once."""
        client = self._client
        if client is None:
            return
        with suppress(SquallError):
            if self._accepted and self._lost is None:
                self._flush()
                client.disconnect()
                self._wait(lambda: False, _GOODBYE_SECONDS)
        if (sock := client.socket()) is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # else paho's thread ends only when its messages are answered
        client.loop_stop()
        self._client = None

    def _flush(self) -> None:
        """Wait until the broker has read all acknowledgements: if the next connection with the same client id came before, it
        would send those messages again. A question about nothing has an answer, and brokers answer in order."""
        if self._has_acknowledged:
            _, mid = self._client.unsubscribe(_NO_TOPIC)
            self._wait(lambda: mid in self._subscribed, _GOODBYE_SECONDS)

    # What the parts of it do.

    def _made_client(self) -> Any:
        paho, broker = loaded(self._component), self._broker
        five = broker.version == "5"
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            self._client_id,
            clean_session=None if five else not self._session_seconds,
            protocol=paho.MQTTv5 if five else paho.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = CONNECT_SECONDS
        client.max_inflight_messages_set(0)  # the sink counts them: paho takes no number once it is connected
        if broker.user is not None:
            password = None if broker.password is None else resolve("password", broker.password)
            client.username_pw_set(broker.user, password)
        if broker.is_encrypted:
            client.tls_set_context(tls_context(broker.tls))
        client.enable_logger(_QUIET)
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_subscribe, client.on_message = self._on_subscribe, self._on_message
        client.on_unsubscribe, client.on_publish = self._on_subscribe, self._on_publish
        return client

    def _connect_properties(self) -> Any:
        properties = loaded(self._component, "paho.mqtt.properties").Properties
        made = properties(loaded(self._component, "paho.mqtt.packettypes").PacketTypes.CONNECT)
        made.SessionExpiryInterval = self._session_seconds
        made.ReceiveMaximum = self._receive_maximum
        return made

    def _unreached(self, error: OSError) -> SquallError:
        import ssl

        if isinstance(error, ssl.SSLError):
            return MqttRefused(f"{self._broker} and this host agree on no TLS: {error}; check url and tls")
        return MqttAway(str(error) or type(error).__name__)

    def _wait(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is so; return whether it is. Raises what has ended the connection."""
        end = time.monotonic() + seconds
        with self._news:
            while True:
                self._check()
                if ready():
                    return True
                if (left := end - time.monotonic()) <= 0:
                    return False
                if not self._news.wait(min(left, _LOOK_SECONDS)) and self._client.socket() is None:
                    self._end(FAILURE, "without a reason")  # paho does not report every end

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    # What paho's thread reports.

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        with self._news:
            if reason.value >= FAILURE:
                self._end(reason.value, str(reason))
            else:
                self._accepted = True
                self.session_was_there = bool(flags.session_present)
                self.most_bytes = getattr(properties, "MaximumPacketSize", None)
                self.window = getattr(properties, "ReceiveMaximum", WINDOW)
            self._news.notify_all()

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        with self._news:
            self._end(reason.value if flags.is_disconnect_packet_from_server else FAILURE, str(reason))
            self._news.notify_all()

    def _end(self, code: int, reason: str) -> None:
        if self._lost is not None:
            return
        if code in _PASSING or code < FAILURE:
            self._lost = MqttAway(f"the connection is lost: {reason}")
        else:
            advice = _ADVICE.get(code, "see the log of the broker")
            self._lost = MqttRefused(f"{self._broker} refuses the connection: {reason}; {advice}")
        self._messages.clear()

    def _on_subscribe(self, client: Any, data: Any, mid: int, reasons: Any, properties: Any) -> None:
        with self._news:
            self._subscribed[mid] = [each.value for each in reasons]
            self._news.notify_all()

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        with self._news:
            if message.qos == 0:
                if self._unconfirmed >= MOST_UNCONFIRMED:
                    self.dropped += 1
                    return
                self._unconfirmed += 1
            self._messages.append(message)
            self._news.notify_all()

    def _on_publish(self, client: Any, data: Any, mid: int, reason: Any, properties: Any) -> None:
        with self._news:
            text = getattr(properties, "ReasonString", None) or str(reason)
            self._published[mid] = (reason.value, text)
            self._news.notify_all()


#: paho's own log says what the connector says again, in worse words.
_QUIET: Final = logging.getLogger("squall.mqtt.paho")
_QUIET.propagate = False
_QUIET.addHandler(logging.NullHandler())
