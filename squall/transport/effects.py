"""The effects of a link, as values: messages to send, changes to report to the worker, events to count or log.

`squall.transport.link` returns them, and `squall.transport.exchange` carries them out in the order in which they were returned.
Messages come before reports to the worker, because the worker may respond to a report by sending something at once.
Must not know: how effects are carried out.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from squall.transport.carrier import Parts
from squall.transport.frames import Frame
from squall.transport.in_flight import SentBatch
from squall.values import Address


class Effect(Struct, frozen=True):
    """One effect that a link asks for."""


# For the carrier.


class SendMessage(Effect, frozen=True):
    """Queue a message on a channel."""

    channel: int
    parts: Parts


class ResendControl(Effect, frozen=True):
    """Queue these messages on the control channel, in place of the messages that wait there."""

    messages: Sequence[Parts]


class ResendData(Effect, frozen=True):
    """Queue these messages on the data channel, in place of the messages that wait there."""

    messages: Sequence[Parts]


class Connect(Effect, frozen=True):
    """Make new connections to the peer."""

    address: Address


class Disconnect(Effect, frozen=True):
    """Drop the connections to the peer, and the messages that wait for it."""


# For the worker.


class Deliver(Effect, frozen=True):
    """A frame for the worker: one that arrived from the peer, or one that the link made itself."""

    frame: Frame


class LoseBatches(Effect, frozen=True):
    """These batches were never executed: their trees fail for the given reason."""

    batches: Sequence[SentBatch]
    reason: str


class FramesGone(Effect, frozen=True):
    """Frames of this rewind number, or of older ones, are lost: their receiver has ended, or they cannot be read."""

    rewind: int


class PeerSuperseded(Effect, frozen=True):
    """The process of the peer has ended."""


class PeerLinked(Effect, frozen=True):
    """The peer's process accepts tuples from now on."""


class PeerClosing(Effect, frozen=True):
    """The peer accepts no more tuples."""


# For logs and counters.


class LinkUp(Effect, frozen=True):
    """The peer answers."""


class Reconnecting(Effect, frozen=True):
    """Connections are made again: the peer is silent, or receives nothing from this worker. `was_open`:
    whether the link has been open, so that tuples may have been sent to the peer.
    """

    silent_seconds: float
    was_open: bool


class RefuseMessage(Effect, frozen=True):
    """A message was refused."""

    kind: str
    sender: str
    reason: str


class CountEvent(Effect, frozen=True):
    """Something happened that is only counted."""

    name: str
