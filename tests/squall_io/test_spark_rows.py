"""Rows against a schema: which values are accepted, their conversion, and the errors for others. Without Arrow and NumPy.

tests/spark/test_rows_arrow.py and test_formats.py test that Arrow and Spark keep accepted values.
"""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.fits import Nested
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.rows.types import SIMPLE
from squall_io.spark.rows.values import BadValue, converter

UTC = timezone.utc
BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Color(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Apart(str):
    """Texts that a dict keeps apart although they are equal."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Plain(enum.Enum):
    RED = "red"


class Day(date):
    pass


@dataclass
class Person:
    age: int
    name: str = "Ann"


class Named(NamedTuple):
    name: str
    age: int


class Raises(dict[str, int]):
    def keys(self) -> Any:
        raise RuntimeError("not today")


def taken(kind: str, value: object, **table: Any) -> object:
    """The conversion of a value for a type."""
    checker = RowChecker(parse_schema(f"v {kind}"), **table)
    columns, bad = checker.split([(value,)])
    assert bad == [] and checker.problem_of((value,)) is None
    if isinstance(columns.values[0], Nested):  # it becomes plain in Arrow
        return checker.table(columns).column(0).to_pylist()[0]
    return columns.values[0][0]


def said(kind: str, value: object, **table: Any) -> str:
    """The error for a value that a type does not accept."""
    checker = RowChecker(parse_schema(f"v {kind}"), **table)
    columns, bad = checker.split([(value,)])
    assert [checker.problem_of((value,))] == [why for _, why in bad]
    assert columns.rows == 0
    assert [len(values) for values in columns.values] == [0]
    assert [position for position, _ in bad] == [0]
    return bad[0][1]


def comparable(value: object) -> object:
    """The value in a form whose `==` compares all that matters: signs of zeros, and instants, which are otherwise never equal
    across zones during a repeated hour.
    """
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


TAKEN = [
    ("boolean", True, True),
    ("tinyint", -128, -128),
    ("smallint", 2**15 - 1, 2**15 - 1),
    ("int", Level.HIGH, 3),
    ("bigint", -(2**63), -(2**63)),
    ("float", 0.1, 0.1),
    ("float", 2**24, 2.0**24),
    ("float", math.inf, math.inf),
    ("double", 2**53, 2.0**53),
    ("double", -0.0, -0.0),
    ("decimal(5,2)", Decimal("1.5"), Decimal("1.50")),
    ("decimal(5,2)", Decimal("1E+2"), Decimal(100)),
    ("decimal(5,2)", 999, Decimal(999)),
    ("decimal(38,38)", Decimal("0." + "9" * 38), Decimal("0." + "9" * 38)),
    ("string", "", ""),
    ("string", "a\0é😀", "a\0é😀"),
    ("string", Color.RED, "red"),
    ("binary", b"\xff", b"\xff"),
    ("binary", bytearray(b"x"), b"x"),
    ("date", date(1, 1, 1), date(1, 1, 1)),
    ("date", Day(9999, 12, 31), date(9999, 12, 31)),
    ("timestamp", NOON, NOON),
    ("timestamp", datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1), datetime(2024, 10, 27, 1, 30, tzinfo=UTC)),
    ("timestamp_ntz", datetime(2024, 1, 1, 0, 0, 0, 1), datetime(2024, 1, 1, 0, 0, 0, 1)),
    ("array<string>", ("a", None, Color.RED), ["a", None, "red"]),
    ("array<array<int>>", [[1], [], None], [[1], [], None]),
    ("map<string, int>", {"a": 1, Color.RED: None}, [("a", 1), ("red", None)]),
    ("map<int, struct<age: int>>", OrderedDict({1: {"age": 2}}), [(1, {"age": 2})]),
    ("struct<age: int, name: string>", {"name": "x"}, {"age": None, "name": "x"}),
    ("struct<age: int, name: string>", (3, "x"), {"age": 3, "name": "x"}),
    ("struct<age: int, name: string>", Named("x", 3), {"age": 3, "name": "x"}),
    ("struct<age: int, name: string>", Person(3), {"age": 3, "name": "Ann"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "plain"), TAKEN, ids=str)
def test_a_value_of_the_type_is_accepted_by_its_content(kind: str, value: object, plain: object) -> None:
    result = taken(kind, value)

    assert comparable(result) == comparable(plain)
    assert type(result) is type(plain)


@pytest.mark.parametrize(
    "kind", [*sorted(SIMPLE), "decimal(5,2)", "array<int>", "map<int, int>", "struct<a: int>"]
)
def test_none_is_accepted_by_every_type_unless_it_is_declared_not_null(kind: str) -> None:
    assert taken(kind, None) is None
    assert said(f"{kind} NOT NULL", None) == "field 'v': None, where NOT NULL is declared"


def test_nan_is_a_number_of_floating_point_and_no_decimal() -> None:
    assert math.isnan(taken("float", math.nan))  # type: ignore[arg-type]
    assert math.isnan(taken("double", math.nan))  # type: ignore[arg-type]
    for text in ("NaN", "sNaN", "Infinity"):
        assert "is not a valid decimal(5,2)" in said("decimal(5,2)", Decimal(text))


REFUSED = [
    ("bigint", "x", "field 'v': 'x' (str) is not a valid bigint"),
    ("bigint", True, "field 'v': True (bool) is not a valid bigint"),
    ("bigint", 1.0, "field 'v': 1.0 (float) is not a valid bigint"),
    ("bigint", Decimal(1), "field 'v': Decimal('1') (Decimal) is not a valid bigint"),
    ("tinyint", 128, "field 'v': 128 (int) is out of range for tinyint: -128 to 127"),
    ("bigint", 2**63, "is out of range for bigint"),
    ("boolean", 1, "field 'v': 1 (int) is not a valid boolean"),
    ("float", "1", "field 'v': '1' (str) is not a valid float"),
    ("float", True, "is not a valid float"),
    ("float", 1e39, "field 'v': 1e+39 (float) is out of range for float: declare a double"),
    ("float", 2**24 + 1, "is not a valid float: it would be rounded"),
    ("double", 2**53 + 1, "is not a valid double: it would be rounded"),
    ("double", 10**400, "is out of range for double"),
    ("double", Decimal(1), "is not a valid double"),
    ("decimal(5,2)", 1.5, "field 'v': 1.5 (float) is not a valid decimal(5,2)"),
    ("decimal(5,2)", True, "is not a valid decimal(5,2)"),
    ("decimal(5,2)", Decimal("1.005"), "is not a valid decimal(5,2): more than 2 digits after the point"),
    ("decimal(5,2)", Decimal("1E+3"), "is not a valid decimal(5,2): more than 3 digits before the point"),
    ("decimal(5,2)", 1000, "is not a valid decimal(5,2): more than 3 digits before the point"),
    ("string", b"x", "field 'v': b'x' (bytes) is not a valid string"),
    ("string", Plain.RED, "(Plain) is not a valid string"),
    ("string", "a\ud800", "holds half a surrogate pair, which is not text in UTF-8"),
    ("binary", "x", "field 'v': 'x' (str) is not a valid binary"),
    ("date", NOON, "(datetime) is not a valid date: give its date()"),
    ("date", "2026-11-21", "field 'v': '2026-11-21' (str) is not a valid date"),
    ("timestamp", date(2026, 11, 21), "(date) is not a valid timestamp: a datetime is expected"),
    ("timestamp", NOON.replace(tzinfo=None), "it has no time zone; give it a tzinfo, or declare timestamp_ntz"),
    ("timestamp", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "in UTC its year is not 1 to 9999"),
    ("timestamp", 1_700_000_000, "is not a valid timestamp"),
    ("timestamp_ntz", NOON, "it has a tzinfo; declare timestamp, or give its replace(tzinfo=None)"),
    ("array<string>", "abc", "field 'v': 'abc' (str) is not a valid array<string>: a list or a tuple is expected"),
    ("array<string>", {"a"}, "is not a valid array<string>"),
    ("array<string>", ["a", "b", 3], "field 'v[2]': 3 (int) is not a valid string"),
    ("array<struct<a: array<int>>>", [None, {"a": [1, "x"]}], "field 'v[1].a[1]': 'x' (str) is not a valid int"),
    ("map<string, int>", [("a", 1)], "is not a valid map<string, int>: a dict is expected"),
    ("map<string, int>", {"a": "x"}, "field \"v['a']\": 'x' (str) is not a valid int"),
    ("map<string, int>", {1: 1}, "field \"v's key 1\": 1 (int) is not a valid string"),
    ("map<string, int>", {Apart("a"): 1, Apart("a"): 2}, "field 'v': {'a': 1, 'a': 2} (dict) holds a key twice"),
    ("map<string, int>", {None: 1}, "field 'v': None cannot be a key of a map"),
    ("struct<age: int>", {"age": "x"}, "field 'v.age': 'x' (str) is not a valid int"),
    ("struct<age: int NOT NULL>", {}, "field 'v.age': None, where NOT NULL is declared"),
    ("struct<age: int NOT NULL>", {"age": None}, "field 'v.age': None, where NOT NULL is declared"),
    ("struct<age: int>", {"aeg": 1}, "has 'aeg', which the struct does not have; did you mean 'age'?; it has 'age'"),
    ("struct<age: int>", Person(1), "has 'name', which the struct does not have"),
    ("struct<age: int>", Person, "(type) is not a valid struct<age: int>: a dict, a tuple or a dataclass is expected"),
    ("struct<age: int>", (1, 2), "field 'v': (1, 2) (tuple) has 2 values, and struct<age: int> has 1"),
    ("struct<age: int>", [1], "is not a valid struct<age: int>"),
    ("struct<age: int>", Raises(age=1), "field 'v': {'age': 1} (Raises) raises RuntimeError when it is read: not today"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "text"), REFUSED, ids=[f"{kind}-{n}" for n, (kind, _, _) in enumerate(REFUSED)]
)
def test_another_value_is_refused_with_its_place_the_value_and_the_expected_type(
    kind: str, value: object, text: str
) -> None:
    assert text in said(kind, value)


def test_a_bad_row_does_not_affect_others() -> None:
    checker = RowChecker(parse_schema("word string NOT NULL, count bigint, at timestamp"))
    rows: list[tuple[object, ...]] = [
        ("a", 1, NOON),
        (None, "x", NOON),
        ("b", 2),
        ("c", None, None),
        ("d", 2**63, NOON),
    ]

    columns, bad = checker.split(rows)

    assert columns.rows == 2
    assert [list(values) for values in columns.values] == [["a", "c"], [1, None], [NOON, None]]
    assert bad == [
        (1, "field 'word': None, where NOT NULL is declared; field 'count': 'x' (str) is not a valid bigint"),
        (2, "the row has 2 values, and the schema has 3 columns"),
        (4, "field 'count': 9223372036854775808 (int) is out of range for bigint: "
            "-9223372036854775808 to 9223372036854775807"),
    ]  # fmt: skip


def test_no_rows_are_columns_without_values() -> None:
    columns, bad = RowChecker(parse_schema("a int, b string")).split([])

    assert (columns.rows, [list(values) for values in columns.values], bad) == (0, [[], []], [])


VALUES: dict[str, st.SearchStrategy[object]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-140, 140),
    "bigint": st.integers(-(2**63) - 1, 2**63),
    "float": st.floats() | st.floats(width=32) | st.integers(2**24, 2**24 + 1),
    "double": st.floats() | st.integers(2**53, 2**53 + 1),
    "decimal(5,2)": st.decimals(-1100, 1100, places=2) | st.decimals(),
    "string": st.text(st.characters()) | st.sampled_from(["\ud800", Color.RED]),
    "binary": st.binary() | st.binary().map(bytearray),
    "date": st.dates() | st.datetimes(),
    "timestamp": st.datetimes(timezones=st.sampled_from([UTC, BERLIN, timezone(timedelta(hours=14)), None])),
    "timestamp_ntz": st.datetimes() | st.datetimes(timezones=st.just(UTC)),
}


@pytest.mark.parametrize("kind", VALUES)
@given(st.data())
def test_many_rows_are_judged_like_each_alone(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind] | st.just(object), max_size=6))
    schema = parse_schema(f"v {kind}")
    convert = converter(schema.columns[0].type, {})

    columns, bad = RowChecker(schema).split([(value,) for value in values])

    expected: list[object] = []
    wrong = []
    for position, value in enumerate(values):
        try:
            expected.append(None if value is None else convert(value))
        except BadValue as problem:
            wrong.append((position, f"field 'v': {problem.why}"))
    assert bad == wrong
    assert list(map(comparable, columns.values[0])) == list(map(comparable, expected))


@pytest.mark.parametrize(
    ("kind", "value", "table", "text"),
    [
        ("string", "\\N", {"file_format": "csv"}, "field 'v': '\\\\N' (str): csv takes it for null"),
        ("string", "", {"partition_by": ["V"]}, "a partition's folder cannot tell it from null"),
        ("string", "__HIVE_DEFAULT_PARTITION__", {"partition_by": ["v"]}, "cannot tell it from null"),
        ("string", "a\0", {"partition_by": ["v"]}, "a partition's folder has no NUL character in its name"),
        ("string", "a" * 254, {"partition_by": ["v"]}, "would have a name of 256 bytes, more than 255"),
        ("string", "é" * 127, {"partition_by": ["v"]}, "would have a name of 256 bytes, more than 255"),
        ("string", "/" * 85, {"partition_by": ["v"]}, "would have a name of 257 bytes, more than 255"),
        ("date", date(1582, 10, 5), {"file_format": "orc"}, "orc has no 5 to 14 October 1582"),
        ("array<date>", [date(1582, 10, 14)], {"file_format": "orc"}, "field 'v[0]': datetime.date(1582, 10, 14)"),
    ],
)  # fmt: skip
def test_a_value_that_only_one_format_would_lose_is_refused_only_there(
    kind: str, value: object, table: dict[str, Any], text: str
) -> None:
    assert text in said(kind, value, **table)
    assert taken(kind, value) == value


@pytest.mark.parametrize(
    ("kind", "value", "table"),
    [
        ("string", "", {"file_format": "csv"}),
        ("string", "\\\\N", {"file_format": "csv"}),
        ("string", "a" * 253, {"partition_by": ["v"]}),
        ("string", "/" * 84 + "a", {"partition_by": ["v"]}),
        ("string", "\\N", {"file_format": "csv", "partition_by": ["v"]}),
        ("date", date(1582, 10, 4), {"file_format": "orc"}),
        ("date", date(1582, 10, 15), {"file_format": "orc"}),
        ("date", date(1582, 10, 5), {"file_format": "orc", "partition_by": ["v"]}),
    ],
)
def test_neighbouring_values_that_it_keeps_are_accepted(
    kind: str, value: object, table: dict[str, Any]
) -> None:
    assert taken(kind, value, **table) == value


def test_rows_may_be_any_sequences() -> None:
    class Row:
        def __len__(self) -> int:
            return 1

        def __getitem__(self, place: int) -> object:
            return [7][place]

        def __iter__(self) -> Iterator[object]:
            raise AssertionError("a row is read by its places")

    columns, bad = RowChecker(parse_schema("v int")).split([[1], (2,), Row()])  # type: ignore[list-item]

    assert (list(columns.values[0]), bad) == ([1, 2, 7], [])
