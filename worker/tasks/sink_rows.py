"""The rows of a token sink from their epoch until they are written, with the tuples that they were made of.

The tuples are there for the dead letters of rows that cannot be kept, or that the system refuses for good. They are kept as
columns (measured for rows of three values: half the time of tuples), next to what their letters say else (`LetterMark`).
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

#: The tuple of a row: where it came from, and its values.
Origin = tuple[Source, tuple[Any, ...]]


class RefusedRow(msgspec.Struct, frozen=True):
    """A row that is not written: its position, its tuple, and why."""

    position: int
    origin: Origin
    why: str
    #: What the letter says of values that could not be kept; None: they all could.
    mark: Any = None


class OriginColumns(msgspec.Struct, frozen=True, array_like=True):
    """The tuples of one source. `positions`: of their rows; None: they are those of all rows."""

    component: str
    task: int
    stream: str
    fields: tuple[str, ...]
    positions: list[int] | None
    columns: list[list[Any]]

    def origin(self, at: int) -> Origin:
        """Return the tuple of the row at a position."""
        place = at if self.positions is None else self.positions.index(at)
        source = Source(self.component, self.task, self.stream, self.fields)
        return source, tuple(column[place] for column in self.columns)


class SinkRows(msgspec.Struct, frozen=True):
    """The rows of an epoch. `origins`: their tuples; None: what has written them did not keep these."""

    rows: list[Any]
    origins: list[OriginColumns] | None
    marks: dict[int, Any]
    #: Why a row cannot be read, by its position.
    unreadable: dict[int, str]

    def refused(self, reasons: Mapping[int, str]) -> list[RefusedRow]:
        """Return rows that are refused, by position, with the reasons. Raises SquallError if their tuples were not kept."""
        if self.origins is None:
            raise SquallError(
                "an earlier release has not kept the tuples of these rows: the table has to take them"
            )
        found = []
        for at, why in reasons.items():
            of = next(each for each in self.origins if each.positions is None or at in each.positions)
            found.append(RefusedRow(at, of.origin(at), why, self.marks.get(at)))
        return found


def columns_of(tuples: Sequence[Origin]) -> list[tuple[Any, ...]]:
    """Return tuples as they are kept: what `OriginColumns` has."""
    groups: dict[Source, tuple[list[int], list[tuple[Any, ...]]]] = {}
    for at, (source, values) in enumerate(tuples):
        group = groups.get(source)
        if group is None:
            group = groups[source] = [], []
        group[0].append(at)
        group[1].append(values)
    return [
        (
            source.component,
            source.task,
            source.stream,
            tuple(source.fields),
            None if len(groups) == 1 else positions,
            list(map(list, zip(*rows))),
        )
        for source, (positions, rows) in groups.items()
    ]


def pack(task: GatheringTask, rows: list[Any], tuples: Sequence[Origin]) -> bytes | None:
    """Return rows with their tuples; None: there are none. The tuples of rows that pickle cannot carry become dead letters of
    the epoch that ends."""
    if not rows:
        return None
    try:
        return dumps_by_value((rows, columns_of(tuples), {}), 5)
    except Exception:
        kept = [(row, *kept_origin(task, each)) for row, each in zip(rows, tuples) if keeps(task, row, each)]
    if not kept:
        return None
    marks = {at: mark for at, (_, _, mark) in enumerate(kept) if mark is not None}
    return dumps_by_value(([row for row, _, _ in kept], columns_of([each for _, each, _ in kept]), marks), 5)


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


def kept_origin(task: GatheringTask, origin: Origin) -> tuple[Origin, Any]:
    """Return a tuple in a form that pickle can carry, and its mark; None: it has none."""
    item = item_at(task, origin)
    return (origin, None) if len(item) == 4 else ((origin[0], pickle.loads(item[3])), item[4])


def item_at(task: GatheringTask, origin: Origin) -> list[Any]:
    """Return a tuple as the item of a dead letter."""
    source, values = origin
    return item_of(source.component, source.task, source.stream, values, source.fields, task.emitter.where())


def unpack(packed: bytes) -> SinkRows:
    """Return the rows of an epoch."""
    found, doubtful = loads(packed)
    if not isinstance(found, tuple):
        return SinkRows(found, None, {}, {})
    rows, origins, marks = found
    faults = unreadable_of((row,) for row in rows) if doubtful else {}
    return SinkRows(rows, [OriginColumns(*each) for each in origins], marks, faults)


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
    item = item_at(task, refused.origin)
    marks = item[4:] if refused.mark is None else [refused.mark]
    return [*item[:4], *marks, list(refused.origin[0].fields)]


def give_up(task: GatheringTask, refused: Iterable[RefusedRow]) -> None:
    """Make dead letters of the tuples of rows, and send them to their readers."""
    for each in refused:
        task.failed += 1
        letter_readers.give_up(task, Parked(letter_item(task, each), 1, 0.0), each.why)
