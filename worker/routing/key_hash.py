"""The content hash of a grouping key: 64 bits, the same in every process and on every machine.

Fields grouping and partial-key grouping send a tuple to `key_hash(key) % tasks`. They rely on one promise:
*keys that are `==` have the same hash*, whatever their types, the process, PYTHONHASHSEED, the machine or
the version of Python. Workers of one topology must agree on every hash, so this function is a wire
contract: if a result changes, keys go to other tasks (the tests pin values). This module must not know about
tasks, streams or components (its callers add the place of a key), must not call `hash()`, and must not
import numpy or pandas.

The canonical form of a key is a tag for its domain and a number:

- Numbers (bool, int, float, complex, Decimal, Fraction, numpy's) are one domain. A rational m/n becomes m *
  n**-1 modulo the prime 2**61 - 1, the scheme of "Hashing of numeric types" in the Python docs
  (library/stdtypes), which needs no huge integer for Decimal("1e999999999"). The scheme is implemented here,
  because the modulus behind `hash()` differs on 32-bit builds. Infinities and "no value" (NaN of any type,
  NaT) have special residues.
- Text is the CRC-32 of its UTF-8 (lone surrogates are allowed) together with its length; bytes likewise, in another domain.
- Instants are attoseconds since 1970, the finest unit of numpy.datetime64. Naive instants are taken as wall-clock time, and a
  date as its midnight (a numpy datetime64 can be equal to both). Aware instants are in UTC with fold=0, because `==` between
  aware datetimes ignores fold (PEP 495). Durations are attoseconds too; durations in numpy's years or months, which have no
  fixed number of days, are counted in months. Times of day are microseconds, less the UTC offset if they are aware.
- Tuples (namedtuples too), lists, frozensets and dataclasses combine the hashes of their items; a dataclass
  adds its qualified name. An Enum member without a mixed-in type is hashed by its class's qualified name and its own name. The
  module is left out: it is `__main__` in one process and has a name in another.
- A subclass is hashed as its base (StrEnum as str, IntFlag as int) as long as it inherits the base's
  `__eq__`. A subclass with its own `__eq__` is refused: it is unknown which of its values are equal.

Tag and number together go through the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable
pseudorandom number generators", 2014; constants: Stafford's mix 13), so that `h % n` is well spread for any
n, and the upper half of h gives a second choice that does not depend on the first. This hash is for
choosing tasks only. It does not identify a key (a string contributes about 32 bits), and does not protect
against keys that were chosen to collide.

No hash can keep the promise where numpy's own `==` is not transitive: numpy rounds before it compares
(np.float32(0.1) == 0.1, np.float64(2**53) == 2**53 + 1), and treats a bare number as equal in any unit
(np.timedelta64(5, "s") == 5). Here numbers have the same hash when their exact values are equal. A timedelta64 is a duration
and never a number; without a unit, it is refused.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from functools import partial
from typing import Any
from uuid import UUID
from zlib import crc32

from topology_api.errors import GroupingError
from worker.routing.text_hash import mix as _mix
from worker.routing.text_hash import text_hash

#: How deeply a key may be nested: far beyond any sensible key, far below Python's recursion limit.
MAX_DEPTH = 64

#: The most types whose handler is cached: a program that creates classes endlessly must not fill the memory.
MAX_CACHED_TYPES = 4096

#: Characters of a path that a message shows: a key that contains itself has a long path.
MAX_SHOWN_PATH = 60

_MASK = (1 << 64) - 1
_PRIME = (1 << 61) - 1
_INFINITE, _MINUS_INFINITE, _NO_VALUE, _NO_INVERSE = range(_PRIME, _PRIME + 4)  # no number has these residues
_STEP = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, odd: a hash is multiplied by it before an item is added

Handler = Callable[[Any, int], int]


class UngroupableKey(GroupingError):
    """A key without a content hash: the type that has none, its place in the key, and the reason.

    `path` is empty for the key itself; else `[1]` is a position, `.name` a field, `{}` an element of a
    frozenset. The callers of `key_hash` add the component, the stream and the field.
    """

    def __init__(self, type_name: str, path: str = "", reason: str = "") -> None:
        super().__init__(type_name, path, reason)
        self.type_name = type_name
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        path = self.path if len(self.path) <= MAX_SHOWN_PATH else self.path[:MAX_SHOWN_PATH] + "…"
        where = f" (at {path} in the key)" if path else ""
        return f"a value of type {self.type_name}{where} can't be a grouping key: {self.reason}"

    def _within(self, step: str) -> None:
        self.path = step + self.path
        self.args = (self.type_name, self.path, self.reason)


def key_hash(key: object) -> int:
    """Return the unsigned 64-bit content hash of `key`. Raises UngroupableKey for kinds that a key can't have."""
    kind = type(key)
    if kind is str:  # the two most common kinds skip the look-up (measured: a fifth of the cost)
        return text_hash(key)  # type: ignore[arg-type]
    if kind is int:
        return _mix(key % _PRIME ^ _NUMBER)  # type: ignore[operator]
    return _hash_of(key, MAX_DEPTH)


