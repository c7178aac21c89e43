"""Replays: the tuples of an output are restored unchanged from the bytes that Spark keeps."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from squall_io.spark.replay.frames import from_blob, to_blobs
from squall_io.spark.replay.inference import kinds_of, merge_all, schema_of
from squall_io.spark.replay.problems import ReplayFailed
from squall_io.spark.replay.records import Checked
from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.schema import parse_schema

pytestmark = pytest.mark.slow

NAMES = ["number", "text", "moment", "map", "struct"]
WHOLE = (
    Decimal("1.25"),
    "é",
    datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc),
    {"a": [1, None], "": None},
    ({"day": date(2026, 1, 2), "bytes": b"\0"},),
)
ROWS: list[tuple[Any, ...]] = [
    (*WHOLE[:4], {"x": Decimal("1.5")}),
    (Decimal("1000"), None, WHOLE[2], {}, {"x": None}),
    (None,) * 5,
]


def blobs_of(checker: RowChecker, rows: list[tuple[Any, ...]]) -> list[bytes]:
    columns, bad = checker.split(rows)
    assert not bad
    return list(to_blobs(Checked(columns, checker)))


def read(blobs: list[bytes], checker: RowChecker) -> list[dict[str, Any]]:
    return [
        row
        for blob in blobs
        for batch in from_blob(memoryview(blob), checker)
        for row in batch.to_pylist(maps_as_pydicts="strict")
    ]


def test_values_written_with_a_tasks_own_types_are_read_with_the_merged_types() -> None:
    kinds = [kinds_of(NAMES, list(zip(row))) for row in ROWS]
    all_kinds = kinds[0]
    for other in kinds[1:]:
        all_kinds = merge_all(NAMES, all_kinds, other)
    together = RowChecker(schema_of(NAMES, all_kinds))
    assert str(together.schema).startswith("number decimal(6,2)")
    blobs = [
        blob for row, own in zip(ROWS, kinds) for blob in blobs_of(RowChecker(schema_of(NAMES, own)), [row])
    ]
    assert read(blobs, together) == [dict(zip(NAMES, row)) for row in ROWS]
    types = [batch.schema for blob in blobs for batch in from_blob(blob, together)]
    assert len(types) == 3 and len(set(types)) == 1


def test_values_that_do_not_fit_the_merged_type_are_reported() -> None:
    (blob,) = blobs_of(RowChecker(parse_schema("x string")), [("a",)])
    with pytest.raises(ReplayFailed, match="field 'x': 'a'"):
        list(from_blob(blob, RowChecker(parse_schema("x bigint"))))


def test_large_rows_are_several_blobs_in_order() -> None:
    checker = RowChecker(parse_schema("n int, text string"))
    rows = [(n, str(n % 10) * 300_000) for n in range(40)]
    blobs = blobs_of(checker, rows)
    assert len(blobs) > 5 and max(map(len, blobs)) < 2 << 20
    assert [tuple(row.values()) for row in read(blobs, checker)] == rows


def test_a_row_larger_than_the_usual_blob_is_one_blob() -> None:
    checker = RowChecker(parse_schema("text string"))
    blobs = blobs_of(checker, [("x" * (3 << 20),)] * 2)
    assert len(blobs) == 2
    assert [len(row["text"]) for row in read(blobs, checker)] == [3 << 20] * 2
