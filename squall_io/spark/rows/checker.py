"""Turns rows of plain Python values into an Arrow table that Spark takes unchanged; for rows that do not fit, gives the reason.

The values of a column are checked together (fits.py). If this check cannot accept all values, values.py checks them one by one.
Measured for (string, bigint, timestamp): under half a microsecond per row, so the check costs little compared with Arrow's own
conversion.
Must not know: tuples, sessions, where the rows go (but it knows which values their file format cannot store).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from squall_io.spark.rows.fits import fit_of
from squall_io.spark.rows.formats import unkept
from squall_io.spark.rows.schema import Schema
from squall_io.spark.rows.types import Column, same_name
from squall_io.spark.rows.values import BadValue, Rules, nullable_converter
from topology_api.wording import typed

if TYPE_CHECKING:
    import pyarrow


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
        fitted: list[Sequence[object] | None] = []
        for place, column in enumerate(self._columns):
            fitted.append(column.all_fit(by_column[place]))
            if fitted[place] is None:
                by_column[place] = column.one_by_one(by_column[place], bad)
        if bad:
            good = [place for place in range(rows) if place not in bad]
            by_column = [[values[place] for place in good] for values in by_column]
            fitted = [
                None if before is None else column.all_fit(values)
                for before, column, values in zip(fitted, self._columns, by_column)
            ]
        chosen = (values if each is None else each for each, values in zip(fitted, by_column))
        return Columns(rows - len(bad), tuple(chosen)), bad

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

        from squall_io.spark.rows.arrow import array_of, arrow_schema

        schema = arrow_schema(self.schema)
        arrays = [array_of(values, each.type) for values, each in zip(columns.values, schema)]
        return pyarrow.table(arrays, schema=schema)


class _Column:
    """The checks of one column."""

    def __init__(self, column: Column, rules: Rules) -> None:
        self._name = column.name
        self._convert = nullable_converter(column, rules)
        #: Returns the values in a form that becomes an Arrow array, if all of them certainly fit. Otherwise returns None: each
        #: value must be checked.
        self.all_fit = fit_of(column, rules)

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
