"""Rows of tuples as a parquet file. Rows, schemas and their types in Arrow are those of a SparkSink (`squall_io.spark.rows`,
which needs no Spark). Here, pyarrow writes the file; for a SparkSink, Spark does, in one of its formats and with partitions.

Must not know: where files are, epochs.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec

from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.from_tuples import Row, RowsOf, table_of
from squall_io.spark.rows.schema import Schema
from topology_api import SquallError, Tuple


class ParquetRows:
    """Checks rows, and makes files of them."""

    def __init__(self, schema: Schema) -> None:
        """Raises SquallError if pyarrow is not installed."""
        if find_spec("pyarrow") is None:
            raise SquallError(
                "FileSink needs pyarrow for format 'parquet': install Squall with its extra `parquet`, also where workers run"
            )
        self._checker = RowChecker(schema)
        self._rows_of = RowsOf(schema, schema)

    def row(self, tup: Tuple) -> Row:
        """Return the values of a tuple, which fit. Raises FailTuple for a tuple without a field, or with a value that its
        column does not take."""
        return self._rows_of.row(tup, self._checker)

    def file(self, rows: Sequence[Row]) -> bytes:
        """Return a parquet file with these rows."""
        import pyarrow.parquet

        written = io.BytesIO()
        pyarrow.parquet.write_table(table_of(rows, self._checker), written)
        return written.getvalue()
