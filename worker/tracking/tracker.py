"""The tracker: the open tuple trees of one spout task, and the trees that have just been completed or have failed.

A tree is one 64-bit value: the XOR of the edge ids of all its tuples. Each id enters once when its tuple is emitted, and once
when the tuple is acked. When every tuple was acked, the value is zero; before that, it is zero only with a chance of 2**-64
(the algorithm of Storm's acker, Nathan Marz, `daemon/acker.clj`). Trees are kept in a table of slots. A root id is a slot and
its generation, so an entry for a tree that has ended is recognised as late and changes nothing.

The tracker lives beside its spout: a tree is opened before any of its tuples can leave, and dies with its source.
It keeps the values of each emission, for replays. It promises: each opened tree ends once, in `completed` or in `failed`.
Must not know: queues, links, replay policy, user code.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from squall.transport.frames import BURST, DEADLY, DIED, DOWN, HUNG, OPEN, RECOVERED
from squall.transport.id_columns import table_of, view_of
from topology_api import EmitError, Failure
from topology_api.tuples import Source
from worker.tracking.ids import MAX_SLOTS, MIN_SLOTS, SLOT_MASK, first_root, next_root
from worker.tracking.outages import FailureHistory
from worker.tracking.timing_wheel import TimingWheel

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

_SLOT_MASK = cython.declare(cython.longlong, SLOT_MASK)

#: A tracked emission: message id, row, source, task of a direct emission (or 0), attempt (from 1), time of the first emission,
#: history of its failures (None: it has not failed). It names its stream by the source, which refers to nothing that may refer
#: to the emission: so the garbage collector can leave out an emission of values that it leaves out.
Emission = tuple[Any, tuple[Any, ...], Source, int, int, float, FailureHistory | None]


class Tracker:
    """Open trees of one spout task. All times are seconds of the caller's clock."""

    def __init__(self, task: int, timeout: float | None, now: float, generation: int = 0) -> None:
        """`generation`: where the ids of this tracker begin. With a different generation, late entries for trees of an earlier
        process of the same task match none of this tracker's trees.
        """
        self.task = task
        self.generation = generation
        #: Root id of each slot; negative while the slot is free.
        self.roots = table_of(())
        self.xors = table_of(())
        self.size = 0
        self.emissions: list[Emission | None] = []
        self.free: deque[int] = deque()
        self.wheel = TimingWheel(timeout, now) if timeout is not None else None
        self.acking = True
        #: Number of open trees.
        self.pending = 0
        #: Where trees waited according to the last keep-alive: root -> (component, task).
        self.holders: dict[int, tuple[str, int]] = {}
        #: Whether the process of another worker has ended since the last `expire`.
        self.peer_ended = False
        #: The tick of the wheel in which that was noticed last: trees without a sign of life since then may be lost.
        self.last_loss = -1
        #: Completed trees that were not collected yet. Failed trees are in `failed`.
        self.completed: list[Emission] = []
        #: In their order, with the successes between them: (emission that succeeded, if its tree is open; `RECOVERED`), and the
        #: calls in which workers died: (None; `DIED` or `HUNG`). In these, and in a loss, `attempts` is the tree's root. The
        #: verdicts of bolt tasks are among them: (None; `DOWN` or `BURST`).
        self.failed: list[tuple[Emission | None, Failure]] = []
        #: Emissions with a message id while acking is off: they are acked at once.
        self.untracked: list[Emission] = []

    @cython.locals(slot=cython.Py_ssize_t, root=cython.longlong)
    def open(self, emission: Emission) -> int:
        """Open a tree for an emission, and return its root id. The next call must be `start`."""
        if not self.free:
            self.grow()
        slot = self.free.popleft()
        root = next_root(-self.roots[slot])
        self.roots[slot] = root
        self.emissions[slot] = emission
        self.pending += 1
        return root

    @cython.locals(slot=cython.Py_ssize_t)
    def start(self, root: int, xor: int) -> None:
        """Start a tree whose first tuples are in outboxes. `xor`: the XOR of their edge ids; 0: no task reads the stream, and
        the tree is complete."""
        slot = root & _SLOT_MASK
        self.xors[slot] = xor
        if xor == 0:
            emission = self.emissions[slot]
            assert emission is not None
            self.completed.append(emission)
            self.close(slot)
        elif self.wheel is not None:
            self.wheel.stamp(slot)

    @cython.locals(slot=cython.Py_ssize_t)
    def forget(self, root: int) -> None:
        """Forget a tree whose emission failed: it gets no final call. This method calls no function, since the recursion limit
        may be reached.
        """
        slot = root & _SLOT_MASK
        if self.roots[slot] == root:
            self.roots[slot] = -root
            self.emissions[slot] = None
            self.pending -= 1
            self.free.append(slot)

    @cython.locals(
        table=cython.longlong[::1],
        values=cython.longlong[::1],
        root_at=cython.longlong[::1],
        xor_at=cython.longlong[::1],
        at=cython.Py_ssize_t,
        slot=cython.Py_ssize_t,
        size=cython.Py_ssize_t,
        root=cython.longlong,
        xor=cython.longlong,
    )
    def merge(self, roots: Any, xors: Any) -> None:
        """Merge a batch of XORs. Trees are tested for zero after the whole batch; late entries change nothing."""
        table, values = self.roots, self.xors
        size = self.size
        root_at, xor_at = view_of(roots), view_of(xors)
        zeros = []
        for at in range(len(roots)):
            root = root_at[at]
            slot = root & _SLOT_MASK
            if slot < size and table[slot] == root:
                xor = xor_at[at] ^ values[slot]
                values[slot] = xor
                if xor == 0:
                    zeros.append(slot)
        if zeros:
            self.complete_all(zeros)

    @cython.locals(
        table=cython.longlong[::1], values=cython.longlong[::1], slot=cython.Py_ssize_t, root=cython.longlong
    )
    def complete_all(self, slots: list[int]) -> None:
        """Complete the trees in these slots whose value is zero. This frees their slots as `close` does, but without a call for
        each. A slot may occur twice.
        """
        table, values, emissions = self.roots, self.xors, self.emissions
        completed, free, holders = self.completed, self.free, self.holders
        before = len(completed)
        for slot in slots:
            emission = emissions[slot]
            if values[slot] == 0 and emission is not None:
                root = table[slot]
                completed.append(emission)
                table[slot] = -root
                emissions[slot] = None
                free.append(slot)
                if holders:
                    holders.pop(root, None)
        self.pending -= len(completed) - before

    @cython.locals(slot=cython.Py_ssize_t)
    def fail(self, root: int, failure: Failure) -> None:
        """Fail a tree because one of its tuples failed; late failures change nothing. A success is put between the failures."""
        if failure.reason == RECOVERED:
            root = failure.attempts
            slot = root & _SLOT_MASK
            is_open = root > 0 and slot < self.size and self.roots[slot] == root
            self.failed.append((self.emissions[slot] if is_open else None, failure))
            return
        if failure.reason in (DOWN, BURST):
            self.failed.append((None, failure))
            return
        if failure.reason in (DIED, HUNG):  # the loss is known by now, or it becomes known here
            self.fail(root, Failure("lost", failure.component, failure.task, failure.error, OPEN))
            self.failed.append((None, replace(failure, attempts=root)))
            return
        slot = root & _SLOT_MASK
        if slot < self.size and self.roots[slot] == root:
            emission = self.emissions[slot]
            assert emission is not None
            if failure.reason == "lost" and failure.attempts != DEADLY:
                failure = replace(failure, attempts=root)
            self.failed.append((emission, failure))
            self.close(slot)

    @cython.locals(root=cython.longlong)
    def close(self, slot: int) -> None:
        """Free the slot of an ended tree, for use with the next generation."""
        root = self.roots[slot]
        self.roots[slot] = -root
        self.emissions[slot] = None
        self.pending -= 1
        self.free.append(slot)
        if self.holders:
            self.holders.pop(root, None)

    def keep_alive(
        self, roots: tuple[int, ...], now: float, component: str | None = None, task: int | None = None
    ) -> None:
        """Keep these trees alive: their tuples wait at this task, or a bolt reset their timeout."""
        wheel = self.wheel
        if wheel is None:
            return
        wheel.set_time(now)
        for root in roots:
            slot = root & _SLOT_MASK
            if slot < self.size and self.roots[slot] == root:
                wheel.stamp(slot)
                if component is not None and task is not None:
                    self.holders[root] = (component, task)

    def renew(self, tick: int, now: float) -> None:
        """Restart the timeout of the trees that were opened in the spout's run that has just ended. `tick`: the tick of the
        wheel in which this run began.

        Their tuples could not leave before the run ended, however long a user's call took.
        """
        wheel = self.wheel
        if wheel is None:
            return
        wheel.set_time(now)
        if wheel.tick == tick:
            return
        stamps = wheel.stamps
        for slot, root in enumerate(self.roots):
            if root > 0 and stamps[slot] >= tick:
                wheel.stamp(slot)

    def expire(self, now: float) -> None:
        """Fail the trees whose start and last keep-alive are older than the timeout. Before this call, pass all arrived
        keep-alives to `keep_alive`.

        If another worker has ended since a tree's last sign of life, the tree may be lost: a batch bolt, for example, may have
        gathered its tuple there, after confirming it.
        """
        wheel = self.wheel
        if wheel is None:
            return
        wheel.set_time(now)
        if self.peer_ended:
            self.peer_ended, self.last_loss = False, wheel.tick
        for slot in wheel.due():
            root = self.roots[slot]
            if root > 0:
                component, task = self.holders.get(root, (None, None))
                lost_as = root if wheel.stamps[slot] <= self.last_loss else OPEN
                self.fail(root, Failure("timeout", component, task, None, lost_as))

    def message_id(self, root: int) -> Any:
        """Return the message id of an open tree; None: it has ended. Any thread may call this."""
        slot = root & _SLOT_MASK
        emission = self.emissions[slot] if slot < self.size and self.roots[slot] == root else None
        return None if emission is None else emission[0]

    def open_roots(self) -> list[int]:
        """Return the root ids of all open trees."""
        return [root for root in self.roots if root > 0]

    def grow(self) -> None:
        """Enlarge the table: to at least `MIN_SLOTS`, then to twice its size."""
        size = self.size
        more = min(max(size, MIN_SLOTS), MAX_SLOTS - size)
        if more <= 0:
            raise EmitError(
                f"task {self.task} has {size} trees open, the most there can be: set topology.max.spout.pending"
            )
        self.add_slots([-first_root(self.task, slot, self.generation) for slot in range(size, size + more)])

    @cython.locals(at=cython.Py_ssize_t)
    def add_slots(self, roots: list[int]) -> None:
        """Add free slots to the table, each given by the negative root id of its last use."""
        size = self.size
        # The wheel grows first: if the recursion limit stops this call, the table must not have grown.
        if self.wheel is not None:
            self.wheel.grow(size + len(roots))
        # The roots are copied one by one: a whole table used as an object crashes when compiled (Cython 3.3 with nonecheck).
        self.roots = table_of([self.roots[at] for at in range(size)] + roots)
        self.xors = table_of([self.xors[at] for at in range(size)] + [0] * len(roots))
        self.emissions += [None] * len(roots)
        self.size += len(roots)
        self.free.extend(range(size, self.size))
