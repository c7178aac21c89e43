"""What a server of RabbitMQ has said of messages that were published: it confirms by number, and returns by content.

A message that no queue gets is returned before it is confirmed. The returned one is the oldest that looks the same: messages
that look the same are treated the same.
Must not know: channels, connections.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from squall_io.kit.publishing import Confirmations

#: The most messages that are sent and not confirmed.
WINDOW: Final = 512


class RabbitMessage(NamedTuple):
    """A message to publish. headers: {} if it has none. properties: what the library sends, headers among it."""

    routing_key: str
    body: bytes
    headers: dict[str, Any]
    message_id: str | None
    properties: Any

    @property
    def content(self) -> tuple[object, ...]:
        """What a returned message is found by."""
        return self.routing_key, self.body, self.headers, self.message_id


class Sending:
    """Some messages on one channel. first: the number that the first of them gets there.

    positions: those of the messages in the call of `publish`, for `confirmations`.
    """

    def __init__(
        self,
        exchange: str,
        messages: Sequence[RabbitMessage],
        positions: Sequence[int],
        confirmations: Confirmations,
        first: int,
    ) -> None:
        self._exchange = exchange
        self._messages, self._confirmations = messages, confirmations
        self._to_send = iter(positions)
        self._left = len(positions)
        #: By its number, the position of each message that is sent and not confirmed.
        self._sent: dict[int, int] = {}
        self._returned: dict[int, str] = {}
        self.next_number = first
        #: How many messages the server would not take now.
        self.put_off = 0
        #: Counts what the server has said.
        self.words = 0

    def due(self) -> Iterator[RabbitMessage]:
        """Yield the messages to send now, and note that they are sent."""
        while len(self._sent) < WINDOW and (at := next(self._to_send, None)) is not None:
            self._sent[self.next_number] = at
            self.next_number += 1
            yield self._messages[at]

    def confirmed(self, number: int, multiple: bool) -> None:
        """The server has messages, except those that it has returned."""
        for at in self._answered(number, multiple):
            if (reason := self._returned.pop(at, None)) is None:
                self._confirmations.sent(at)
            else:
                self._confirmations.refused(at, reason)

    def refused_for_now(self, number: int, multiple: bool) -> None:
        """The server could not take messages: a queue is full, or has failed."""
        self.put_off += len(list(self._answered(number, multiple)))

    def returned(self, content: tuple[object, ...], text: str) -> None:
        """No queue gets a message."""
        self.words += 1
        for at in self._sent.values():
            if at not in self._returned and self._messages[at].content == content:
                exchange = f"exchange {self._exchange!r}" if self._exchange else "the default exchange"
                self._returned[at] = (
                    f"no queue gets a message of {exchange} with routing key {content[0]!r} ({text}): bind or declare one"
                )
                return

    @property
    def is_done(self) -> bool:
        """Whether the server has said something of each message."""
        return self._left == 0

    def _answered(self, number: int, multiple: bool) -> Iterator[int]:
        self.words += 1
        numbers = [each for each in self._sent if each <= number] if multiple else [number]
        for each in numbers:
            if (at := self._sent.pop(each, None)) is not None:
                self._left -= 1
                yield at
