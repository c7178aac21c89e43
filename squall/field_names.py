"""Matches values with the fields that their stream has now, by name: another version may have them in another order, or fewer.

Must not know: what the values belong to.
"""

from __future__ import annotations

from collections.abc import Sequence


def missing_fields(then: Sequence[str], now: Sequence[str]) -> list[str]:
    """Return the fields of now of which there are no values. Empty: the values fit."""
    return [name for name in now if name not in then]


def positions_by_name(then: Sequence[str], now: Sequence[str]) -> list[int]:
    """Return for each field of now the position of its value. None may be missing."""
    return [then.index(name) for name in now]


def of_which_no(missing: Sequence[str]) -> str:
    """Return the fields that are missing as a part of a sentence."""
    return " and no ".join(map(repr, missing))
