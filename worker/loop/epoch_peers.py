"""A worker's reactions to reports about other workers, in a topology with epochs: what another worker loses is a rewind.

Must not know: sockets, user code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from squall.transport.in_flight import SentBatch
from worker.loop.peers import Peers


class PeerHost(Protocol):
    """What the peers of a topology with epochs need of their worker."""

    def peer_gone(self, name: str) -> None:
        """The process of another worker has ended."""

    def peer_there(self, name: str) -> None:
        """A process of another worker takes tuples."""

    def frames_gone(self, rewind: int) -> None:
        """Frames of this rewind number can never arrive."""


@dataclass(eq=False, repr=False)
class EpochPeers(Peers):
    """The other workers, as the transport reports on them."""

    host: PeerHost

    @classmethod
    def of(cls, peers: Peers, host: PeerHost) -> EpochPeers:
        """Return peers that report to a worker with epochs."""
        parts: dict[str, Any] = {each.name: getattr(peers, each.name) for each in fields(Peers)}
        return cls(**parts, host=host)

    def lost(self, frames: Sequence[SentBatch], why: str) -> None:
        """No tree fails: what is lost is emitted again after a rewind."""

    def frames_gone(self, rewind: int) -> None:
        """See `PeerListener`."""
        self.host.frames_gone(rewind)

    def superseded(self, name: str) -> None:
        """The state of the tasks there is gone: all tasks return to the last commit."""
        self.ack_router.forget(name)
        self.host.peer_gone(name)

    def linked(self, name: str) -> None:
        """End marks need not be repeated: the last commit has them, or a rewind comes."""
        self.detours.linked(name)
        self.host.peer_there(name)

    def closing(self, name: str) -> None:
        """Its process will end, and that is a rewind."""
