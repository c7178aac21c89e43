"""Replays: tuples travel between tasks unchanged, and a root names its source row."""

from __future__ import annotations

from array import array
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_io.spark.replay import ComponentTotals
from squall_io.spark.replay.problems import ReplayFailed
from squall_io.spark.replay.records import (
    MOST_TUPLES,
    More,
    Origin,
    Row,
    Tuples,
    Unpicklable,
    decode,
    encode,
    encode_all,
    first_root,
    origin_of,
    partition_sender,
    sent_by_partition,
)

values = st.one_of(
    st.none(), st.integers(), st.text(), st.binary(), st.floats(allow_nan=False), st.lists(st.text())
)


def tuples_of(rows: list[Row], roots: list[int], more: More) -> Tuples:
    return Tuples([list(column) for column in zip(*rows)], len(rows), array("q", roots).tobytes(), more)


def roots_of(tuples: Tuples) -> list[int]:
    return [tuples.trees(at)[0] for at in range(tuples.size)]


def rows_of(tuples: Tuples) -> list[Row]:
    return [tuples.row(at) for at in range(tuples.size)]


@given(st.integers(0, 4), st.data())
def test_tuples_travel_unchanged(width: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*[values] * width), max_size=20))
    roots = data.draw(st.lists(st.integers(0, 2**63 - 1), min_size=len(rows), max_size=len(rows)))
    more: More = {0: ((5, 6), (7, 8))} if rows else {}
    tuples = decode(encode(tuples_of(rows, roots, more)))
    assert (rows_of(tuples), roots_of(tuples), tuples.more) == (rows, roots, more)


@given(st.integers(1, 4 * MOST_TUPLES))
def test_many_tuples_are_several_blobs_in_order(count: int) -> None:
    rows = [(number,) for number in range(count)]
    more: More = {number: ((number, 1),) for number in range(0, count, 7)}
    refused: list[Tuples] = []
    tuples = tuples_of(rows, [row[0] for row in rows], more)
    parts = [decode(blob) for blob in encode_all(tuples, refused.append)]
    assert not refused
    assert all(part.size <= MOST_TUPLES for part in parts)
    assert [row for part in parts for row in rows_of(part)] == rows
    assert [root for part in parts for root in roots_of(part)] == [row[0] for row in rows]
    found = {part.row(at)[0]: pairs for part in parts for at, pairs in part.more.items()}
    assert found == more


def test_tuples_that_cannot_be_pickled_are_reported() -> None:
    with pytest.raises(Unpicklable, match="generator"):
        encode(tuples_of([((value for value in [1]),)], [0], {}))


@given(st.sets(st.integers(0, 20)))
def test_only_the_tuples_that_cannot_be_pickled_are_refused_each_with_its_trees(bad: set[int]) -> None:
    rows: list[Row] = [((value for value in [1]),) if number in bad else (number,) for number in range(21)]
    more: More = {number: ((number + 100, 1),) for number in range(0, 21, 2)}
    refused: list[Tuples] = []
    blobs = encode_all(tuples_of(rows, list(range(21)), more), refused.append)
    parts = [decode(blob) for blob in blobs]
    assert [row[0] for part in parts for row in rows_of(part)] == sorted(set(range(21)) - bad)
    trees = [part.trees(at) for part in (*refused, *parts) for at in range(part.size)]
    assert sorted(trees) == [[root, root + 100] if root % 2 == 0 else [root] for root in range(21)]
    assert [single.trees(0)[0] for single in refused] == sorted(bad)


@given(st.integers(0, 127), st.integers(0, 2**20 - 1), st.integers(0, 2**36 - 2))
def test_a_root_is_the_position_of_a_source_row(source: int, partition: int, row: int) -> None:
    root = first_root(source, partition) + row
    assert 0 < root < 2**63
    assert origin_of(root) == Origin(source, partition, row)


def test_too_many_partitions_are_refused() -> None:
    with pytest.raises(ReplayFailed, match="coalesce"):
        first_root(0, 2**20)


@given(st.integers(0, 200), st.integers(0, 2**20))
def test_a_sender_is_a_partition_or_a_task(stream: int, partition: int) -> None:
    assert sent_by_partition(partition_sender(stream, partition)) == partition
    assert sent_by_partition(partition) is None


def test_the_totals_of_a_component_are_a_value() -> None:
    totals = ComponentTotals(5, 4, 3, 2, 1)
    assert totals == ComponentTotals(executed=5, emitted=4, failed=3, unsettled=2, errors=1)
    assert {totals: "a key"}[ComponentTotals(5, 4, 3, 2, 1)] == "a key"
    with pytest.raises(FrozenInstanceError):
        totals.errors = 0  # type: ignore[misc]
