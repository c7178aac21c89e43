"""The rows of a token sink from their epoch until they are written, with the tuples that they were made of.

The tuples are there for the dead letters of rows that cannot be kept, or that the system refuses for good. A tuple is in the
form (where it came from, its values), and what else its letter says (`LetterMark`).
Must not know: what rows are, when an epoch ends.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from squall.dead_letters.letter import clean
from squall.unreadable import loads, unreadable_of
from topology_api import RowsRefused, SquallError, StateError
from topology_api.packing import dumps_by_value
from topology_api.tuples import Source
from topology_api.wording import shown, typed
from worker.epochs.parking import Parked
from worker.errors.reports import failure_text
from worker.tasks import letter_readers
from worker.tasks.parked_tuples import item_of

if TYPE_CHECKING:
    from worker.tasks.gathering import GatheringTask

#: (component, task, stream, fields), values, and perhaps a mark.
Origin = tuple[Any, ...]


class RefusedRow(msgspec.Struct, frozen=True):
    """A row that is not written: its position, its tuple, and why."""

    position: int
    origin: Origin
    why: str


class SinkRows(msgspec.Struct, frozen=True):
    """The rows of an epoch. `origins`: their tuples; None: what has written them did not keep these."""

    rows: list[Any]
    origins: list[Origin] | None
    #: Why a row cannot be read, by its position.
    unreadable: dict[int, str]

    def refused(self, reasons: Mapping[int, str]) -> list[RefusedRow]:
        """Return rows that are refused, by position, with the reasons. Raises SquallError if their tuples were not kept."""
        if self.origins is None:
            raise SquallError(
                "an earlier release has not kept the tuples of these rows: the table has to take them"
            )
        return [RefusedRow(at, self.origins[at], why) for at, why in reasons.items()]


def origins_of(tuples: Iterable[tuple[Source, tuple[Any, ...]]]) -> list[Origin]:
    """Return tuples as they are kept beside their rows."""
    places: dict[Source, tuple[Any, ...]] = {}  # pickle writes one object once
    found = []
    for source, values in tuples:
        place = places.get(source)
        if place is None:
            place = places[source] = source.component, source.task, source.stream, tuple(source.fields)
        found.append((place, values))
    return found


def pack(
    task: GatheringTask, rows: list[Any], tuples: Iterable[tuple[Source, tuple[Any, ...]]]
) -> bytes | None:
    """Return rows with their tuples; None: there are none. The tuples of rows that pickle cannot carry become dead letters of
    the epoch that ends."""
    if not rows:
        return None
    origins = origins_of(tuples)
    try:
        return dumps_by_value((rows, origins), 5)
    except Exception:
        kept = [(row, kept_origin(task, each)) for row, each in zip(rows, origins) if keeps(task, row, each)]
    if not kept:
        return None
    return dumps_by_value(tuple(map(list, zip(*kept))), 5)


def keeps(task: GatheringTask, row: Any, origin: Origin) -> bool:
    """Return whether a row can be kept; make a dead letter of its tuple if not."""
    try:
        pickle.loads(dumps_by_value(row, 5))
    except Exception as error:
        what = f"row() returned {typed(row)}, which pickle cannot carry: {failure_text(error)}"
        why = f"{what}. Return numbers, texts, or other values that can be pickled"
        task.report("row", StateError(f"{task.emitter.where()}: {why}; the tuple is a dead letter"))
        give_up(task, [RefusedRow(0, origin, why)])
        return False
    return True


def item_at(task: GatheringTask, place: tuple[Any, ...], values: tuple[Any, ...]) -> list[Any]:
    """Return a tuple as the item of a dead letter."""
    component, source, stream, fields = place
    return item_of(component, source, stream, values, fields, task.emitter.where())


def kept_origin(task: GatheringTask, origin: Origin) -> Origin:
    """Return a tuple in a form that pickle can carry."""
    place, values = origin[:2]
    item = item_at(task, place, values)
    return origin if len(item) == 4 else (place, pickle.loads(item[3]), item[4])


def unpack(packed: bytes) -> SinkRows:
    """Return the rows of an epoch."""
    found, doubtful = loads(packed)
    if not isinstance(found, tuple):
        return SinkRows(found, None, {})
    rows, origins = found
    return SinkRows(rows, origins, unreadable_of((row,) for row in rows) if doubtful else {})


def reasons_of(error: RowsRefused, given: Sequence[int]) -> dict[int, str]:
    """Return why rows are refused, by position in their epoch. `given`: the positions of those that the call got. Raises
    SquallError if the error names no rows of the call."""
    places = list(error.reasons)
    if not places or not all(type(at) is int and 0 <= at < len(given) for at in places):
        raise SquallError(
            f"RowsRefused names the rows {shown(places)}: name at least one by its position, from 0 to {len(given) - 1}"
        ) from error
    return {given[at]: clean(str(why)) for at, why in error.reasons.items()}


def letter_item(task: GatheringTask, refused: RefusedRow) -> list[Any]:
    """Return the tuple of a refused row as the item of a dead letter."""
    place, values, *marks = refused.origin
    item = item_at(task, place, values)
    return [*item[:4], *(marks or item[4:]), list(place[3])]


def give_up(task: GatheringTask, refused: Iterable[RefusedRow]) -> None:
    """Make dead letters of the tuples of rows, and send them to their readers."""
    for each in refused:
        task.failed += 1
        letter_readers.give_up(task, Parked(letter_item(task, each), 1, 0.0), each.why)
