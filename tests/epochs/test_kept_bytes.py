"""Estimates of what is kept promise: about the memory that the objects take, at a cost that does not grow with their number."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest

from worker.epochs.kept_bytes import KeptBound, memory_of


@dataclass
class Order:
    number: int
    text: str


TEXT = "x" * 1_000


@pytest.mark.parametrize(
    ("value", "least"),
    [
        ([(number, TEXT[:number]) for number in range(1_000)], 1_000 * 500),
        ([TEXT] * 10, 10 * 1_000),
        ({"a": {"b": [TEXT, TEXT]}}, 2_000),
        ([Order(1, TEXT)] * 7, 7_000),
        ({TEXT: b"x" * 5_000}, 6_000),
        ([float(number) for number in range(100_000)], 100_000 * 32),
    ],
)
def test_the_estimate_is_what_the_parts_take(value: Any, least: int) -> None:
    assert least <= memory_of(value) <= 1.6 * least


def test_objects_that_cannot_be_looked_at_cost_nothing_but_accuracy() -> None:
    class Odd:
        def __sizeof__(self) -> int:
            raise ValueError("no size")

    assert memory_of([Odd(), "x" * 1_000]) > 900
    endless: list[Any] = []
    endless.append(endless)
    assert memory_of(endless) < 10 * sys.getsizeof(endless)


def test_spouts_pause_at_the_limit_until_half_of_it_is_left() -> None:
    bound = KeptBound(100)
    assert not bound.changed(99) and not bound.full
    assert bound.changed(100) and bound.full
    assert not bound.changed(51) and bound.full
    assert bound.changed(50) and not bound.full
