"""Turns tuples into rows: the values of the columns, by the names of the fields.

Must not know: the columns' types, where rows go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from squall_io.spark.rows.schema import Schema
from topology_api import Fields, Tuple
from topology_api.tuples import source_of, values_of
from topology_api.wording import listed

Row = tuple[Any, ...]
_Getter = Callable[[Row], Row]


class RowsOf:
    """Makes rows of tuples of any stream that has the fields.

    columns: those of the table. fields: those that tuples must have; a column of the table that is not among them (another
        sink added it) is null.
    """

    def __init__(self, columns: Schema, fields: Schema) -> None:
        self._fields = [
            None if (column := fields.column(name)) is None else column.name for name in columns.names
        ]
        self._getters: dict[Fields, _Getter | str] = {}

    def rows(self, tups: Sequence[Tuple]) -> tuple[list[Row], list[Tuple], list[tuple[Tuple, str]]]:
        """Return the rows, the tuple of each, and the tuples that lack a field, each with the reason."""
        getters = {source: self._getter_for(source.fields) for source in set(map(source_of, tups))}
        if len(set(getters.values())) == 1 and not isinstance(getter := next(iter(getters.values())), str):
            return _made_by(getter, tups), list(tups), []
        rows: list[Row] = []
        kept: list[Tuple] = []
        bad: list[tuple[Tuple, str]] = []
        for source, group in groupby(tups, source_of):  # neighbours come from the same task mostly
            same = list(group)
            getter = getters[source]
            if isinstance(getter, str):
                bad += [(tup, getter) for tup in same]
            else:
                rows += _made_by(getter, same)
                kept += same
        return rows, kept, bad

    def _getter_for(self, fields: Fields) -> _Getter | str:
        """Return what takes a row out of the values of a stream's tuples; a text: why that is impossible."""
        known = self._getters.get(fields)
        if known is not None:
            return known
        missing = [name for name in self._fields if name is not None and name not in fields]
        if missing:
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
    """Return the values of a stream whose fields are the columns: no new tuple is made, which would be half of the time."""
    return values


def _getter(places: list[int | None]) -> _Getter:
    """Return what takes the values at these places; None stands for a null."""
    if None in places:
        whole = _getter([-1 if place is None else place for place in places])
        return lambda values: whole((*values, None))
    if len(places) == 1:
        only = places[0]
        return lambda values: (values[only],)  # type: ignore[index]
    return itemgetter(*places)
