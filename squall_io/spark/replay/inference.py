"""Infers the types of an output's columns from its values, for an output without a schema.

Every task inspects its emissions and records one type per field; the driver merges the types. If a field has no common type,
the error names both types. Nothing is widened silently: an int converted to a double may be a different value.
Must not know: Spark, tasks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal as DecimalValue
from enum import Enum
from typing import Any, Final

from squall_io.spark.rows.schema import Schema
from squall_io.spark.rows.types import MAX_PRECISION, WHOLE, Array, Column, Decimal, Map, Simple, Struct, Type
from topology_api.wording import typed

#: The type of a field whose values were all None so far.
NOTHING: Final = Simple("void")
WHOLE_NUMBER, DOUBLE, STRING, BINARY = map(Simple, ("bigint", "double", "string", "binary"))
DATE, TIMESTAMP, TIMESTAMP_NTZ = map(Simple, ("date", "timestamp", "timestamp_ntz"))
_LEAST, _MOST = WHOLE["bigint"]

#: Python type -> column type. `int` is missing, since an integer's size must be checked (`_whole`).
_PLAIN: Final[dict[type, Type]] = {
    type(None): NOTHING,
    bool: Simple("boolean"),
    float: DOUBLE,
    str: STRING,
    bytes: BINARY,
    bytearray: BINARY,
    date: DATE,
}


class TypeConflict(Exception):
    """Values without a common type; the text names the place and the types."""


def kinds_of(fields: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[Type]:
    """Return the type of each field, given the values of each. Raises `TypeConflict`, which names the field."""
    return [kind_of_all(f"field {name!r}", column) for name, column in zip(fields, columns)]


def kind_of_all(where: str, values: Sequence[Any]) -> Type:
    """Return the common type of these values."""
    types = set(map(type, values))
    kind: Type = NOTHING
    for plain in sorted(types & _PLAIN.keys(), key=lambda kind: kind.__name__):
        kind = merge_kinds(where, kind, _PLAIN[plain])
    if int in types:  # integers are common, and comparing only the extremes is quick
        numbers = values if types == {int} else [value for value in values if type(value) is int]
        kind = merge_kinds(where, kind, _whole(where, min(numbers), max(numbers)))
    slow = types - _PLAIN.keys() - {int}
    for value in values if slow else ():
        if type(value) in slow:
            kind = merge_kinds(where, kind, kind_of(where, value))
    return kind


def kind_of(where: str, value: Any) -> Type:
    """Return the type of one value; raise `TypeConflict` if no column can hold it."""
    if (plain := _PLAIN.get(type(value))) is not None:
        return plain
    for base, find in _LOOKS:
        if isinstance(value, base):
            return find(where, value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value)]
        return _struct(where, names, [getattr(value, name) for name in names])
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return kind_of(where, value.item())
    raise TypeConflict(f"{where}: no column type can hold {typed(value)}")


def _whole(where: str, least: int, most: int) -> Type:
    if least < _LEAST or most > _MOST:
        raise TypeConflict(
            f"{where}: {most if most > _MOST else least} does not fit into a bigint; declare the column as"
            " decimal(38,0) in a schema"
        )
    return WHOLE_NUMBER


def _decimal(where: str, value: DecimalValue) -> Type:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise TypeConflict(f"{where}: {typed(value)} is not a number for a decimal column")
    scale = max(0, -exponent)
    return Decimal(max(len(digits) + max(0, exponent), scale, 1), scale)


def _sequence(where: str, value: Any) -> Type:
    if isinstance(value, tuple) and (names := getattr(value, "_fields", None)) is not None:
        return _struct(where, names, value)
    return Array(kind_of_all(f"{where}, an element", list(value)))


def _map(where: str, value: dict[Any, Any]) -> Type:
    if None in value:
        raise TypeConflict(f"{where}: a map cannot have None as a key")
    keys, values = list(value), list(value.values())
    return Map(kind_of_all(f"{where}, a key", keys), kind_of_all(f"{where}, a value", values))


def _struct(where: str, names: Iterable[str], values: Iterable[Any]) -> Type:
    fields = (Column(name, kind_of(f"{where}.{name}", value)) for name, value in zip(names, values))
    return Struct(tuple(fields))


def _enum(where: str, value: Enum) -> Type:
    if isinstance(value, (str, int)):
        return STRING if isinstance(value, str) else WHOLE_NUMBER
    raise TypeConflict(f"{where}: no column type can hold {typed(value)}; emit its value or its name")


#: Checked in this order, since for isinstance a datetime is also a date, and an Enum may be an int or a str.
_LOOKS: Final[tuple[tuple[type, Callable[[str, Any], Type]], ...]] = (
    (Enum, _enum),
    (int, lambda where, value: _whole(where, int(value), int(value))),
    (float, lambda where, value: DOUBLE),
    (str, lambda where, value: STRING),
    (bytes, lambda where, value: BINARY),
    (datetime, lambda where, value: TIMESTAMP_NTZ if value.tzinfo is None else TIMESTAMP),
    (date, lambda where, value: DATE),
    (DecimalValue, _decimal),
    (dict, _map),
    (list, _sequence),
    (tuple, _sequence),
)


def merge_kinds(where: str, one: Type, other: Type) -> Type:
    """Return the common type of two types. Raises `TypeConflict`, which names both."""
    if one == other or NOTHING in (one, other):
        return other if one == NOTHING else one
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        scale = max(one.scale, other.scale)
        return Decimal(max(one.precision - one.scale, other.precision - other.scale) + scale, scale)
    if isinstance(one, Array) and isinstance(other, Array):
        return Array(merge_kinds(f"{where}, an element", one.element, other.element))
    if isinstance(one, Map) and isinstance(other, Map):
        key = merge_kinds(f"{where}, a key", one.key, other.key)
        return Map(key, merge_kinds(f"{where}, a value", one.value, other.value))
    if isinstance(one, Struct) and isinstance(other, Struct):
        pairs = list(zip(one.fields, other.fields))
        if len(one.fields) == len(other.fields) and all(a.name == b.name for a, b in pairs):
            merged = (replace(a, type=merge_kinds(f"{where}.{a.name}", a.type, b.type)) for a, b in pairs)
            return Struct(tuple(merged))
    first, second = sorted((str(one), str(other)))
    raise TypeConflict(f"{where}: some values are {first}, some {second}")


def merge_all(fields: Sequence[str], some: Sequence[Type], others: Sequence[Type]) -> list[Type]:
    """Return the merged type of each field. Raises `TypeConflict`, which names the field."""
    return [merge_kinds(f"field {name!r}", one, other) for name, one, other in zip(fields, some, others)]


def schema_of(fields: Sequence[str], kinds: Sequence[Type]) -> Schema:
    """Return the schema of rows whose fields have these types. Raises `TypeConflict`."""
    columns = (Column(name, settled(f"field {name!r}", kind)) for name, kind in zip(fields, kinds))
    return Schema(tuple(columns))


def settled(where: str, kind: Type) -> Type:
    """Return the type as a column type: a field that was always None is text. Raises `TypeConflict` for decimals with more
    digits than Spark allows."""
    if isinstance(kind, Decimal) and kind.precision > MAX_PRECISION:
        raise TypeConflict(
            f"{where}: its values need {kind}, but decimals have at most {MAX_PRECISION} digits"
        )
    if isinstance(kind, Array):
        return Array(settled(where, kind.element))
    if isinstance(kind, Map):
        return Map(settled(where, kind.key), settled(where, kind.value))
    if isinstance(kind, Struct):
        return Struct(tuple(replace(field, type=settled(where, field.type)) for field in kind.fields))
    return STRING if kind == NOTHING else kind
