"""Ack batches: their sums for the trackers are the same as with one message per tuple."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from topology_api.tuples import SETTLED, UNTRACKED, Source, Tuple
from worker.tracking.ack_batch import AckBatch, AckColumns
from worker.tracking.ids import first_root, task_of

ROOTS = [first_root(task, slot) for task in (1, 2, 3) for slot in range(3)]
EDGES = st.integers(-(2**63), 2**63 - 1)


def made(root: int, xor: int, more: tuple[tuple[int, int], ...] = ()) -> Tuple:
    """A tuple as the executor makes it."""
    tup = Tuple.__new__(Tuple)
    tup._values, tup._source = (), Source("split", 1, "default", ())
    tup._root, tup._xor, tup._more = root, xor, more
    return tup


def sums(columns: dict[int, AckColumns]) -> dict[int, int]:
    """The total for each tree."""
    found: dict[int, int] = defaultdict(int)
    for roots, xors in columns.values():
        for root, xor in zip(roots, xors):
            found[root] ^= xor
    return dict(found)


@given(st.lists(st.tuples(st.sampled_from([*ROOTS, UNTRACKED, SETTLED]), EDGES), max_size=30))
def test_each_tree_gets_the_xor_of_its_tuples_at_the_task_of_its_spout(
    entries: list[tuple[int, int]],
) -> None:
    batch = AckBatch()
    wanted: dict[int, int] = defaultdict(int)
    for root, xor in entries:
        batch.add(root, xor)
        if root > 0:
            wanted[root] ^= xor
    taken = batch.by_tracker()
    assert sums(taken) == wanted
    for task, (roots, xors) in taken.items():
        assert len(roots) == len(xors)
        assert {task_of(root) for root in roots} == {task}
    assert not batch and batch.by_tracker() == {}


def test_neighbours_of_one_root_are_one_entry() -> None:
    batch = AckBatch()
    for root, xor in [(ROOTS[0], 1), (ROOTS[0], 2), (ROOTS[1], 4), (ROOTS[1], 8), (ROOTS[0], 16)]:
        batch.add(root, xor)
    assert batch.by_tracker() == {1: ([ROOTS[0], ROOTS[1], ROOTS[0]], [3, 12, 16])}


def test_with_one_spout_task_the_columns_are_passed_on_unchanged() -> None:
    batch = AckBatch()
    batch.add(ROOTS[0], 5)
    roots, xors = batch.roots, batch.xors
    taken = batch.by_tracker(only=1)
    assert taken == {1: ([ROOTS[0]], [5])}
    assert taken[1][0] is roots and taken[1][1] is xors
    assert batch.by_tracker(only=1) == {}


def test_a_tuple_of_several_trees_is_acked_in_each_of_them() -> None:
    edge_one, edge_two, edge_three = 0b1, 0b10, 0b100
    more = ((ROOTS[3], edge_one ^ edge_two), (ROOTS[6], edge_one ^ edge_three))
    batch = AckBatch()
    batch.add_tuple(made(ROOTS[0], edge_one, more))
    assert sums(batch.by_tracker()) == {ROOTS[0]: edge_one, ROOTS[3]: edge_two, ROOTS[6]: edge_three}


def test_a_child_of_a_tuple_of_several_trees_counts_in_each_of_them() -> None:
    child = 0b1000
    tup = made(ROOTS[0], 0b1, ((ROOTS[3], 0b1 ^ 0b10),))
    tup._xor ^= child
    batch = AckBatch()
    batch.add_tuple(tup)
    assert sums(batch.by_tracker()) == {ROOTS[0]: 0b1 ^ child, ROOTS[3]: 0b10 ^ child}


def test_untracked_and_acked_tuples_add_nothing() -> None:
    batch = AckBatch()
    batch.add_tuple(made(UNTRACKED, 0))
    batch.add_tuple(made(SETTLED, 77))
    assert not batch
