"""What a link asks for, as values: messages to send, news for the worker, what to count and to log.

`squall.transport.link` returns them, `squall.transport.exchange` carries them out, in their order. Messages come before news
for the worker, which may send at once when it hears them.
Must not know: how any of it is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from squall.transport.carrier import Parts
from squall.transport.frames import Frame
from squall.transport.in_flight import SentBatch
from squall.values import Address

# For the carrier.


class SendMessage(NamedTuple):
    """Queue a message on a channel."""

    channel: int
    parts: Parts


class ResendControl(NamedTuple):
    """Queue these messages on the control channel, instead of those that wait there."""

    messages: Sequence[Parts]


class Connect(NamedTuple):
    """Make new connections to the peer."""

    address: Address


class Disconnect(NamedTuple):
    """Drop the connections to the peer, and what waits for it."""


# For the worker.


class Deliver(NamedTuple):
    """A frame has come, or a note for this worker itself."""

    frame: Frame


class LoseBatches(NamedTuple):
    """These batches were never executed: their trees fail, for this reason."""

    batches: Sequence[SentBatch]
    reason: str


class PeerSuperseded(NamedTuple):
    """The process of the peer is over."""


class PeerLinked(NamedTuple):
    """The peer's process takes tuples from now on."""


class PeerClosing(NamedTuple):
    """The peer takes no more tuples."""


# For logs and counters.


class LinkUp(NamedTuple):
    """The peer answers."""


class Reconnecting(NamedTuple):
    """Connections are made again: the peer is silent, or does not hear this worker. `was_open`: tuples went there before."""

    silent_seconds: float
    was_open: bool


class RefuseMessage(NamedTuple):
    """A message was refused."""

    kind: str
    sender: str
    reason: str


class CountEvent(NamedTuple):
    """Something happened that is only counted."""

    name: str


Effect = (
    SendMessage
    | ResendControl
    | Connect
    | Disconnect
    | Deliver
    | LoseBatches
    | PeerSuperseded
    | PeerLinked
    | PeerClosing
    | LinkUp
    | Reconnecting
    | RefuseMessage
    | CountEvent
)
