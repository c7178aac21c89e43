"""The links of a worker in a topology with epochs: each batch belongs to a rewind, and passes the alignment of its task.

A window belongs to a pair of tasks: frames of one task that are held behind its barrier take no credit from its neighbours.
Nothing leaves while the tasks return to a commit.
Must not know: user code, coordinators, sockets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from squall.transport.credit import ReceiveWindow, SendWindow
from squall.transport.frames import Batch, EpochBarrier, EpochFrame
from worker.loop.cycle_input import closes_cycle
from worker.loop.epochs import Epochs
from worker.loop.links import Flush, Links
from worker.routing.outbox import Outbox
from worker.tasks.bolt import BoltTask
from worker.tasks.task import Task

#: A grant names its pair of tasks by one number.
PAIR_SHIFT: Final = 16


class EpochLinks(Links):
    """All links that begin or end in one worker."""

    epochs: Epochs

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pairs: dict[tuple[int, int], SendWindow] = {}
        self.arriving: dict[tuple[int, int], ReceiveWindow] = {}

    # Out.

    def flush(self, task: Task, what: Flush) -> bool:
        # What is in outboxes before the tasks run is void, or is what the last commit holds.
        return self.epochs.running and super().flush(task, what)

    def window_for(self, parcel: Outbox | Batch) -> SendWindow:
        pair = (parcel.source.task, parcel.target)
        window = self.pairs.get(pair)
        if window is None:
            window = self.pairs[pair] = SendWindow(self.window_of(parcel.target))
        return window

    def forward(self, batch: Batch) -> None:
        worker = self.worker_of[batch.target]
        if worker == self.worker:
            self.arrive(batch)
        else:
            epochs = self.epochs
            self.send(worker, EpochFrame(epochs.rewind, batch, epochs.passed.get(batch.source.task, 0)))

    def send_barrier(self, barrier: EpochBarrier, targets: Iterable[int]) -> None:
        """Send a barrier to the other workers of its source's readers."""
        workers = {self.worker_of[target] for target in targets}
        for worker in sorted(workers - {self.worker}):
            self.send(worker, EpochFrame(self.epochs.rewind, barrier))

    # In.

    def arrive(self, batch: Batch) -> None:
        if batch.frame:
            pair = (batch.source.task, batch.target)
            window = self.arriving.get(pair)
            if window is None:
                window = self.arriving[pair] = ReceiveWindow(self.window_of(batch.target))
            batch.window = window
        self.epochs.arrive(batch)

    def enter_inbox(self, task: BoltTask, batch: Batch) -> None:
        """Put a batch into an inbox."""
        task.inbox.append(batch)
        self.woken.append(task)

    def done(self, batch: Batch) -> None:
        if batch.cycle >= 0:
            self.cycles.executed(batch.cycle, batch.sender, len(batch.rows) + batch.skipped)
            if closes_cycle(batch):
                self.epochs.executed(batch)
        window = batch.window
        if window is None or window.over:
            return
        upto = window.confirm(batch.frame)
        pair = batch.source.task << PAIR_SHIFT | batch.target
        if batch.sender == self.worker:
            self.granted(pair, upto)
        else:
            self.grants.setdefault(batch.sender, {})[pair] = upto

    def granted(self, target: int, upto: int) -> None:
        """Add credit that a task granted another one. `target` names both."""
        source, reader = target >> PAIR_SHIFT, target & (1 << PAIR_SHIFT) - 1
        window = self.pairs.get((source, reader))
        if window is not None and window.grant(upto) and reader in self.waiting:
            self.retry.update(self.waiting.pop(reader))

    # Rewinds and peers.

    def forget_pairs(self) -> None:
        """All tasks are new objects: nothing is in flight."""
        for window in self.arriving.values():
            window.over = True
        self.pairs.clear()
        self.arriving.clear()
        self.grants.clear()
        self.waiting.clear()
        self.retry.clear()
        self.cycles.restart()

    def assign(self, worker_of: Mapping[int, str], moved: Iterable[int], linked: bool) -> None:
        self.worker_of = dict(worker_of)

    def waits_for(self, worker: str) -> bool:
        return False  # a worker that waits for another one to restore its tasks sends it nothing
