"""The form in which a tuple or timer waits in its task, and in which it becomes a dead letter.

An item is [component, task, stream, values as one pickle], and what else there is to say: a dict (`LetterMark`), or the list of
the fields that the stream had, of a dead letter (`worker.loop.row_fields`).
Must not know: when a tuple is tried again, letters' files.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, convert, structs, to_builtins

from squall.dead_letters.letter import DeadLetter, text_of
from squall.exact_structs import build_type_info
from squall.transport.frames import NO_MORE, Batch
from squall.unreadable import UNREADABLE, why_unreadable
from topology_api.packing import dumps_by_value
from topology_api.tuples import UNTRACKED, Source, Tuple
from topology_api.wording import typed
from worker.epochs.parking import Parked
from worker.errors.reports import failure_text
from worker.tracking.ids import task_of

if TYPE_CHECKING:
    from worker.tasks.epoch_bolt import EpochBoltTask

#: What is the component and the stream of a timer that is a dead letter, and the names of its values.
TIMER: Final = ""
TIMER_FIELDS: Final = ("key", "timer", "time")


class LetterMark(Struct, frozen=True, omit_defaults=True):
    """What an item says besides the tuple. `resent`: how often its letter was sent again; `attempts`: those before that;
    `emitted_at`: when it was given up first, by the wall clock; 0: now. `unkept`: why no snapshot can keep its values; `texts`:
    the positions of those that are texts instead. `spout`: the one of its tree; "": it is in none.
    `message_id`: the text of the tree's message id; "": it is not known; `packed_id`: the id itself, if pickle can carry it.
    `reason`: `Failure.reason` of its letter; "": failed."""

    resent: int = 0
    attempts: int = 0
    emitted_at: float = 0.0
    unkept: str = ""
    texts: tuple[int, ...] = ()
    spout: str = ""
    message_id: str = ""
    packed_id: bytes = b""
    reason: str = ""


build_type_info(LetterMark)


def mark_of(item: Any) -> LetterMark:
    """Return what an item says besides the tuple."""
    found = [each for each in item[4:] if isinstance(each, dict)]
    return convert(found[0], LetterMark) if found else LetterMark()


def lost(item: Any) -> list[Any]:
    """Return an item whose letter has the reason `lost`."""
    others = [each for each in item[4:] if not isinstance(each, dict)]
    return [*item[:4], to_builtins(structs.replace(mark_of(item), reason="lost")), *others]


def fields_of(item: Any) -> list[str]:
    """Return the fields that the stream of a dead letter had; none if it does not say them."""
    return next((list(each) for each in item[4:] if isinstance(each, list | tuple)), [])


def item_of(
    component: str, source: int, stream: str, row: tuple[Any, ...], fields: Sequence[str], where: str
) -> list[Any]:
    """Return a tuple or timer as an item. Values that pickle cannot carry, or read back, become their texts. `where`: for the
    reason."""
    packed, why = packed_or_fault(row)
    if not why:
        return [component, source, stream, packed]
    kept: list[Any] = []
    texts: list[int] = []
    for position, value in enumerate(row):
        _, fault = packed_or_fault(value)
        if fault:
            if not texts:
                name = fields[position] if position < len(fields) else position
                why = f"field {name!r} {fault}"
            texts.append(position)
        kept.append(text_of(value) if fault else value)
    mark = LetterMark(unkept=f"{where}: its values cannot be kept: {why}", texts=tuple(texts))
    return [component, source, stream, dumps_by_value(tuple(kept), 5), to_builtins(mark)]


def packed_or_fault(value: Any) -> tuple[bytes, str]:
    """Return a value as a pickle, and why it cannot be kept; "": it can."""
    try:
        packed = dumps_by_value(value, 5)
    except Exception as error:
        return b"", f"is {typed(value)}, which pickle cannot carry: {failure_text(error)}"
    try:
        pickle.loads(packed)
    except Exception as error:
        return b"", f"is {typed(value)}, which cannot be read again: {failure_text(error)}"
    why = why_unreadable((value,)) if UNREADABLE in packed else ""
    return packed, f"could not be read: {why}" if why else ""


def emission_item(source: Source, row: tuple[Any, ...], where: str, unkept: str = "") -> list[Any]:
    """Return an emission as the item of a dead letter, which cannot be sent again. `where`: for the reason. `unkept`: the
    reason if pickle can carry the values."""
    item = item_of(source.component, source.task, source.stream, row, source.fields, where)
    mark = mark_of(item)
    if not mark.unkept:
        mark = LetterMark(unkept=f"{where}: its values cannot travel: {unkept}")
    return [*item[:4], to_builtins(mark), list(source.fields)]


def new_parked(task: EpochBoltTask, tup: Tuple) -> Parked:
    """Return a tuple that has no failures yet, as it is parked."""
    source, where = tup._source, task.emitter.where()
    item = item_of(source.component, source.task, source.stream, tuple(tup._values), source.fields, where)
    if tup._root > UNTRACKED:
        mark = structs.replace(mark_of(item), spout=spout_of(task, tup))
        if (message_id := task.epochs.id_of(tup._root)) is not None:
            mark = structs.replace(mark, message_id=text_of(message_id), packed_id=packed_id(message_id))
        item[4:] = [to_builtins(mark)]
    return Parked(item, 0, task.now())


def spout_of(task: EpochBoltTask, tup: Tuple) -> str:
    """Return the spout of a tuple's tree; "": it is in none, or the task is gone."""
    return task.epochs.names.get(task_of(tup._root), "").rpartition("/")[0] if tup._root > UNTRACKED else ""


def packed_id(message_id: Any) -> bytes:
    """Return a message id as a pickle; b"": pickle cannot carry it."""
    try:
        return dumps_by_value(message_id, 5)
    except Exception:
        return b""


def id_of(mark: LetterMark) -> Any:
    """Return a message id, or its text if it cannot be carried; None: it is not known."""
    try:
        return pickle.loads(mark.packed_id)
    except Exception:  # there is none, or its class raises
        return mark.message_id or None


def item_again(letter: DeadLetter, component: str, source: int, row: tuple[Any, ...]) -> list[Any]:
    """Return the tuple of a letter that is sent again as an item. Raises an error of any kind if pickle cannot carry it."""
    mark = LetterMark(letter.resent + 1, letter.attempts, letter.emitted_at, message_id=letter.message_id)
    return [component, source, letter.stream, dumps_by_value(row, 5), to_builtins(mark)]


def batch_of(task: EpochBoltTask, parked: Parked) -> Batch:
    """Return a parked tuple as a batch. It is in no tree: parking has settled its edge."""
    component, source, stream, values = parked.item[:4]
    where = Source(component, source, stream, task.fields_of[component, stream])
    return Batch(where, task.id, [pickle.loads(values)], [UNTRACKED], [UNTRACKED], NO_MORE)
