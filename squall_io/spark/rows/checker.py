"""Turns rows of plain Python values into an Arrow table that Spark takes unchanged; rows that do not fit are returned with
reasons.

Values are checked by the column, all at once: types by a set, numbers by their extremes, texts joined. They are checked
one by
one, with values.py, only if that finds something that is not plainly right. Measured for (string, bigint, timestamp):
under half
a microsecond per row, so the check costs little beside Arrow's own conversion.
Must not know: tuples, sessions, where the rows go except for what their file format loses.
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
from squall_io.spark.rows.types import WHOLE, Column, Decimal, Simple, same_name
from squall_io.spark.rows.values import BadValue, Rules, converter, exactly
from topology_api.wording import typed

if TYPE_CHECKING:
    import pyarrow

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_zone_of: Final[Callable[[datetime], tzinfo | None]] = attrgetter("tzinfo")
#: Whether values of the plain type, none of them None, all fit unchanged.
Fit = Callable[[Sequence[Any]], bool]


@dataclass(frozen=True)
class Columns:
    """Rows that fit their schema, by the column, as Arrow takes them."""

    rows: int
    values: tuple[Sequence[object], ...]


class RowChecker:
    """Checks rows against a schema, as values of a table of this file format and these partition columns."""

    def __init__(
        self, schema: Schema, file_format: str = "parquet", partition_by: Sequence[str] = ()
    ) -> None:
        self.schema = schema
        partitions = {same_name(name) for name in partition_by}
        self._columns = [
            _Column(
                column, unkept(file_format, column.name if same_name(column.name) in partitions else None)
            )
            for column in schema.columns
        ]

    def split(self, rows: Sequence[Sequence[object]]) -> tuple[Columns, list[tuple[int, str]]]:
        """Return the rows that fit, and the position and problem of each other row.

        rows: their values in the order of the schema's columns.
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
        by_column: list[Sequence[object]] = [list(map(itemgetter(place), rows)) for place in range(width)]
        bad: dict[int, list[str]] = {}
        for place, column in enumerate(self._columns):
            fitting = column.all_fit(by_column[place])
            by_column[place] = column.one_by_one(by_column[place], bad) if fitting is None else fitting
        if bad:
            good = [place for place in range(len(rows)) if place not in bad]
            by_column = [[values[place] for place in good] for values in by_column]
            found.update((positions[place], problems) for place, problems in bad.items())
        columns = Columns(len(rows) - len(bad), tuple(by_column))
        return columns, [(position, "; ".join(found[position])) for position in sorted(found)]

    def table(self, columns: Columns) -> pyarrow.Table:
        """Return the rows as an Arrow table, with the types and names that Spark gives to this schema."""
        import pyarrow

        from squall_io.spark.rows.arrow import arrow_schema

        schema = arrow_schema(self.schema)
        arrays = [_array(values, each.type) for values, each in zip(columns.values, schema)]
        return pyarrow.table(arrays, schema=schema)


def _array(values: Sequence[Any], kind: pyarrow.DataType) -> pyarrow.Array:
    """Return values that fit as an Arrow array."""
    import pyarrow

    if isinstance(values, array):
        return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])
    if kind == pyarrow.timestamp("us", tz="UTC"):
        # Arrow asks each value's zone for its offset, by a Python call: 190 ns per value, this 50. The difference of two times
        # of one zone needs no offset.
        try:
            since = list(map(sub, values, repeat(_EPOCH)))
        except TypeError:  # there is a None among them
            since = [None if value is None else value - _EPOCH for value in values]
        return pyarrow.array(since, pyarrow.duration("us")).view(kind)
    return pyarrow.array(values, kind)


#: Types that `array` packs as Arrow has them, which looks at their range, too: 15 ns a value where Python's least and greatest
#: value and Arrow's own conversion take 55. (Not float: what is too large for it becomes infinite there.)
_PACKED: Final = {"tinyint": "b", "smallint": "h", "int": "i", "bigint": "q", "double": "d"}


