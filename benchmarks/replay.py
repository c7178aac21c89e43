"""A word count over stored lines: `replay_topology` on `local[N]` beside the same bolts in a plain Python loop, per core.

The plain loop calls the bolts one after the other with the tuples that they take, in one process, and writes nothing. The parts
are the Python side of the job, each alone and without Spark, in CPU time. What is left of the job's time is Spark's: sending
records to Python and back, writing them for the shuffle, sorting, keeping them.

    python benchmarks/replay.py [--words 10000000] [--cores 2] [--rounds 3]
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

# As a script, only this folder is on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.child import ROOT, machine, spread
from benchmarks.sentences import sentences
from examples import word_count
from squall_io.spark.replay import Replayed, replay_topology
from squall_io.spark.replay.component_task import run_tasks
from squall_io.spark.replay.frames import to_arrow
from squall_io.spark.replay.output_blobs import from_blob
from squall_io.spark.replay.plan import ReplayPlan, plan_replay
from squall_io.spark.replay.records import BEGIN, Record
from squall_io.spark.replay.source_rows import route_rows
from squall_io.spark.rows import RowChecker
from squall_io.spark.schema import parse_schema
from squall_io.spark.sessions import start_session, stop_session
from topology_api.tuples import Source, Tuple

#: Lines of the parts and of the plain loop; those of the job are these again and again.
DIFFERENT = 20_000
SCHEMA = "word string, count bigint"

T = TypeVar("T")
#: The examples are written without types.
Split: Any = word_count.Split
Count: Any = word_count.Count
topology: Any = word_count.topology


def timed(run: Callable[[], T]) -> tuple[T, float]:
    """What it gives, and the CPU seconds that it took."""
    gc.collect()
    started = time.process_time()
    return run(), time.process_time() - started


def plain_loop(lines: Iterable[str]) -> dict[str, int]:
    """The bolts without anything around them."""
    split, count = Split(), Count()
    count.prepare(None)
    new, of_line, of_word = (
        object.__new__,
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


def step(plan: ReplayPlan, name: str, records: list[Record]) -> list[Record]:
    """All tasks of a component, one after the other; what Spark sorts comes sorted."""
    tasks = plan.tasks_of[name]
    own = [record for record in records if record.target in tasks]
    own += [Record(task, BEGIN, -1, -1, b"") for task in tasks]
    checkers = {plan.number_of[key]: RowChecker(parse_schema(SCHEMA)) for key in plan.outputs.values()}
    return list(run_tasks(plan, sorted(own, key=lambda record: record[:4]), checkers))


def to_rows(records: list[Record]) -> Iterator[Any]:
    """An output's records as Arrow's, by way of what Spark keeps."""
    checker = RowChecker(parse_schema(SCHEMA))
    for batch in to_arrow(record for record in records if record.stream >= 0):
        for blob in batch.column(4):
            yield from from_blob(blob.as_buffer(), checker)


def parts(lines: list[str]) -> dict[str, float]:
    """CPU seconds of each part of the Python side."""
    plan = plan_replay(topology(), ["lines"], ["count"], 0, 0.0)
    rows = [(line,) for line in lines]
    found: dict[str, float] = {}
    source, found["source: rows to records"] = timed(
        lambda: list(route_rows(plan, plan.sources[0], 0, [rows]))
    )
    words, found["split"] = timed(lambda: step(plan, "split", source))
    counted, found["count"] = timed(lambda: step(plan, "count", words))
    list(to_rows(counted[:3]))  # what is imported with the first
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
    plain = min(timed(lambda: plain_loop(lines))[1] for _ in range(5)) / words
    print(f"plain loop: {plain * 1e9:,.0f} ns a word, {1 / plain:,.0f} words/s")
    tries = [parts(lines) for _ in range(3)]
    for name in tries[0]:
        print(f"{name:>26}: {min(each[name] for each in tries) / words * 1e9:6,.0f} ns a word")
    repeats = max(1, given.words // words)
    with tempfile.TemporaryDirectory() as folder:
        seconds = in_spark(lines, repeats, folder, given.cores, given.rounds)
    total = words * repeats
    per_core = [total / each / given.cores for each in seconds]
    print(f"replay of {total:,} words on local[{given.cores}]: {spread(seconds, '.1f')} s")
    print(
        f"{spread(per_core)} words/s a core: {spread([each * plain for each in per_core], '.2f')} of the plain loop"
    )


def in_spark(lines: list[str], repeats: int, folder: str, cores: int, rounds: int) -> list[float]:
    """Seconds of each round; the session's start and a small replay come before."""
    spark = start_session(f"local[{cores}]", {"spark.driver.memory": "2g", "spark.local.dir": folder})
    try:
        frame = spark.createDataFrame([(line,) for line in lines], "line string")
        path = f"{folder}/lines.parquet"
        few = frame.limit(1000)
        repeated = frame.crossJoin(spark.range(repeats)).select("line").repartition(2 * cores)
        repeated.write.parquet(path)

        def replay(source: Any) -> None:
            done: Replayed = replay_topology(
                spark, topology(), {"lines": source}, ["count"], schemas={"count": SCHEMA}
            )
            with done:
                done["count"].write.format("noop").mode("overwrite").save()

        replay(few)
        found = []
        for _ in range(rounds):
            started = time.perf_counter()
            replay(spark.read.parquet(path))
            found.append(time.perf_counter() - started)
        return found
    finally:
        stop_session(spark)


if __name__ == "__main__":
    main()
