"""Rows for a schema, made from a seed: values at the limits of each type, those that formats are known to lose, and others."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal as Number
from typing import Any, Final

from squall_io.spark.rows.schema import Schema
from squall_io.spark.rows.types import WHOLE, Array, Decimal, Map, Struct, Type

TEXTS: Final = (
    "", "a", " ", " a", "a ", "\n", "\r", "\r\n", "a\nb", "a\rb\n", "\t", '"', '""', 'a"b', '"a"', '\\', "a\\", '\\"', "\\n",
    "\\\\N", "\\N ", ",", ";", '",', "',\"\n'", "'", "null", "NULL", "None", "NaN", "true", "0", "-", "#", "#a", "//", "/*",
    "\0", "\0a", "a\0b", "\x01", "\x1a", "\x7f", "\x85", "\u00a0", "\u2028", "\ufeff", "\ufeffa", "\ufffd", "é", "e\u0301",
    "😀", "{}", "[]", "%41", "__HIVE_DEFAULT_PARTITION", "x" * 40_000,
)  # fmt: skip
_DATES: Final = (
    date.min, date(1, 1, 3), date(1582, 10, 4), date(1582, 10, 15), date(1899, 12, 31), date(1969, 12, 31), date(1970, 1, 1),
    date(2000, 2, 29), date(2024, 3, 31), date(2024, 10, 27), date.max,
)  # fmt: skip
_CLOCKS: Final = (timedelta(), timedelta(microseconds=1), timedelta(hours=1, minutes=30), timedelta(hours=2, minutes=30),
                  timedelta(days=1, microseconds=-1))  # fmt: skip
_DOUBLES: Final = (
    0.0,
    -0.0,
    0.1,
    1e22,
    5e-324,
    -2.2250738585072014e-308,
    1.7976931348623157e308,
    math.inf,
    -math.inf,
    math.nan,
)
_FLOATS: Final = (
    0.0,
    -0.0,
    0.1,
    1e-45,
    1.17549435e-38,
    3.4028234663852886e38,
    16777216.0,
    math.inf,
    -math.inf,
    math.nan,
)


def rows_of(schema: Schema, count: int, seed: int) -> list[list[Any]]:
    """Rows that fit the schema; at least every sixth value is None where allowed."""
    chance = random.Random(seed)
    return [
        [value_of(column.type, chance, column.nullable) for column in schema.columns] for _ in range(count)
    ]


def value_of(kind: Type, chance: random.Random, nullable: bool = True) -> Any:
    """A value of a type."""
    if nullable and chance.random() < 1 / 6:
        return None
    if isinstance(kind, Array):
        return [value_of(kind.element, chance) for _ in range(chance.randrange(4))]
    if isinstance(kind, Map):
        keys = [value_of(kind.key, chance, nullable=False) for _ in range(chance.randrange(4))]
        return {key: value_of(kind.value, chance) for key in keys}
    if isinstance(kind, Struct):
        return {field.name: value_of(field.type, chance, field.nullable) for field in kind.fields}
    if isinstance(kind, Decimal):
        digits = chance.choice([0, 1, chance.randrange(10**kind.precision), 10**kind.precision - 1])
        return Number(f"{chance.choice('+-')}{digits}E-{kind.scale}")
    if kind.name in WHOLE:
        least, greatest = WHOLE[kind.name]
        return chance.choice([least, greatest, 0, -1, chance.randint(least, greatest)])
    return _SIMPLE[kind.name](chance)


def _text(chance: random.Random) -> str:
    if chance.random() < 0.7:
        return chance.choice(TEXTS)
    text = "".join(
        chr(chance.choice([chance.randrange(128), chance.randrange(0xD800)]))
        for _ in range(chance.randrange(9))
    )
    return text + "." if text == "\\N" else text


def _time(chance: random.Random) -> datetime:
    if chance.random() < 0.5:
        return datetime.combine(chance.choice(_DATES), datetime.min.time()) + chance.choice(_CLOCKS)
    return datetime(1970, 1, 1) + timedelta(microseconds=chance.randrange(-(2**55), 2**55))


def _float(chance: random.Random) -> float:
    (narrow,) = struct.unpack("<f", struct.pack("<f", chance.choice([*_FLOATS, chance.gauss(0, 1e6)])))
    return float(narrow)


_SIMPLE: Final[Mapping[str, Any]] = {
    "boolean": lambda chance: chance.random() < 0.5,
    "float": _float,
    "double": lambda chance: chance.choice([*_DOUBLES, chance.gauss(0, 1e6)]),
    "string": _text,
    "binary": lambda chance: chance.choice([b"", b"\0", b"\xff\xfe", chance.randbytes(9)]),
    "date": lambda chance: chance.choice([*_DATES, _time(chance).date()]),
    "timestamp": lambda chance: _time(chance).replace(tzinfo=timezone.utc),
    "timestamp_ntz": _time,
}


def differences(names: Sequence[str], written: Sequence[Any], read: Sequence[Any]) -> list[str]:
    """Where the rows that were read differ from those written; the first columns of both identify a row. Values are compared by
    their texts, so that NaN is NaN and the signs of zeros count. A map, whose pairs Arrow gives as tuples, has no order.
    """
    before, after = ({row[0]: row for row in rows} for rows in (written, read))
    found = [
        f"row {key!r} is there {'no more' if key in before else 'besides'}"
        for key in before.keys() ^ after.keys()
    ]
    if len(read) != len(written):
        found.append(f"{len(written)} rows were written, {len(read)} read")
    for key in before.keys() & after.keys():
        for name, old, new in zip(names, before[key], after[key]):
            if _text_of(old) != _text_of(new):
                found.append(f"{name} of row {key!r}: {old!r:.200} became {new!r:.200}")
    return found


def _text_of(value: Any) -> str:
    if isinstance(value, dict):
        return repr({name: _text_of(each) for name, each in value.items()})
    if not isinstance(value, list):
        return repr(value)
    if value and isinstance(value[0], tuple):
        return repr(sorted((repr(key), _text_of(each)) for key, each in value))
    return repr([_text_of(each) for each in value])
