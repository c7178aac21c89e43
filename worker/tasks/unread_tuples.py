"""Tuples whose values cannot be read where they are: dead letters of the task that has them.

Their classes raise, or cannot be imported. In the process that made them they could be kept, or they would be letters already.
Must not know: links, files, when a snapshot is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.unreadable import loads, loads_rows, why_unreadable
from topology_api import StateError
from topology_api.tuples import Source
from worker.epochs.parking import Parked
from worker.epochs.participant import Participant
from worker.tasks.parked_tuples import item_of, mark_of

if TYPE_CHECKING:
    from worker.tasks.epoch_bolt import EpochBoltTask
    from worker.tasks.task import Task


def unread_item(task: Task, source: Source, row: tuple[Any, ...]) -> tuple[list[Any], str]:
    """Return a tuple that cannot be read as the item of a dead letter, and why it is one. Reports it."""
    item = item_of(source.component, source.task, source.stream, row, source.fields, task.emitter.where())
    item.append(list(source.fields))
    why = mark_of(item).unkept or "its values cannot be read"
    task.report("execute", StateError(f"{why}; the tuple is a dead letter"))
    task.failed += 1
    return item, why


def give_up_arriving(
    task: Task, participant: Participant, sender: str, source: Source, row: tuple[Any, ...]
) -> None:
    """Make a dead letter of a tuple that has come from another worker, in the epoch in which it was sent."""
    item, why = unread_item(task, source, row)
    participant.give_up_arriving(sender, item, why)


def readable_rows(task: EpochBoltTask, source: Source, packed: bytes) -> list[tuple[Any, ...]]:
    """Return the rows of a snapshot that can be read; the others become dead letters of the open epoch."""
    rows, unreadable = loads_rows(packed)
    for at in unreadable:
        item, why = unread_item(task, source, rows[at])
        task.parking.give_up(Parked(item, 1, 0.0), why)
    return [row for at, row in enumerate(rows) if at not in unreadable] if unreadable else rows


def give_up_parked(task: EpochBoltTask) -> None:
    """Make dead letters of the parked tuples that cannot be read, of a task that begins with a snapshot."""
    for parked in list(task.parking.parked):
        component, index, stream, packed = parked.item[:4]
        row, doubtful = loads(packed)
        if doubtful and why_unreadable(row):
            task.parking.parked.remove(parked)
            fields = task.fields_of.get((component, stream), ())
            item, why = unread_item(task, Source(component, index, stream, fields), row)
            task.parking.give_up(Parked(item, parked.attempts + 1, 0.0), why)
