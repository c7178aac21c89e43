"""Rows from tuples, and Arrow tables from rows that have fit: for SparkSink, and for FileSink with parquet.

Must not know: tasks, epochs, where tables go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.schema import Schema
from topology_api import FailTuple, Fields, SquallError, Tuple
from topology_api.tuples import source_of, values_of
from topology_api.wording import listed

if TYPE_CHECKING:
    import pyarrow

#: How many tuples are converted to Arrow at once. A C call blocks all other threads: 20 ms for a column of a million values.
#: With so few tuples per call, the worker's loop does not notice the call, and the values stay in the processor's cache.
SLICE: Final = 4096

Row = tuple[Any, ...]
_Getter = Callable[[Row], Row]


def table_of(rows: Sequence[Row], checker: RowChecker) -> pyarrow.Table:
    """Return rows, each of which has fit, as an Arrow table. Raises SquallError for one that does not fit any more."""
    from squall_io.spark.rows.arrow import joined

    tables = []
    for start in range(0, len(rows), SLICE):
        columns, wrong = checker.split(rows[start : start + SLICE])
        if wrong:
            raise SquallError(
                f"the row {rows[start + wrong[0][0]]!r:.200} has changed since its tuple came: {wrong[0][1]}. Do not "
                "change a value that was emitted"
            )
        tables.append(checker.table(columns))
    return joined(tables)


class RowsOf:
    """Makes rows from tuples of any stream that has the fields of the schema.

    columns: the table's columns. fields: the columns that tuples must have; other columns of the table, which another sink
        added, become null.
    """

    def __init__(self, columns: Schema, fields: Schema) -> None:
        found = map(fields.column, columns.names)
        self._fields = [None if column is None else column.name for column in found]
        self._getters: dict[Fields, _Getter | str] = {}

    def row(self, tup: Tuple, checker: RowChecker) -> Row:
        """Return the row of a tuple, which fits. Raises FailTuple with the reason why there is none: another attempt would not
        help."""
        rows, _, lacking = self.rows((tup,))
        why = lacking[0][1] if lacking else checker.problem_of(rows[0])
        if why is not None:
            raise FailTuple(why)
        return rows[0]

    def rows(self, tups: Sequence[Tuple]) -> tuple[list[Row], list[Tuple], list[tuple[Tuple, str]]]:
        """Return the rows, the tuple of each, and the tuples that lack a field, each with the reason."""
        getters = {source: self._getter_for(source.fields) for source in set(map(source_of, tups))}
        if len(set(getters.values())) == 1 and not isinstance(getter := next(iter(getters.values())), str):
            return _made_by(getter, tups), list(tups), []
        rows: list[Row] = []
        kept: list[Tuple] = []
        bad: list[tuple[Tuple, str]] = []
        for source, group in groupby(tups, source_of):  # neighbouring tuples mostly come from the same task
            same = list(group)
            if isinstance(getter := getters[source], str):
                bad += [(tup, getter) for tup in same]
            else:
                rows += _made_by(getter, same)
                kept += same
        return rows, kept, bad

    def _getter_for(self, fields: Fields) -> _Getter | str:
        """Return a function that makes a row from the values of a stream's tuples, or the reason why that is impossible."""
        if (known := self._getters.get(fields)) is not None:
            return known
        if missing := [name for name in self._fields if name is not None and name not in fields]:
            found: _Getter | str = f"no field {listed(missing)}: the tuple's fields are {listed(fields)}"
        else:
            places = [None if name is None else fields.index(name) for name in self._fields]
            found = _as_they_are if places == [*range(len(fields))] else _getter(places)
        self._getters[fields] = found
        return found


def _made_by(getter: _Getter, tups: Sequence[Tuple]) -> list[Row]:
    values = map(values_of, tups)
    return list(values if getter is _as_they_are else map(getter, values))


def _as_they_are(values: Row) -> Row:
    """Return the values of a stream whose fields are the columns. Copying them would double the time for making rows."""
    return values


def _getter(places: list[int | None]) -> _Getter:
    """Return a function that makes a row from the values at these places; a place None becomes a null."""
    if None in places:
        whole = _getter([-1 if place is None else place for place in places])
        return lambda values: whole((*values, None))
    if len(places) == 1:
        only = places[0]
        return lambda values: (values[only],)  # type: ignore[index]
    return itemgetter(*places)
