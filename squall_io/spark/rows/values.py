"""Checks whether a column's type accepts a value, and converts the value to a plain Python value.

Nothing is truncated or guessed. Nothing is rounded, except that a Python float in a `float` column becomes a 32-bit number. A
value that does not fit the type is refused; the error has its place in the row (`tags[3]`, `who.age`), the value and the type.
Scalars of NumPy and pandas are treated as their contents; neither library is imported.
Must not know: columns of many rows (checker.py), Arrow, why a format loses a value (formats.py passes `Rules`).
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, timezone
from decimal import Context, Inexact, InvalidOperation
from decimal import Decimal as Number
from typing import Any, Final

from squall_io.spark.rows.types import WHOLE, Array, Column, Decimal, Map, Struct, Type
from topology_api.wording import listed, nearest, shown, typed

#: Name of a simple type -> function that returns why a value would be lost when it is written; None: it is not lost.
Rules = Mapping[str, Callable[[Any], "str | None"]]
#: Converts a value to a plain Python value; raises `BadValue`.
Convert = Callable[[Any], Any]

_FLOAT32: Final = struct.Struct("<f")


class BadValue(Exception):
    """A value that its type does not accept. `path` is the place of this value inside the value that was checked."""

    def __init__(self, why: str, path: str = "") -> None:
        super().__init__(why, path)
        self.why = why
        self.path = path

    def within(self, step: str) -> BadValue:
        """Return the same error as seen from the enclosing value."""
        return BadValue(self.why, step + self.path)


def nullable_converter(column: Column, rules: Rules) -> Convert:
    """Return the converter of a column's or field's values, which may be None."""
    convert, nullable = converter(column.type, rules), column.nullable

    def converted(value: Any) -> Any:
        if value is not None:
            return convert(value)
        if not nullable:
            raise BadValue("None, where NOT NULL is declared")
        return None

    return converted


def converter(kind: Type, rules: Rules) -> Convert:
    """Return the converter of a type's values other than None."""
    if isinstance(kind, Array):
        return _array(kind, nullable_converter(Column("element", kind.element), rules))
    if isinstance(kind, Map):
        return _map(kind, converter(kind.key, rules), nullable_converter(Column("value", kind.value), rules))
    if isinstance(kind, Struct):
        return _struct(kind, rules)
    if isinstance(kind, Decimal):
        return _decimal(kind)
    convert, rule = _SIMPLE[kind.name], rules.get(kind.name)
    return convert if rule is None else _kept(convert, rule)


def _refused(value: object, kind: Type | str, more: str = "") -> BadValue:
    return BadValue(f"{typed(value)} is not a valid {kind}{more}")


def _kept(convert: Convert, rule: Callable[[Any], str | None]) -> Convert:
    def kept(value: Any) -> Any:
        plain = convert(value)
        if (why := rule(plain)) is not None:
            raise BadValue(f"{typed(value)}: {why}")
        return plain

    return kept


def _unboxed(value: Any) -> Any:
    """Return the contents of a NumPy scalar; any other value unchanged. (NumPy's dates are also returned unchanged, since their
    range is larger than that of Python's dates.)
    """
    if type(value) in (int, str, float):
        return value
    return value if _numpy_type(value) in ("", "ndarray", "datetime64", "timedelta64") else value.item()


def _numpy_type(value: object) -> str:
    """Return the name of a value's type if it is one of NumPy's, else ""."""
    return type(value).__name__ if type(value).__module__ == "numpy" else ""


# Numbers


def _boolean(value: Any) -> bool:
    if type(plain := _unboxed(value)) is not bool:
        raise _refused(value, "boolean")
    return plain


def _is_whole(plain: object) -> bool:
    return isinstance(plain, int) and not isinstance(plain, bool)


def _whole(name: str) -> Convert:
    least, greatest = WHOLE[name]

    def whole(value: Any) -> int:
        if not _is_whole(plain := _unboxed(value)):
            raise _refused(value, name)
        plain = int.__index__(plain)
        if not least <= plain <= greatest:
            raise BadValue(f"{typed(value)} is out of range for {name}: {least} to {greatest}")
        return plain

    return whole


def _float(value: Any) -> float:
    plain = _floating(value, "float")
    try:
        (narrow,) = _FLOAT32.unpack(_FLOAT32.pack(plain))
    except OverflowError:
        raise BadValue(f"{typed(value)} is out of range for float: declare a double") from None
    if isinstance(_unboxed(value), int) and narrow != plain:
        raise _refused(value, "float", ": it would be rounded")
    return plain


def _floating(value: Any, name: str = "double") -> float:
    if isinstance(plain := _unboxed(value), float):
        return float.__float__(plain)
    if not _is_whole(plain):
        raise _refused(value, name)
    try:
        result = float(plain)
    except OverflowError:
        raise BadValue(f"{typed(value)} is out of range for {name}") from None
    if result != plain:
        raise _refused(value, name, ": it would be rounded")
    return result


def exactly(kind: Decimal) -> Callable[[Number], Number]:
    """Return a function that brings a finite decimal to a type's scale; it raises `Inexact` or `InvalidOperation` if the value
    does not fit."""
    context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    unit = Number(1).scaleb(-kind.scale)
    return lambda number: number.quantize(unit, context=context)


def _decimal(kind: Decimal) -> Convert:
    scaled = exactly(kind)

    def decimal(value: Any) -> Number:
        if _is_whole(plain := _unboxed(value)):
            plain = Number(int.__index__(plain))
        if not isinstance(plain, Number) or not plain.is_finite():
            raise _refused(value, kind)
        try:
            return scaled(plain)
        except Inexact:
            raise _refused(value, kind, f": more than {kind.scale} digits after the point") from None
        except InvalidOperation:
            more = f": more than {kind.precision - kind.scale} digits before the point"
            raise _refused(value, kind, more) from None

    return decimal