def two_choices(key: object, n: int) -> tuple[int, int]:
    """Return two different indexes below `n` for `key`; the first is `key_hash(key) % n`. If n is 1, return (0, 0)."""
    content = key_hash(key)  # also for one candidate: adding a task must not turn a key into an error
    if n < 2:
        if n < 1:
            raise ValueError(f"two_choices needs at least one candidate to choose from, not {n}")
        return 0, 0
    first = content % n
    second = (content >> 32) % (n - 1)
    return first, second + (second >= first)


# One tag per domain: numbers without a pattern, XORed in before the mixing.
_BYTES, _NUMBER, _COMPLEX, _NOTHING, _UUID, _ENUM, _DATACLASS = (_mix(tag) for tag in range(2, 9))
_TUPLE, _LIST, _FROZENSET = (_mix(tag) for tag in range(16, 19))
_WALL_CLOCK, _INSTANT, _DURATION, _MONTHS, _TIME, _AWARE_TIME = (_mix(tag) for tag in range(32, 38))


def _hash_of(key: Any, depth: int) -> int:
    kind = type(key)
    handler = _HANDLERS.get(kind)
    if handler is None:
        handler = _handler_for(kind)
        if len(_HANDLERS) < MAX_CACHED_TYPES:
            _HANDLERS[kind] = handler
    return handler(key, depth)


# -- Text, bytes, and the like. Base methods are called unbound: `==` of a subclass compares the base's content,
#    whatever the subclass's encode() or __iter__() returns.


def _text(key: str, _depth: int) -> int:
    return text_hash(str.__str__(key))


def _bytes(key: bytes, _depth: int) -> int:
    return _mix(crc32(key) ^ bytes.__len__(key) << 32 & _MASK ^ _BYTES)


def _none(_key: None, _depth: int) -> int:
    return _mix(_NOTHING)


def _uuid(key: UUID, _depth: int) -> int:
    return _mix(key.int % _PRIME ^ _UUID)


# -- Numbers


def _integer(key: int, _depth: int) -> int:
    return _mix(int.__mod__(key, _PRIME) ^ _NUMBER)


def _numpy_integer(key: Any, _depth: int) -> int:
    return _mix(key.item() % _PRIME ^ _NUMBER)


def _float(key: float, _depth: int) -> int:
    return _mix(_float_residue(key) ^ _NUMBER)


def _float_residue(value: Any) -> int:
    """Return the residue of a float, or of a numpy longdouble (which has the same methods, and a wider range)."""
    if value != value:
        return _NO_VALUE
    if value in (math.inf, -math.inf):
        return _INFINITE if value > 0 else _MINUS_INFINITE
    numerator, denominator = value.as_integer_ratio()
    # The denominator is 2**k, and 2**61 is 1 modulo the prime, so dividing by it is a shift.
    shift = -(int(denominator).bit_length() - 1) % 61
    return (int(numerator) << shift) % _PRIME


def _complex(key: Any, _depth: int) -> int:
    real, imaginary = _float_residue(key.real), _float_residue(key.imag)
    if _NO_VALUE in (real, imaginary):
        return _mix(_NO_VALUE ^ _NUMBER)
    if imaginary == 0:
        return _mix(real ^ _NUMBER)
    return _mix(_mix(real ^ _COMPLEX) ^ imaginary)


