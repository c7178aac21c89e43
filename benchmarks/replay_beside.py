"""A replay beside Spark's `mapInArrow` with the same function and one repartition, in turn, in one session on `local[N]`.

Two shapes: `state` keeps a value per key and gives it at the end (fields grouping; `repartition(N, key)`), `each` gives a row
for each row (shuffle grouping; `repartition(N)`). A replay of a thousand rows shows the fixed cost. Seconds say little on
a shared machine, so the CPU seconds of Spark's Java and Python processes are shown as well.

    python -m benchmarks replay_beside [--rows 20000000] [--keys 10000] [--cores 2] [--rounds 3] [--shape state]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.child import ROOT, machine, spread
from benchmarks.replay import cpu_of_children
from squall_io.spark.replay import replay_topology
from squall_io.spark.session.sessions import shared_session
from topology_api import Bolt, Fields, Spout, Topology, TopologyBuilder, Tuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = "sensor string, degrees double"
FEW: Final = 1_000


def keep(hottest: dict[str, float], sensor: str, degrees: float) -> None:
    """The function of `state`."""
    if degrees > hottest.get(sensor, float("-inf")):
        hottest[sensor] = degrees


def convert(sensor: str, degrees: float) -> tuple[str, float]:
    """The function of `each`."""
    return sensor, degrees * 1.8 + 32


class Readings(Spout):
    """Replaced by the source."""

    outputs = Fields("sensor", "degrees")

    def next_tuple(self) -> None:
        raise AssertionError("a replay runs no spout")


class Hottest(Bolt):
    """`keep` as a bolt."""

    outputs = Fields("sensor", "degrees")

    def prepare(self, context: Any) -> None:
        self.hottest: dict[str, float] = {}

    def execute(self, tup: Tuple) -> None:
        sensor, degrees = tup.values
        keep(self.hottest, sensor, degrees)

    def end_of_input(self) -> None:
        for pair in self.hottest.items():
            self.emit(pair)


class Fahrenheit(Bolt):
    """`convert` as a bolt."""

    outputs = Fields("sensor", "degrees")

    def execute(self, tup: Tuple) -> None:
        sensor, degrees = tup.values
        self.emit(convert(sensor, degrees))


def topology_of(shape: str, cores: int) -> Topology:
    """The topology of a shape."""
    builder = TopologyBuilder(shape)
    builder.set_spout("readings", Readings())
    if shape == "state":
        builder.set_bolt("it", Hottest(), parallelism=cores).fields_grouping("readings", "sensor")
    else:
        builder.set_bolt("it", Fahrenheit(), parallelism=cores).shuffle_grouping("readings")
    return builder.build()


def keep_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`keep` for `mapInArrow`."""
    import pyarrow as pa

    hottest: dict[str, float] = {}
    for batch in batches:
        for sensor, degrees in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist()):
            keep(hottest, sensor, degrees)
    columns = [pa.array(hottest.keys(), "string"), pa.array(hottest.values(), "double")]
    yield pa.RecordBatch.from_arrays(columns, ["sensor", "degrees"])


def convert_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`convert` for `mapInArrow`."""
    import pyarrow as pa

    for batch in batches:
        pairs = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist())
        made = [convert(sensor, degrees) for sensor, degrees in pairs]
        columns = [pa.array([pair[0] for pair in made]), pa.array([pair[1] for pair in made])]
        yield pa.RecordBatch.from_arrays(columns, ["sensor", "degrees"])


@dataclass(frozen=True)
class Cost:
    """The cost of one run."""

    seconds: float
    java: float
    python: float

    @property
    def cpu(self) -> float:
        """CPU seconds of all processes of Spark."""
        return self.java + self.python

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s; CPU: Java {self.java:.1f} s, Python {self.python:.1f} s"


def cost_of(run: Callable[[], None]) -> Cost:
    """Return the cost of a call."""
    before, started = cpu_of_children(), time.perf_counter()
    run()
    took = time.perf_counter() - started
    after = cpu_of_children()
    return Cost(took, *(after[kind] - before[kind] for kind in ("java", "python")))


def use(frame: DataFrame) -> None:
    """Compute all rows of a frame."""
    frame.write.format("noop").mode("overwrite").save()


def replayed(spark: SparkSession, path: str, shape: str, cores: int) -> None:
    """Run the shape as a replay."""
    readings = spark.read.parquet(path)
    with replay_topology(
        spark, topology_of(shape, cores), {"readings": readings}, ["it"], schemas={"it": SCHEMA}
    ) as done:
        use(done["it"])


def mapped(spark: SparkSession, path: str, shape: str, cores: int) -> None:
    """Run the shape with `mapInArrow`."""
    readings = spark.read.parquet(path)
    if shape == "state":
        use(readings.repartition(cores, "sensor").mapInArrow(keep_all, SCHEMA))
    else:
        use(readings.repartition(cores).mapInArrow(convert_all, SCHEMA))


def compare(spark: SparkSession, folder: str, shape: str, given: argparse.Namespace) -> None:
    """Run both in turn, and print their costs."""
    few, rows = f"{folder}/few", f"{folder}/rows"
    for run in (replayed, mapped):
        run(spark, few, shape, given.cores)
    small = cost_of(lambda: replayed(spark, few, shape, given.cores))
    print(f"{shape}: a replay of {FEW:,} rows: {small}")
    pairs = []
    for _ in range(given.rounds):
        ours = cost_of(lambda: replayed(spark, rows, shape, given.cores))
        theirs = cost_of(lambda: mapped(spark, rows, shape, given.cores))
        pairs.append((ours, theirs))
        print(f"  replay {ours}; mapInArrow {theirs}; load {os.getloadavg()[0]:.1f}", flush=True)
    for name, each in (("replay", 0), ("mapInArrow", 1)):
        micros = median(pair[each].cpu for pair in pairs) / given.rows * 1e6
        print(
            f"  {name}: {spread([given.rows / pair[each].seconds for pair in pairs])} rows/s, {micros:.2f} us CPU a row"
        )
    by_time = [theirs.seconds / ours.seconds for ours, theirs in pairs]
    by_cpu = [theirs.cpu / ours.cpu for ours, theirs in pairs]
    print(f"  of mapInArrow: {spread(by_time, '.2f')} by time, {spread(by_cpu, '.2f')} by CPU", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", choices=["state", "each"], action="append")
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        settings = {"spark.driver.memory": "2g", "spark.local.dir": folder}
        with shared_session(f"local[{given.cores}]", settings) as lease:
            spark = lease.session
            for name, count in (("few", FEW), ("rows", given.rows)):
                made = spark.range(0, count, 1, 2 * given.cores).selectExpr(
                    f"concat('sensor-', cast(pmod(hash(id), {given.keys}) as string)) as sensor",
                    "cast(pmod(xxhash64(id), 1000) as double) / 10 as degrees",
                )
                made.write.parquet(f"{folder}/{name}")
            for shape in given.shape or ("state", "each"):
                compare(spark, folder, shape, given)
