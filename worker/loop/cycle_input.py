"""What comes to the tasks of one worker over the edges that close cycles: bounded, and such that snapshots can keep it.

A tuple that comes behind a task's marker and before the barrier of its edge is part of the snapshot, and is executed in the
next epoch (`worker.epochs.alignment`). So what cannot be kept, or finds no room, has to be taken out before it enters. It is a
dead letter of its receiver, in the epoch in which it was sent.
Must not know: user code, the coordinator, when an epoch ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from squall.transport.frames import Batch
from squall.transport.id_columns import Ids
from squall.transport.row_columns import as_rows
from topology_api import StateError
from topology_api.packing import dumps_by_value
from worker.epochs.cycle_bound import MOST_OVER, CycleBound
from worker.epochs.messages import HoldWanted
from worker.epochs.participant import Participant, SendToCoordinator, TaskEffect
from worker.tasks.epoch_bolt import EpochBoltTask
from worker.tasks.parked_tuples import item_of, mark_of
from worker.tasks.unsent_rows import can_be_kept

_log = logging.getLogger(__name__)

#: The name of the option that bounds a cycle.
CYCLE_TUPLES: Final = "topology.epoch.cycle.tuples"
#: A task with this number of dead letters in the open epoch asks for a commit: until then they are in its memory.
MOST_LETTERS: Final = 1000

Perform = Callable[[EpochBoltTask, list[TaskEffect]], None]
Settle = Callable[[Iterable[tuple[int, int]]], None]


def closes_cycle(batch: Batch) -> bool:
    """Return whether a batch has come over an edge that closes a cycle: such batches take no credit."""
    return batch.cycle >= 0 and not batch.frame and not batch.ended


class CycleInput:
    """The tasks of one worker that read such edges."""

    def __init__(self, limit: int, now: Callable[[], float], perform: Perform, settle: Settle) -> None:
        """`settle`: acks a tuple that will not be executed, in its trees."""
        self.limit, self.now, self.perform, self.settle = limit, now, perform, settle
        #: By task id.
        self.bounds: dict[int, CycleBound] = {}

    def restart(self) -> None:
        """All tasks are new objects: nothing waits."""
        self.bounds = {}

    def arrive(self, task: EpochBoltTask, participant: Participant, source: str, batch: Batch) -> None:
        """A batch has come for a task; take out of it what will not be executed."""
        bound = self.bounds.get(task.id)
        if bound is None:
            bound = self.bounds[task.id] = CycleBound(self.limit)
        if participant.alignment.records(source):
            self.take_unkept(task, participant, source, batch)
        tuples = len(batch.rows)
        taken = bound.admit(tuples)
        if taken < tuples:
            first = bound.given_up == tuples - taken
            why = self.overflow(task, bound)
            if first:
                task.report(task.method, StateError(why))
                _log.warning("%s", why)
            self.take_out(task, participant, source, batch, range(taken, tuples), why)
        self.report_change(task, participant, bound)

    def executed(self, task: EpochBoltTask, participant: Participant, tuples: int) -> None:
        """A task has executed tuples of these edges."""
        bound = self.bounds.get(task.id)
        if bound is not None:
            bound.executed(tuples)
            self.report_change(task, participant, bound)

    def report_change(self, task: EpochBoltTask, participant: Participant, bound: CycleBound) -> None:
        """Say to the coordinator whether the spouts are to pause."""
        if bound.changed(self.now()):
            why = "" if bound.full_since is None else self.full(task, bound)
            self.perform(task, [SendToCoordinator(HoldWanted(participant.rewind, why))])

    def full(self, task: EpochBoltTask, bound: CycleBound) -> str:
        """Return why the spouts pause."""
        return (
            f"{bound.waiting:,} tuples wait for {task.spec.id}[{task.id}] on the edge that closes its cycle ({CYCLE_TUPLES}: "
            f"{bound.limit:,})"
        )

    def overflow(self, task: EpochBoltTask, bound: CycleBound) -> str:
        """Return why tuples become dead letters."""
        return (
            f"{task.spec.id}[{task.id}]: {bound.waiting:,} tuples wait on the edge that closes its cycle, {MOST_OVER} times "
            f"{CYCLE_TUPLES} ({bound.limit:,}), although the spouts pause: the cycle makes more tuples than leave it. Further "
            f"ones are dead letters. Let fewer tuples go around, or raise {CYCLE_TUPLES}"
        )

    # Tuples that are taken out.

    def take_unkept(self, task: EpochBoltTask, participant: Participant, source: str, batch: Batch) -> None:
        """Take out the tuples that the snapshot could not keep."""
        rows = [tuple(batch.rows[at]) for at in range(len(batch.rows))]
        try:
            dumps_by_value(rows, 5)
        except Exception:
            lost = [at for at, row in enumerate(rows) if not can_be_kept(row)]
            self.take_out(task, participant, source, batch, lost, "")

    def take_out(
        self,
        task: EpochBoltTask,
        participant: Participant,
        source: str,
        batch: Batch,
        positions: Collection[int],
        why: str,
    ) -> None:
        """Make dead letters of some tuples of a batch. `why`: "" if the reason is in their values."""
        of = batch.source
        for at in positions:
            row, root, edge = tuple(batch.rows[at]), batch.roots[at], batch.edges[at]
            item = item_of(of.component, of.task, of.stream, row, of.fields, task.emitter.where())
            reason = why
            if not reason:
                reason = mark_of(item).unkept
                task.report(task.method, StateError(f"{reason}; the tuple is a dead letter"))
            participant.give_up_arriving(source, item, reason)
            self.settle([(root, edge), *((more, edge ^ other) for more, other in batch.more.get(at, ()))])
            task.failed += 1
        leave_out(batch, positions)
        if len(participant.parking.letters) >= MOST_LETTERS:
            self.perform(task, participant.needs_commit())


def leave_out(batch: Batch, positions: Collection[int]) -> None:
    """Remove tuples from a batch. They still count as executed in their cycle."""
    gone = frozenset(positions)
    kept = [at for at in range(len(batch.rows)) if at not in gone]
    batch.skipped += len(gone)
    batch.more = {new: batch.more[old] for new, old in enumerate(kept) if old in batch.more}
    batch.rows = as_rows([batch.rows[at] for at in kept])
    batch.roots = Ids(batch.roots[at] for at in kept)
    batch.edges = Ids(batch.edges[at] for at in kept)
