"""replay_topology on Spark: Spark's own part, beside the tasks, which tests/squall_io tests without it. Few
tests, one session.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from squall_io.spark import replay_topology
from squall_io.spark.replay import CannotReplay, ReplayFailed, TooManyErrors
from tests.squall_io.replay_in_memory import replay
from tests.squall_io.replay_topologies import (
    Echo,
    Numbers,
    OfPoint,
    Picky,
    Points,
    Tagged,
    Totals,
    one_bolt,
    word_count,
)
from topology_api import Bolt, Context, Fields, TopologyBuilder, Tuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LINES = [(f"{n % 13} {n % 7} x",) for n in range(300)]


@pytest.fixture
def lines(spark: SparkSession) -> DataFrame:
    """The lines in four partitions, of which one is empty."""
    return spark.createDataFrame(LINES, "line string").repartitionById(4, (spark_hash() % 3).cast("int"))


def spark_hash() -> Any:
    from pyspark.sql import functions as sql

    return sql.abs(sql.hash("line"))


@pytest.fixture(autouse=True)
def nothing_is_kept(spark: SparkSession) -> Iterator[None]:
    """Every test releases what Spark keeps for it."""
    yield
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == 0


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def test_outputs_equal_those_of_the_tasks_without_spark_and_the_schema_is_inferred(
    spark: SparkSession, lines: DataFrame
) -> None:
    before = spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch")
    topology = word_count(counter=Totals, sink=True)
    here = replay(topology, {"lines": [LINES]}, ["count", "split"])
    with replay_topology(spark, topology, {"lines": lines}, ["count", "split"]) as done:
        assert Counter(rows(done["count"])) == Counter(here.outputs["count"])
        assert Counter(rows(done["split"])) == Counter(here.outputs["split"])
        schema = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in done["count"].schema)
        assert schema == "word string, count bigint, index bigint"
        assert done.errors.count() == done.failures == done.unsettled == 0
        assert done.components["lines"].emitted == 300
        assert done.components["split"].executed == 300
        assert done.components["count"].executed == done.components["split"].emitted == 900
    assert spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == before


def test_a_component_may_have_another_parallelism_and_more_tasks_than_spark_has_threads(
    spark: SparkSession, lines: DataFrame
) -> None:
    topology = word_count(counter=Totals)
    here = replay(topology.with_parallelism({"count": 9}), {"lines": [LINES]}, ["count"])
    with replay_topology(spark, topology, {"lines": lines}, ["count"], parallelism={"count": 9}) as done:
        assert Counter(rows(done["count"])) == Counter(here.output)
    assert len({index for _, _, index in here.output}) > 3


def test_errors_are_rows_that_name_the_source_row(spark: SparkSession) -> None:
    numbers = spark.range(0, 12, 1, 2).withColumnRenamed("id", "n")
    with replay_topology(spark, one_bolt(Picky(), 2), {"numbers": numbers}, ["it"], max_errors=None) as done:
        found = {row["values"]: row for row in done.errors.collect()}
        assert sorted(rows(done["it"])) == [(n,) for n in (1, 2, 3, 4, 6, 8, 9, 11)]
        assert done.failures == 4
    assert set(found) == {"(0,)", "(5,)", "(7,)", "(10,)"}
    ten = found["(10,)"]
    assert (ten.component, ten.call, ten.stream, ten.error) == (
        "it",
        "execute",
        "numbers",
        "ValueError: 10 is a multiple of 5",
    )
    assert [tuple(each) for each in ten.sources] == [("numbers", 1, 4)]
    assert "replay_topologies.py" in ten.traceback


def test_more_errors_than_allowed_stop_the_job_with_the_first_ones(spark: SparkSession) -> None:
    numbers = spark.range(0, 40, 1, 2).withColumnRenamed("id", "n")
    with pytest.raises(TooManyErrors) as caught:
        replay_topology(spark, one_bolt(Picky(), 2), {"numbers": numbers}, ["it"], max_errors=3)
    assert caught.value.errors > 3
    assert "of at most 3 (max_errors):\n  it[2] execute of" in str(caught.value)


def test_a_task_that_fails_in_prepare_fails_the_job_with_its_own_message(spark: SparkSession) -> None:
    class Unprepared(Picky):
        def prepare(self, context: Context) -> None:
            raise ConnectionError("no database here")

    numbers = spark.range(3).withColumnRenamed("id", "n")
    with pytest.raises(ReplayFailed, match="no database here") as caught:
        replay_topology(spark, one_bolt(Unprepared()), {"numbers": numbers}, ["it"])
    assert "task 2 of 'it'" in str(caught.value) and "org.apache" not in str(caught.value)


ALL_TYPES = (
    "a boolean, b int, c bigint, d double, e string, f binary, g date, h timestamp, i timestamp_ntz,"
    " j decimal(10,2), k array<int>, l map<string,int>, m struct<x:int,y:string>"
)


def test_values_go_through_a_bolt_unchanged(spark: SparkSession) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901)
    whole = (
        True,
        -5,
        2**60,
        1.5,
        "é\n",
        b"\0\xff",
        date(2026, 1, 2),
        moment.replace(tzinfo=timezone.utc),
        moment,
        Decimal("12.34"),
        [1, None],
        {"a": 1},
        {"x": 1, "y": None},
    )
    nothing = (None,) * len(whole)
    names = "abcdefghijklm"
    frame = spark.createDataFrame([whole, nothing], ALL_TYPES)
    builder = TopologyBuilder("types")
    builder.set_spout("values", Numbers(*names))
    builder.set_bolt("it", Echo(*names, "shown")).shuffle_grouping("values")
    aware = moment.replace(tzinfo=ZoneInfo("UTC"))
    with replay_topology(
        spark, builder.build(), {"values": frame}, ["it"], schemas={"it": ALL_TYPES + ", shown string"}
    ) as done:
        found, before = done["it"].collect(), frame.collect()
        assert done["it"].drop("shown").schema == frame.schema
    assert sorted((row[:-1] for row in found), key=repr) == sorted(map(tuple, before), key=repr)
    taken = (*whole[:7], aware, *whole[8:])
    assert {row.shown for row in found} == {repr(taken), repr(nothing)}
    with replay_topology(spark, builder.build(), {"values": frame}, ["it"]) as done:
        kinds = {each.name: each.dataType.simpleString() for each in done["it"].schema}
    assert (kinds["b"], kinds["j"], kinds["h"], kinds["i"]) == (
        "bigint",
        "decimal(4,2)",
        "timestamp",
        "timestamp_ntz",
    )


def test_users_own_objects_travel_between_tasks(spark: SparkSession) -> None:
    builder = TopologyBuilder("points")
    builder.set_spout("numbers", Numbers("n"))
    builder.set_bolt("points", Points()).shuffle_grouping("numbers")
    builder.set_bolt("it", OfPoint(), parallelism=2).shuffle_grouping("points")
    numbers = spark.range(6).withColumnRenamed("id", "n")
    with replay_topology(spark, builder.build(), {"numbers": numbers}, ["it"], max_errors=1) as done:
        assert sorted(rows(done["it"])) == [(0,), (1,), (2,), (4,), (5,)]
        (error,) = done.errors.collect()
    assert (error.component, error.call) == ("points", "emit")


def test_a_source_with_two_readers_is_read_once_and_both_get_the_same_rows(
    spark: SparkSession,
) -> None:
    from pyspark.sql import functions as sql

    numbers = spark.range(0, 200, 1, 2).select((sql.rand() * 1000).cast("int").alias("n"))
    builder = TopologyBuilder("twice")
    builder.set_spout("numbers", Numbers("n"))
    for name in ("left", "right"):
        builder.set_bolt(name, Tagged()).shuffle_grouping("numbers")
    with replay_topology(spark, builder.build(), {"numbers": numbers}, ["left", "right"]) as done:
        assert Counter(rows(done["left"])) == Counter(rows(done["right"]))


@pytest.mark.parametrize(
    ("topology", "sources", "said"),
    [
        (word_count(), {"lines": [("a",)]}, "source 'lines': [('a',)] (list) is not a Spark DataFrame"),
        (
            word_count(),
            {"lines": SimpleNamespace(columns=["line"])},
            "(SimpleNamespace) is not a Spark DataFrame",
        ),
        (word_count(), [("a",)], "sources: [('a',)] (list) is not a dict"),
        (TopologyBuilder("t"), {}, "(TopologyBuilder) is not a topology; TopologyBuilder.build() makes one"),
        (None, {}, "None (NoneType) is not a topology"),
    ],
    ids=["rows", "anothers-frame", "no-dict", "builder", "none"],
)
def test_arguments_that_are_no_topology_or_no_frame_are_named_with_their_type(
    spark: SparkSession, topology: Any, sources: Any, said: str
) -> None:
    with pytest.raises(CannotReplay) as caught:
        replay_topology(spark, topology, sources, ["count"])
    (problem,) = caught.value.problems
    assert said in problem


def test_a_single_output_need_not_be_in_a_list(spark: SparkSession, lines: DataFrame) -> None:
    with replay_topology(spark, word_count(), {"lines": lines}, "count") as done:
        assert list(done) == ["count"]


def test_fields_may_have_names_that_spark_uses_itself(spark: SparkSession) -> None:
    names = ("partition", "user.id", "a`b", "field0")
    builder = TopologyBuilder("names")
    builder.set_spout("numbers", Numbers(*names))
    builder.set_bolt("it", Echo(*names, "text")).shuffle_grouping("numbers")
    source = spark.createDataFrame([(1, 2, 3, 4)], "a int, b int, c int, d int").toDF(*names)
    with replay_topology(spark, builder.build(), {"numbers": source}, ["it"]) as done:
        assert done["it"].columns == [*names, "text"]
        assert rows(done["it"]) == [(1, 2, 3, 4, "(1, 2, 3, 4)")]


class Deadly(Bolt):
    """Ends its process."""

    outputs = Fields("n")

    def execute(self, tup: Tuple) -> None:
        os._exit(3)


def test_a_worker_that_dies_is_reported_with_what_it_ran(spark: SparkSession) -> None:
    numbers = spark.range(2).toDF("n")
    with pytest.raises(ReplayFailed, match="a Python worker of Spark's died: it was killed") as caught:
        replay_topology(spark, one_bolt(Deadly()), {"numbers": numbers}, ["it"])
    assert "it ran tasks of 'it'" in str(caught.value)
    assert "EOFException" not in str(caught.value)


def test_mistakes_in_columns_and_schemas_are_reported_before_anything_runs(
    spark: SparkSession, lines: DataFrame
) -> None:
    with pytest.raises(CannotReplay) as caught:
        replay_topology(
            spark,
            word_count(),
            {"lines": lines.withColumnRenamed("line", "value")},
            ["count"],
            schemas={"count": "word string, cuont bigint", "split": "word string"},
        )
    first, second, third = caught.value.problems
    assert "source 'lines' has no column 'line'" in first and "frame.toDF('line') names them" in first
    assert "field 'count' has no column" in second
    assert "'split' is not an output" in third


def test_types_that_do_not_fit_in_one_column_are_reported_with_advice(spark: SparkSession) -> None:
    class Mixed(Bolt):
        outputs = Fields("x")

        def execute(self, tup: Tuple) -> None:
            self.emit((tup["n"] if tup["n"] % 2 else str(tup["n"]),))

    numbers = spark.range(0, 4, 1, 1).withColumnRenamed("id", "n")
    with pytest.raises(ReplayFailed) as caught:
        replay_topology(spark, one_bolt(Mixed()), {"numbers": numbers}, ["it"])
    assert "field 'x': some values are bigint, some string" in str(caught.value)
    assert "schemas={'it': ...}, or on the command line --schema 'it=...'" in str(caught.value)
    with replay_topology(
        spark, one_bolt(Mixed()), {"numbers": numbers}, ["it"], schemas={"it": "x string"}, max_errors=2
    ) as done:
        assert sorted(rows(done["it"])) == [("0",), ("2",)]
        assert done.failures == 2