# Text and bytes


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _refused(value, "string")
    plain = str.__str__(value)  # the value, for a member of an Enum
    try:
        plain.encode()
    except UnicodeEncodeError:
        raise BadValue(f"{typed(value)} holds half a surrogate pair, which is not text in UTF-8") from None
    return plain


def _binary(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray)):
        raise _refused(value, "binary")
    return bytes(memoryview(value))


# Times


def _date(value: Any) -> date:
    in_days = _numpy_type(value) == "datetime64" and value.dtype.name == "datetime64[D]"
    plain = value.item() if in_days else value
    if not isinstance(plain, date) or isinstance(plain, datetime):
        raise _refused(value, "date", ": give its date()" if isinstance(plain, datetime) else "")
    return date(plain.year, plain.month, plain.day)


def _timestamp(value: Any) -> datetime:
    if _numpy_type(value) == "datetime64":
        raise _refused(value, "timestamp", ": it has no time zone; give a datetime with a tzinfo")
    plain = _plain_datetime(value, "timestamp")
    if plain.utcoffset() is None:
        way_out = ": it has no time zone; give it a tzinfo, or declare timestamp_ntz"
        raise _refused(value, "timestamp", way_out)
    try:
        return plain.astimezone(timezone.utc)
    except OverflowError:
        raise BadValue(
            f"{typed(value)} is out of range for timestamp: in UTC its year is not 1 to 9999"
        ) from None


def _timestamp_ntz(value: Any) -> datetime:
    if _numpy_type(value) == "datetime64":
        micros = value.astype("datetime64[us]")
        if not isinstance(plain := micros.item(), datetime) or micros != value:
            raise _refused(value, "timestamp_ntz", ": microseconds of the years 1 to 9999 are kept")
        return plain
    plain = _plain_datetime(value, "timestamp_ntz")
    if plain.tzinfo is not None:
        way_out = ": it has a tzinfo; declare timestamp, or give its replace(tzinfo=None)"
        raise _refused(value, "timestamp_ntz", way_out)
    return plain


def _plain_datetime(value: Any, name: str) -> datetime:
    if type(value) is datetime:
        return value
    if not isinstance(value, datetime) or value != value:  # pandas' NaT is a datetime, and equals nothing
        raise _refused(value, name, ": a datetime is expected" if isinstance(value, date) else "")
    if getattr(value, "nanosecond", 0):
        raise _refused(value, name, ": it is finer than microseconds")
    clock = value.hour, value.minute, value.second, value.microsecond
    return datetime(value.year, value.month, value.day, *clock, value.tzinfo, fold=value.fold)


_SIMPLE: Final[Mapping[str, Convert]] = {
    **{name: _whole(name) for name in WHOLE},
    "boolean": _boolean,
    "float": _float,
    "double": _floating,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
}

# Values that contain values


def _array(kind: Array, element: Convert) -> Convert:
    def array(value: Any) -> list[Any]:
        is_numpy_list = _numpy_type(value) == "ndarray" and value.ndim == 1
        if not (isinstance(value, (list, tuple)) or is_numpy_list):
            raise _refused(value, kind, ": a list or a tuple is expected")
        plain: list[Any] = []
        try:
            for each in value:
                plain.append(element(each))
        except BadValue as bad:
            raise bad.within(f"[{len(plain)}]") from None
        return plain

    return array


def _map(kind: Map, convert_key: Convert, convert_value: Convert) -> Convert:
    def mapped(value: Any) -> list[tuple[Any, Any]]:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise _refused(value, kind, ": a dict is expected")
        plain: list[tuple[Any, Any]] = []
        for key, each in value.items():
            if key is None:
                raise BadValue("None cannot be a key of a map")
            try:
                plain_key = convert_key(key)
            except BadValue as bad:
                raise bad.within(f"'s key {shown(key)}") from None
            try:
                plain.append((plain_key, convert_value(each)))
            except BadValue as bad:
                raise bad.within(f"[{shown(key)}]") from None
        # Two keys of a dict may become one key of the map: for example a date, and NumPy's date of the same day.
        if len({key for key, _ in plain}) != len(plain):
            raise BadValue(f"{typed(value)} holds a key twice")
        return plain

    return mapped


def _struct(kind: Struct, rules: Rules) -> Convert:
    fields = {field.name: nullable_converter(field, rules) for field in kind.fields}

    def struct_of(value: Any) -> dict[str, Any]:
        given = value if type(value) is dict else _named(value, kind)
        if not given.keys() <= fields.keys():
            unknown = next(name for name in given if name not in fields)
            near = nearest(unknown, fields) if isinstance(unknown, str) else ""
            more = f"which the struct does not have{near}; it has {listed(fields)}"
            raise BadValue(f"{typed(value)} has {shown(unknown)}, {more}")
        plain: dict[str, Any] = {}
        for name, convert in fields.items():
            try:
                plain[name] = convert(given.get(name))
            except BadValue as bad:
                raise bad.within(f".{name}") from None
        return plain

    return struct_of


def _named(value: Any, kind: Struct) -> Mapping[str, Any]:
    """Return the values of a struct by their names, from any of the accepted forms."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if not isinstance(value, tuple):
        raise _refused(value, kind, ": a dict, a tuple or a dataclass is expected")
    own = getattr(value, "_fields", None) or getattr(
        value, "__fields__", None
    )  # of a namedtuple, or of Spark's Row
    names = own or [field.name for field in kind.fields]
    if len(value) != len(names):
        raise BadValue(f"{typed(value)} has {len(value)} values, and {kind} has {len(names)}")
    return dict(zip(names, value))
