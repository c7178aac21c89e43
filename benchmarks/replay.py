"""A word count over stored lines: `replay_topology` on `local[N]` beside the same bolts in a plain Python loop, per core.

The plain loop calls the bolts in turn with their tuples, in one process, and writes nothing. The parts are the Python side of
the job, each alone and without Spark, in CPU time. For the whole job, the CPU time of Spark's Java and of its Python workers is
shown as well, since seconds say little on a shared machine. A replay of a few lines, once the session has started, shows the
fixed cost of any replay: plans, code that Spark generates and compiles, three stages.

    python -m benchmarks replay [--words 10000000] [--cores 2] [--rounds 3]
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.child import ROOT, machine, spread
from benchmarks.sentences import sentences
from examples import word_count
from squall_io.spark.replay import Replayed, replay_topology
from squall_io.spark.replay.frames import from_blob, to_arrow
from squall_io.spark.replay.plan import ReplayPlan, plan_replay
from squall_io.spark.replay.portions import portions_of
from squall_io.spark.replay.records import BEGIN, Record
from squall_io.spark.replay.sources import route_rows
from squall_io.spark.replay.tasks import run_tasks
from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.session.sessions import shared_session
from topology_api.tuples import Source, Tuple

#: Lines of the parts and of the plain loop; the job repeats these.
DIFFERENT = 20_000
#: Lines of a small replay.
FEW = 1_000
SCHEMA = "word string, count bigint"

T = TypeVar("T")
#: The examples have no type hints.
Split: Any = word_count.Split
Count: Any = word_count.Count
topology: Any = word_count.topology


def timed(run: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call, and the CPU seconds that it took."""
    gc.collect()
    started = time.process_time()
    return run(), time.process_time() - started


def plain_loop(lines: Iterable[str]) -> dict[str, int]:
    """Return the bolts without anything around them."""
    split, count = Split(), Count()
    count.prepare(None)
    new, of_line, of_word = (
        Tuple.__new__,
        Source("lines", 1, "default", ("line",)),
        Source("split", 2, "default", ("word",)),
    )

    def emit_word(values: Any) -> None:
        tup = new(Tuple)
        tup._values, tup._source = values, of_word
        count.execute(tup)

    vars(split)["emit"] = emit_word
    vars(count)["emit"] = lambda values: None
    for line in lines:
        tup = new(Tuple)
        tup._values, tup._source = (line,), of_line
        split.execute(tup)
    found: dict[str, int] = count.counts
    return found


def plain_cost(lines: list[str]) -> float:
    """CPU seconds per word of the plain loop."""
    words = sum(len(line.split()) for line in lines)
    return min(timed(lambda: plain_loop(lines))[1] for _ in range(5)) / words


def step(plan: ReplayPlan, name: str, records: list[Record]) -> list[Record]:
    """Return all tasks of a component, one after another; input that Spark would sort is sorted."""
    tasks = plan.tasks_of[name]
    own = [record for record in records if record.target in tasks]
    own += [Record(task, BEGIN, -1, -1, b"") for task in tasks]
    return list(run_tasks(plan, sorted(own, key=lambda record: record[:4])))


def to_rows(records: list[Record]) -> Iterator[Any]:
    """An output's records as Arrow tables, by way of the form in which Spark keeps them."""
    checker = RowChecker(parse_schema(SCHEMA))
    for batch in to_arrow(record for record in records if record.stream >= 0):
        for blob in batch.column(4):
            yield from from_blob(blob.as_buffer(), checker)


def as_spark_gives(lines: list[str]) -> list[Any]:
    """Lines as Arrow batches, whose last column is the partition."""
    import pyarrow as pa

    table = pa.table({"field0": lines, "partition": pa.array([0] * len(lines), "int32")})
    return list(table.to_batches(max_chunksize=10_000))


