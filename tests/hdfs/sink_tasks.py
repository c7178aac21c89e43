"""Tasks of a SparkSink without a worker around them, which tests kill, freeze and supersede at every step and every call.

    task = Task(path, restart=1)
    task.at = lambda step: ...       # called before each external step of the sink; `Killed` ends the task there
    task.on_call = lambda call: ...  # the same for each call of the file system
    task.loses = first_of_each()     # lost answers of the file system, which has carried out the call
    task.prepare()
    task.write(7)                    # all rows of batch 7

A task that raised `Killed` is never used again: it leaves the same remains as a killed process. Then `check` compares the acked
batches with the table.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from squall.stores.files import OpenStore
from squall_io.spark import SparkSink, read_committed
from squall_io.spark.delta.comparing import LogState, compare_log
from squall_io.spark.delta.following import catch_up
from squall_io.spark.manifest.layout import DATA_PREFIX, FOLDER, STAGING, TMP
from squall_io.spark.manifest.state import read_state, require_readable
from squall_io.spark.sink import bolt as sink
from squall_io.spark.sink import sink_table as sink_life
from squall_io.spark.sink.delta_follower import DeltaFollower
from squall_io.spark.sink.writing import TableWriter
from squall_io.spark.stores import open_files
from tests.squall_io.lost_answers import Loses, LosingFiles, none
from topology_api import Context
from topology_api.tuples import UNTRACKED, Source, Tuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "batch int, row int, part string"
SOURCE = Source("words", 1, "default", ("batch", "row", "part"))
#: Rows of a batch, in three partitions: so a batch has three files.
ROWS = 30

_of_thread = threading.local()


class Killed(BaseException):
    """The process was killed here."""


def rows_of(batch: int) -> list[Tuple]:
    """The rows of a batch, as tuples without a tree."""
    made = []
    for row in range(ROWS):
        tup = Tuple.__new__(Tuple)
        values = (batch, row, "abc"[row % 3])
        tup._source, tup._values, tup._root, tup._xor, tup._more = SOURCE, values, UNTRACKED, 0, ()
        made.append(tup)
    return made


class Task:
    """One task of a sink, run as by a worker of an incarnation."""

    def __init__(
        self,
        path: str,
        *,
        topology: str = "words",
        index: int = 0,
        parallelism: int = 1,
        restart: int = 0,
        **arguments: Any,
    ) -> None:
        self.at: Callable[[str], None] = lambda step: None
        self.on_call: Callable[[str], None] = lambda call: None
        self.loses: Loses = none
        #: Calls of the file system whose answers were lost.
        self.lost: list[str] = []
        self.progressed = 0
        self._sink = SparkSink(path, SCHEMA, partition_by="part", **arguments)
        self._context = self._make_context(topology, index, parallelism, restart)

    def _make_context(self, topology: str, index: int, parallelism: int, restart: int) -> Context:
        return Context(
            topology=topology, topology_id=f"{topology}-1", component="store", task=index + 1, index=index,
            parallelism=parallelism, incarnation=(1, restart), conf={}, tasks=lambda component: [],
            log=logging.getLogger("sink"), metrics=cast(Any, Metrics()), resources={}, directory=lambda: "",
            now=lambda: 0.0, random=random.Random(0), wake=lambda: None, progress=self._progress,
        )  # fmt: skip

    def _progress(self, why: str | None) -> None:
        self.progressed += 1

    def prepare(self) -> Task:
        """Call it like a worker; raises `Killed`, and the sink's exceptions."""
        with self._in_charge():
            self._sink.prepare(self._context)
        return self

    def write(self, batch: int) -> None:
        """Write a batch into the table: it is acked when this returns."""
        with self._in_charge():
            self._sink.execute_batch(rows_of(batch))

    def cleanup(self) -> None:
        """Call it like a worker at the end."""
        self._sink.cleanup()

    @contextmanager
    def _in_charge(self) -> Iterator[None]:
        _of_thread.task = self
        try:
            yield
        finally:
            _of_thread.task = None


class Metrics:
    """Metrics that are not read."""

    def counter(self, name: str) -> Metrics:
        return self

    def gauge(self, name: str, function: Callable[[], float]) -> None: ...

    histogram = counter

    def add(self, value: float = 1, count: int = 1) -> None: ...


class WatchedStore(LosingFiles):
    """A store that informs its task of each call before it is made, and loses answers to it."""

    def __init__(self, store: OpenStore, task: Task) -> None:
        super().__init__(store, self._on_file_call)
        self._task = task
        self.lost = task.lost

    def _on_file_call(self, call: str, path: str, number: int) -> bool:
        self._task.on_call(call)
        return self._task.loses(call, path, number)


@contextmanager
def watched() -> Iterator[None]:
    """While this lasts, tasks are informed of their steps and calls; and there are too many of them for warm-ups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink, "at_step", lambda step: _of_thread.task.at(step))
        patch.setattr(
            sink_life,
            "open_files",
            lambda *args, **more: WatchedStore(open_files(*args, **more), _of_thread.task),
        )
        # A thread would outlive a task that was killed; `check` brings the log up to date instead.
        patch.setattr(DeltaFollower, "_run", lambda follower: None)
        patch.setattr(TableWriter, "warm_up", lambda writer, folder: None)
        patch.setattr(sink_life.SinkTable, "_require_found", lambda life, name: None)
        yield


def check(spark: SparkSession, path: str, acked: set[int], offered: set[int]) -> Counter[int]:
    """Check that the table has its rows and no others; return how often each batch is in it."""
    rows: dict[int, int] = dict(read_committed(spark, path).groupBy("batch").count().collect())
    assert not any(number % ROWS for number in rows.values()), f"incomplete batches: {rows}"
    counts = Counter({batch: number // ROWS for batch, number in rows.items()})
    assert acked <= set(counts), f"acked, and not in the table: {sorted(acked - set(counts))}"
    assert set(counts) <= offered
    once = read_committed(spark, path, key=["batch", "row"]).groupBy("batch").count().collect()
    assert dict(once) == dict.fromkeys(counts, ROWS)
    check_nothing_is_left(path, spark)
    return counts


def check_nothing_is_left(path: str, spark: SparkSession) -> None:
    """Check that the table's folder has the files of its batches, and no others."""
    with open_files(path, session=spark) as files:
        state = require_readable(files, read_state(files))
        wanted = {file.path for entry in state.entries for file in entry.files}
        found = {status.path for status in files.walk("") if status.name.startswith(DATA_PREFIX)}
        assert {name for name in found if not name.startswith(FOLDER)} == wanted
        assert [status.path for folder in (STAGING, TMP) for status in files.walk(folder)] == []
        for entry in state.entries:
            assert [files.digest(file.path) for file in entry.files] == [file.digest for file in entry.files]
        version = catch_up(files, time.time).version
        assert compare_log(files) == LogState(version), "the Delta log has all batches, and no others"
