"""The emissions of one spout task: acked once with the commit of their epoch, and emitted again if their spout cannot rewind.

A rewindable spout is asked for its position, and repeats after a rewind what it emitted since. Of another spout, the values are
kept here until their commit; after a rewind they are emitted again, before `next_tuple` is called. A snapshot holds those that
are still to be emitted again, so a new process of the task emits them too; what only the old process had is gone with it.
Message ids are kept for the life of the task alone: it acks nothing that an earlier process emitted. Every emission is counted
until its commit, since others keep what it becomes.
Must not know: spouts, outboxes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

#: An emission: message id or None, and the values with their stream.
Kept = tuple[Any, Any]


class Emissions:
    """What a spout task has emitted since the last commit that it knows of."""

    def __init__(self, rewindable: bool) -> None:
        self.rewindable = rewindable
        #: The emissions of the open epoch; of a rewindable spout the message ids alone, which are no objects of their own.
        self.open: list[Any] = []
        #: Epochs that have ended and are not committed, in their order.
        self.closed: dict[int, list[Any]] = {}
        #: To be emitted again, before anything new.
        self.again: deque[Kept] = deque()
        #: How many emissions the open epoch has: more than entries in `open`, if some have no message id.
        self.count = 0
        #: The same of the epochs in `closed`, and the sum of these.
        self.counts: dict[int, int] = {}
        self.before = 0

    @property
    def uncommitted(self) -> int:
        """How many emissions wait for their commit, with or without a message id."""
        return self.count + self.before

    def add(self, message_id: Any, values: Any) -> None:
        """Note an emission in the open epoch."""
        self.count += 1
        if self.rewindable:
            if message_id is not None:
                self.open.append(message_id)
        else:
            self.open.append((message_id, values))

    def next_again(self) -> Kept | None:
        """Remove and return what is to be emitted again now; it has to be added like every emission."""
        return self.again.popleft() if self.again else None

    def close(self, epoch: int) -> None:
        """The open epoch ends."""
        self.closed[epoch], self.open = self.open, []
        self.before += self.count
        self.counts[epoch], self.count = self.count, 0

    def commit(self, epoch: int) -> list[Any]:
        """Epochs up to this one are committed; return the message ids to ack."""
        ids: list[Any] = []
        for each in [each for each in self.closed if each <= epoch]:
            emitted = self.closed.pop(each)
            self.before -= self.counts.pop(each)
            if self.rewindable:
                ids += emitted
            else:
                ids += [message_id for message_id, _ in emitted if message_id is not None]
        return ids

    def rewind(self) -> None:
        """What is not committed has not been emitted."""
        if not self.rewindable:
            void = [kept for epoch in self.closed.values() for kept in epoch] + self.open
            self.again.extendleft(reversed(void))
        self.closed, self.open = {}, []
        self.count, self.before, self.counts = 0, 0, {}

    def forget_ids(self) -> None:
        """The task is a new object: what earlier ones have emitted, it does not ack."""
        if self.rewindable:
            self.open, self.closed = [], {}
            self.count, self.before, self.counts = 0, 0, {}
            return
        self.open = [(None, values) for _, values in self.open]
        self.closed = {epoch: [(None, values) for _, values in kept] for epoch, kept in self.closed.items()}
        self.again = deque((None, values) for _, values in self.again)

    def content(self) -> list[Kept]:
        """Return what a snapshot keeps."""
        return list(self.again)

    def restore(self, again: Iterable[Kept]) -> None:
        """Begin in a new process. What this process has emitted so far, in `open`, follows."""
        self.again.extendleft(reversed([(message_id, values) for message_id, values in again]))
