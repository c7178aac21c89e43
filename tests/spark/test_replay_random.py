"""Random topologies through Spark: a few of those that tests/squall_io/test_replay_equals_stream.py runs without it."""

from __future__ import annotations

import random
from collections import Counter
from functools import reduce
from typing import TYPE_CHECKING

import pytest

from local_cluster.testing import complete_topology
from squall_io.spark import replay_topology
from tests.squall_io.random_topologies import GROUPINGS, SIMPLE, Shape, Sums, build, streams_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: Few, since each costs Spark seconds; together they have every kind of bolt and every grouping.
SEEDS = (3, 6, 59)


def shape_of(seed: int) -> Shape:
    """Three or four bolts, with few tasks, so that Spark has little to start."""
    chance = random.Random(seed)
    return [
        (
            chance.choice((*SIMPLE, Sums)),
            chance.randint(1, 3),
            [
                (chance.randrange(4), chance.random() < 0.5, chance.choice(GROUPINGS))
                for _ in range(chance.randint(1, 2))
            ],
        )
        for _ in range(chance.randint(3, 4))
    ]


def rows_by_output(done: dict[str, DataFrame]) -> dict[str, Counter[int]]:
    """The rows of all outputs, by one Spark job."""
    from pyspark.sql import functions as sql

    named = [frame.select(sql.lit(name).alias("output"), "n") for name, frame in done.items()]
    found: dict[str, Counter[int]] = {name: Counter() for name in done}
    for output, number in reduce(lambda one, other: one.union(other), named).collect():
        found[output][number] += 1
    return found


def test_the_seeds_have_every_bolt_and_every_grouping() -> None:
    shapes = [shape_of(seed) for seed in SEEDS]
    assert {kind for shape in shapes for kind, _, _ in shape} == {*SIMPLE, Sums}
    assert {
        entry.grouping.kind for shape in shapes for spec in build(shape).components for entry in spec.inputs
    } == set(GROUPINGS)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_topology_gives_with_spark_the_results_of_its_stream(spark: SparkSession, seed: int) -> None:
    shape = shape_of(seed)
    topology, outputs = build(shape), streams_of(shape)
    chance = random.Random(seed)
    rows = [(chance.randrange(10),) for _ in range(60)]
    stream = complete_topology(topology, sources={"numbers": rows})
    expected = {
        output: Counter(number for (number,) in stream.emitted(*output.split(":"))) for output in outputs
    }
    assert sum(counter.total() for counter in expected.values()) > len(rows)
    numbers = spark.createDataFrame(rows, "n bigint").repartition(3)
    schemas = dict.fromkeys(outputs, "n bigint")
    with replay_topology(spark, topology, {"numbers": numbers}, outputs, schemas=schemas) as done:
        assert rows_by_output(done) == expected
        assert done.failures == done.unsettled == 0
