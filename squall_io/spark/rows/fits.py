"""Checks the values of a column together: types as a set, numbers while they are packed, texts after they are joined.

Lists, maps and structs are taken apart into columns of what they contain, which are checked in the same way. If a check accepts
all values, values.py would accept each of them too, and the rows would be the same. If not, values.py says why.
Must not know: rows, Arrow (but it packs values in Arrow's layout).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone, tzinfo
from decimal import Decimal as Number
from decimal import Inexact, InvalidOperation
from itertools import accumulate, chain
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any, Final
from zoneinfo import ZoneInfo

from squall_io.spark.rows.types import Array, Column, Decimal, Map, Simple, Struct
from squall_io.spark.rows.values import Rules, exactly

_zone_of: Final[Callable[[datetime], tzinfo | None]] = attrgetter("tzinfo")


@dataclass(frozen=True)
class Nested(Sequence[object]):
    """Lists, maps or structs that fit, with columns of what they contain."""

    values: Sequence[Any]
    #: Which of them are not None; None: all.
    present: list[bool] | None
    #: Where the contents of each begin in the columns, and where those of the last end; None: structs, one in each row.
    offsets: array[int] | None
    #: The elements; the keys and the values; or the fields in the order of the type.
    inside: tuple[Sequence[object], ...]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: Any) -> Any:
        return self.values[place]


#: If all values fit unchanged, returns them in a form that becomes an Arrow array; if not, returns None.
Fit = Callable[[Sequence[Any]], "Sequence[object] | None"]


def fit_of(column: Column, rules: Rules) -> Fit:
    """Return the check of a column's values, which may contain None."""
    kind, nullable = column.type, column.nullable
    if isinstance(kind, Array):
        return _nested((list, tuple), nullable, _lists(fit_of(Column("element", kind.element), rules)))
    if isinstance(kind, Map):
        # Two times of different zones may be two keys of a dict, but one of a map.
        if kind.key == Simple("timestamp"):
            return _one_by_one
        key = fit_of(Column("key", kind.key, nullable=False), rules)
        return _nested((dict,), nullable, _maps(key, fit_of(Column("value", kind.value), rules)))
    if isinstance(kind, Struct):
        return _nested((dict, tuple), nullable, _structs(kind, rules))
    plain, fit = _simple_fit(kind, rules)

    def fitted(values: Sequence[Any]) -> Sequence[object] | None:
        types = set(map(type, values))
        if NoneType not in types:
            return fit(values) if types <= {plain} else None
        if not nullable or not types <= {plain, NoneType}:
            return None
        present = [value for value in values if value is not None]
        return None if fit(present) is None else values

    return fitted


def _one_by_one(values: Sequence[Any]) -> None:
    """Accept no values together."""


# Values that contain values

#: Where the contents begin (`Nested.offsets`), and the columns of them.
_Packed = tuple["array[int] | None", tuple[Sequence[object], ...]]
#: Packs values of the accepted types, with an empty one for each None.
_Pack = Callable[[Sequence[Any]], "_Packed | None"]


def _nested(accepted: tuple[type, ...], nullable: bool, pack: _Pack) -> Fit:
    """Return a `Fit` of values that contain values. Their types must be exactly these: a subclass may give other contents each
    time that it is read.
    """
    known, empty = frozenset(accepted), accepted[0]()

    def fitted(values: Sequence[Any]) -> Sequence[object] | None:
        types = set(map(type, values))
        given, present = values, None
        if NoneType in types:
            if not nullable:
                return None
            types.discard(NoneType)
            present = [value is not None for value in values]
            given = [empty if value is None else value for value in values]
        packed = pack(given) if types <= known else None
        return None if packed is None else Nested(values, present, *packed)

    return fitted


def _in_a_row(
    values: Sequence[Any], inside: Sequence[object] | None, *before: Sequence[object]
) -> _Packed | None:
    """Return contents that follow each other, unless they do not fit, or are more than Arrow can count."""
    if inside is None:
        return None
    try:
        return array("i", accumulate(map(len, values), initial=0)), (*before, inside)
    except OverflowError:
        return None


def _lists(element: Fit) -> _Pack:
    return lambda values: _in_a_row(values, element(list(chain.from_iterable(values))))


def _maps(key: Fit, value: Fit) -> _Pack:
    def pack(values: Sequence[Any]) -> _Packed | None:
        # The keys of a dict are different values of one type, so they are different keys of the map.
        if (keys := key(list(chain.from_iterable(values)))) is None:
            return None
        return _in_a_row(values, value(list(chain.from_iterable(map(dict.values, values)))), keys)

    return pack


