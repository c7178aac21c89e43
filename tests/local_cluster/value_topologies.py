"""Topologies whose tuples carry values from one worker process to the next. Workers import this module.

Each bolt compares its input with a value that it has made itself, so that the transport cannot hide a difference.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import fractions
import ipaddress
import math
import os
import pathlib
import pickle
import re
import threading
import types
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from topology_api import Bolt, Context, Fields, Replay, Spout, Topology, TopologyBuilder, Tuple

MEGABYTE = 1 << 20


class Colour(enum.Enum):
    RED = "r"


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: float


@dataclass(frozen=True)
class Order:
    number: int
    lines: tuple[Point, ...]


class Slotted:
    """State in slots, and its own way of pickling."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slotted) and self.value == other.value

    def __hash__(self) -> int:
        return hash(type(self))

    def __reduce__(self) -> tuple[object, ...]:
        return Slotted, (self.value,)


class Whole(int):
    """A subclass of int with an attribute."""


class Text(str):
    """A subclass of str with an attribute."""


class Table(dict[str, int]):
    """A subclass of dict with an attribute."""


def plain_values() -> dict[str, Any]:
    """The values that any codec carries."""
    return {
        "none": None,
        "true": True,
        "false": False,
        "zero": 0,
        "the least of 64 bits": -(1 << 63),
        "the greatest of 64 bits": (1 << 63) - 1,
        "float": 0.1,
        "minus zero": -0.0,
        "infinity": math.inf,
        "not a number": math.nan,
        "a whole float": 3.0,
        "text": "straße 東京 🚋 \x00\n",
        "no text": "",
        "bytes": bytes(range(256)),
        "list": [1, "a", None, [2.5, []]],
        "tuple": (1, ("a", (None,))),
        "no tuple": (),
        "list of tuples": [(1, 2), (3, [4])],
        "dict": {"a": 1, "b": {"c": [True]}},
        "dict by numbers": {1: "a", -2: "b"},
        "date": datetime.date(2026, 2, 28),
        "moment": datetime.datetime(2026, 2, 28, 23, 59, 59, 999_999, datetime.timezone.utc),
        "a megabyte of bytes": bytes(range(256)) * (MEGABYTE // 256),
        "a megabyte of text": "ä" * (MEGABYTE // 2),
        "a megabyte of numbers": list(range(MEGABYTE // 8)),
    }


def pickled_values() -> dict[str, Any]:
    """The values that only `pickle` carries."""
    return {
        "a large number": 1 << 2000,
        "complex": complex(1, -0.0),
        "surrogate": "\udc80",
        "bytearray": bytearray(b"abc"),
        "a megabyte that can be changed": bytearray(b"x" * MEGABYTE),
        "set": {1, "a", (2,)},
        "frozenset": frozenset({1, 2}),
        "range": range(1, 10, 3),
        "slice": slice(1, None, 2),
        "ellipsis": ...,
        "time": datetime.time(1, 2, 3, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
        "span": datetime.timedelta(days=-1, microseconds=1),
        "decimal": decimal.Decimal("1.10"),
        "fraction": fractions.Fraction(1, 3),
        "uuid": uuid.UUID(int=5),
        "path": pathlib.PurePosixPath("/a/b"),
        "address": ipaddress.ip_address("::1"),
        "pattern": re.compile(r"a+", re.IGNORECASE),
        "enum": Colour.RED,
        "int enum": Level.LOW,
        "named tuple": Point(1, 2.0),
        "data class": Order(1, (Point(1, 2.0),)),
        "slots": Slotted([1]),
        "a number of its own class": Whole(3),
        "a text of its own class": Text("a"),
        "a dict of its own class": Table(a=1),
        "namespace": types.SimpleNamespace(a=1),
        "ordered dict": collections.OrderedDict([("b", 1), ("a", 2)]),
        "default dict": collections.defaultdict(list, {"a": [1]}),
        "counter": collections.Counter("aab"),
        "deque": collections.deque([1, 2], maxlen=3),
        "array": array.array("d", [1.0, 2.0]),
        "class": Order,
        "function": plain_values,
        "builtin": len,
        "dict by tuples": {(1, 2): "a", None: "b"},
        "numpy numbers": numpy.arange(10, dtype="<i8"),
        "numpy of no dimension": numpy.array(2.5),
        "numpy of no size": numpy.empty((0, 3), "f4"),
        "numpy by columns": numpy.asfortranarray(numpy.arange(12.0).reshape(3, 4)),
        "numpy with steps": numpy.arange(20)[::3],
        "numpy of the other byte order": numpy.arange(5, dtype=">u4"),
        "numpy records": numpy.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
        "numpy objects": numpy.array([1, "a", None], dtype=object),
        "numpy texts": numpy.array(["a", "bcd"]),
        "numpy times": numpy.array(["2026-02-28"], "datetime64[D]"),
        "numpy truths": numpy.array([True, False]),
        "numpy scalar": numpy.float32(1.5),
        "a megabyte of numpy": numpy.arange(MEGABYTE // 8, dtype="f8"),
        "numpy in a dict": {"weights": numpy.ones((300, 300)), "name": "w"},
    }  # fmt: skip


def values(codec: str) -> dict[str, Any]:
    """Every kind of value that a codec carries, by its name."""
    return plain_values() if codec == "msgpack" else {**plain_values(), **pickled_values()}


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same type, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, numpy.ndarray):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and all(map(same, one.ravel().tolist(), other.ravel().tolist()))
    if isinstance(one, (list, tuple, collections.deque)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    if isinstance(one, float):
        return math.copysign(1, one) == math.copysign(1, other) and (one == other or one != one != other)
    return bool(one == other)


class Values(Spout):
    """Emits each kind of value once, with its name and its own process."""

    outputs = Fields("name", "value", "process")
    replay = Replay(max_attempts=1)

    def __init__(self, codec: str) -> None:
        self.codec = codec

    def open(self, context: Context) -> None:
        self.left = list(values(self.codec).items())

    def next_tuple(self) -> None:
        if not self.left:
            return self.finish()
        name, value = self.left.pop(0)
        self.emit((name, value, os.getpid()), message_id=name)
        return None


class Compares(Bolt):
    """Refuses a value that differs from the emitted one; a file names the others, which came from another process."""

    def __init__(self, codec: str, file: Path) -> None:
        self.codec = codec
        self.file = file

    def prepare(self, context: Context) -> None:
        self.expected = values(self.codec)

    def execute(self, tup: Tuple) -> None:
        name, value = tup["name"], tup["value"]
        expected = self.expected[name]
        if not same(value, expected):
            raise ValueError(
                f"{name}: {type(value)} {str(value)[:100]} is not {type(expected)} {str(expected)[:100]}"
            )
        if tup["process"] == os.getpid():
            raise ValueError(f"{name}: it did not travel")
        with self.file.open("a") as file:
            file.write(f"{name}\n")


def of_all_kinds(codec: str, file: Path) -> Topology:
    """All values from one worker to another."""
    builder = TopologyBuilder("values", {"topology.workers": 2, "topology.transport.codec": codec})
    builder.set_spout("values", Values(codec))
    builder.set_bolt("compares", Compares(codec, file)).shuffle_grouping("values")
    return builder.build()


class CannotTravel:
    """A value that no codec carries."""

    def __reduce__(self) -> tuple[object, ...]:
        raise pickle.PicklingError("it must stay where it is")


class EndsTheProcess:
    """A value whose pickling asks Python to end."""

    def __reduce__(self) -> tuple[object, ...]:
        raise SystemExit(3)


def odd_value(kind: str) -> object:
    """A value that cannot be encoded."""
    return {
        "lock": threading.Lock(), "refuses": CannotTravel(), "exits": EndsTheProcess(), "set": {1, 2}, "large": 1 << 64,
        "in a list": [[threading.Lock()]],
    }[kind]  # fmt: skip


class Odd(Spout):
    """Emits numbers; the seventh comes with a value that cannot be encoded, if this spout is to have it."""

    outputs = Fields("number", "odd")
    replay = Replay(max_attempts=2, first_delay=0.01)

    def __init__(self, kind: str | None) -> None:
        self.kind = kind

    def open(self, context: Context) -> None:
        self.number = 0

    def next_tuple(self) -> None:
        if self.number == 20:
            return self.finish()
        self.number += 1
        odd = odd_value(self.kind) if self.kind and self.number == 7 else None
        self.emit((self.number, odd), message_id=self.number)
        return None


class OddBolt(Bolt):
    """Passes tuples on; to the seventh it adds a value that cannot be encoded."""

    outputs = Fields("number", "odd")

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["number"], odd_value(self.kind) if tup["number"] == 7 else tup["odd"]))


class Takes(Bolt):
    """Accepts everything."""

    def execute(self, tup: Tuple) -> None:
        """Does nothing."""


def odd_one_from_the_spout(codec: str, kind: str) -> Topology:
    """The spout in one worker, and the bolt in the other."""
    builder = TopologyBuilder("odd", {"topology.workers": 2, "topology.transport.codec": codec})
    builder.set_spout("source", Odd(kind))
    builder.set_bolt("takes", Takes()).shuffle_grouping("source")
    return builder.build()


def odd_one_from_a_bolt(codec: str, kind: str) -> Topology:
    """Three tasks in three workers, so that each tuple crosses."""
    builder = TopologyBuilder("odd", {"topology.workers": 3, "topology.transport.codec": codec})
    builder.set_spout("source", Odd(None))
    builder.set_bolt("adds", OddBolt(kind)).shuffle_grouping("source")
    builder.set_bolt("takes", Takes()).shuffle_grouping("adds")
    return builder.build()
