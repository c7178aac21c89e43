"""Turns rows of plain Python values into an Arrow table that Spark takes unchanged; for rows that do not fit, gives the reason.

The values of a column are checked together: types as a set, numbers while they are packed, texts after they are joined. If this
check cannot accept all values, values.py checks them one by one. Measured for (string, bigint, timestamp): under half a
microsecond per row, so the check costs little compared with Arrow's own conversion.
Must not know: tuples, sessions, where the rows go (but it knows which values their file format cannot store).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone, tzinfo
from decimal import Decimal as Number
from decimal import Inexact, InvalidOperation
from itertools import repeat
from operator import attrgetter, itemgetter, sub
from types import NoneType
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from squall_io.spark.rows.formats import unkept
from squall_io.spark.rows.schema import Schema
from squall_io.spark.rows.types import Column, Decimal, Simple, same_name
from squall_io.spark.rows.values import BadValue, Rules, exactly, nullable_converter
from topology_api.wording import typed

if TYPE_CHECKING:
    import pyarrow

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_zone_of: Final[Callable[[datetime], tzinfo | None]] = attrgetter("tzinfo")
#: Takes values of one Python type, without None. If all of them fit unchanged, returns them in a form that Arrow accepts; if
#: not, returns None.
Fit = Callable[[Sequence[Any]], "Sequence[object] | None"]


@dataclass(frozen=True)
class Columns:
    """Rows that fit their schema, column by column, in a form that Arrow accepts."""

    rows: int
    values: tuple[Sequence[object], ...]


class RowChecker:
    """Checks whether rows fit a table: its schema, its file format and its partition columns."""

    def __init__(
        self, schema: Schema, file_format: str = "parquet", partition_by: Sequence[str] = ()
    ) -> None:
        self.schema = schema
        partitions = {same_name(name) for name in partition_by}
        self._columns = [
            _Column(column, unkept(file_format, column.name, same_name(column.name) in partitions))
            for column in schema.columns
        ]

    def split(self, rows: Sequence[Sequence[object]]) -> tuple[Columns, list[tuple[int, str]]]:
        """Return the rows that fit, and the position and problem of each other row.

        rows: each row is a list of values, in the order of the schema's columns.
        """
        width = len(self._columns)
        found: dict[int, list[str]] = {}
        positions: Sequence[int] = range(len(rows))
        if not set(map(len, rows)) <= {width}:
            found = {
                position: [f"the row has {len(row)} values, and the schema has {width} columns"]
                for position, row in enumerate(rows)
                if len(row) != width
            }
            positions = [position for position in positions if position not in found]
            rows = [rows[position] for position in positions]
        columns, bad = self.split_columns(
            [list(map(itemgetter(place), rows)) for place in range(width)], len(rows)
        )
        found.update((positions[place], problems) for place, problems in bad.items())
        return columns, [(position, "; ".join(found[position])) for position in sorted(found)]

    def split_columns(
        self, columns: Sequence[Sequence[object]], rows: int
    ) -> tuple[Columns, dict[int, list[str]]]:
        """Return those of `rows` rows that fit, and the problems of each other row, by position."""
        by_column = list(columns)
        bad: dict[int, list[str]] = {}
        for place, (column, values) in enumerate(zip(self._columns, by_column)):
            fitting = column.all_fit(values)
            by_column[place] = column.one_by_one(values, bad) if fitting is None else fitting
        if bad:
            good = [place for place in range(rows) if place not in bad]
            by_column = [[values[place] for place in good] for values in by_column]
        return Columns(rows - len(bad), tuple(by_column)), bad

    def problem_of(self, row: Sequence[object]) -> str | None:
        """Return the problem of a row; None if it fits. For many rows at once, `split` is faster."""
        bad: dict[int, list[str]] = {}
        for column, value in zip(self._columns, row):
            if column.all_fit((value,)) is None:
                column.one_by_one((value,), bad)
        return "; ".join(bad[0]) if bad else None

    def table(self, columns: Columns) -> pyarrow.Table:
        """Return the rows as an Arrow table, with the types and names that Spark gives to this schema."""
        import pyarrow

        from squall_io.spark.rows.arrow import arrow_schema

        schema = arrow_schema(self.schema)
        arrays = [_array(values, each.type) for values, each in zip(columns.values, schema)]
        return pyarrow.table(arrays, schema=schema)


def _array(values: Sequence[Any], kind: pyarrow.DataType) -> pyarrow.Array:
    """Return values, all of which fit, as an Arrow array."""
    import pyarrow

    if isinstance(values, array):
        return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])
    if kind == pyarrow.timestamp("us", tz="UTC"):
        # Arrow calls Python for the offset of each value's zone, which takes 190 ns per value; the code below takes 50 ns.
        # (Python needs no offset for the difference of two times in one zone.)
        try:
            since = list(map(sub, values, repeat(_EPOCH)))
        except TypeError:  # there is a None among the values
            since = [None if value is None else value - _EPOCH for value in values]
        return pyarrow.array(since, pyarrow.duration("us")).view(kind)
    return pyarrow.array(values, kind)


class _Column:
    """The checks of one column."""

    def __init__(self, column: Column, rules: Rules) -> None:
        self._name = column.name
        self._nullable = column.nullable
        self._convert = nullable_converter(column, rules)
        self._plain, self._fit = _bulk_check(column, rules)

    def all_fit(self, values: Sequence[Any]) -> Sequence[object] | None:
        """Return the values if all of them certainly fit. Otherwise return None: each value must be checked."""
        types = set(map(type, values))
        if NoneType not in types:
            return self._fit(values) if types <= {self._plain} else None
        if not self._nullable or not types <= {self._plain, NoneType}:
            return None
        present = [value for value in values if value is not None]
        return None if self._fit(present) is None else values

    def one_by_one(self, values: Sequence[object], bad: dict[int, list[str]]) -> list[object]:
        """Return the converted values. Add the problems of values that do not fit to `bad`, by row."""
        plain: list[object] = []
        for place, value in enumerate(values):
            try:
                plain.append(self._one(value))
            except BadValue as problem:
                plain.append(None)
                bad.setdefault(place, []).append(f"field {self._name + problem.path!r}: {problem.why}")
        return plain

    def _one(self, value: object) -> object:
        try:
            return self._convert(value)
        except BadValue:
            raise
        except Exception as error:  # a user's class may run code when its values are read
            raise BadValue(f"{typed(value)} raises {type(error).__name__} when it is read: {error}") from None


def _bulk_check(column: Column, rules: Rules) -> tuple[type, Fit]:
    """Return the Python type whose values may fit unchanged, and the check of such values."""
    kind = column.type
    if isinstance(kind, Decimal):
        return Number, _fits_decimal(kind)
    if not isinstance(kind, Simple):
        return NoneType, _unchanged  # nested values are always checked one by one
    plain, fit = _BULK[kind.name]
    if (rule := rules.get(kind.name)) is None:
        return plain, fit
    return plain, _fits_if(lambda values: fit(values) is not None and not any(map(rule, set(values))))


def _unchanged(values: Sequence[Any]) -> Sequence[object]:
    return values


def _fits_if(check: Callable[[Sequence[Any]], bool]) -> Fit:
    """Return a `Fit` that returns values unchanged if they pass the check. The check may raise instead of returning False."""

    return _guarded(lambda values: values if check(values) else None)


def _packed(code: str) -> Fit:
    """Return a `Fit` that packs values into an `array` with Arrow's layout, which also checks their range. This takes 15 ns per
    value; Arrow's own conversion takes 55.
    """
    return _guarded(lambda values: array(code, values))


def _guarded(fit: Fit) -> Fit:
    """Return a `Fit` that also returns None if `fit` raises because of a value."""

    def guarded(values: Sequence[Any]) -> Sequence[object] | None:
        try:
            return fit(values)
        except (OverflowError, UnicodeEncodeError, Inexact, InvalidOperation):
            return None

    return guarded


def _is_float32(values: Sequence[float]) -> bool:
    # With "<", `struct` refuses values that are too large; without "<", it turns them into infinity, and so does `array`.
    struct.pack(f"<{len(values)}f", *values)
    return True


def _is_text(values: Sequence[str]) -> bool:
    joined = "".join(values)
    return joined.isascii() or bool(joined.encode())


def _is_instant(values: Sequence[datetime]) -> bool:
    zones = set(map(_zone_of, values))
    if zones == {timezone.utc}:
        return True
    # Arrow computes the offsets of these zones itself, except in the years 1 and 9999, where UTC may be out of range.
    return all(type(zone) in (timezone, ZoneInfo) for zone in zones) and all(
        1 < value.year < 9999 for value in values
    )


def _has_no_zone(values: Sequence[datetime]) -> bool:
    return set(map(_zone_of, values)) <= {None}


def _fits_decimal(kind: Decimal) -> Fit:
    scaled = exactly(kind)
    return _fits_if(lambda values: all(scaled(value).is_finite() for value in values))


#: For each type: the Python type whose values may fit unchanged, and the check of such values.
_BULK: Final[Mapping[str, tuple[type, Fit]]] = {
    "boolean": (bool, _unchanged),
    "tinyint": (int, _packed("b")),
    "smallint": (int, _packed("h")),
    "int": (int, _packed("i")),
    "bigint": (int, _packed("q")),
    "float": (float, _fits_if(_is_float32)),
    "double": (float, _packed("d")),
    "string": (str, _fits_if(_is_text)),
    "binary": (bytes, _unchanged),
    "date": (date, _unchanged),
    "timestamp": (datetime, _fits_if(_is_instant)),
    "timestamp_ntz": (datetime, _fits_if(_has_no_zone)),
}
