"""What a task has emitted and not sent: part of its snapshot, and put back when it returns to one.

Must not know: links, files, when a snapshot is taken.
"""

from __future__ import annotations

import pickle
from typing import Any

from topology_api import StateError
from topology_api.packing import dumps_by_value
from worker.errors.reports import failure_text
from worker.tasks.emitter import Emitter
from worker.tasks.fitting import ANOTHER_PATH


def not_kept(where: str, what: str, error: Exception) -> StateError:
    """Return the error for something that cannot be pickled."""
    return StateError(
        f"{where}: {what} cannot be kept in a snapshot: {failure_text(error)}. With topology.state.path all values must be "
        "such that pickle can carry them"
    )


def rows_in_outboxes(emitter: Emitter, names: dict[int, str]) -> list[tuple[str, str, list[Any]]]:
    """Return (target task, stream, rows), the rows as one pickle, of each outbox that holds some. Raises StateError."""
    found: list[tuple[str, str, list[Any]]] = []
    for box in emitter.dirty:
        if box.rows:
            try:
                packed = dumps_by_value([tuple(row) for row in box.rows], 5)
            except Exception as error:
                raise not_kept(emitter.where(), f"a tuple on stream {box.source.stream!r}", error) from error
            found.append((names[box.target], box.source.stream, [packed]))
    return found


def fill_outboxes(emitter: Emitter, content: list[tuple[str, str, list[Any]]], names: dict[int, str]) -> None:
    """Put rows back into the outboxes from which they were taken. They are in no tree: their spouts have counted them. Raises
    StateError for an outbox that is gone.
    """
    boxes = {(names[box.target], box.source.stream): box for box in emitter.boxes()}
    for target, stream, packed in content:
        box = boxes.get((target, stream))
        if box is None:
            raise StateError(
                f"{emitter.where()} has tuples on stream {stream!r} for task {target}, which does not read it any more: "
                f"{ANOTHER_PATH}"
            )
        for row in pickle.loads(packed[0]):
            if len(row) != len(box.source.fields):
                raise StateError(
                    f"{emitter.where()} has tuples on stream {stream!r} for task {target}, and the stream has other fields now "
                    f"({', '.join(box.source.fields)}): {ANOTHER_PATH}"
                )
            emitter.put(box, row, [])


def drop_outboxes(emitter: Emitter) -> None:
    """Forget what has not left: what is not committed was not emitted."""
    while emitter.dirty:
        box = emitter.dirty.pop()
        box.dequeue(len(box.rows))