def _fraction(key: Fraction, _depth: int) -> int:
    denominator = key.denominator % _PRIME
    residue = key.numerator * pow(denominator, -1, _PRIME) % _PRIME if denominator else _NO_INVERSE
    return _mix(residue ^ _NUMBER)


def _decimal(key: Decimal, _depth: int) -> int:
    if Decimal.is_nan(key):
        return _mix(_NO_VALUE ^ _NUMBER)
    if Decimal.is_infinite(key):
        return _mix((_MINUS_INFINITE if Decimal.is_signed(key) else _INFINITE) ^ _NUMBER)
    sign, digits, exponent = Decimal.as_tuple(key)
    assert isinstance(exponent, int)  # the exponent is a letter only for NaN and infinity
    text = bytes(digits).translate(_DIGIT_TEXT)
    residue = 0
    for start in range(0, len(text), _DIGITS_AT_ONCE):
        piece = text[start : start + _DIGITS_AT_ONCE]
        residue = (residue * pow(10, len(piece), _PRIME) + int(piece)) % _PRIME
    residue = residue * pow(10, exponent, _PRIME) % _PRIME
    return _mix((-residue % _PRIME if sign else residue) ^ _NUMBER)


_DIGIT_TEXT = bytes((48 + byte) % 256 for byte in range(256))  # 0 -> b"0", ... 9 -> b"9"
_DIGITS_AT_ONCE = 600  # below the least limit (640) that sys.set_int_max_str_digits can be given


# -- Dates and times

_SECOND = 10**18
_UNITS = {  # numpy's linear units, in attoseconds
    "W": 604_800 * _SECOND, "D": 86_400 * _SECOND, "h": 3_600 * _SECOND, "m": 60 * _SECOND, "s": _SECOND,
    "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1,
}  # fmt: skip
_MONTHS_IN = {"Y": 12, "M": 1}  # numpy's units without a fixed number of days
_EPOCH = dt.date(1970, 1, 1).toordinal()
#: The count of NaT. The test `key != key` is not used: some versions of numpy deprecate times without a unit, and warn there.
_NUMPY_NAT = -(2**63)
_NUMPY_UNIT = re.compile(r"\[(\d*)([A-Za-z]+)\]")


def _date(key: dt.date, _depth: int) -> int:
    return _mix((key.toordinal() - _EPOCH) * _UNITS["D"] % _PRIME ^ _WALL_CLOCK)


def _datetime(key: dt.datetime, _depth: int) -> int:
    seconds = (key.toordinal() - _EPOCH) * 86_400 + key.hour * 3_600 + key.minute * 60 + key.second
    microseconds = seconds * 1_000_000 + key.microsecond
    offset = None if key.tzinfo is None else (key.replace(fold=0) if key.fold else key).utcoffset()
    if offset is None:
        return _mix(microseconds * _UNITS["us"] % _PRIME ^ _WALL_CLOCK)
    return _mix((microseconds - _microseconds(offset)) * _UNITS["us"] % _PRIME ^ _INSTANT)


def _time(key: dt.time, _depth: int) -> int:
    seconds = key.hour * 3_600 + key.minute * 60 + key.second
    offset = None if key.tzinfo is None else (key.replace(fold=0) if key.fold else key).utcoffset()
    if offset is None:
        return _mix((seconds * 1_000_000 + key.microsecond) ^ _TIME)
    # `==` of times ignores an offset's microseconds, and does not wrap around midnight.
    seconds -= offset.days * 86_400 + offset.seconds
    return _mix((seconds * 1_000_000 + key.microsecond) % _PRIME ^ _AWARE_TIME)


def _timedelta(key: dt.timedelta, _depth: int) -> int:
    return _mix(_microseconds(key) * _UNITS["us"] % _PRIME ^ _DURATION)


def _microseconds(value: dt.timedelta) -> int:
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds


def _days_before_month(months: int) -> int:
    """Return the days from 1970-01-01 to the first day of the month that is `months` months later, in any year (Gregorian)."""
    year, month = divmod(months, 12)
    year += 1970
    cycle, year = divmod(year, 400)  # the calendar repeats every 400 years = 146,097 days
    return cycle * 146_097 + dt.date(year + 400, month + 1, 1).toordinal() - 146_097 - _EPOCH


