"""The links of a worker: from the outboxes of its tasks to the inboxes of tasks, here or in other workers.

A link leads from this worker to one destination task. Its window (`squall.transport.credit`) limits the number of frames in
flight. Without credit an outbox keeps its tuples; when the outbox is full, the sending task is not run ("blocked") until the
destination has executed something. For a destination in this worker, windows and batches are the same, but nothing is encoded.
Edges that close a cycle take no credit: `topology.cycle.buffer` bounds the untracked tuples on them. Full frames leave at once.
`Flushing` decides when partial frames leave: when the loop has nothing to do, all of them leave; in a busy loop, partial frames
for idle tasks leave from time to time.
Must not know: user code, trackers, sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto

from squall.transport.credit import ReceiveWindow, SendWindow
from squall.transport.frames import Batch, Frame
from squall.transport.id_columns import Ids
from squall.transport.row_columns import as_rows
from topology_api.tuples import Source
from worker.loop.cycles import CycleWatch
from worker.loop.task_table import TaskTable
from worker.routing.outbox import Outbox
from worker.tasks.bolt import BoltTask
from worker.tasks.task import Task

Send = Callable[[str, Frame], None]

#: Seconds after which everything is sent even if the loop has more to do.
LONGEST_WAIT_IN_OUTBOX = 0.05
#: Minimum seconds between two flushes for idle tasks in a busy worker.
IDLE_FLUSH_SECONDS = 0.002
#: The pause after such a flush, as a multiple of the flush's duration: so flushing takes a small share of the worker's time.
IDLE_FLUSH_PAUSE = 20


class Flush(Enum):
    """Which frames leave the outboxes."""

    #: Full frames.
    FULL = auto()
    #: Full frames, and partial frames whose target task is idle: a busy target gains nothing from an early partial frame
    #: (Nagle, RFC 896).
    IDLE = auto()
    ALL = auto()


class Links:
    """All links that begin or end in one worker."""

    def __init__(
        self,
        worker: str,
        worker_of: dict[int, str],
        windows: Callable[[int], int],
        send: Send,
        cycles: CycleWatch,
        linked: bool = True,
    ) -> None:
        """`linked`: whether all workers can be reached from the start. If not, a worker can be reached once the method `linked`
        was called for it.
        """
        self.worker = worker
        self.worker_of = worker_of
        self.window_of = windows
        self.send = send
        self.cycles = cycles
        self.tasks: dict[int, BoltTask] = {}
        self.sending: dict[int, SendWindow] = {}
        self.receiving: dict[tuple[str, int], ReceiveWindow] = {}
        #: Grants to send, by worker and destination task.
        self.grants: dict[str, dict[int, int]] = {}
        #: Tasks that found no credit for a destination task.
        self.waiting: dict[int, dict[int, Task]] = {}
        #: Tasks that may find credit now.
        self.retry: dict[int, Task] = {}
        #: Bolt tasks that got input.
        self.woken: list[BoltTask] = []
        #: Untracked tuples that a full cycle dropped, by component.
        self.dropped: dict[str, int] = {}
        self.cycle_buffer = 0
        #: The workers that take tuples, including this worker.
        self.reachable = {worker, *worker_of.values()} if linked else {worker}

    def flush(self, task: Task, what: Flush) -> bool:
        """Send the tuples in a task's outboxes, as far as there is credit; return whether any were sent. Sets
        `task.blocked`.
        """
        high = task.limits.high
        sent = False
        blocked = False
        emitter = task.emitter
        left = []
        for box in emitter.dirty:
            size = len(box.rows)
            least = 1 if self.takes_any(box, what) else box.limit.tuples
            while size >= least:
                if box.credited and not self.window_for(box).room:
                    self.waiting.setdefault(box.target, {})[task.id] = task
                    blocked = blocked or size >= high
                    break
                self.number(box.dequeue(box.limit.tuples), box.credited)
                sent = True
                size = len(box.rows)
            if size:
                left.append(box)
        emitter.dirty = left
        task.blocked = blocked
        return sent

    def takes_any(self, box: Outbox, what: Flush) -> bool:
        """Return whether a partial frame may leave an outbox."""
        if what is Flush.IDLE:
            return box.credited and self.window_for(box).idle
        return what is Flush.ALL

    def window_for(self, parcel: Outbox | Batch) -> SendWindow:
        """Return the window that what is in an outbox, or a batch, takes credit of."""
        return self.window(parcel.target)

    def window(self, target: int) -> SendWindow:
        """Return the window of the link to a task."""
        window = self.sending.get(target)
        if window is None:
            reachable = self.worker_of[target] in self.reachable
            window = self.sending[target] = SendWindow(self.window_of(target) if reachable else 0)
        return window

    def number(self, batch: Batch, credited: bool) -> None:
        """Send a batch on its link."""
        batch.sender = self.worker
        if credited:
            batch.frame = self.window_for(batch).next_frame()
        if batch.cycle >= 0:
            self.cycles.sent(batch.cycle, self.worker_of[batch.target], len(batch.rows))
        self.forward(batch)

    def forward(self, batch: Batch) -> None:
        """Pass a batch on: to an inbox here, or to the transport."""
        worker = self.worker_of[batch.target]
        if worker == self.worker:
            self.arrive(batch)
        else:
            self.send(worker, batch)

    def mark_end(self, source: Source, targets: Iterable[int]) -> None:
        """Send end marks: this source task has sent all its tuples for these tasks. End marks take no credit."""
        for target in targets:
            batch = Batch(source, target, [], [], [])
            batch.sender = self.worker
            batch.ended = True
            self.forward(batch)

    def arrive(self, batch: Batch) -> None:
        """Put a batch into the inbox of its task."""
        task = self.tasks[batch.target]
        if batch.frame:
            key = (batch.sender, batch.target)
            window = self.receiving.get(key)
            if window is None:
                window = self.receiving[key] = ReceiveWindow(self.window_of(batch.target))
            batch.window = window
        if batch.frame == 0 and not batch.ended and task.waiting() >= self.cycle_buffer:
            batch.skipped += self.drop_untracked(task.spec.id, batch)
        task.inbox.append(batch)
        self.woken.append(task)

    def drop_untracked(self, component: str, batch: Batch) -> int:
        """Drop and count the untracked tuples of a batch, because its cycle is full; return their number.

        Tracked tuples stay: `topology.max.spout.pending` bounds them.
        """
        kept = [position for position, root in enumerate(batch.roots) if root]
        dropped = len(batch.rows) - len(kept)
        if not dropped:
            return 0
        self.dropped[component] = self.dropped.get(component, 0) + dropped
        batch.more = {new: batch.more[old] for new, old in enumerate(kept) if old in batch.more}
        batch.rows = as_rows([batch.rows[position] for position in kept])
        batch.roots = Ids(batch.roots[position] for position in kept)
        batch.edges = Ids(batch.edges[position] for position in kept)
        return dropped

    def done(self, batch: Batch) -> None:
        """Confirm a batch that was executed, and whose outputs are in the outboxes. This grants new credit to the sender."""
        if batch.cycle >= 0:
            self.cycles.executed(batch.cycle, batch.sender, len(batch.rows) + batch.skipped)
        window = batch.window
        if window is None or window.over:
            return
        upto = window.confirm(batch.frame)
        if batch.sender == self.worker:
            self.granted(batch.target, upto)
        else:
            self.grants.setdefault(batch.sender, {})[batch.target] = upto

    def granted(self, target: int, upto: int) -> None:
        """Add credit that a destination granted; the tasks that waited for this credit may continue."""
        if self.window(target).grant(upto) and target in self.waiting:
            self.retry.update(self.waiting.pop(target))

    def flush_retries(self) -> bool:
        """Flush the outboxes of tasks that got credit; return whether any tuples were sent."""
        if not self.retry:
            return False
        retry, self.retry = self.retry, {}
        sent = False
        for task in retry.values():
            if not task.busy:
                sent |= self.flush(task, Flush.ALL)
                if not task.blocked and isinstance(task, BoltTask):
                    self.woken.append(task)
        return sent

    # Peers.

    def assign(self, worker_of: Mapping[int, str], moved: Iterable[int], linked: bool) -> None:
        """Follow a new assignment: the tasks in `moved` get new windows."""
        self.worker_of = dict(worker_of)
        if linked:
            self.reachable = {self.worker, *worker_of.values()}
        self.reset_windows(moved)

    def linked(self, worker: str) -> None:
        """Open new windows to a process of another worker, which takes tuples from now on."""
        self.reachable.add(worker)
        self.reset_windows(target for target, host in self.worker_of.items() if host == worker)

    def superseded(self, worker: str) -> None:
        """Forget another worker's process that has ended: the process gets no more tuples, and no grants for its frames."""
        self.reachable.discard(worker)
        self.reset_windows(target for target, host in self.worker_of.items() if host == worker)
        for key in [key for key in self.receiving if key[0] == worker]:
            self.receiving.pop(key).over = True
        self.grants.pop(worker, None)

    def waits_for(self, worker: str) -> bool:
        """Return whether tasks here have tuples for another worker's tasks, and no credit for them."""
        return any(self.worker_of[target] == worker for target in self.waiting)

    def closing(self, worker: str) -> None:
        """Close the windows to another worker, which takes no more tuples. That worker still executes the tuples in flight."""
        self.reachable.discard(worker)
        for target, host in self.worker_of.items():
            if host == worker:
                self.window(target).close()

    def reset_windows(self, targets: Iterable[int]) -> None:
        """Reset the windows to these tasks; tasks that wait for such a window try again."""
        for target in list(targets):
            self.sending.pop(target, None)
            if target in self.waiting:
                self.retry.update(self.waiting.pop(target))

    def forget_task(self, task: int) -> None:
        """Forget a task of this worker that is gone, or is recreated."""
        self.tasks.pop(task, None)
        for key in [key for key in self.receiving if key[1] == task]:
            self.receiving.pop(key).over = True
        for tasks in self.waiting.values():
            tasks.pop(task, None)
        self.retry.pop(task, None)
        self.woken = [bolt for bolt in self.woken if bolt.id != task]


