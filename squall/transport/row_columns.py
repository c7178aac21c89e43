"""The values of a batch's tuples: rows that are read and written one by one, and encoded as columns.

`new_rows` returns a holder for such rows. In plain Python the holder is a list of rows, and the columns are made when a batch
is encoded (measured on CPython 3.11, three fields: 90 ns a tuple; a list per field takes 237 ns). In the compiled core it is a
`RowColumns`, with a list for each field, so that a row's Python tuple lives no longer than the call that emits or executes it.
Both holders take `append`, `len`, indices, slices, `del`, iteration and comparison. Must not know: ids, batches, bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import index
from typing import Any, cast

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython

if not cython.compiled:
    row_of = cast("Any", None)

Row = tuple[Any, ...]


class RowColumns:
    """Rows of `arity` values each, in columns. `first` is the first column, `others` are all further columns."""

    __slots__ = ("arity", "count", "first", "others")

    def __init__(self, arity: int) -> None:
        self.arity = arity
        self.count = 0
        self.first: list[Any] = []
        self.others: list[list[Any]] = [[] for _ in range(1, arity)]

    @cython.locals(at=cython.Py_ssize_t, column=list)
    def append(self, row: Row) -> None:
        """Add a row at the end. Raises ValueError if its length is not `arity`."""
        if len(row) != self.arity:
            raise ValueError(f"a row of {len(row)} values among rows of {self.arity}")
        if self.arity > 0:
            self.first.append(row[0])
        if self.arity > 1:
            for at in range(1, self.arity):
                column = self.others[at - 1]
                column.append(row[at])
        self.count += 1

    def row(self, at: int) -> Row:
        """Return the row at a position from 0 on."""
        if at < 0 or at >= self.count:
            raise IndexError(f"position {at} of {self.count} rows")
        if self.arity == 1:
            return (self.first[at],)
        if self.arity == 0:
            return ()
        if cython.compiled:
            return row_of(self.first, self.others, at)
        return (self.first[at], *[column[at] for column in self.others])

    def columns(self) -> list[list[Any]]:
        """Return the columns themselves, not copies; no columns if the rows have no values, or if there are no rows."""
        return [self.first, *self.others] if self.arity and self.count else []

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[Row]:
        return zip(self.first, *self.others) if self.arity else iter([()] * self.count)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            part = RowColumns(self.arity)
            part.first, part.others = self.first[at], [column[at] for column in self.others]
            part.count = len(range(*at.indices(self.count)))
            return part
        return self.row(self.position(at))

    def __delitem__(self, at: Any) -> None:
        if isinstance(at, slice):
            left = self.count - len(range(*at.indices(self.count)))
        else:
            self.row(self.position(at))  # checks the position, also if there are no columns
            left = self.count - 1
        for column in self.columns():
            del column[at]
        self.count = left

    def position(self, at: Any) -> int:
        """Convert a position that may count from the end to a position that counts from 0."""
        position = index(at)
        return position + self.count if position < 0 else position

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (RowColumns, list)):
            return list(self) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RowColumns({list(self)!r})"


def new_rows(arity: int) -> Any:
    """Return an empty holder of rows of `arity` values each."""
    return RowColumns(arity) if cython.compiled else []


def as_rows(rows: Any) -> Any:
    """Return these rows in a holder such as `new_rows` returns."""
    if not cython.compiled or isinstance(rows, RowColumns):
        return rows
    held = RowColumns(len(rows[0]) if rows else 0)
    for row in rows:
        held.append(row)
    return held


def columns_of(rows: Sequence[Row] | RowColumns) -> list[Sequence[Any]]:
    """Return the columns of rows; no columns if the rows have no values, or if there are no rows."""
    return rows.columns() if isinstance(rows, RowColumns) else list(zip(*rows))  # type: ignore[return-value]


def from_columns(columns: list[Any], count: int) -> Any:
    """Return rows made from columns of `count` values each; no other code may change the columns. If there are no columns, the
    rows are empty."""
    if not cython.compiled:
        return list(zip(*columns)) if columns else [()] * count
    rows = RowColumns(len(columns))
    if columns:
        rows.first, *rows.others = (as_list(column) for column in columns)
    rows.count = count
    return rows


def as_list(column: Iterable[Any]) -> list[Any]:
    """Return the column as a list, copied only if it is not one."""
    return column if isinstance(column, list) else list(column)
