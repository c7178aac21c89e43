"""One pair of tasks: what one has sent the other, in order and each once, within one rewind.

The sender numbers what it sends and keeps it until the receiver has *received* it; what is lost is sent again. What comes past
a gap waits. Credit counts what was sent and not yet executed, and only rows take it: barriers and end marks never wait behind
back-pressure. A window belongs to a pair of tasks, so that a held frame of one task never starves its neighbour's barrier.
Must not know: sockets, rewind numbers (a rewind begins with new objects), what travels.
"""

from __future__ import annotations

from collections import deque

from worker.epochs.messages import LinkItem, Rows


class SendingSide:
    """The sender's end."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.number = 0
        #: Numbers and items that the receiver has not confirmed.
        self.kept: deque[tuple[int, LinkItem]] = deque()
        #: Rows frames sent, and those that the receiver has executed.
        self.sent = 0
        self.executed = 0

    @property
    def room(self) -> bool:
        """Whether rows may be sent."""
        return self.sent - self.executed < self.window

    def send(self, item: LinkItem) -> tuple[int, LinkItem]:
        """Number an item, and keep it."""
        self.number += 1
        if isinstance(item, Rows):
            self.sent += 1
        self.kept.append((self.number, item))
        return self.number, item

    def received(self, upto: int) -> None:
        """The receiver has everything up to a number."""
        while self.kept and self.kept[0][0] <= upto:
            self.kept.popleft()

    def unreceived(self) -> list[tuple[int, LinkItem]]:
        """Return what has to be sent again."""
        return list(self.kept)


class ReceivingSide:
    """The receiver's end."""

    def __init__(self) -> None:
        self.upto = 0
        self.early: dict[int, LinkItem] = {}
        self.executed = 0

    def arrive(self, number: int, item: LinkItem) -> list[LinkItem]:
        """Return what may be processed now, in order. What came before changes nothing."""
        if number <= self.upto:
            return []
        self.early[number] = item
        ready = []
        while (following := self.early.pop(self.upto + 1, None)) is not None:
            self.upto += 1
            ready.append(following)
        return ready

    @property
    def gap(self) -> bool:
        """Whether something is missing."""
        return bool(self.early)
