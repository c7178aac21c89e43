"""The key of a tuple is the same in every process, and differs for different tuples."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.running_calls import KEY_BYTES, NO_KEY
from squall.transport.frames import NO_MORE, Batch
from topology_api.tuples import Source, Tuple
from worker.tasks.bolt import make_tuple
from worker.tasks.tuple_keys import key_of, key_of_values

ROOT = Path(__file__).resolve().parents[2]


class Colour(Enum):
    RED = 1


@dataclass
class Order:
    id: int
    tags: set[str]


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a: object, b: object) -> None:
        self.a, self.b = a, b


class Broken:
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise SystemExit(3)


def many_values() -> list[Any]:
    """Values of all kinds, made from new objects each time."""
    shared = [1, 2]
    cyclic: list[Any] = [1]
    cyclic.append(cyclic)
    return [
        *(
            None,
            True,
            False,
            0,
            1,
            -1,
            2**63,
            -(10**5000),
            0.0,
            1.0,
            float("nan"),
            "",
            "a",
            "ä\ud800",
            b"",
            b"a",
        ),
        *("x" * 1000, b"x" * 1000, bytearray(b"a"), (), [], {}, set(), frozenset()),
        *(
            [1],
            (1,),
            {1},
            frozenset((1,)),
            {1: None},
            {"b": [1, {2: 3}], "a": {"x", "y", "z"}},
            [shared, shared],
        ),
        *(OrderedDict(a=1, b=2), defaultdict(list, a=[1]), Counter("aab"), deque([1, 2], 5), cyclic),
        *(
            date(2026, 1, 2),
            datetime(2026, 1, 2, tzinfo=timezone.utc),
            timedelta(1),
            Decimal("1.10"),
            Fraction(1, 3),
        ),
        *(
            UUID(int=7),
            Colour.RED,
            Colour,
            len,
            many_values,
            Order(1, {"b", "a"}),
            Slotted(1, "x"),
            range(3),
            1 + 2j,
        ),
        *(np.arange(4), np.arange(4.0), np.float64(1.5), ValueError("no")),
    ]


def keys_of(values: list[Any]) -> list[str]:
    return [key_of_values("store", "source", "default", (value,)).hex() for value in values]


def test_different_values_have_different_keys() -> None:
    keys = keys_of(many_values())
    assert len(set(keys)) == len(keys) and {len(key) for key in keys} == {2 * KEY_BYTES}


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_key_is_the_same_in_a_process_with_other_hashes(seed: str) -> None:
    program = "from tests.worker.test_tuple_keys import *; print(*keys_of(many_values()))"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == keys_of(many_values())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_a_value_that_has_travelled_has_the_same_key(value: Any) -> None:
    assert keys_of([pickle.loads(pickle.dumps(value, 5))]) == keys_of([value])


@given(st.dictionaries(st.text(), st.integers()), st.randoms())
def test_the_order_of_a_dict_or_set_makes_no_difference(value: dict[str, int], random: Any) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert keys_of([dict(items), set(value)]) == keys_of([value, {key for key, _ in items}])


def test_what_is_shared_is_walked_through_once() -> None:
    value: list[Any] = []
    for _ in range(100):
        value = [value, value]
    assert len(keys_of([value])[0]) == 2 * KEY_BYTES


def tuple_of(*values: Any, component: str = "source", stream: str = "default", task: int = 1) -> Tuple:
    source = Source(component, task, stream, tuple(f"f{at}" for at in range(len(values))))
    return make_tuple(Batch(source, 2, [values], [0], [0], NO_MORE), 0)


def test_the_key_tells_bolts_sources_and_streams_apart_but_not_tasks_and_roots() -> None:
    tuples = [tuple_of(1), tuple_of(1, component="other"), tuple_of(1, stream="late"), tuple_of(1, 1)]
    keys = {key_of("store", tup) for tup in tuples} | {key_of("other", tuples[0])}
    assert len(keys) == 5
    assert key_of("store", tuple_of(1, task=9)) == key_of("store", tuples[0])


def test_a_value_that_cannot_travel_has_no_key() -> None:
    values: list[Any] = [Broken(), lambda: None, [].append, sys.stdout, memoryview(b"a")]
    for value in values:
        assert key_of("store", tuple_of(value)) == NO_KEY


def test_a_value_that_is_too_deep_has_no_key() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    assert key_of("store", tuple_of(deep)) == NO_KEY
