"""What a task has emitted and not sent: part of its snapshot, and put back when it returns to one.

The call that has emitted a tuple stands. So a tuple whose values cannot be kept, or cannot travel, is not tried again: it
becomes a dead letter of the task that emitted it, in the epoch to which its emission belongs.
Must not know: links, files, when a snapshot is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from squall.unreadable import loads_rows
from topology_api import StateError
from topology_api.packing import dumps_by_value
from topology_api.tuples import Source
from worker.epochs.parking import Parked
from worker.errors.reports import failure_text
from worker.routing.outbox import Outbox
from worker.tasks.emitter import Emitter
from worker.tasks.fitting import ANOTHER_PATH
from worker.tasks.parked_tuples import emission_item, mark_of

if TYPE_CHECKING:
    from worker.tasks.epoch_bolt import EpochBoltTask
    from worker.tasks.epoch_spout import EpochSpoutTask


class LostRow(msgspec.Struct, frozen=True):
    """An emission that cannot be kept."""

    source: Source
    #: The name of the task that was to get it.
    target: str
    values: tuple[Any, ...]
    #: (root, edge) of its trees.
    trees: tuple[tuple[int, int], ...]


def not_kept(where: str, what: str, error: Exception) -> StateError:
    """Return the error for something that cannot be pickled."""
    return StateError(
        f"{where}: {what} cannot be kept in a snapshot: {failure_text(error)}. With topology.state.path all values must be "
        "such that pickle can carry them"
    )


def can_be_kept(row: tuple[Any, ...]) -> bool:
    """Return whether a snapshot can keep the values of a tuple."""
    try:
        dumps_by_value(row, 5)
    except Exception:
        return False
    return True


def rows_in_outboxes(
    emitter: Emitter, names: dict[int, str]
) -> tuple[list[tuple[str, str, list[Any]]], list[LostRow]]:
    """Return (target task, stream, rows), the rows as one pickle, of each outbox that holds some; and the tuples that cannot be
    kept, which are not in their outboxes any more. Raises StateError."""
    found: list[tuple[str, str, list[Any]]] = []
    lost: list[LostRow] = []
    for box in list(emitter.dirty):
        if not box.rows:
            continue
        target, stream = names[box.target], box.source.stream
        try:
            packed = dumps_by_value([tuple(row) for row in box.rows], 5)
        except Exception:
            lost += take_unkept(emitter, box, target)
            try:
                packed = dumps_by_value([tuple(row) for row in box.rows], 5)
            except Exception as error:
                raise not_kept(emitter.where(), f"tuples on stream {stream!r}", error) from error
        if box.rows:
            found.append((target, stream, [packed]))
    return found, lost


def take_unkept(emitter: Emitter, box: Outbox, target: str) -> list[LostRow]:
    """Remove and return the tuples of an outbox that cannot be kept."""
    lost = []
    emitter.dirty = [each for each in emitter.dirty if each is not box]
    batch = box.dequeue(len(box.rows))
    for at in range(len(batch.rows)):
        row, root, edge = tuple(batch.rows[at]), batch.roots[at], batch.edges[at]
        trees = (
            [(root, edge), *((more, edge ^ other) for more, other in batch.more.get(at, ()))] if root else []
        )
        if can_be_kept(row):
            emitter.put(box, row, trees)
        else:
            lost.append(LostRow(box.source, target, row, tuple(trees)))
    return lost


def give_up_row(task: EpochBoltTask | EpochSpoutTask, lost: LostRow, unkept: str = "") -> None:
    """Make a dead letter of a tuple that a task has emitted. `unkept`: why its values cannot travel, if they can be kept."""
    item = emission_item(lost.source, lost.values, task.emitter.where(), unkept)
    why = mark_of(item).unkept
    text = f"emitted for {lost.target} on stream {lost.source.stream!r}, and never sent: {why}"
    task.report("emit", StateError(f"{why}; the tuple for {lost.target} is a dead letter"))
    task.failed += 1  # it is part of an epoch, also if nothing else happens
    task.epochs.parking.give_up(Parked(item, 1, 0.0), text)


def fill_outboxes(
    emitter: Emitter, content: list[tuple[str, str, list[Any]]], names: dict[int, str]
) -> list[LostRow]:
    """Put rows back into the outboxes from which they were taken, and return those that cannot be read. They are in no tree:
    their spouts have counted them. Raises StateError for an outbox that is gone.
    """
    lost: list[LostRow] = []
    boxes = {(names[box.target], box.source.stream): box for box in emitter.boxes()}
    for target, stream, packed in content:
        box = boxes.get((target, stream))
        if box is None:
            raise StateError(
                f"{emitter.where()} has tuples on stream {stream!r} for task {target}, which does not read it any more: "
                f"{ANOTHER_PATH}"
            )
        rows, unreadable = loads_rows(packed[0])
        for at, row in enumerate(rows):
            if at in unreadable:
                lost.append(LostRow(box.source, target, tuple(row), ()))
                continue
            if len(row) != len(box.source.fields):
                raise StateError(
                    f"{emitter.where()} has tuples on stream {stream!r} for task {target}, and the stream has other fields now "
                    f"({', '.join(box.source.fields)}): {ANOTHER_PATH}"
                )
            emitter.put(box, row, [])
    return lost


def drop_outboxes(emitter: Emitter) -> None:
    """Forget what has not left: what is not committed was not emitted."""
    while emitter.dirty:
        box = emitter.dirty.pop()
        box.dequeue(len(box.rows))
