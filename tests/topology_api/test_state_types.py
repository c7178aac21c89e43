"""Which types the values of another type can be read as, held against msgspec itself."""

from __future__ import annotations

import datetime as dt
import enum
import json
import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from topology_api import BroadcastState, ListState, MapState, Spout, StatefulBolt, ValueState
from topology_api.state_types import (
    declaration_misfit,
    declaration_text,
    declared,
    keeping_problems,
    keeps_of,
    misfit,
    shape_of,
)


@dataclass
class Visit:
    page: str
    seconds: int = 0


@dataclass
class LongVisit:
    page: str
    seconds: float = 0.0
    marks: list[int] = field(default_factory=list)


@dataclass
class TimedVisit:
    page: str
    at: float


@dataclass
class Page:
    page: str


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    page: str


class Pair(msgspec.Struct, array_like=True):
    left: int
    right: int = 0


class Triple(msgspec.Struct, array_like=True):
    left: int
    right: int = 0
    last: str = ""


class Renamed(msgspec.Struct, rename={"site": "page"}):
    site: str


class Sparse(msgspec.Struct, omit_defaults=True):
    page: str = "x"


class Tree(msgspec.Struct):
    value: int
    parts: list[Tree] = []


class WideTree(msgspec.Struct):
    value: float
    parts: list[WideTree] = []


class WrongTree(msgspec.Struct):
    value: int
    parts: list[Visit] = []


class Point(NamedTuple):
    x: int


class Point3(NamedTuple):
    x: float
    y: int = 3


class Options(TypedDict, total=False):
    page: str


class Colour(enum.Enum):
    RED = "red"


