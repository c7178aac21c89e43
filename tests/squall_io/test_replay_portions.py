"""Replays: a portion of Arrow columns divides itself among the tasks as the stream's groupings do row by row."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall_io.spark.replay.portions import Portion, decode_portion, is_portion, portions_of
from squall_io.spark.replay.records import Buffer, Tuples, encode
from topology_api.tuples import Source
from worker.routing.outbox import Outbox
from worker.routing.router import Reader, StreamOutput, add_route

pa = pytest.importorskip("pyarrow")

FIELDS = ("a", "b")
UTC = datetime.timezone.utc
#: Columns of each kind that a key may have.
COLUMNS = {
    "string": st.text(alphabet="aé😀", max_size=3),
    "int64": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3),
    "int8": st.integers(-128, 127),
    "double": st.floats() | st.sampled_from((0.0, -0.0, 1.0)),
    "bool": st.booleans(),
    "binary": st.binary(max_size=2),
    "decimal128(10, 2)": st.integers(-500, 500).map(lambda cents: Decimal(cents) / 100),
    "timestamp[us, tz=UTC]": st.datetimes(
        datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1), timezones=st.just(UTC)
    ),
    "date32[day]": st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
    "list<item: int64>": st.lists(st.integers(0, 2), max_size=2),
}
TYPES = {
    "decimal128(10, 2)": pa.decimal128(10, 2),
    "timestamp[us, tz=UTC]": pa.timestamp("us", "UTC"),
    "date32[day]": pa.date32(),
    "list<item: int64>": pa.list_(pa.int64()),
}
ROUTES = st.sampled_from(
    [("shuffle", ()), ("all", ()), ("global", ()), ("fields", ("a",)), ("fields", ("b",)), ("fields", FIELDS)]
)


def output_of(routes: Iterable[tuple[str, tuple[str, ...]]], tasks: int, groups: int) -> StreamOutput:
    """A stream's output with a reader for each of these groupings."""
    source = Source("numbers", 1, "default", FIELDS)
    output = StreamOutput(source, False)
    for number, (kind, fields) in enumerate(routes):
        first = 100 * number
        boxes = {first + task: Outbox(source, first + task) for task in range(tasks)}
        add_route(output, kind, Reader(fields, boxes, lambda task: False, number, None, groups))
    output.shorten()
    return output


def roots_of(tuples: Tuples) -> list[int]:
    """The roots of all tuples."""
    return [root for at in range(tuples.size) for root in tuples.trees(at)]


def received(sent: Iterable[tuple[Outbox, Buffer]]) -> dict[int, list[tuple[Any, ...]]]:
    """The rows of each task, and their roots."""
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for box, blob in sent:
        assert is_portion(blob) and is_portion(memoryview(blob).cast("b"))
        tuples = decode_portion(blob)
        found[box.target] += [(*map(repr, tuples.row(at)), *tuples.trees(at)) for at in range(tuples.size)]
    return found


@settings(max_examples=150, deadline=None)
@given(
    st.lists(ROUTES, min_size=1, max_size=3),
    st.integers(1, 4),
    st.sampled_from((0, 8)),
    st.sampled_from(sorted(COLUMNS)),
    st.sampled_from(sorted(COLUMNS)),
    st.integers(0, 1),
    st.data(),
)
def test_columns_go_where_each_of_their_rows_goes(
    routes: list[tuple[str, tuple[str, ...]]],
    tasks: int,
    groups: int,
    one: str,
    other: str,
    nulls: int,
    data: st.DataObject,
) -> None:
    count = data.draw(st.integers(1, 12))
    output, by_row = output_of(routes, tasks, groups), output_of(routes, tasks, groups)
    for first in (1, 1 + count):  # round robin goes on with the next portion
        columns = []
        for kind in (one, other):
            values = COLUMNS[kind] | st.none() if nulls else COLUMNS[kind]
            drawn = data.draw(st.lists(values, min_size=count + 1, max_size=count + 1))
            columns.append(pa.array(drawn, TYPES.get(kind) or kind).slice(1))
        portion = Portion(columns, count, first)
        expected: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for at, row in enumerate(portion.rows()):
            for box in by_row.choose(row):
                expected[box.target].append((*map(repr, row), first + at))
        sent = portion.spread(output)
        if sent is None:
            assert any("list<item: int64>" in (one, other) and kind == "fields" for kind, _ in routes), (
                "only nested keys are looked at one by one"
            )
            return
        assert received(sent) == expected


def test_a_custom_grouping_looks_at_each_row() -> None:
    output = output_of([("partial_key", ("a",))], 3, 0)
    assert Portion([pa.array(["x"]), pa.array([1])], 1, 1).spread(output) is None


def test_chosen_rows_keep_their_roots() -> None:
    portion = Portion([pa.array(["x", "y", "z"]), pa.array([1, 2, 3])], 3, 50)
    (blob,) = portion.chosen([0, 2])
    tuples = decode_portion(blob)
    assert (tuples.row(0), tuples.row(1), *tuples.trees(0), *tuples.trees(1)) == (("x", 1), ("z", 3), 50, 52)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=6), st.integers(1, 60))
def test_batches_become_portions_of_some_size_and_no_row_is_lost(sizes: list[int], least: int) -> None:
    batches, start = [], 0
    for size in sizes:
        numbers = pa.array(range(start, start + size), "int64")
        batches.append(pa.RecordBatch.from_arrays([numbers, pa.repeat(7, size)], ["n", "partition"]))
        start += size
    portions = list(portions_of(batches, 11, least))
    assert [row for portion in portions for row in portion.rows()] == [(n,) for n in range(start)]
    assert all(len(portion) >= least for portion in portions[:-1])
    blobs = [blob for portion in portions for blob in portion.chosen(range(len(portion)))]
    assert [root for blob in blobs for root in roots_of(decode_portion(blob))] == list(range(11, 11 + start))


def test_rows_without_fields_travel_too() -> None:
    portion = Portion([], 3, 1)
    (blob,) = portion.chosen([0, 1, 2])
    assert portion.rows() == [(), (), ()]
    tuples = decode_portion(blob)
    assert (tuples.size, tuples.row(2), roots_of(tuples)) == (3, (), [1, 2, 3])


def test_large_rows_are_small_blobs() -> None:
    portion = Portion([pa.array(["x" * 400_000] * 20)], 20, 1)
    blobs = list(portion.chosen(range(20)))
    assert max(map(len, blobs)) < 1 << 21 and sum(decode_portion(blob).size for blob in blobs) == 20


def test_a_pickle_is_no_portion() -> None:
    assert not is_portion(encode(Tuples([[1]], 1, bytes(8), {})))
