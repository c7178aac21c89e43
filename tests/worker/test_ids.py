"""Ids: roots contain their task and how often their slot was used; edges are never 0."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology_api.validation import MAX_TASKS
from worker.tracking.ids import (
    EDGE_BLOCK,
    GENERATION_BITS,
    MAX_SLOTS,
    SLOT_MASK,
    SplitMix,
    first_root,
    next_root,
    task_of,
    words_of,
)

TASKS = st.integers(1, MAX_TASKS)
SLOTS = st.integers(0, MAX_SLOTS - 1)


class Zeros(Random):
    """A random source that gives only zeros."""

    def randbytes(self, n: int) -> bytes:
        return bytes(n)


class EveryOtherZero(Random):
    """A random source whose every second word is zero."""

    def randbytes(self, n: int) -> bytes:
        return (bytes(8) + b"\x01" * 8) * (n // 16)


def test_an_edge_is_never_0_even_from_a_random_source_of_zeros() -> None:
    edges = words_of(Zeros())
    assert edges and all(edges)


def test_zeros_between_other_words_are_skipped() -> None:
    edges = words_of(EveryOtherZero())
    assert edges == [0x0101010101010101] * (EDGE_BLOCK // 2)


def mixed(seed: int) -> list[int]:
    """One block of edges, by SplitMix64."""
    source = SplitMix(seed)
    return [source.draw() for _ in range(EDGE_BLOCK)]


def test_a_zero_of_split_mix_is_skipped() -> None:
    step = 0x9E3779B97F4A7C15
    assert mixed(2**64 - step) == mixed(0)


def test_split_mix_gives_the_numbers_of_its_authors() -> None:
    # The first numbers of the reference implementation with seed 1234567 (Vigna, "splitmix64.c").
    unsigned = [edge % 2**64 for edge in mixed(1234567)[:3]]
    assert unsigned == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("draw", [words_of, lambda random: mixed(random.getrandbits(64))])
def test_edges_fill_64_bits_and_do_not_repeat(draw: Callable[[Random], Any]) -> None:
    edges = draw(Random(1))
    assert len(set(edges)) == EDGE_BLOCK
    assert all(-(2**63) <= edge < 2**63 for edge in edges)
    ones = [sum(edge >> bit & 1 for edge in edges) for bit in range(64)]
    assert all(EDGE_BLOCK * 0.35 < count < EDGE_BLOCK * 0.65 for count in ones)


def test_the_same_seed_draws_the_same_edges() -> None:
    assert words_of(Random(7)) == words_of(Random(7))
    assert mixed(7) == mixed(7) != mixed(8)


@given(TASKS, SLOTS, st.integers(0, 5))
def test_a_root_is_positive_and_contains_its_task_and_slot_in_every_generation(
    task: int, slot: int, uses: int
) -> None:
    root = first_root(task, slot)
    for _ in range(uses):
        root = next_root(root)
    assert 0 < root < 2**63
    assert task_of(root) == task
    assert root & SLOT_MASK == slot


@given(TASKS, SLOTS)
def test_the_next_use_of_a_slot_has_another_root(task: int, slot: int) -> None:
    root = first_root(task, slot)
    seen = {root}
    for _ in range(10):
        root = next_root(root)
        assert root not in seen
        seen.add(root)


@given(TASKS, SLOTS)
def test_after_the_last_generation_a_slot_starts_again_and_stays_with_its_task(task: int, slot: int) -> None:
    last = first_root(task, slot) + (((1 << GENERATION_BITS) - 1) * MAX_SLOTS)
    assert task_of(last) == task
    assert next_root(last) == first_root(task, slot)
