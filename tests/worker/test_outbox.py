"""Outboxes: a batch has the oldest tuples with their trees, however the outbox is cut."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from squall.transport.frames import Batch
from topology_api.tuples import Source
from worker.routing.outbox import Outbox

SOURCE = Source("split", 4, "default", ("word",))
TREES = st.dictionaries(st.integers(1, 6), st.integers(1, 2**62), max_size=4)


def rows_of(batch: Batch) -> list[tuple[tuple[Any, ...], dict[int, int]]]:
    """Each row of a batch with its edge in each of its trees."""
    found = []
    for at, row in enumerate(batch.rows):
        trees = {batch.roots[at]: batch.edges[at]} if batch.roots[at] else {}
        for root, difference in batch.more.get(at, ()):
            trees[root] = batch.edges[at] ^ difference
        found.append((row, trees))
    return found


@given(st.lists(TREES, max_size=12), st.lists(st.integers(1, 5), min_size=12, max_size=12))
def test_cut_anywhere_every_tuple_leaves_once_in_order_with_all_its_trees(
    trees: list[dict[int, int]], cuts: list[int]
) -> None:
    box = Outbox(SOURCE, target=9)
    for number, edges in enumerate(trees):
        box.add((number,), list(edges.items()))
    left: list[tuple[tuple[Any, ...], dict[int, int]]] = []
    for most in cuts:
        batch = box.dequeue(most)
        assert len(batch) <= most
        assert (batch.target, batch.source) == (9, SOURCE)
        assert all(0 <= at < len(batch) for at in batch.more)
        left += rows_of(batch)
    assert left == [((number,), edges) for number, edges in enumerate(trees)]
    assert len(box) == 0


@given(st.lists(TREES, max_size=8), st.integers(1, 8))
def test_waiting_roots_are_the_trees_of_tuples_that_have_not_left(
    trees: list[dict[int, int]], most: int
) -> None:
    box = Outbox(SOURCE, target=9)
    for number, edges in enumerate(trees):
        box.add((number,), list(edges.items()))
    box.dequeue(most)
    assert box.waiting_roots() == {root for edges in trees[most:] for root in edges}


@given(st.lists(TREES, max_size=8), st.integers(0, 8))
def test_a_batch_has_the_trees_of_its_unexecuted_tuples(trees: list[dict[int, int]], start: int) -> None:
    box = Outbox(SOURCE, target=9)
    for number, edges in enumerate(trees):
        box.add((number,), list(edges.items()))
    batch = box.dequeue(100)
    assert batch.waiting_roots(start) == {root for edges in trees[start:] for root in edges}


def test_tuples_added_after_a_batch_has_left_are_not_in_it() -> None:
    box = Outbox(SOURCE, target=9)
    box.add(("a",), [(1, 10), (2, 20)])
    first = box.dequeue(100)
    box.add(("b",), [(3, 30), (4, 40)])
    assert rows_of(first) == [(("a",), {1: 10, 2: 20})]
    assert rows_of(box.dequeue(100)) == [(("b",), {3: 30, 4: 40})]


def test_a_batch_keeps_the_cycle_of_its_outbox() -> None:
    box = Outbox(SOURCE, target=9, credited=False, cycle=2)
    box.add(("a",), [])
    assert box.dequeue(1).cycle == 2
