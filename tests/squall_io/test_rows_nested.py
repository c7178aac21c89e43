"""Lists, maps and structs that are checked as columns: the same rows, and the same errors, as value by value."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, make_dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.fits import Nested
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.rows.types import Array, Column, Map, Simple, Struct, Type
from squall_io.spark.rows.types import Decimal as Number
from tests.spark.random_rows import value_of

np = pytest.importorskip("numpy")

UTC = timezone.utc
BERLIN = ZoneInfo("Europe/Berlin")
SIMPLE: tuple[Type, ...] = (
    *map(Simple, ("boolean", "tinyint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp")),
    Simple("timestamp_ntz"),
    Number(5, 2),
)  # fmt: skip
KEYS = tuple(kind for kind in SIMPLE if kind not in (Simple("float"), Simple("double")))


class Level(IntEnum):
    HIGH = 3


class Text(str):
    pass


class Odd:
    """A key that has the hash of a field and cannot be compared."""

    def __hash__(self) -> int:
        return hash("f0")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not today")


class Pair(NamedTuple):
    f1: object
    f0: object


@dataclass
class Point:
    f0: object


def type_of(chance: random.Random, depth: int) -> Type:
    """A type, with at most this many levels below it."""
    made = chance.choice(["simple", "array", "map", "struct", "struct"]) if depth else "simple"
    if made == "array":
        return Array(type_of(chance, depth - 1))
    if made == "map":
        return Map(chance.choice(KEYS), type_of(chance, depth - 1))
    if made == "struct":
        count = chance.randrange(1, 4)
        names = [f"f{number}" for number in range(count)]
        return Struct(
            tuple(Column(name, type_of(chance, depth - 1), chance.random() < 0.8) for name in names)
        )
    return chance.choice(SIMPLE)


ODD: Sequence[Callable[[], object]] = (
    lambda: True, lambda: Level.HIGH, lambda: Text("x"), lambda: 2**31, lambda: 2**63, lambda: 2**53 + 1, lambda: 1e300,
    lambda: float("nan"), lambda: "\ud800", lambda: bytearray(b"x"), lambda: object, lambda: None, lambda: np.int16(7),
    lambda: np.float32(0.5), lambda: np.bool_(True), lambda: np.array([1, 2]), lambda: np.datetime64("2026-11-21"),
    lambda: Decimal("1.234"), lambda: Decimal("NaN"), lambda: Decimal(10**6), lambda: date(2026, 1, 1), lambda: 3,
    lambda: datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1), lambda: datetime(2026, 1, 1), list, tuple,
    lambda: datetime.max.replace(tzinfo=timezone(timedelta(hours=-3))), dict, lambda: (None,), lambda: (1, "x"),
    lambda: {"f0": None}, lambda: {"f0": 1, "f9": 2}, lambda: {Text("f0"): None}, lambda: {Odd(): 1, "f1": 2},
    lambda: {datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN): 1, datetime(2024, 3, 31, 1, 30, tzinfo=UTC): 2}, lambda: Pair(1, 2),
    lambda: Point(4), lambda: OrderedDict(f0=1), lambda: make_dataclass("Wide", ["f0", "f1"])(1, "y"), lambda: [[1], None],
    lambda: {date(2026, 11, 21): 1, np.datetime64("2026-11-21"): 2}, lambda: {1: 2, Level.HIGH: 3}, str, lambda: {None: 1},
)  # fmt: skip


def other_form(kind: Type, value: Any, chance: random.Random) -> Any:
    """The value in one of the forms that are accepted for it."""
    if isinstance(kind, Array) and value is not None:
        items = [other_form(kind.element, each, chance) for each in value]
        return tuple(items) if chance.random() < 0.3 else items
    if isinstance(kind, Map) and value is not None:
        return {key: other_form(kind.value, each, chance) for key, each in value.items()}
    if isinstance(kind, Struct) and value is not None:
        named = {each.name: other_form(each.type, value[each.name], chance) for each in kind.fields}
        if chance.random() < 0.3:
            return tuple(named.values())
        return {name: each for name, each in named.items() if each is not None or chance.random() < 0.7}
    return value


def spoilt(value: Any, chance: random.Random) -> Any:
    """The value with an odd one somewhere in it."""
    if chance.random() < 0.4 or not value or not isinstance(value, (list, tuple, dict)):
        return chance.choice(ODD)()
    if isinstance(value, dict):
        key = chance.choice(list(value))
        return {**value, key: spoilt(value[key], chance)}
    place = chance.randrange(len(value))
    return type(value)([*value[:place], spoilt(value[place], chance), *value[place + 1 :]])


def judged(checker: RowChecker, rows: Sequence[Sequence[object]]) -> tuple[object, object]:
    """The Arrow table's contents as text, so that NaN is NaN and the signs of zeros count; and the errors."""
    columns, bad = checker.split(rows)
    table = checker.table(columns)
    table.validate(full=True)
    return [repr(column.to_pylist()) for column in table.columns], bad


def value_by_value(checker: RowChecker) -> RowChecker:
    for column in checker._columns:
        column.all_fit = lambda values: None
    return checker


@pytest.mark.parametrize("part", range(8))
def test_columns_and_single_values_give_the_same_rows_and_errors(part: int) -> None:
    together = 0
    for seed in range(part * 60, part * 60 + 60):
        chance = random.Random(seed)
        kind = type_of(chance, 3)
        column = Column("v", kind, nullable=chance.random() < 0.8)
        schema = parse_schema(f"n bigint, {column}")
        values = [
            other_form(kind, value_of(kind, chance, column.nullable), chance)
            for _ in range(chance.randrange(9))
        ]
        if values and chance.random() < 0.5:
            place = chance.randrange(len(values))
            values[place] = spoilt(values[place], chance)
        rows = list(enumerate(values))
        made = RowChecker(schema)

        assert judged(made, rows) == judged(value_by_value(RowChecker(schema)), rows), (
            f"seed {seed}, {column}"
        )
        together += isinstance(made.split(rows)[0].values[1], Nested)
    assert together > 4


def test_columns_are_the_ones_that_arrow_would_make_of_their_values() -> None:
    """Also in what a reader of the values does not see: which places are null, and the types of all levels."""
    schema = parse_schema(
        "a array<struct<x: int, y: string>>, m map<string, array<double>>, s struct<p: bigint NOT NULL, q: decimal(5,2)>"
    )
    rows = [
        ([{"x": 1, "y": "a"}, None, {"x": None}], {"k": [1.5, None], "l": None}, {"p": 1, "q": Decimal(2)}),
        (None, None, {"p": -1}),
        ([], {}, {"p": 3, "q": None}),
    ]
    checker = RowChecker(schema)
    columns, bad = checker.split(rows)
    assert bad == [] and all(isinstance(values, Nested) for values in columns.values)

    slow = value_by_value(RowChecker(schema))
    assert checker.table(columns).equals(slow.table(slow.split(rows)[0]), check_metadata=True)


def test_good_rows_beside_a_bad_one_are_packed_again() -> None:
    checker = RowChecker(parse_schema("n int, a array<struct<x: int>>"))
    columns, bad = checker.split([(1, [(1,)]), ("x", [{"x": 2}]), (3, None)])

    assert [place for place, _ in bad] == [1]
    assert checker.table(columns).to_pylist() == [{"n": 1, "a": [{"x": 1}]}, {"n": 3, "a": None}]
