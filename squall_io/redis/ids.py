"""Ids of entries of a stream, "1700000000000-3": text for people and for Redis, whole numbers to compare.

Must not know: servers, entries.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

_ID: Final = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")
_SEQUENCE: Final = 64
#: The greatest id.
_GREATEST: Final = (1 << 2 * _SEQUENCE) - 1
#: Before every entry.
NO_ID: Final = 0


def id_of(text: str | bytes) -> int:
    """Return an id as a number. Raises ValueError for a text that is none."""
    found = _ID.fullmatch(text if isinstance(text, str) else text.decode())
    if found is None:
        raise ValueError(f"{text!r} is no id")
    first, second = int(found[1]), int(found[2] or 0)
    if first >> _SEQUENCE or second >> _SEQUENCE:
        raise ValueError(f"{text!r} is greater than every id")
    return first << _SEQUENCE | second


def id_text(number: int) -> str:
    """Return an id as Redis writes it."""
    return f"{number >> _SEQUENCE}-{number & (1 << _SEQUENCE) - 1}"


def before_time(when: datetime) -> int:
    """Return the greatest id before the entries of a time."""
    number = int(when.timestamp() * 1000) << _SEQUENCE
    return min(max(number - 1, NO_ID), _GREATEST)
