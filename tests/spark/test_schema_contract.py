"""Spark parses every schema that Squall accepts alike; Arrow's types are those to which Spark maps its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import HealthCheck, given, settings

from squall_io.spark.rows.arrow import arrow_schema
from squall_io.spark.rows.schema import Schema, parse_schema
from squall_io.spark.rows.types import SchemaError
from tests.squall_io.spark_schemas import SCHEMAS, as_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

#: Texts that parsers could interpret differently. Those that Squall refuses are skipped, but some must remain.
NASTY = (
    "a int", "a: int", "a: int, b string", "a INT not NULL, B STRING NOT null COMMENT 'x'", "a struct<b int, c: string>",
    "a struct<b: int NOT NULL COMMENT 'q', c string>", "a array<array<int>>", "a map<string,map<int,decimal>>",
    "a dec(5), b numeric(3,2), c decimal", "a decimal( 05 , 02 )", "a decimal(38,38)", "`a``b` int", "`a b` int", "` ` int",
    "a byte, b short, c integer, d long, e real", "a timestamp_ltz, b timestamp, c timestamp_ntz", "a struct<a:int>not null",
    "a int comment 'it''s'", 'a int comment "it""s"', 'a int comment "it\'s"', r"a int comment 'a\'b'",
    'a int comment \'b""c\'',
    r"a int comment 'a\nb\tc\\d\0e\Zf\%g\_h\u00e9\U0001F600\101\q'", "a int comment 'line\nbreak'", "a int comment ''",
    r"a int comment 'a\u00'", r"a int comment '\400'", r"a int comment '\1'", r"a int comment '\0012'", "a int comment '\\\n'",
    "a int comment'x'", "a map<string,int>comment'x'", "a int -- comment\n, b string", "a /* x */ int", "/**/a int", "a int--",
    "a int not /*x*/ null", "a  \t\r\nint", "not int", "null int", "comment string comment 'c'", "array int, map int", "_ int",
    "struct struct<struct: struct<a:int>>", "timestamp timestamp, date date, interval int, select int, default int",
    "table int, from string, where int, order int, exists int, collate int, decimal decimal, string string, true int, int int",
    "a /* x /* y */ z */ int", "a int comment r'x'", "a int comment 'a' 'b'", "a int comment 'x' comment 'y'", "a int,",
    "a\u00a0int", "é int", "a.b int", "a: : int", "a int;", "a /*+ x */ int", "not not null", r"a int comment 'x\'",
)  # fmt: skip


def as_read_by_spark(ddl: str) -> object:
    from pyspark.sql.types import StructType

    return StructType.fromDDL(ddl).jsonValue()


@given(SCHEMAS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_spark_parses_the_text_of_any_schema_as_the_same_schema(spark: SparkSession, schema: Schema) -> None:
    assert as_read_by_spark(str(schema)) == as_spark(schema)


def test_spark_parses_what_squall_accepts_alike(spark: SparkSession) -> None:
    taken = {}
    for ddl in NASTY:
        try:
            taken[ddl] = parse_schema(ddl)
        except SchemaError:
            continue

    assert len(taken) >= 45
    for ddl, schema in taken.items():
        assert (ddl, as_read_by_spark(ddl)) == (ddl, as_spark(schema))
        assert (ddl, as_read_by_spark(str(schema))) == (ddl, as_spark(schema))


@given(SCHEMAS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arrows_types_are_those_to_which_spark_maps_its_own(spark: SparkSession, schema: Schema) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    spark_schema = cast("StructType", StructType.fromDDL(str(schema)))
    assert arrow_schema(schema).equals(to_arrow_schema(spark_schema, timezone="UTC"))