class _Column:
    """The checks of one column."""

    def __init__(self, column: Column, rules: Rules) -> None:
        self._name = column.name
        self._nullable = column.nullable
        self._convert = converter(column.type, rules)
        self._plain, self._fit = _bulk_check(column, rules)
        #: The code of `array` for the type: makes one of plain values, none of them None, that are all in range.
        self._packed = (
            _PACKED.get(column.type.name)
            if isinstance(column.type, Simple) and not rules.get(column.type.name)
            else None
        )

    def all_fit(self, values: Sequence[Any]) -> Sequence[object] | None:
        """Return the values if all of them are plainly right; None: check each."""
        types = set(map(type, values))
        if self._packed is not None and types == {self._plain}:
            try:
                return array(self._packed, values)
            except OverflowError:
                return None
        if self._right(values, types):
            return values
        return None

    def _right(self, values: Sequence[Any], types: set[type]) -> bool:
        if NoneType in types:
            if not self._nullable:
                return False
            types.discard(NoneType)
            values = [value for value in values if value is not None]
        return not types or (types == {self._plain} and self._fit(values))

    def one_by_one(self, values: Sequence[object], bad: dict[int, list[str]]) -> list[object]:
        """Return the values as plain ones; add the problems of others to `bad`, by their places."""
        plain: list[object] = []
        for place, value in enumerate(values):
            try:
                plain.append(self._one(value))
            except BadValue as problem:
                plain.append(None)
                bad.setdefault(place, []).append(f"field {self._name + problem.path!r}: {problem.why}")
        return plain

    def _one(self, value: object) -> object:
        if value is None:
            if self._nullable:
                return None
            raise BadValue("None, where NOT NULL is declared")
        try:
            return self._convert(value)
        except BadValue:
            raise
        except Exception as error:  # a user's class may run code when its values are read
            raise BadValue(f"{typed(value)} raises {type(error).__name__} when it is read: {error}") from None


def _bulk_check(column: Column, rules: Rules) -> tuple[type, Fit]:
    """Return the one type whose values can be right unchanged, and the check of its values."""
    kind = column.type
    if isinstance(kind, Decimal):
        return Number, _fits_decimal(kind)
    if not isinstance(kind, Simple):
        return NoneType, bool  # nested values are always looked at one by one
    if kind.name in WHOLE:
        least, greatest = WHOLE[kind.name]
        return int, lambda values: min(values) >= least and max(values) <= greatest
    plain, fit = _BULK[kind.name]
    rule = rules.get(kind.name)
    if rule is None:
        return plain, fit
    return plain, lambda values: fit(values) and all(rule(value) is None for value in set(values))


def _always(values: Sequence[Any]) -> bool:
    return True


def _fits_float(values: Sequence[float]) -> bool:
    try:
        struct.pack(f"<{len(values)}f", *values)  # "<", since packing as the machine has it gives infinity
    except OverflowError:
        return False
    return True


def _fits_string(values: Sequence[str]) -> bool:
    joined = "".join(values)
    if joined.isascii():
        return True
    try:
        joined.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fits_timestamp(values: Sequence[datetime]) -> bool:
    zones = set(map(_zone_of, values))
    if zones == {timezone.utc}:
        return True
    # For these kinds Arrow gets a datetime's offset itself, except near the ends, where its UTC has no year.
    return all(type(zone) in (timezone, ZoneInfo) for zone in zones) and all(
        1 < value.year < 9999 for value in values
    )


def _fits_timestamp_ntz(values: Sequence[datetime]) -> bool:
    return set(map(_zone_of, values)) == {None}


def _fits_decimal(kind: Decimal) -> Fit:
    scaled = exactly(kind)

    def fits(values: Sequence[Number]) -> bool:
        try:
            return all(scaled(value).is_finite() for value in values)
        except (Inexact, InvalidOperation):
            return False

    return fits


_BULK: Final[Mapping[str, tuple[type, Fit]]] = {
    "boolean": (bool, _always),
    "float": (float, _fits_float),
    "double": (float, _always),
    "string": (str, _fits_string),
    "binary": (bytes, _always),
    "date": (date, _always),
    "timestamp": (datetime, _fits_timestamp),
    "timestamp_ntz": (datetime, _fits_timestamp_ntz),
}
