"""Which values a column takes, as far as that is known before they are written.

Must not know: connections, tuples.
"""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import BigInteger, Column, SmallInteger

from topology_api.wording import typed

_NUMBERS: Final = (int, float, Decimal)
#: The types of values that a column of a Python type takes; columns of other types are checked by the database alone.
_TAKEN: Final[dict[type, tuple[type, ...]]] = {
    int: (int,),
    float: _NUMBERS,
    Decimal: _NUMBERS,
    str: (str,),
    bytes: (bytes, bytearray, memoryview),
    bool: (bool,),
    datetime: (datetime,),
    date: (date,),
    time: (time,),
}


def value_problem(column: Column[Any], value: object, dialect: str) -> str | None:
    """Return why a column does not take a value; None if nothing speaks against it."""
    if value is None:
        return None if column.nullable else f"column {column.name!r} is NOT NULL, and the value is None"
    try:
        kind = column.type.python_type
    except NotImplementedError:
        return None
    if (taken := _TAKEN.get(kind)) is None:
        return None
    if not isinstance(value, taken) or (isinstance(value, bool) and kind is not bool):
        return f"column {column.name!r} ({column.type}) does not take {typed(value)}"
    if isinstance(value, int) and kind is int:
        bits = _bits(column, dialect)
        if not -(2**bits) <= value < 2**bits:
            return f"column {column.name!r} ({column.type}) has {bits + 1} bits, too few for {typed(value)}"
    if isinstance(value, str):
        return _text_problem(column, value, dialect)
    return _sqlite_problem(column, value) if dialect == "sqlite" else None


def _text_problem(column: Column[Any], value: str, dialect: str) -> str | None:
    length = getattr(column.type, "length", None)
    if length is not None and len(value) > length and dialect != "sqlite":
        return f"column {column.name!r} takes {length} characters, and the value has {len(value)}"
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"column {column.name!r} ({column.type}) does not take {typed(value)}: it is no valid Unicode text"
    if "\0" in value and dialect == "postgresql":
        return f"column {column.name!r} ({column.type}) does not take {typed(value)}: it has a NUL character"
    return None


def _sqlite_problem(column: Column[Any], value: object) -> str | None:
    """SQLite takes integers of 64 bits, also in columns of floats, and NaN for NULL."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"column {column.name!r} ({column.type}) has 64 bits for integers, too few for {typed(value)}"
    if value != value and not column.nullable:
        return (
            f"column {column.name!r} is NOT NULL, and the value is {typed(value)}, which SQLite keeps as NULL"
        )
    return None


def _bits(column: Column[Any], dialect: str) -> int:
    if dialect == "sqlite" or isinstance(column.type, BigInteger):
        return 63
    return 15 if isinstance(column.type, SmallInteger) else 31
