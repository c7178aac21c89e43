"""Checked rows become Arrow tables with the same values; values of NumPy and pandas count by their content."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, cast
from zoneinfo import ZoneInfo

import pytest

from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.schema import parse_schema
from tests.spark.random_rows import differences, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

UTC = timezone.utc


def outcome(kind: str, value: object) -> object:
    """The value from the Arrow table, or the error."""
    checker = RowChecker(parse_schema(f"v {kind}"))
    columns, bad = checker.split([(value,)])
    return bad[0][1] if bad else checker.table(columns).column(0).to_pylist()[0]


def test_values_of_numpy_count_by_their_content() -> None:
    import numpy as np

    assert outcome("bigint", np.int64(-3)) == -3
    assert outcome("tinyint", np.uint8(127)) == 127
    assert outcome("double", np.float32(0.5)) == 0.5
    assert outcome("float", np.float64(0.5)) == 0.5
    assert outcome("boolean", np.bool_(True)) is True
    assert outcome("string", np.str_("x")) == "x"
    assert outcome("binary", np.bytes_(b"x")) == b"x"
    assert outcome("decimal(5,2)", np.int16(7)) == 7
    assert outcome("date", np.datetime64("2026-11-21")) == date(2026, 11, 21)
    assert outcome("timestamp_ntz", np.datetime64("2026-11-21T01:02:03.000004")) == datetime(
        2026, 11, 21, 1, 2, 3, 4
    )
    assert outcome("array<double>", np.array([1.5, 2.5])) == [1.5, 2.5]
    assert outcome("map<int, float>", {np.int32(1): np.float32(2)}) == [(1, 2.0)]


def test_values_of_numpy_that_do_not_fit_exactly_are_refused() -> None:
    import numpy as np

    refused = [
        ("tinyint", np.uint8(128), "np.uint8(128) (uint8) is out of range for tinyint: -128 to 127"),
        ("bigint", np.float64(1), "is not a valid bigint"),
        ("bigint", np.bool_(True), "is not a valid bigint"),
        ("boolean", np.int8(1), "is not a valid boolean"),
        ("double", np.longdouble(1), "is not a valid double"),
        ("date", np.datetime64("2026-11"), "is not a valid date"),
        ("date", np.datetime64("NaT", "D"), "is not a valid date"),
        ("date", np.datetime64(10**7, "D"), "is not a valid date"),
        ("timestamp", np.datetime64("2026-11-21T01:02"), "it has no time zone; give a datetime with a tzinfo"),
        ("timestamp_ntz", np.datetime64("2026-11-21T00:00:00.000000001"), "microseconds of the years 1 to 9999 are kept"),
        ("timestamp_ntz", np.datetime64("NaT", "us"), "microseconds of the years 1 to 9999 are kept"),
        ("array<double>", np.array([[1.5]]), "a list or a tuple is expected"),
        ("array<int>", np.array([1, 2**40]), "'v[1]': np.int64(1099511627776) (int64) is out of range for int"),
        ("map<date, int>", {date(2026, 11, 21): 1, np.datetime64("2026-11-21"): 2}, "holds a key twice"),
    ]  # fmt: skip
    for kind, value, text in refused:
        assert text in str(outcome(kind, value))


def test_timestamps_of_pandas_are_accepted_unless_they_are_finer() -> None:
    import pandas as pd  # type: ignore[import-untyped]

    noon = pd.Timestamp("2026-11-21 12:00:00.000001")
    assert outcome("timestamp_ntz", noon) == datetime(2026, 11, 21, 12, 0, 0, 1)
    assert outcome("timestamp", noon.tz_localize("Europe/Berlin")) == datetime(
        2026, 11, 21, 11, 0, 0, 1, tzinfo=UTC
    )
    assert "it is finer than microseconds" in str(outcome("timestamp_ntz", noon + pd.Timedelta(1, "ns")))
    for kind in ("timestamp", "timestamp_ntz", "date"):
        assert f"is not a valid {kind}" in str(outcome(kind, pd.NaT))
    assert "<NA> (NAType) is not a valid bigint" in str(outcome("bigint", pd.NA))


def test_an_arrow_table_goes_through_spark_unchanged(spark: SparkSession) -> None:
    from pyspark.sql.types import StructType

    schema = parse_schema(
        "n bigint NOT NULL, a boolean, b tinyint, c smallint, d int, e float, f double, g decimal(38,18), h string, i binary, "
        "j date, k timestamp, l timestamp_ntz, m array<array<string>>, o map<string, struct<x: double>>, p string NOT NULL"
    )
    rows = [[number, *row[1:]] for number, row in enumerate(rows_of(schema, 500, seed=5))]
    checker = RowChecker(schema)
    columns, bad = checker.split(rows)
    assert bad == []
    table = checker.table(columns)

    spark_schema = cast("StructType", StructType.fromDDL(str(schema)))
    read = spark.createDataFrame(table, spark_schema).toArrow().cast(table.schema)

    written, given = (list(zip(*(column.to_pylist() for column in each.columns))) for each in (table, read))
    assert len(written) == 500
    assert differences(schema.names, written, given) == []


def test_an_arrow_table_has_the_content_of_the_rows() -> None:
    schema = parse_schema(
        "n bigint, a decimal(20,5), b double, c timestamp, d map<int, array<date>>, e struct<x: binary>"
    )
    rows = [[number, *row[1:]] for number, row in enumerate(rows_of(schema, 300, seed=4))]
    random.Random(1).shuffle(rows)
    checker = RowChecker(schema)

    table = checker.table(checker.split(rows)[0])

    held = [tuple(list(value.items()) if isinstance(value, dict) and place == 4 else value for place, value in enumerate(row))
            for row in rows]  # fmt: skip
    given = [tuple(row) for row in zip(*(column.to_pylist() for column in table.columns))]
    assert [row[0] for row in given] == [row[0] for row in held]
    for before, after in zip(held, given):
        assert before[3:] == after[3:]
        assert before[1] == after[1]
        assert repr(before[2]) == repr(after[2])


def test_times_of_all_zones_are_the_moments_that_they_name() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    at_two_moments = [datetime(2024, 10, 27, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1)]
    ends = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    east = [datetime(1969, 12, 31, 23, 0, 0, 1, tzinfo=timezone(timedelta(hours=14, seconds=7)))]
    given = [*at_two_moments, *ends, None, *east]
    checker = RowChecker(parse_schema("at timestamp"))

    columns, bad = checker.split([(value,) for value in given])

    assert bad == []
    held = checker.table(columns).column(0).to_pylist()
    assert held == [None if value is None else value.astimezone(UTC) for value in given]
    assert held[1] - held[0] == timedelta(hours=1)