def _numpy_count(key: Any) -> tuple[int, str]:
    """Return the count and the unit of a datetime64 or timedelta64; (0, "") for NaT."""
    count = key.astype("int64").item()
    if count == _NUMPY_NAT:
        return 0, ""
    unit = _NUMPY_UNIT.search(key.dtype.str)
    if unit is None:
        raise UngroupableKey(
            _name_of(type(key)),
            reason="without a unit it equals the same number in every unit; give it a unit",
        )
    return count * int(unit[1] or 1), unit[2]


def _numpy_datetime(key: Any, _depth: int, tag: int = 0) -> int:
    count, unit = _numpy_count(key)
    if not unit:
        return _mix(_NO_VALUE ^ _NUMBER)
    if unit in _MONTHS_IN:
        count, unit = _days_before_month(count * _MONTHS_IN[unit]), "D"
    return _mix(count * _UNITS[unit] % _PRIME ^ (tag or _WALL_CLOCK))


def _numpy_timedelta(key: Any, _depth: int) -> int:
    count, unit = _numpy_count(key)
    if not unit:
        return _mix(_NO_VALUE ^ _NUMBER)
    if unit in _MONTHS_IN:
        return _mix(count * _MONTHS_IN[unit] % _PRIME ^ _MONTHS)
    return _mix(count * _UNITS[unit] % _PRIME ^ _DURATION)


def _pandas_timestamp(key: Any, depth: int) -> int:
    if key != key:  # NaT
        return _mix(_NO_VALUE ^ _NUMBER)
    if key.tzinfo is None or key.utcoffset() is None:
        return _numpy_datetime(key.to_datetime64(), depth)
    stamp = key.replace(fold=0) if key.fold else key
    return _numpy_datetime(stamp.to_datetime64(), depth, _INSTANT)


def _pandas_timedelta(key: Any, depth: int) -> int:
    return _numpy_timedelta(key.to_timedelta64(), depth)


# -- Keys that hold keys


def _combined(
    tag: int, key: object, items: Iterable[object], depth: int, names: tuple[str, ...] | None = None
) -> int:
    if depth == 0:
        raise _too_deep(key)
    content, position, depth = tag, 0, depth - 1
    handlers = _HANDLERS
    try:
        for item in items:
            handler = handlers.get(type(item)) or _hash_of  # looked up here, to save a call per item
            content = (content * _STEP + handler(item, depth)) & _MASK
            position += 1
    except UngroupableKey as error:
        error._within(f"[{position}]" if names is None else f".{names[position]}")
        raise
    return _mix(content ^ position)


def _too_deep(key: object) -> UngroupableKey:
    reason = f"the key is nested deeper than {MAX_DEPTH} levels, or holds itself"
    return UngroupableKey(_name_of(type(key)), reason=reason)


def _tuple(key: tuple[object, ...], depth: int) -> int:
    return _combined(_TUPLE, key, tuple.__iter__(key), depth)


def _list(key: list[object], depth: int) -> int:
    return _combined(_LIST, key, list.__iter__(key), depth)


def _frozenset(key: frozenset[object], depth: int) -> int:
    if depth == 0:
        raise _too_deep(key)
    total = frozenset.__len__(key)
    try:
        for item in frozenset.__iter__(key):
            total += _hash_of(item, depth - 1)  # a sum: the order of a set differs from process to process
    except UngroupableKey as error:
        error._within("{}")
        raise
    return _mix(total & _MASK ^ _FROZENSET)


def _dataclass(tag: int, names: tuple[str, ...], key: Any, depth: int) -> int:
    values = (getattr(key, name) for name in names)
    return _combined(tag, key, values, depth, names)


def _enum(tag: int, key: Enum, _depth: int) -> int:
    return _mix(crc32(key._name_.encode("utf-8", "surrogatepass")) ^ tag)


def _flag(tag: int, key: Flag, _depth: int) -> int:
    return _mix(key._value_ % _PRIME ^ tag)  # not every version of Python names a combination of flags


# -- The kind of a type

