"""Keys of groupings, whose hashes say which task gets a tuple; and ids of trees. A hash that changes sends keys elsewhere.

Must not know: how they are hashed.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any, Final
from uuid import UUID

TASKS: Final = (1, 2, 3, 7, 16, 1000, 65_535)
#: Task, slot, generation.
ROOTS: Final = (
    (1, 0, 0), (1, 1, 0), (7, 4095, 1), (65_535, 2**23 - 1, 2**24 - 1), (3, 5, 2**24), (3, 5, 2**24 + 7), (2, 0, 2**23),
)  # fmt: skip


class Colour(enum.Enum):
    """An Enum of no type."""

    RED = 1
    GREEN = "g"


class Name(str, enum.Enum):
    """An Enum of texts."""

    A = "a"


class Level(enum.IntEnum):
    """An Enum of numbers."""

    LOW = 1


class Bits(enum.Flag):
    """Flags."""

    A = 1
    B = 2


class Numbers(enum.IntFlag):
    """Flags that are numbers."""

    A = 1
    B = 2


@dataclass(frozen=True)
class Place:
    """A data class."""

    country: str
    city: object


@dataclass
class Nested:
    """A data class that may change."""

    place: Place
    numbers: list[int]


class Text(str):
    """A text of another class."""


class Equal(str):
    """A text that says itself what it equals."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)


Pair = namedtuple("Pair", "a b")
ZONE: Final = dt.timezone(dt.timedelta(hours=1))
WHEN: Final = dt.datetime(2024, 2, 29, 12, 30, 1, 5)


def _drawn() -> list[Any]:
    """Many keys of the kinds that most are."""
    random = Random(4711)
    words = ["".join(random.choice("abcdeüß日🙂 ") for _ in range(random.randrange(12))) for _ in range(120)]
    numbers = [random.randrange(-(10 ** random.randrange(1, 30)), 10**20) for _ in range(80)]
    floats = [random.uniform(-1, 1) * 10 ** random.randrange(-30, 30) for _ in range(60)]
    pairs = [(random.choice(words), random.choice(numbers)) for _ in range(40)]
    return [*words, *numbers, *floats, *pairs]


_CHOSEN: Final[tuple[Any, ...]] = (
    "word", "", "\ud800", "a\0b", "x" * 1000, "ü" * 300, Text("word"), Name.A, b"", b"word", b"\xff" * 300,
    0, 1, -1, 7, 2**61 - 1, 2**61, -(2**61), 2**63, 2**64, 2**70, 10**100, True, False, Level.LOW, Numbers.A | Numbers.B,
    0.0, -0.0, 0.1, 1.0, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"), 1 + 2j, 3 + 0j, complex("nan"),
    Decimal("1.5"), Decimal("-1.50"), Decimal("1e999999999"), Decimal("NaN"), Decimal("-Infinity"), Decimal("0.1"),
    Fraction(1, 3), Fraction(-7, 2), Fraction(5), Fraction(1, 2**61 - 1),
    None, (), ("user", 7), ("user", 7, None), (("a",), ("b", (1,))), ("user",), [], ["user", 7], [[1], [2, [3]]],
    frozenset(), frozenset(["a", "b", 3, ("c",)]), Pair(1, "x"),
    Place("de", "Ulm"), Place("de", Place("at", 1)), Nested(Place("ch", None), [1, 2]),
    Colour.RED, Colour.GREEN, Bits.A, Bits.A | Bits.B, UUID(int=99), UUID(int=2**128 - 1),
    dt.date(2024, 2, 29), dt.date.min, WHEN, WHEN.replace(tzinfo=ZONE), WHEN.replace(tzinfo=dt.timezone.utc, fold=1),
    dt.datetime(2024, 2, 29), dt.datetime.max, dt.time(1), dt.time(1, 2, 3, 4), dt.time(1, tzinfo=ZONE),
    dt.timedelta(1), dt.timedelta(-1, 2, 3), dt.timedelta.max,
)  # fmt: skip

#: By number and type, since some of them are equal.
KEYS: Final[dict[str, Any]] = {
    f"{number}: {type(key).__name__}": key for number, key in enumerate((*_CHOSEN, *_drawn()))
}


def no_keys() -> dict[str, Any]:
    """What is no key."""
    endless: list[Any] = []
    endless.append(endless)
    deep: Any = 1
    for _ in range(70):
        deep = (deep,)
    return {
        "a dict": {"a": 1}, "a set": {1}, "a bytearray": bytearray(b"a"), "an object": object(), "a function": len,
        "in a tuple": ("a", {"b": 1}), "in a list": [[set()]], "in a data class": Place("de", {}), "endless": endless,
        "too deep": deep, "with an __eq__ of its own": Equal("a"), "a class": int, "a memoryview": memoryview(b"a"),
    }  # fmt: skip
