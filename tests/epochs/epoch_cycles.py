"""The bound of cycles in the simulation of epochs: rows for which there is no room are dead letters, and spouts pause.

Must not know: how rows travel, when a snapshot is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.epochs.coordinator import Coordinator, CoordinatorEffect, SendToTask
from worker.epochs.messages import HoldSpouts, HoldWanted, LinkItem, RestoreTask, Rows, ToCoordinator
from worker.epochs.participant import SendToCoordinator
from worker.epochs.spout_hold import SpoutHold

if TYPE_CHECKING:
    from tests.epochs.epoch_tasks import SimulatedTask


def take_closing(task: SimulatedTask, source: str, item: LinkItem) -> LinkItem:
    """Something has come to a task; return what of it enters."""
    if not isinstance(item, Rows) or not task.is_closing(source):
        return item
    taken = task.bound.admit(len(item.rows))
    for row in item.rows[taken:]:
        task.participant.give_up_arriving(source, row, "no room")
    report_change(task)
    return Rows(item.rows[:taken])


def left(task: SimulatedTask, source: str, rows: int) -> None:
    """A task has executed rows."""
    if task.is_closing(source):
        task.bound.executed(rows)
        report_change(task)


def report_change(task: SimulatedTask) -> None:
    """Say to the coordinator whether the spouts are to pause."""
    bound = task.bound
    if bound.changed(task.line.now):
        why = f"{bound.waiting} rows" if bound.full_since is not None else ""
        effect = SendToCoordinator(HoldWanted(task.participant.rewind, why))
        task.cluster.run_effects(task, [effect])


class Holds:
    """Which spouts the coordinators of all workers have told to pause, as `worker.loop.epoch_lead` does."""

    def __init__(self) -> None:
        self.of: dict[Coordinator, SpoutHold] = {}

    def heard(self, coordinator: Coordinator, task: str, message: ToCoordinator) -> list[CoordinatorEffect]:
        """A coordinator gets a message; return what it tells its tasks."""
        rewind = coordinator.view.rewind
        if not isinstance(message, HoldWanted) or message.rewind != rewind:
            return []
        changed = self.of.setdefault(coordinator, SpoutHold()).heard(task, message.why, message.what)
        return [] if changed is None else list(coordinator.to_all(HoldSpouts(rewind, *changed)))

    def follow(self, coordinator: Coordinator, effect: CoordinatorEffect) -> None:
        """A rewind begins: nothing waits anywhere."""
        if isinstance(effect, SendToTask) and isinstance(effect.message, RestoreTask):
            self.of.pop(coordinator, None)
