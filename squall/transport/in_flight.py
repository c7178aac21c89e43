"""The batches that were sent to one process of a peer and are not confirmed yet, with the data needed to fail their trees.

A batch that takes credit is confirmed by its grant; a batch that takes none is confirmed by its arrival.
Must not know: messages, clocks, who the peer is.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Final

from squall.transport.frames import NO_MORE, Batch, More
from topology_api.tuples import Source

# The reasons why tuples are lost, in the words of `Failure.error`.
GONE: Final = "its worker is gone"
MISSING: Final = "the connection to its worker lost it"
RENUMBERED: Final = "its task was created again"


@dataclass(slots=True)
class SentBatch:
    """The data that is kept of a batch until the batch is confirmed: enough to fail its trees and to fill its place."""

    number: int
    source: Source
    target: int
    frame: int
    cycle: int
    size: int
    ended: bool
    roots: list[int]
    more: More
    #: The batch's size on the wire.
    size_bytes: int = 0
    lost: bool = False

    @classmethod
    def of(cls, batch: Batch, number: int = 0, size_bytes: int = 0) -> SentBatch:
        """Return the data to keep of a batch. `number`: the number of its message, 0 if it was never sent."""
        return cls(
            number,
            batch.source,
            batch.target,
            batch.frame,
            batch.cycle,
            len(batch.rows),
            batch.ended,
            batch.roots,
            batch.more,
            size_bytes,
        )

    def trees(self) -> set[int]:
        """Return the root ids of the batch's trees."""
        roots = set(self.roots)
        for pairs in self.more.values():
            roots.update(root for root, _ in pairs)
        roots.discard(0)
        return roots

    def void(self) -> Batch:
        """Return an empty batch that takes this batch's place, so that its credit comes back."""
        batch = Batch(self.source, self.target, [], [], [], NO_MORE)
        batch.frame, batch.cycle, batch.ended = self.frame, self.cycle, self.ended
        return batch


@dataclass(slots=True, eq=False, repr=False)
class InFlight:
    """Batches by number; in addition, batches with credit by target task, and batches without credit in the order of
    sending."""

    #: The number of the last batch that was sent.
    sent: int = 0
    #: The number of the last batch that the peer has reported as received.
    received: int = 0
    by_number: dict[int, SentBatch] = field(default_factory=dict)
    by_target: dict[int, deque[SentBatch]] = field(default_factory=lambda: defaultdict(deque))
    uncredited: deque[SentBatch] = field(default_factory=deque)
    #: How many tuples without credit may not have reached the peer, including those in batches that wait until the link is
    #: open.
    uncredited_tuples: int = 0

    def __len__(self) -> int:
        return len(self.by_number)

    def add(self, batch: Batch, size_bytes: int) -> None:
        """Number a batch that is being sent, and remember it."""
        self.sent += 1
        sent = self.by_number[self.sent] = SentBatch.of(batch, self.sent, size_bytes)
        waiting = self.by_target[sent.target] if sent.frame else self.uncredited
        waiting.append(sent)

    def confirm(self, target: int, executed: int) -> None:
        """Forget the frames to a task up to number `executed`: the peer has executed them."""
        frames = self.by_target.get(target)
        while frames and (frames[0].lost or frames[0].frame <= executed):
            self.by_number.pop(frames.popleft().number, None)

    def arrived(self, number: int) -> None:
        """Forget the batches without credit up to a message's number: the peer has received them."""
        while self.uncredited and self.uncredited[0].number <= number:
            sent = self.uncredited.popleft()
            self.uncredited_tuples -= sent.size
            self.by_number.pop(sent.number, None)

    def lose(self, number: int) -> SentBatch | None:
        """Remove and return a batch that the peer did not receive; None if the batch is not in flight."""
        if (sent := self.by_number.pop(number, None)) is not None:
            sent.lost = True
        return sent

    def lose_target(self, target: int) -> list[SentBatch]:
        """Remove and return all batches to a task."""
        lost = [sent for sent in self.by_number.values() if sent.target == target]
        self.by_target.pop(target, None)
        for sent in lost:
            self.lose(sent.number)
        return lost

    def after(self, number: int) -> list[SentBatch]:
        """Return the batches with a higher number, oldest first."""
        return [sent for sent in self.by_number.values() if sent.number > number]
