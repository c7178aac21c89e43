"""The key hash is a contract between processes: the same values everywhere, spread over all tasks."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import os
import subprocess
import sys
import uuid
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.routing.key_hash import UngroupableKey, key_hash, two_choices

ROOT = Path(__file__).resolve().parents[2]


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Place:
    country: str
    city: object


PINNED: list[tuple[Any, int]] = [
    ("word", 0xD94BD3FB53F09746),
    ("", 0x7AB40E090F363A7D),
    ("\ud800", 0x1FBC865991D8134B),
    (b"word", 0xC048C0BED61A9D97),
    (12345, 0x4522808C67FB895F),
    (-1, 0x2E9F8EACE9AEB0C3),
    (2**70, 0xBB2BD5369A0970D0),
    (0.1, 0xC1BC702248211422),
    (float("nan"), 0x14BD692A13A268EE),
    (float("inf"), 0x860093BE7D5D16AF),
    (Decimal("1e999999999"), 0x35F0F043E8373792),
    (Fraction(1, 3), 0x871B1D4CE34033DA),
    (1 + 2j, 0x58B89314446D7A1C),
    (None, 0xE7FF9472093D02B5),
    (("user", 7), 0xDA18D9682CB3DA51),
    (["user", 7], 0x4A049BAB49280CE4),
    (frozenset(["a", "b", 3, ("c",)]), 0x08BE0F6F5F01CE12),
    (Colour.RED, 0x57886D51C55B347A),
    (Place("de", "Ulm"), 0x5ABF40A60245857D),
    (uuid.UUID(int=99), 0xE032B23B32255C21),
    (dt.date(2024, 2, 29), 0x8F9443723C491EB5),
    (dt.datetime(2024, 2, 29, 12, tzinfo=dt.timezone(dt.timedelta(hours=1))), 0x3875E4FEF420F7D0),
    (dt.time(1), 0x801645F4066B8C1B),
    (dt.time(1, tzinfo=dt.timezone(dt.timedelta(hours=2))), 0x0F737790FEEB5BBA),
    (dt.timedelta(1), 0x5B8A51E943760CCA),
]

SCRIPT = """
import datetime as dt, enum, uuid
from decimal import Decimal
from fractions import Fraction
from worker.routing.key_hash import key_hash
class Colour(enum.Enum):
    RED = 1
keys = ["word", "", "\\ud800", b"word", 12345, -1, 2**70, 0.1, Decimal("1e999999999"),
        Fraction(1, 3), 1 + 2j, None, ("user", 7), ["user", 7], frozenset(["a", "b", 3, ("c",)]), Colour.RED,
        uuid.UUID(int=99), dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, tzinfo=dt.timezone.utc),
        dt.time(1), dt.timedelta(1)]
print([key_hash(key) for key in keys])
"""


def test_every_process_gets_the_same_values_whatever_its_hash_seed() -> None:
    outputs = Counter[str]()
    for seed in ("0", "1", "4294967295"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        outputs[done.stdout] += 1
    assert len(outputs) == 1 and outputs.total() == 3
    assert outputs.most_common()[0][0].count(",") == 20


@pytest.mark.parametrize(("key", "expected"), PINNED)
def test_the_hash_is_pinned_because_workers_of_one_topology_must_agree(key: object, expected: int) -> None:
    assert key_hash(key) == expected


# -- Spread

FAMILIES: dict[str, list[object]] = {
    "words": [f"w{i}" for i in range(20_000)],
    "numbers": list(range(20_000)),
    "strides": [i * 4096 for i in range(20_000)],
    "pairs": [(f"user-{i % 200}", i // 200) for i in range(20_000)],
    "days": [dt.date(2000, 1, 1) + dt.timedelta(i) for i in range(20_000)],
}


def chi_square(counts: Counter[int], cells: int, total: int) -> float:
    expected = total / cells
    return sum((counts[cell] - expected) ** 2 for cell in range(cells)) / expected


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tasks", [2, 3, 7, 8, 64, 100])
def test_keys_are_spread_evenly_over_any_number_of_tasks(family: str, tasks: int) -> None:
    keys = FAMILIES[family]
    bound = (tasks - 1) + 5 * (2 * (tasks - 1)) ** 0.5 + 5  # five standard deviations; the keys are fixed
    choices = [two_choices(key, tasks) for key in keys]
    assert chi_square(Counter(first for first, _ in choices), tasks, len(keys)) < bound
    assert chi_square(Counter(second for _, second in choices), tasks, len(keys)) < bound


@pytest.mark.parametrize("family", FAMILIES)
def test_the_second_choice_does_not_depend_on_the_first(family: str) -> None:
    pairs = Counter(two_choices(key, 8) for key in FAMILIES[family])
    cells = Counter(
        {first * 7 + (second - (second > first)): count for (first, second), count in pairs.items()}
    )
    assert len(pairs) == 8 * 7
    assert chi_square(cells, 56, 20_000) < 55 + 5 * (2 * 55) ** 0.5


@given(st.one_of(st.text(), st.integers(), st.binary(), st.floats(), st.datetimes()), st.integers(2, 50))
def test_two_choices_are_different_candidates(key: object, n: int) -> None:
    first, second = two_choices(key, n)
    assert first == key_hash(key) % n
    assert first != second and 0 <= second < n


def test_one_candidate_is_no_choice_and_none_is_an_error() -> None:
    assert two_choices("word", 1) == (0, 0)
    with pytest.raises(ValueError, match="at least one candidate"):
        two_choices("word", 0)
    with pytest.raises(UngroupableKey):
        two_choices({1}, 1)  # an invalid key must not wait for a second task to be found
