"""Rows from Arrow's columns, as a stream and a replay have them: tuples of plain Python values.

A struct is a dict, a map is a dict, a timestamp is aware, in UTC. (pyarrow is imported where it is used.)
Must not know: schemas, where the columns come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow


def plain_rows(
    columns: Sequence[pyarrow.Array | pyarrow.ChunkedArray], rows: int
) -> Iterator[tuple[Any, ...]]:
    """Return the rows of columns with `rows` values each; there may be no columns."""
    return zip(*map(_plain_values, columns)) if columns else repeat((), rows)


def _plain_values(column: pyarrow.Array | pyarrow.ChunkedArray) -> list[Any]:
    import pyarrow

    if pyarrow.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pyarrow.timestamp("us", "UTC"))
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return values
