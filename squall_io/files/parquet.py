"""Rows of tuples as a parquet file, with the types of a schema in Spark's words.

Must not know: where files are, epochs.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

from squall_io.files.written import value_of
from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.schema import Schema
from topology_api import FailTuple, SquallError, Tuple

#: How many rows are converted at once: a call of Arrow blocks all other threads.
SLICE: Final = 4096


class ParquetRows:
    """Checks rows, and makes files of them."""

    def __init__(self, schema: Schema) -> None:
        """Raises SquallError if pyarrow is not installed."""
        if find_spec("pyarrow") is None:
            raise SquallError(
                "FileSink needs pyarrow for format 'parquet': install Squall with its extra `parquet`, also where workers run"
            )
        self._checker = RowChecker(schema)
        self._names = schema.names

    def row(self, tup: Tuple) -> tuple[Any, ...]:
        """Return the values of a tuple, which fit. Raises FailTuple for a tuple without a field, or with a value that its
        column does not take."""
        columns, wrong = self._checker.split([[value_of(tup, name) for name in self._names]])
        if wrong:
            raise FailTuple(wrong[0][1])
        return tuple(values[0] for values in columns.values)

    def file(self, rows: Sequence[Sequence[Any]]) -> bytes:
        """Return a parquet file with these rows."""
        import pyarrow.parquet

        from squall_io.spark.rows.arrow import joined

        tables = []
        for start in range(0, len(rows), SLICE):
            columns, wrong = self._checker.split(rows[start : start + SLICE])
            if wrong:
                raise SquallError(
                    f"row {start + wrong[0][0]} was changed after it was checked: {wrong[0][1]}"
                )
            tables.append(self._checker.table(columns))
        written = io.BytesIO()
        pyarrow.parquet.write_table(joined(tables), written)
        return written.getvalue()
