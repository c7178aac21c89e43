"""What a spout of a queue needs of the client of its server: a few calls, each of which ends soon.

The spout (`queue_spout`) decides when to call, waits while the server is away, and counts what is in flight; a client only
speaks the protocol. Must not know: tuples, acks, tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from squall_io.kit.waiting import SystemAway


class QueueAway(SystemAway):
    """The server of a queue does not answer, or has closed the connection. Clients raise it for what waiting helps."""


class Received(NamedTuple):
    """A message. id: what acknowledges it at the server, such as a delivery tag. message: anything that `values` takes."""

    id: Hashable
    message: Any


class QueueClient(ABC):
    """The connection of one task. Calls come one after the other, but from two threads.

    Each call must end within some ten seconds, also while the server is frozen: give the library a timeout. Any call but
    `close`, `values` and `raw` may raise `QueueAway`, or another SquallError for what a user has to change (a wrong password, a
    queue that does not exist). After either the spout calls `close`, and `connect` after a pause.

    what: the server and the queue, for the log and the status: "queue orders of RabbitMQ at mq:5672".
    keeps_ids: whether ids are valid after `close` and `connect`, as receipt handles of SQS are. Otherwise the server delivers
        the messages of a lost connection again, and what is acked of them later is left out.
    keep_alive_interval: seconds between two calls of `keep_alive`; None: it is never called.
    """

    what: str
    keeps_ids: bool = False
    keep_alive_interval: float | None = None

    @abstractmethod
    def connect(self) -> None:
        """Connect and subscribe. Called before all other calls, and again after `close`."""

    @abstractmethod
    def receive(self, most: int, seconds: float) -> list[Received]:
        """Return the next messages, at most `most`, in their order.

        If there is none, wait for the first one at most `seconds`, and return an empty list. Ids are unique within a
        connection.
        """

    @abstractmethod
    def acknowledge(self, ids: Sequence[Any]) -> None:
        """Have the server forget these messages: they are processed."""

    @abstractmethod
    def reject(self, ids: Sequence[Any], reason: str) -> None:
        """Give up these messages: they failed for good, or cannot be read. The server keeps them as dead letters, delivers them
        again, or forgets them, as it and the connector are set up."""

    @abstractmethod
    def values(self, message: Any) -> Sequence[object]:
        """Return the values of the tuple of a message. Raises UnreadableMessage for one that cannot be decoded. `CodecAway`
        and other SquallErrors are about the codec: the message is decoded again later."""

    @abstractmethod
    def raw(self, message: Any) -> Sequence[object]:
        """Return the values of the stream `unreadable` without the last one, the error: what the message is before decoding."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection. What is neither acknowledged nor rejected is delivered again. Must not raise, nor block for
        long; may be called without a connection."""

    def keep_alive(self, ids: Sequence[Any]) -> None:
        """Do what the server expects now and then: answer heartbeats, and prolong the time after which the messages with these
        ids, all that are in flight, would be delivered again. Called each `keep_alive_interval` seconds, also while no message
        is received: the task is at its limit, or the topology is deactivated."""
        return

    def pause(self) -> None:
        """Receive nothing more until the next `receive`: the topology was deactivated. A client that is sent messages ahead
        gives back those that `receive` has not returned."""
        return

    def waiting(self) -> int | None:
        """Return how many messages wait at the server; None: it does not say now. A client that defines it gets a gauge
        `messages waiting`, for which it is called every few seconds."""
        return None
