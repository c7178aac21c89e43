"""How one task of a RabbitSink publishes: messages in their order, some hundreds before the first is confirmed.

Must not know: tuples' streams, how a connection is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from squall_io.kit.codecs import encoder
from squall_io.kit.payloads import named_by, payload_maker, text_of, value_of
from squall_io.kit.publishing import Confirmations, Publisher
from squall_io.rabbitmq.address import short_problem, shown_server
from squall_io.rabbitmq.confirming import RabbitMessage, Sending
from squall_io.rabbitmq.connection import RabbitConnection, loaded
from squall_io.rabbitmq.faults import RabbitAway, explained, largest_of
from topology_api import FailTuple
from topology_api.wording import typed

if TYPE_CHECKING:
    from squall_io.rabbitmq.sink import RabbitSink
    from topology_api import Context, Tuple

#: Seconds without a word about what was sent, after which the connection is given up.
SILENCE_SECONDS: Final = 10.0
#: Seconds between two looks at whether the worker has ended.
_LOOK_SECONDS: Final = 0.5
#: The most bytes of headers: they go in one frame, which servers limit to 128 KiB.
_MOST_HEAD: Final = 100_000
#: What says how a body is encoded.
_CONTENT_TYPES: Final = {"json": "application/json", "str": "text/plain", "bytes": "application/octet-stream"}
#: How the protocol names the two ways of keeping a message.
_TRANSIENT, _PERSISTENT = 1, 2


class RabbitPublisher(Publisher):
    """The connection of one task."""

    def __init__(self, sink: RabbitSink, context: Context) -> None:
        self._sink, self._context = sink, context
        self._component = type(sink).__name__
        self._library = loaded(self._component)
        self.what = shown_server(sink.server)
        self._name = f"{context.topology}-{context.component}-{context.index}"
        subject = f"{sink.exchange}-value"
        self._payload = payload_maker(sink.fields, encoder(sink.encode, subject))
        self._content_type = _CONTENT_TYPES.get(sink.encode) if isinstance(sink.encode, str) else None
        self._connection: RabbitConnection | None = None
        self._channel: Any = None
        #: Why the server has closed the channel: code and text.
        self._closed: tuple[int, str] | None = None
        #: The number of the next message on the channel.
        self._number = 1
        self._sending: Sending | None = None
        #: The largest body that the server takes, once it has said so.
        self._most: int | None = None

    def message(self, tup: Tuple) -> RabbitMessage:
        """Return the message of a tuple. Raises FailTuple."""
        sink = self._sink
        key = sink.routing_key
        if not isinstance(key, str):
            key = named_by(key, "routing key", tup)
            if (problem := short_problem("routing key", key, empty=bool(sink.exchange))) is not None:
                raise FailTuple(f"what the function returned: {problem}")
        headers = {} if sink.headers is None else _headers_of(tup, sink.headers)
        message_id = None if sink.message_id is None else text_of(tup, sink.message_id)
        if (
            message_id is not None
            and (problem := short_problem("message id", message_id, empty=True)) is not None
        ):
            raise FailTuple(problem)
        properties = self._library.BasicProperties(
            content_type=self._content_type,
            headers=headers or None,
            message_id=message_id,
            delivery_mode=_PERSISTENT if sink.persistent else _TRANSIENT,
        )
        if headers:
            _check_head(properties)
        return RabbitMessage(key, self._payload(tup) or b"", headers, message_id, properties)

    def connect(self) -> None:
        """Connect."""
        sink = self._sink
        self._most = None
        self._connection = connection = RabbitConnection(self._component, sink.server, self._name)
        connection.open()
        self._open_channel()
        if sink.exchange:
            connection.ask(
                lambda done: self._channel.exchange_declare(sink.exchange, passive=True, callback=done)
            )

    def publish(self, messages: Sequence[RabbitMessage], confirmations: Confirmations) -> None:
        """Publish messages, and await what the server says of each."""
        connection = self._connected
        try:
            while left := self._fitting(messages, confirmations):
                connection.check()
                if self._closed is not None:
                    self._open_channel()
                self._sending = sending = Sending(
                    self._sink.exchange, messages, left, confirmations, self._number
                )
                connection.do(self._pump)
                self._await(connection, sending)
                self._number = sending.next_number
                if sending.put_off:
                    raise RabbitAway(
                        f"it could not take {sending.put_off} message(s): a queue is full (x-overflow), or has failed"
                    )
                if self._closed is not None:
                    self._most = largest_of(*self._closed)
                    if self._most is None:
                        raise explained(connection.where, *self._closed)
        finally:
            self._sending = None
            self.delayed = ""

    def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def keep_alive(self) -> None:
        """See whether the connection is there; its own thread answers heartbeats."""
        self._connected.check()

    def _fitting(self, messages: Sequence[RabbitMessage], confirmations: Confirmations) -> list[int]:
        """Return what is left to send; refuse what is too large for the server."""
        if (most := self._most) is not None:
            for at in confirmations.left:
                if (size := len(messages[at].body)) > most:
                    confirmations.refused(
                        at, f"the message has {size} bytes, and the server takes {most} (`max_message_size`)"
                    )
        return confirmations.left

    def _await(self, connection: RabbitConnection, sending: Sending) -> None:
        """Wait until the server has said something of each message, or has closed the channel."""
        words, silent = sending.words, 0.0
        with connection.changed:
            while not sending.is_done and self._closed is None:
                connection.check()
                if self._context.stopped:
                    raise RabbitAway("the worker ends")
                self.delayed = connection.blocked
                heard = connection.changed.wait(_LOOK_SECONDS)
                if sending.words > words or connection.blocked:
                    words, silent = sending.words, 0.0
                elif not heard:
                    silent += _LOOK_SECONDS
                    if silent >= SILENCE_SECONDS:
                        raise RabbitAway(f"no answer within {SILENCE_SECONDS:g} s")

    def _open_channel(self) -> None:
        connection = self._connected
        self._closed, self._number = None, 1
        self._channel = channel = connection.channel(self._on_closed)
        channel.add_on_return_callback(self._on_return)
        connection.ask(lambda done: channel.confirm_delivery(self._on_confirmation, callback=done))

    # In the thread of the connection.

    def _pump(self) -> None:
        sending, sink = self._sending, self._sink
        if sending is None or not self._channel.is_open:
            return
        for message in sending.due():
            self._channel.basic_publish(
                sink.exchange, message.routing_key, message.body, message.properties, mandatory=True
            )

    def _on_confirmation(self, frame: Any) -> None:
        sending, connection = self._sending, self._connection
        if sending is None or connection is None:
            return
        with connection.changed:
            method = frame.method
            said = sending.confirmed if method.NAME == "Basic.Ack" else sending.refused_for_now
            said(method.delivery_tag, method.multiple)
            connection.changed.notify_all()
        self._pump()

    def _on_return(self, channel: Any, frame: Any, properties: Any, body: bytes) -> None:
        if self._sending is not None:
            content = (frame.routing_key, body, properties.headers or {}, properties.message_id)
            self._sending.returned(content, frame.reply_text)

    def _on_closed(self, code: int, text: str) -> None:
        if (connection := self._connection) is not None:
            with connection.changed:
                self._closed = code, text
                connection.changed.notify_all()

    @property
    def _connected(self) -> RabbitConnection:
        assert self._connection is not None, "connect was called"
        return self._connection


def _headers_of(tup: Tuple, field: str) -> dict[str, Any]:
    """Return the headers that a field has. Raises FailTuple."""
    value = value_of(tup, field)
    if value is None:
        return {}
    if isinstance(value, dict) and all(
        isinstance(name, str) and isinstance(each, (str, int)) for name, each in value.items()
    ):
        return dict(value)
    raise FailTuple(f"field {field!r} is {typed(value)}: give a dict of texts, whole numbers and booleans")


def _check_head(properties: Any) -> None:
    """Raise FailTuple for headers that the protocol cannot send."""
    try:
        size = sum(map(len, properties.encode()))
    except Exception as error:  # a name that is too long, a number with too many digits
        raise FailTuple(f"the headers cannot be sent: {type(error).__name__}: {error}") from None
    if size > _MOST_HEAD:
        raise FailTuple(f"the headers have {size} bytes: at most {_MOST_HEAD} can be sent")