class MoreColours(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Cat(msgspec.Struct, tag=True):
    age: int


class Dog(msgspec.Struct, tag=True):
    age: int


GOOD: list[tuple[Any, Any, Any]] = [
    (1, int, float),
    (1, int, int | None),
    (1, int, str | float),
    (None, int | None, float | None),
    ([1], list[int], tuple[float, ...]),
    ([1], list[int], set[int]),
    ((1, "a"), tuple[int, str], tuple[float, str]),
    ((1, 2), tuple[int, int], list[float]),
    ({"a": 1}, dict[str, int], dict[str, float | None]),
    ({"a": 1}, dict[str, int], Any),
    (Visit("a", 3), Visit, LongVisit),
    (Visit("a", 3), Visit, Page),
    (Visit("a", 3), Visit, Visit | None),
    (Page("a"), Page, Closed),
    (Page("a"), Page, Renamed),
    (Page("a"), Page, Options),
    (Pair(1, 2), Pair, Triple),
    (Triple(1, 2, "x"), Triple, Pair),
    (Point(1), Point, Point3),
    (Colour.RED, Colour, MoreColours),
    (Colour.RED, Colour, str),
    (Colour.RED, Colour, Literal["red", "green"]),
    (1, Literal[1, 2], float),
    (Tree(1, [Tree(2)]), Tree, WideTree),
    (3, Annotated[int, msgspec.Meta(ge=0)], int),
    (3, Annotated[int, msgspec.Meta(ge=0)], Annotated[int, msgspec.Meta(ge=0)]),
    (Cat(3), Cat, Cat | Dog),
    (dt.date(2026, 1, 1), dt.date, dt.date | None),
]
BAD: list[tuple[Any, Any, Any, str]] = [
    ("a", str, int, "str cannot be read as int"),
    (1.5, float, int, "float cannot be read as int"),
    (True, bool, int, "bool cannot be read as int"),
    (None, int | None, int, "None cannot be read as int"),
    ([1], list[int], list[str], "int cannot be read as str"),
    ({"a": 1}, dict[str, int], dict[int, int], "str cannot be read as int"),
    ({"a": 1}, dict[str, int], list[int], r"dict\[str, int\] cannot be read as list\[int\]"),
    (
        (1, 2),
        tuple[int, int],
        tuple[int, int, int],
        r"tuple\[int, int\] cannot be read as tuple\[int, int, int\]",
    ),
    (Visit("a"), Visit, TimedVisit, "field 'at' of TimedVisit is new and has no default"),
    (Visit("a"), Visit, Closed, "Closed forbids the field 'seconds'"),
    (LongVisit("a"), LongVisit, Visit, "field 'seconds' of Visit: float cannot be read as int"),
    (Sparse(), Sparse, Page, "field 'page' of Page may be absent, and has no default now"),
    (Point3(1), Point3, Point, "Point forbids the field 'y'"),
    (Pair(1), Pair, Page, "Pair and Page are not encoded in the same way"),
    (Cat(3), Cat, Dog, "Cat and Dog are not encoded in the same way"),
    (MoreColours.BLUE, MoreColours, Colour, "Colour has no 'blue'"),
    (Colour.RED, Colour, int, r"Colour cannot be read as int"),
    (Tree(1, [Tree(2)]), Tree, WrongTree, "field 'parts' of WrongTree: field 'page' of Visit is new"),
    (-1, int, Annotated[int, msgspec.Meta(ge=0)], "int cannot be read as int with ge=0"),
    (1, Any, int, "Any cannot be read as int"),
]


def stored(shape: Any) -> Any:
    """As it comes back from a description."""
    return json.loads(json.dumps(shape))


@pytest.mark.parametrize(("value", "old", "new"), GOOD)
def test_what_fits_is_what_msgspec_reads(value: Any, old: Any, new: Any) -> None:
    assert misfit(stored(shape_of(old)), stored(shape_of(new))) is None
    data = msgspec.msgpack.encode(value)
    msgspec.msgpack.decode(data, type=old)
    msgspec.msgpack.decode(data, type=new)


@pytest.mark.parametrize(("value", "old", "new", "why"), BAD)
def test_what_does_not_fit_is_named(value: Any, old: Any, new: Any, why: str) -> None:
    found = misfit(stored(shape_of(old)), stored(shape_of(new)))
    assert found is not None
    assert re.search(why, found), found
    data = msgspec.msgpack.encode(value)
    msgspec.msgpack.decode(data, type=old)
    if old is not Any:  # some value of the old type cannot be read: this one
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(data, type=new)


@pytest.mark.parametrize("kind", [each for _, *both in GOOD for each in both] + [each[1] for each in BAD])
def test_every_type_fits_itself(kind: Any) -> None:
    assert misfit(stored(shape_of(kind)), stored(shape_of(kind))) is None


def test_declarations_are_compared_by_kind_and_types() -> None:
    count = declared(ValueState(int, default=0))
    assert declaration_text(count) == "ValueState(int)"
    assert declaration_misfit(count, declared(ValueState(float, ttl=60))) is None
    assert declaration_misfit(count, declared(ListState(int))) == "the kinds of state differ"
    assert declaration_misfit(count, declared(BroadcastState(int))) == "the kinds of state differ"
    opened = declared(ValueState(object, pickled=True))
    assert declaration_text(opened) == "ValueState(object, pickled=True)"
    assert declaration_misfit(count, opened) == "one is pickled and the other is not"
    assert declaration_misfit(opened, declared(ValueState(Visit, pickled=True))) is None
    places = declared(MapState(str, int))
    assert declaration_misfit(places, declared(MapState(str, float))) is None
    assert declaration_misfit(places, declared(MapState(int, int))) == "str cannot be read as int"


class Count(StatefulBolt):
    key = "word"
    times = ValueState(int, default=0)
    gone = ValueState(str)


class CountOfText(Count):
    times = ValueState(str)
    gone = None  # type: ignore[assignment]


class CountByTwo(StatefulBolt):
    key = ("word", "language")
    times = ValueState(int, default=0)


class Lines(Spout):
    pass


def test_a_component_names_each_state_that_does_not_fit() -> None:
    before, after = stored(keeps_of(Count())), stored(keeps_of(CountOfText()))
    [problem] = keeping_problems("words", "count", before, after)
    assert problem.startswith(
        "component 'count': state 'times' was saved as ValueState(int) and is declared as ValueState(str) now (int cannot be "
        "read as str): give the state another name"
    )
    assert "`squall state drop /folder/words count.times`" in problem
    [problem] = keeping_problems("words", "count", before, {})
    assert "it kept state (times, gone), and is no StatefulBolt now" in problem
    assert not list(keeping_problems("words", "count", {}, after))


def test_a_key_of_other_fields_and_a_spout_of_another_class_do_not_fit() -> None:
    before, after = keeps_of(Count()), keeps_of(CountByTwo())
    [problem] = keeping_problems("words", "count", before, after)
    assert "its key was (word), and is (word, language) now" in problem
    assert keeps_of(Lines()) == {"class": "Lines"}
    [problem] = keeping_problems("words", "lines", {"class": "FileSpout"}, keeps_of(Lines()))
    assert "its position is that of a FileSpout, and it is a Lines now" in problem


@pytest.mark.parametrize("odd", [{"states": {"times": {}}}, {"states": [1]}, {"key": 5}, {"key": [5]}])
def test_a_description_of_another_form_is_named(odd: dict[str, Any]) -> None:
    assert keeping_problems("words", "count", odd, keeps_of(Count())) == [
        "component 'count': its description is of another version of Squall"
    ]
