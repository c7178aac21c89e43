"""Values of PostgreSQL as Python has them, from the text that the server sends.

The text is that of a connection with `DateStyle=ISO`, `TimeZone=UTC` and `bytea_output=hex`. What Python has no value for, such
as the date `infinity`, and types that are not listed here stay text. Must not know: columns, messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any, Final
from uuid import UUID


def _bool(text: str) -> bool:
    return {"t": True, "f": False}[text]


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError("no hex")
    return bytes.fromhex(text[2:])


def _timestamp(text: str) -> datetime:
    whole, _, fraction = text.partition(".")
    micros = int(fraction.ljust(6, "0")) if fraction else 0
    return datetime.strptime(whole, "%Y-%m-%d %H:%M:%S").replace(microsecond=micros)


def _timestamp_with_zone(text: str) -> datetime:
    if not text.endswith("+00"):
        raise ValueError("not in UTC")
    return _timestamp(text[:-3]).replace(tzinfo=timezone.utc)


def _time(text: str) -> time:
    return _timestamp(f"2000-01-01 {text}").time()


#: How texts become values, by the oid of the type (`SELECT oid, typname FROM pg_type`).
READERS: Final[Mapping[int, Callable[[str], Any]]] = {
    16: _bool,
    17: _bytes,
    20: int,
    21: int,
    23: int,
    26: int,
    114: json.loads,
    700: float,
    701: float,
    1082: date.fromisoformat,
    1083: _time,
    1114: _timestamp,
    1184: _timestamp_with_zone,
    1700: Decimal,
    2950: UUID,
    3802: json.loads,
}


def value_of(text: str, kind: int) -> Any:
    """Return a value; its text, if the type or the value is one that Python does not have. kind: the oid of its type."""
    if (reader := READERS.get(kind)) is None:
        return text
    try:
        return reader(text)
    except (ValueError, KeyError, ArithmeticError, RecursionError):
        return text