def _structs(kind: Struct, rules: Rules) -> _Pack:
    names = [field.name for field in kind.fields]
    fits = [fit_of(field, rules) for field in kind.fields]

    def pack(values: Sequence[Any]) -> _Packed | None:
        # A None has become a struct without fields. If one of them is NOT NULL, it is refused here: see values.py.
        if (fields := _fields_of(values, names)) is None:
            return None
        inside: list[Sequence[object]] = []
        for fit, field in zip(fits, fields):
            if (fitted := fit(field)) is None:
                return None
            inside.append(fitted)
        return None, tuple(inside)

    return pack


def _fields_of(values: Sequence[Any], names: Sequence[str]) -> Sequence[Sequence[Any]] | None:
    """Return the values of each field; None if not all values are dicts, or tuples, with these fields."""
    types = set(map(type, values))
    if tuple in types:
        if dict in types:
            values = [value if value != {} else (None,) * len(names) for value in values]
        fits = set(map(type, values)) == {tuple} and set(map(len, values)) == {len(names)}
        return list(zip(*values)) if fits else None
    try:
        if sum(map(len, values)) == len(values) * len(names):
            return [list(map(itemgetter(name), values)) for name in names]
    except Exception:
        pass  # one lacks a field, or has a key that cannot be compared
    if set(map(type, chain.from_iterable(values))) <= {str} and set(chain.from_iterable(values)) <= set(
        names
    ):
        return [[value.get(name) for value in values] for name in names]
    return None


# Simple values


def _simple_fit(kind: Simple | Decimal, rules: Rules) -> tuple[type, Fit]:
    """Return the Python type whose values may fit unchanged, and the check of such values."""
    if isinstance(kind, Decimal):
        return Number, _fits_decimal(kind)
    plain, fit = _SIMPLE[kind.name]
    if (rule := rules.get(kind.name)) is None:
        return plain, fit
    return plain, _fits_if(lambda values: fit(values) is not None and not any(map(rule, set(values))))


def _unchanged(values: Sequence[Any]) -> Sequence[object]:
    return values


def _fits_if(check: Callable[[Sequence[Any]], bool]) -> Fit:
    """Return a `Fit` that returns values unchanged if they pass the check. The check may raise instead of returning False."""

    return _guarded(lambda values: values if check(values) else None)


def _packed(code: str) -> Fit:
    """Return a `Fit` that packs values into an `array` with Arrow's layout, which also checks their range. This takes 15 ns per
    value; Arrow's own conversion takes 55.
    """
    return _guarded(lambda values: array(code, values))


def _guarded(fit: Fit) -> Fit:
    """Return a `Fit` that also returns None if `fit` raises because of a value."""

    def guarded(values: Sequence[Any]) -> Sequence[object] | None:
        try:
            return fit(values)
        except (OverflowError, UnicodeEncodeError, Inexact, InvalidOperation):
            return None

    return guarded


def _is_float32(values: Sequence[float]) -> bool:
    # With "<", `struct` refuses values that are too large; without "<", it turns them into infinity, and so does `array`.
    struct.pack(f"<{len(values)}f", *values)
    return True


def _is_text(values: Sequence[str]) -> bool:
    joined = "".join(values)
    return joined.isascii() or bool(joined.encode())


def _is_instant(values: Sequence[datetime]) -> bool:
    zones = set(map(_zone_of, values))
    if zones == {timezone.utc}:
        return True
    # Arrow computes the offsets of these zones itself, except in the years 1 and 9999, where UTC may be out of range.
    return all(type(zone) in (timezone, ZoneInfo) for zone in zones) and all(
        1 < value.year < 9999 for value in values
    )


def _has_no_zone(values: Sequence[datetime]) -> bool:
    return set(map(_zone_of, values)) <= {None}


def _fits_decimal(kind: Decimal) -> Fit:
    scaled = exactly(kind)
    return _fits_if(lambda values: all(scaled(value).is_finite() for value in values))


#: For each type: the Python type whose values may fit unchanged, and the check of such values.
_SIMPLE: Final[Mapping[str, tuple[type, Fit]]] = {
    "boolean": (bool, _unchanged),
    "tinyint": (int, _packed("b")),
    "smallint": (int, _packed("h")),
    "int": (int, _packed("i")),
    "bigint": (int, _packed("q")),
    "float": (float, _fits_if(_is_float32)),
    "double": (float, _packed("d")),
    "string": (str, _fits_if(_is_text)),
    "binary": (bytes, _unchanged),
    "date": (date, _unchanged),
    "timestamp": (datetime, _fits_if(_is_instant)),
    "timestamp_ntz": (datetime, _fits_if(_has_no_zone)),
}
