"""MapRows: the bolt between a source and a sink. It makes rows of tuples, and tuples of what a function makes of them.

Must not know: addresses, connectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from topology_api import Bolt, FailTuple, Fields, SquallError, Tuple
from topology_api.wording import listed, typed

#: From a row to a row, to several, or to none.
RowFunction = Callable[[dict[str, Any]], Mapping[str, Any] | Iterable[Mapping[str, Any]] | None]


class MapRows(Bolt):
    """Emits the fields of rows. A row is a dict: of the fields of a tuple, or the one value of a tuple if that is a dict.

    fields: the fields to emit. A row without one of them fails its tuple.
    function: makes a row, several, or None (no row) of each; None: rows stay as they are.
    whole: the name of a further field that has the row itself; None: there is none.
    """

    def __init__(
        self, fields: Sequence[str], function: RowFunction | None = None, whole: str | None = None
    ) -> None:
        self.outputs = Fields(*fields, *([] if whole is None else [whole]))
        self.fields = tuple(fields)
        self.function = function
        self.whole = whole

    def execute(self, tup: Tuple) -> None:
        """Emit the rows that the function makes of a tuple's row."""
        if self.function is None and self.whole is not None and not self.fields and len(tup.values) == 1:
            self.emit((tup.values[0],))  # as it is, also if it is no object, or None: a tombstone
            return
        row = row_of(tup)
        if self.function is None:
            self.emit(self._values(row))
            return
        made = self.function(row)
        if made is None:
            return
        rows = (made,) if isinstance(made, Mapping) or not isinstance(made, Iterable) else made
        for each in rows:
            if not isinstance(each, Mapping):
                name = getattr(self.function, "__qualname__", "the function")
                raise SquallError(
                    f"{name} returned {typed(made)}: return a dict, several dicts, or None for no row"
                )
            self.emit(self._values(each))

    def _values(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        try:
            values = [row[name] for name in self.fields]
            return tuple(values if self.whole is None else [*values, row])
        except KeyError as error:
            raise FailTuple(f"the row has no {error.args[0]!r}; it has {listed(row)}") from None


def row_of(tup: Tuple) -> dict[str, Any]:
    """Return a tuple as a row."""
    if len(tup.values) == 1 and isinstance(tup.values[0], dict):
        return tup.values[0]
    return dict(zip(tup.fields, tup.values, strict=True))