_HANDLERS: dict[type, Handler] = {
    str: _text, bytes: _bytes, type(None): _none, UUID: _uuid,
    int: _integer, bool: _integer, float: _float, complex: _complex, Decimal: _decimal, Fraction: _fraction,
    dt.datetime: _datetime, dt.date: _date, dt.time: _time, dt.timedelta: _timedelta,
    tuple: _tuple, list: _list, frozenset: _frozenset,
}  # fmt: skip
_BASES: tuple[tuple[type, Handler], ...] = tuple(_HANDLERS.items())
_NUMPY_KINDS: dict[str, Handler] = {  # by the scalar classes' names, the most specific base first
    "datetime64": _numpy_datetime, "timedelta64": _numpy_timedelta, "str_": _text, "bytes_": _bytes,
    "bool": _numpy_integer, "bool_": _numpy_integer, "integer": _numpy_integer,
    "floating": _float, "complexfloating": _complex,
}  # fmt: skip
_ADVICE = {
    "set": "a set may change; use a frozenset",
    "dict": "a dict may change; use a frozenset of its items, or some of its values as fields of their own",
    "bytearray": "a bytearray may change; use bytes",
    "memoryview": "its memory may change; use bytes",
    "numpy.ndarray": "an array is not a single value; use .item() of one element, or .tolist()",
}


def _name_of(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _eq(kind: type) -> Any:
    return kind.__eq__


def _handler_for(kind: type) -> Handler:
    """Return the handler of a type that is not in the table, according to the type's `__eq__`; or raise UngroupableKey."""
    if (foreign := _foreign_handler(kind)) is not None:
        return foreign
    for base, handler in _BASES:
        if issubclass(kind, base) and _eq(kind) is _eq(base):
            return handler
    if dataclasses.is_dataclass(kind):
        fields = [field for field in dataclasses.fields(kind) if field.compare]
        if _eq(kind) is _eq(object) or not kind.__dataclass_params__.eq:  # type: ignore[attr-defined]
            raise UngroupableKey(_name_of(kind), reason="a dataclass with eq=False has no content to compare")
        if not _compares_by_fields(kind, [field.name for field in fields]):
            raise UngroupableKey(_name_of(kind), reason=_OWN_EQ)
        return partial(_dataclass, _class_tag(kind, _DATACLASS), tuple(field.name for field in fields))
    if issubclass(kind, Enum) and _eq(kind) is _eq(object):
        return partial(_flag if issubclass(kind, Flag) else _enum, _class_tag(kind, _ENUM))
    reason = _ADVICE.get(_name_of(kind)) or (_OBJECT if _eq(kind) is _eq(object) else _OWN_EQ)
    raise UngroupableKey(_name_of(kind), reason=reason)


_OWN_EQ = "it has its own __eq__, so which of its values are equal is unknown; group by its parts"
_OBJECT = (
    "keys are None, bool, numbers, str, bytes, dates and times, Decimal, Enum, UUID, dataclasses, "
    "numpy scalars, and tuples, lists and frozensets of these; group by its parts, or make it a dataclass"
)


def _class_tag(kind: type, domain: int) -> int:
    return _mix(crc32(kind.__qualname__.encode("utf-8", "surrogatepass")) ^ domain)


def _foreign_handler(kind: type) -> Handler | None:
    """Return the handler of numpy's scalars and pandas' timestamps, recognised by name: neither library is imported here."""
    for base in kind.__mro__:
        home = base.__module__.partition(".")[0]
        if home in ("numpy", "pandas"):
            break
    else:
        return None
    if _eq(kind) is not _eq(base):
        return None
    if home == "numpy":
        names = [ancestor.__name__ for ancestor in base.__mro__ if ancestor.__module__ == "numpy"]
        return next((_NUMPY_KINDS[name] for name in names if name in _NUMPY_KINDS), None)
    if hasattr(base, "to_datetime64"):  # Timestamp, and NaT, which is a kind of datetime too
        return _pandas_timestamp
    return _pandas_timedelta if hasattr(base, "to_timedelta64") else None


def _compares_by_fields(kind: type, names: list[str]) -> bool:
    """Return whether `__eq__` is the one that dataclass() makes: eq=True does not replace an `__eq__` of the class."""
    code = getattr(_eq(kind), "__code__", None)
    made = _eq(dataclasses.make_dataclass("twin", names)).__code__
    return code is not None and (code.co_code, code.co_names, code.co_consts) == (
        made.co_code, made.co_names, made.co_consts,
    )  # fmt: skip
