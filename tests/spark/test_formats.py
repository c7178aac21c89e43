"""Spark reads a table in each format exactly as it was written, whatever the values, names and zones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from squall_io.spark.rows.arrow import arrow_schema
from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.formats import FORMATS, format_problems, read_options
from squall_io.spark.rows.schema import Schema, parse_schema
from squall_io.spark.rows.types import quoted
from squall_io.spark.sink.writing import TableWriter, WriteAs
from tests.spark.random_rows import TEXTS, differences, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

PLAIN = (
    "n bigint NOT NULL, a boolean, b tinyint, c smallint, d int, e float, f double, g decimal(38,18), h decimal(38,38), "
    "i decimal(5,0), j string, k date, l timestamp_ntz, m string NOT NULL"
)
NESTED = "array<{0}>, {1}2 struct<x: {0}, y: array<struct<z: {0} NOT NULL>>>, {1}3 map<string, {0}>"
SCHEMAS = {
    "csv": f"{PLAIN}, t timestamp",
    "json": f"{PLAIN}, t timestamp, y binary, o {NESTED.format('string', 'o')}, p {NESTED.format('timestamp', 'p')}",
    "orc": f"{PLAIN}, y binary, o {NESTED.format('double', 'o')}, p {NESTED.format('date', 'p')}, r map<int, binary>",
    "parquet": f"{PLAIN}, t timestamp, y binary, o {NESTED.format('string', 'o')}, p {NESTED.format('timestamp', 'p')}, "
    "r map<decimal(10,2), date>",
}
NAMES = (
    "a b", "a.b", "a,b", "a=b", "{x}", "a:b", "é", "😀", "a\nb", 'a"b', "a'b", "a\\b", "a\tb", "_corrupt_record", "_metadata",
    "_x", ".x", "a;b", "(a)", "select", "1a", " a ", "a#b", "\ufeffa", "a\rb", "a/b", "%41", "-", "*", "[0]", "<a>", "_c0",
)  # fmt: skip
#: Texts that a partition's folder keeps. ("\0", the empty one and very long ones are refused: RowChecker.)
FOLDERS = (*(text for text in TEXTS if text and "\0" not in text and len(text) < 100), "/", "..", ".", "=", "*", "?", "a:b",
           "[a]", "^", "`", "|", "&", "+", "~", "A", "01", "1", "a" * 250, "/" * 83)  # fmt: skip


def round_trip(
    spark: SparkSession,
    folder: Path,
    write_as: WriteAs,
    schema: Schema,
    rows: Sequence[Sequence[Any]],
) -> list[str]:
    """Write rows as a sink does, read them as `read_committed` does; return the differences."""
    assert (
        list(format_problems(schema, write_as.file_format, write_as.partition_by, write_as.compression)) == []
    )
    checker = RowChecker(schema, write_as.file_format, write_as.partition_by)
    columns, bad = checker.split(rows)
    assert bad == []
    table = checker.table(columns)

    TableWriter(spark, schema, write_as).write(table, folder.as_uri())
    # Not as URIs: Spark uses paths literally, and folders of partitions have "%" in their names.
    files = [f"file://{path}" for path in folder.rglob("*") if path.is_file() and path.name[0] not in "._"]
    reader = spark.read.schema(str(schema)).options(**read_options(write_as.file_format))
    frame = reader.option("basePath", f"file://{folder}").format(write_as.file_format).load(files)
    read = frame.select(*map(quoted_always, schema.names)).toArrow()
    return differences(schema.names, as_rows(table), as_rows(in_utc(read, schema)))


def in_utc(read: Any, schema: Schema) -> Any:
    """The rows as read by a session of any zone, labelled like the written ones. Columns of files are all nullable."""
    return read.cast(arrow_schema(parse_schema(str(schema).replace(" NOT NULL", ""))))


def quoted_always(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def as_rows(table: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns)))


def numbered(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [[number, *row[1:]] for number, row in enumerate(rows)]


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_value_of_every_type_is_read_unchanged(
    file_format: str, spark: SparkSession, tmp_path: Path
) -> None:
    schema = parse_schema(SCHEMAS[file_format])
    rows = numbered(rows_of(schema, 600, seed=6))

    assert round_trip(spark, tmp_path / "t", WriteAs(file_format, (), None), schema, rows) == []


@pytest.mark.parametrize("file_format", FORMATS)
def test_rows_of_only_nulls_and_empty_texts_are_kept(
    file_format: str, spark: SparkSession, tmp_path: Path
) -> None:
    schema = parse_schema("word string")
    rows: list[list[object]] = [[None], [""], [None], ["\n"], [""]]
    checker = RowChecker(schema, file_format)
    writer = TableWriter(spark, schema, WriteAs(file_format, (), None))
    writer.write(checker.table(checker.split(rows)[0]), (tmp_path / "t").as_uri())

    frame = spark.read.schema("word string").options(**read_options(file_format)).format(file_format)
    read = frame.load((tmp_path / "t").as_uri()).collect()

    assert sorted(repr(row.word) for row in read) == ["''", "''", "'\\n'", "None", "None"]


@pytest.mark.parametrize("file_format", FORMATS)
def test_columns_may_have_any_names(file_format: str, spark: SparkSession, tmp_path: Path) -> None:
    names = NAMES if file_format == "orc" else (*NAMES, "a`b")  # orc: see format_problems
    columns = [f"{quoted(name)} string" for name in names]
    fields = [f"{quoted(name)}: int" for name in names]
    nested = [] if file_format == "csv" else [f"nested struct<{', '.join(fields)}>"]
    schema = parse_schema(", ".join(["n bigint", *columns, *nested]))
    inner = [dict(zip(names, range(len(names))))] * len(nested)
    rows = [[1, *names, *inner], [2, *[None] * len(names), *[None] * len(nested)]]

    assert round_trip(spark, tmp_path / "t", WriteAs(file_format, (), None), schema, rows) == []


@pytest.mark.parametrize("file_format", FORMATS)
def test_partitions_keep_every_accepted_value(file_format: str, spark: SparkSession, tmp_path: Path) -> None:
    schema = parse_schema("n bigint, word string, `the day/` date, big bigint, yes boolean")
    partition_by = ("word", "the day/", "big", "yes")
    rows: list[list[object]] = [[-1 - n, None, day, big, yes] for n, (day, big, yes) in enumerate(
        [(date.min, 2**63 - 1, True), (date(1582, 10, 10), -(2**63), False), (date.max, None, None), (None, 0, True)]
    )]  # fmt: skip
    texts = FOLDERS if file_format == "json" else FOLDERS[::5]  # folders are made in the same way for all
    rows += [[n, word, None, None, None] for n, word in enumerate(texts)]

    assert round_trip(spark, tmp_path / "t", WriteAs(file_format, partition_by, None), schema, rows) == []


@pytest.mark.parametrize("file_format", FORMATS)
def test_each_compression_works_with_sparks_own_libraries(
    file_format: str, spark: SparkSession, tmp_path: Path
) -> None:
    schema = parse_schema("n bigint, word string")
    rows = [[n, f"word {n % 7}\n"] for n in range(100)]

    for compression in FORMATS[file_format].compressions:
        write_as = WriteAs(file_format, (), compression)
        assert round_trip(spark, tmp_path / compression, write_as, schema, rows) == []


@pytest.mark.parametrize("file_format", FORMATS)
def test_times_do_not_depend_on_the_zones_of_writers_and_readers(
    file_format: str, spark: SparkSession, tmp_path: Path
) -> None:
    at = "timestamp_ntz" if file_format == "orc" else "timestamp"
    schema = parse_schema(f"n bigint, a {at}, b timestamp_ntz, c date")
    rows = numbered(rows_of(schema, 200, seed=7))
    elsewhere = spark.newSession()
    elsewhere.conf.set("spark.sql.session.timeZone", "America/New_York")

    with java_zone(spark, "Europe/Berlin"):
        found = round_trip(elsewhere, tmp_path / "t", WriteAs(file_format, (), None), schema, rows)
    assert found == []
    with java_zone(spark, "Asia/Kolkata"):
        reader = elsewhere.read.schema(str(schema)).options(**read_options(file_format)).format(file_format)
        read = in_utc(reader.load((tmp_path / "t").as_uri()).toArrow(), schema)
    checker = RowChecker(schema)
    assert differences(schema.names, as_rows(checker.table(checker.split(rows)[0])), as_rows(read)) == []


def test_a_text_may_be_longer_than_the_default_limit_of_sparks_json_parser(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "long.json"
    path.write_text('{"word":"' + "x" * 20_000_001 + '"}\n')

    frame = spark.read.schema("word string").options(**read_options("json")).json(path.as_uri())

    assert [row.size for row in frame.selectExpr("length(word) AS size").collect()] == [20_000_001]


@contextmanager
def java_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    """The time zone of the Java process, in which the tests' session has everything."""
    zones = spark._jvm.java.util.TimeZone  # type: ignore[union-attr]
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone(zone))
    try:
        yield
    finally:
        zones.setDefault(before)


def test_a_truncated_file_fails_the_query_instead_of_giving_nulls(
    spark: SparkSession, tmp_path: Path
) -> None:
    from py4j.protocol import Py4JJavaError

    broken: Mapping[str, str] = {"json": '{"n":1,"word":"a"}\n{"n":2,"wo', "csv": "n,word\n1,a\n2\n"}
    for file_format, text in broken.items():
        path = tmp_path / file_format
        path.write_text(text)
        frame = spark.read.schema("n bigint, word string").options(**read_options(file_format))

        with pytest.raises(Py4JJavaError, match="MALFORMED_RECORD"):
            frame.format(file_format).load(path.as_uri()).collect()
