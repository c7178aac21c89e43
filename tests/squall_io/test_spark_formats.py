"""File formats of Spark tables: values that are refused before anything is written.

tests/spark/test_formats.py tests that accepted values come back unchanged.
"""

from __future__ import annotations

import pytest

from squall_io.spark.rows.formats import FORMATS, format_problems, read_options, write_options
from squall_io.spark.rows.schema import parse_schema

PLAIN = "a bigint, b string, c date, d timestamp_ntz, e decimal(5,2), f double, g boolean"


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_format_keeps_plain_columns(file_format: str) -> None:
    schema = parse_schema(PLAIN)

    assert list(format_problems(schema, file_format)) == []
    assert (
        list(format_problems(schema, file_format, ("b", "C", "g"), FORMATS[file_format].compressions[-1]))
        == []
    )


@pytest.mark.parametrize(
    ("ddl", "file_format", "said"),
    [
        ("a array<int>", "csv", "column 'a' is array<int>, which csv cannot keep: take parquet, orc or json"),
        ("a binary", "csv", "column 'a' is binary, which csv cannot keep"),
        ("a struct<b: int>", "csv", "column 'a' is struct<b: int>, which csv cannot keep"),
        ("a map<int, int>", "json", "column 'a' is map<int, int>, which json cannot keep: keys of JSON objects are"),
        ("a array<struct<b: map<int, int>>>", "json", "column 'a[].b' is map<int, int>, which json cannot keep"),
        ("a map<string, map<int, int>>", "json", "column \"a's values\" is map<int, int>, which json cannot keep"),
        ("a timestamp", "orc", "column 'a' is timestamp_ltz, which orc cannot keep: where Java has"),
        ("a map<timestamp, int>", "orc", "column \"a's keys\" is timestamp_ltz, which orc cannot keep"),
        ("a struct<`b``c`: int>", "orc", "column 'a.b`c' has a back quote in its name, which orc cannot keep"),
    ],
)  # fmt: skip
def test_a_type_that_a_format_loses_is_refused_with_its_column(ddl: str, file_format: str, said: str) -> None:
    (problem,) = format_problems(parse_schema(ddl), file_format)

    assert said in problem
    assert list(format_problems(parse_schema(ddl), "parquet")) == []


@pytest.mark.parametrize(
    ("partition_by", "said"),
    [
        (("wrod",), "partition_by names 'wrod', and the schema has no such column; did you mean 'word'?"),
        ((5,), "partition_by names 5, and the schema has no such column"),
        (("b", "B"), "partition_by names 'b' twice"),
        (("d",), "partition_by names 'd', which is timestamp_ntz: folders keep whole numbers, strings, dates and booleans"),
        (("f",), "partition_by names 'f', which is double"),
        ((".p",), "partition_by names '.p', but Spark and Hive ignore folders whose names begin with '.'"),
        (("b, word",), "no such column; for several columns give a list: ['b', 'word']"),
    ],
)  # fmt: skip
def test_an_impossible_partition_column_is_refused(partition_by: tuple[object, ...], said: str) -> None:
    schema = parse_schema("b string, word string, d timestamp_ntz, f double, `.p` string")
    problems = list(format_problems(schema, "parquet", partition_by))

    assert [said in problem for problem in problems] == [True], problems


def test_at_least_one_column_remains_for_the_files() -> None:
    (problem,) = format_problems(parse_schema("a int, b string"), "parquet", ("b", "a"))

    assert problem == "partition_by names all columns: at least one must remain for the files"


def test_an_unknown_format_or_compression_is_refused_with_the_known_ones() -> None:
    schema = parse_schema("a int")

    assert list(format_problems(schema, "parkett")) == [
        "format is 'parkett' (str): take one of 'parquet', 'orc', 'json', 'csv'; did you mean 'parquet'?"
    ]
    assert "format is None (NoneType)" in next(format_problems(schema, None))
    assert list(format_problems(schema, "csv", (), "snappy")) == [
        "compression is 'snappy' (str): csv takes one of 'none', 'gzip', 'bzip2', 'deflate'"
    ]
    assert "compression is 7 (int)" in next(format_problems(schema, "orc", (), 7))


def test_all_problems_come_at_once() -> None:
    schema = parse_schema("a array<int>, b binary")

    assert len(list(format_problems(schema, "csv", ("a", "nobody"), "lzo"))) == 5


def test_a_format_without_a_given_compression_has_its_default() -> None:
    assert write_options("parquet")["compression"] == "snappy"
    assert write_options("json", "gzip")["compression"] == "gzip"


def test_options_are_copies() -> None:
    read_options("csv")["header"] = "false"
    write_options("csv")["header"] = "false"

    assert read_options("csv")["header"] == write_options("csv")["header"] == "true"
