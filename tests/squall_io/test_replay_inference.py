"""Replays: the schema of an output is inferred from its values, and a conflict of types names its field and both types."""

from __future__ import annotations

import enum
from collections import namedtuple
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from squall_io.spark.replay.inference import TypeConflict, kinds_of, merge_all, schema_of
from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.schema import parse_schema
from tests.squall_io.replay_in_memory import Replayed, replay
from tests.squall_io.replay_topologies import one_bolt
from topology_api import Bolt, Fields, Tuple

UTC = timezone.utc


@dataclass
class Place:
    name: str
    height: float | None


Pair = namedtuple("Pair", ["left", "right"])


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Word(str):
    """A str subclass of the user's."""


def ddl(*values: Any) -> str:
    """The type of a column with these values."""
    return str(schema_of(["x"], kinds_of(["x"], [values])))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([True, None], "x boolean"),
        ([1, -5, None], "x bigint"),
        ([1.5, float("nan")], "x double"),
        (["a", Word("b")], "x string"),
        ([b"a", bytearray(b"b")], "x binary"),
        ([date(2026, 1, 1)], "x date"),
        ([datetime(2026, 1, 1, tzinfo=UTC)], "x timestamp_ltz"),
        ([datetime(2026, 1, 1)], "x timestamp_ntz"),
        ([Decimal("1.5"), Decimal("100")], "x decimal(4,1)"),
        ([Decimal("0.001"), Decimal("1E+3")], "x decimal(7,3)"),
        ([[1, 2], [], [None]], "x array<bigint>"),
        ([[], None], "x array<string>"),
        ([(1, 2)], "x array<bigint>"),
        ([{"a": 1}, {}], "x map<string, bigint>"),
        ([Pair(1, "a"), Pair(None, "b")], "x struct<left: bigint, right: string>"),
        ([Place("a", None), Place("b", 1.0)], "x struct<name: string, height: double>"),
        ([[{"a": [1.0]}]], "x array<map<string, array<double>>>"),
        ([Level.LOW], "x bigint"),
        ([None], "x string"),
    ],
)
def test_values_get_a_type_that_fits_all(values: list[Any], found: str) -> None:
    assert ddl(*values) == found
    schema = parse_schema(found)
    assert RowChecker(schema).split([(value,) for value in values])[1] == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1, 1.5], "field 'x': some values are bigint, some double"),
        (["a", b"a"], "field 'x': some values are binary, some string"),
        ([datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)], "some timestamp_ntz"),
        ([date(2026, 1, 1), datetime(2026, 1, 1)], "some values are date"),
        ([[1], ["a"]], "field 'x', an element: some values are bigint, some string"),
        ([{"a": 1}, {"a": "b"}], "field 'x', a value: some values are bigint, some string"),
        ([Place("a", 1.0), Pair(1, 2)], "some values are struct<"),
        ([2**63], "9223372036854775808 does not fit into a bigint"),
        ([timedelta(1)], "no column type can hold datetime.timedelta(days=1) (timedelta)"),
        ([Colour.RED], "emit its value or its name"),
        ([{None: 1}], "a map cannot have None as a key"),
        ([Decimal("NaN")], "is not a number for a decimal column"),
        ([Decimal("1e30"), Decimal("1e-30")], "decimals have at most 38 digits"),
        ([object], "no column type can hold"),
    ],
)
def test_values_without_one_type_are_a_conflict_that_names_the_field(values: list[Any], said: str) -> None:
    with pytest.raises(TypeConflict) as caught:
        ddl(*values)
    assert said in str(caught.value)


def test_types_seen_by_two_tasks_are_merged_by_field() -> None:
    one = kinds_of(["a", "b"], [(1, 2), (None, None)])
    other = kinds_of(["a", "b"], [(None,), ("x",)])
    assert str(schema_of(["a", "b"], merge_all(["a", "b"], one, other))) == "a bigint, b string"
    with pytest.raises(TypeConflict, match="field 'a'"):
        merge_all(["a", "b"], one, kinds_of(["a", "b"], [("x",), ("x",)]))


# In a replay.


class Emits(Bolt):
    """Emits a value of this list for each number."""

    outputs = Fields("n", "value")

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0], self.values[tup[0]]))


def emitted(values: list[Any], schema: str | None = None) -> Replayed:
    """A replay that emits these values, with a schema of its output or without."""
    rows = [(n,) for n in range(len(values))]
    schemas = {} if schema is None else {"it": schema}
    return replay(one_bolt(Emits(values)), {"numbers": [rows]}, ["it"], schemas=schemas)


def test_a_value_that_does_not_fit_the_schema_is_an_error_of_its_emitter_and_the_others_go_on() -> None:
    done = emitted([1, "two", 3], "n bigint, value bigint")
    assert done.output == [(0, 1), (2, 3)]
    (note,) = done.errors
    assert (note.component, note.call, note.values) == ("it", "emit", "(1, 'two')")
    assert note.error == "field 'value': 'two' (str) is not a valid bigint"
    assert note.sources == ((0, 0, 1),)


def test_without_a_schema_the_types_are_recorded_and_conflicts_too() -> None:
    (totals,) = emitted([1, None, 3]).of("it")
    (kinds,) = totals.kinds.values()
    assert str(schema_of(["n", "value"], kinds)) == "n bigint, value bigint"
    (totals,) = emitted([1, "two"]).of("it")
    assert list(totals.conflicts.values()) == ["field 'value': some values are bigint, some string"]


def test_a_text_that_no_column_can_hold_is_an_error_without_a_schema_too() -> None:
    done = emitted(["fine", "\ud800"])
    assert done.output == [(0, "fine")]
    assert [note.values for note in done.errors] == ["(1, '\\ud800')"]