class Flushing:
    """Flushes the outboxes of one worker's tasks."""

    def __init__(self, table: TaskTable, links: Links, now: Callable[[], float]) -> None:
        self.table = table
        self.links = links
        self.now = now
        self.last_flush = self.next_idle_flush = self.next_pause_flush = now()

    def all_due(self, now: float) -> bool:
        """Return whether everything has to be sent even if the loop has more to do."""
        return now - self.last_flush >= LONGEST_WAIT_IN_OUTBOX

    def idle_due(self, now: float) -> bool:
        """Return whether partial frames for idle tasks are due. They are due earlier if the loop would otherwise pause."""
        return now >= self.next_idle_flush or (now >= self.next_pause_flush and self.pauses)

    @property
    def pauses(self) -> bool:
        """Whether no task wants to run in the loop. A spout in its own thread is left out: no other thread may touch it."""
        spouts = self.table.spouts
        return not self.table.ready and not any(not spout.jobs and spout.wants_run() for spout in spouts)

    def flush_all(self, now: float) -> bool:
        """Send the contents of the outboxes, as far as credit allows."""
        self.last_flush = now
        return self.flush(Flush.ALL)

    def flush_idle(self) -> None:
        """Send the contents of outboxes whose target tasks have nothing to do."""
        began = self.now()
        self.flush(Flush.IDLE)
        ended = self.now()
        self.next_pause_flush = ended + IDLE_FLUSH_PAUSE * (ended - began)
        self.next_idle_flush = max(ended + IDLE_FLUSH_SECONDS, self.next_pause_flush)

    def flush(self, what: Flush) -> bool:
        """Flush the outboxes of all tasks that are not in a job; return whether any tuples were sent."""
        sent = False
        for task in self.table.by_id.values():
            if not task.jobs and task.emitter.dirty:
                if what is Flush.ALL:
                    task.flushed_at = task.emitter.emitted
                sent |= self.links.flush(task, what)
                if isinstance(task, BoltTask) and not task.blocked:
                    self.table.queue(task)
        return sent