def parts(lines: list[str]) -> dict[str, float]:
    """CPU seconds of each part of the Python side."""
    plan = plan_replay(topology(), ["lines"], ["count"], 0, 0.0)
    plan = replace(plan, schemas={plan.outputs["count"]: parse_schema(SCHEMA)})
    batches = as_spark_gives(lines)
    found: dict[str, float] = {}
    source, found["source: rows to records"] = timed(
        lambda: list(route_rows(plan, plan.sources[0], 0, lambda *cut: portions_of(batches, *cut)))
    )
    words, found["split"] = timed(lambda: step(plan, "split", source))
    counted, found["count"] = timed(lambda: step(plan, "count", words))
    list(to_rows(counted[:3]))  # imported with the first call
    _, found["output: records to rows"] = timed(lambda: list(to_rows(counted)))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--words", type=int, default=10_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)
    print(machine())
    lines = sentences(DIFFERENT)
    words = sum(len(line.split()) for line in lines)
    plain = plain_cost(lines)
    print(f"plain loop: {plain * 1e9:,.0f} ns a word, {1 / plain:,.0f} words/s")
    tries = [parts(lines) for _ in range(3)]
    for name in tries[0]:
        print(f"{name:>26}: {min(each[name] for each in tries) / words * 1e9:6,.0f} ns a word")
    repeats = max(1, given.words // words)
    with tempfile.TemporaryDirectory() as folder:
        small, large = in_spark(lines, repeats, folder, given.cores, given.rounds)
    total = words * repeats
    few = min(small, key=lambda cost: cost.seconds)
    print(f"replay of {FEW:,} lines: {few}")
    print(
        f"replay of {total:,} words on local[{given.cores}]: {spread([each.seconds for each in large], '.1f')} s"
    )
    for cost in large:
        plain = cost.plain * total
        print(
            f"  {cost}; the plain loop right after it {cost.plain * 1e9:,.0f} ns a word: by CPU {plain / cost.cpu:.2f} of it,"
            f" {plain / (cost.cpu - few.cpu):.2f} without what a small one costs"
        )
    per_core = [total / each.seconds / given.cores for each in large]
    ratios = [total / each.seconds / given.cores * each.plain for each in large]
    print(f"{spread(per_core)} words/s a core: {spread(ratios, '.2f')} of the plain loop")


@dataclass(frozen=True)
class Cost:
    """The cost of one replay."""

    seconds: float
    java: float
    python: float
    plain: float
    """CPU seconds a word of the plain loop, right after it: as busy as the machine was with others."""

    @property
    def cpu(self) -> float:
        """CPU seconds of all processes of Spark."""
        return self.java + self.python

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s; CPU: Java {self.java:.1f} s, Python {self.python:.1f} s"


def in_spark(
    lines: list[str], repeats: int, folder: str, cores: int, rounds: int
) -> tuple[list[Cost], list[Cost]]:
    """Return the cost of small and large replays, after the session's start and a first small one."""
    with shared_session(f"local[{cores}]", {"spark.driver.memory": "2g", "spark.local.dir": folder}) as lease:
        spark = lease.session
        frame = spark.createDataFrame([(line,) for line in lines], "line string")
        path = f"{folder}/lines.parquet"
        frame.limit(FEW).repartition(2 * cores).write.parquet(f"{folder}/few.parquet")
        repeated = frame.crossJoin(spark.range(repeats)).select("line").repartition(2 * cores)
        repeated.write.parquet(path)

        def replay(name: str) -> Cost:
            source = spark.read.parquet(f"{folder}/{name}.parquet")
            before, started = cpu_of_children(), time.perf_counter()
            done: Replayed = replay_topology(
                spark, topology(), {"lines": source}, ["count"], schemas={"count": SCHEMA}
            )
            with done:
                done["count"].write.format("noop").mode("overwrite").save()
            took = time.perf_counter() - started
            after = cpu_of_children()
            java, python = (after[kind] - before[kind] for kind in ("java", "python"))
            return Cost(took, java, python, plain_cost(lines))

        replay("few")
        return [replay("few") for _ in range(3)], [replay("lines") for _ in range(rounds)]


def cpu_of_children() -> dict[str, float]:
    """CPU seconds of the processes below this one, Spark's Java and its Python workers."""
    children: dict[int, list[int]] = {}
    used: dict[int, tuple[str, float]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = file.read_text().rpartition(")")
        except OSError:  # it has ended
            continue
        fields = tail.split()
        children.setdefault(int(fields[1]), []).append(int(file.parent.name))
        ticks = sum(map(int, fields[11:15]))  # its own, and those of its ended children
        kind = "java" if head.partition("(")[2].startswith("java") else "python"
        used[int(file.parent.name)] = kind, ticks / os.sysconf("SC_CLK_TCK")
    found = {"java": 0.0, "python": 0.0}
    ahead = children.get(os.getpid(), [])
    while ahead:
        process = ahead.pop()
        kind, seconds = used[process]
        found[kind] += seconds
        ahead += children.get(process, [])
    return found
