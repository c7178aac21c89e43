"""This worker, as all its links present it to their peers.

Must not know: links, peers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from squall.transport.streams import Streams
from squall.values import Address, Incarnation


@dataclass(slots=True)
class LocalWorker:
    """This worker, as all its links present it to their peers. The exchange writes it, links read it."""

    name: str
    incarnation: Incarnation
    #: Where it hears: the data and the control endpoint.
    address: Address
    codec: str
    streams: Streams
    #: Frames in flight to a task.
    window_of: Callable[[int], int]
    version: int = -1
    #: Its tasks are prepared: peers may send tuples.
    ready: bool = False
    #: Peers are to send no more tuples.
    leaving: bool = False
    #: Tasks that were created again, by the version that did: batches of an older one are refused.
    fences: dict[int, int] = field(default_factory=dict)
