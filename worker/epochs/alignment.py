"""The barriers of one task: where in its input an epoch ends.

This is decided when something arrives. What comes behind an input's barrier is held until the barriers of all inputs are there;
then the snapshot marker enters the inbox, and what was held follows. An input that has ended counts as having every barrier: a
task whose inputs have all ended, like a spout, gets the marker when the coordinator begins the end of the epoch.
The closing edges of cycles are not waited for, or the cycle would wait for itself. What comes over them behind the marker and
before their own barrier was sent in the epoch that ends, and is executed in the next one: it is recorded, and is a part of the
snapshot, which is whole only when these barriers are there.
Must not know: links, rewind numbers, what rows are.
"""

from __future__ import annotations

from collections.abc import Iterable

from worker.epochs.messages import Barrier, EndMark, LinkItem, Rows, SnapshotMarker

#: What enters the inbox: an item with its source task, or a marker.
InboxItem = tuple[str, LinkItem] | SnapshotMarker


class Alignment:
    """The barriers of one task. Inputs are source tasks."""

    def __init__(self, inputs: Iterable[str], closing: Iterable[str] = ()) -> None:
        """`closing`: the inputs that close a cycle."""
        self.closing = frozenset(closing)
        self.inputs = frozenset(inputs) - self.closing
        self.restore(())

    def restore(self, ended: Iterable[str]) -> None:
        """Begin with these inputs ended, and with no barrier under way."""
        self.ended = set(ended)
        #: The epoch whose barriers are arriving; 0: none.
        self.epoch = 0
        self.last = False
        #: The last epoch whose marker has entered the inbox.
        self.marked = 0
        #: The last epoch whose marker the task has reached: the caller sets this.
        self.reached = 0
        #: Inputs whose barrier is there.
        self.behind: set[str] = set()
        self.held: list[tuple[str, LinkItem]] = []
        #: Closing inputs whose barrier is not there although the marker has entered the inbox.
        self.open: set[str] = set()
        self.recorded: list[tuple[str, Rows]] = []

    @property
    def whole(self) -> bool:
        """Whether everything that belongs to the last marker's snapshot has arrived."""
        return not self.open

    def begin(self, epoch: int, last: bool) -> list[InboxItem]:
        """The coordinator ends an epoch; return what enters the inbox."""
        if epoch <= self.marked:
            return []
        self.epoch, self.last = epoch, last
        return self.let_in()

    def passes(self, source: str) -> bool:
        """Return whether rows from a source task enter the inbox, and nothing else follows: so it is with almost all."""
        return not self.open and source not in self.behind

    def arrive(self, source: str, item: LinkItem) -> list[InboxItem]:
        """Something came from a source task; return what enters the inbox."""
        if source in self.behind:
            self.held.append((source, item))
            return []
        if isinstance(item, Barrier):
            if item.epoch <= self.marked:  # of a closing edge: older ones come late where its cycle has ended
                if item.epoch == self.marked:
                    self.open.discard(source)
                return []
            self.epoch, self.last = item.epoch, item.last
            self.behind.add(source)
            return self.let_in()
        if isinstance(item, EndMark):
            self.ended.add(source)
            return [(source, item), *self.let_in()]
        if source in self.open:
            self.recorded.append((source, item))
        return [(source, item)]

    def records(self, source: str) -> bool:
        """Return whether what comes from a source now is a part of the snapshot of the epoch that ends."""
        return source in self.open

    def epoch_of_next(self, source: str) -> int | None:
        """Return the epoch in which a source has sent what comes from it now; None: it is the one that is open here. The task
        may not have reached a marker yet whose barriers are there, or the source may be ahead of others."""
        if source in self.open:
            return self.marked
        if source in self.behind:
            return self.epoch + 1
        return self.marked + 1 if self.marked > self.reached else None

    def end_closing(self) -> list[InboxItem]:
        """All cycles around this task have ended; return what enters the inbox."""
        self.ended |= self.closing
        self.open.clear()
        return self.let_in()

    def let_in(self) -> list[InboxItem]:
        """Let the marker in once all barriers are there, and then what was held."""
        if not self.epoch or not self.inputs <= self.behind | self.ended:
            return []
        entered: list[InboxItem] = [SnapshotMarker(self.epoch, self.last)]
        self.open = set(self.closing - self.behind - self.ended)
        self.recorded = []
        self.marked, self.epoch = self.epoch, 0
        self.behind.clear()
        held, self.held = self.held, []
        for source, item in held:
            entered += self.arrive(source, item)
        return entered
