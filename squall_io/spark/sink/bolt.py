"""SparkSink: a batch bolt that brings its tuples' values into a table by Spark, each committed batch exactly once.

    SparkSink("hdfs://namenode:9000/warehouse/counts", "word string, count bigint")

Tuples that do not fit the schema fail one by one, the others go on. A batch's tuples are acked when it is in the table and
counts there (`manifest.commit`). What is away is waited for, so that the spouts slow down and nothing is lost.
Must not know: how files are written, what a manifest is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from squall_io.spark.manifest.claims import Superseded
from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.sink.errors import NotCommitted
from squall_io.spark.sink.life import SinkLife
from squall_io.spark.sink.rows import RowsOf
from squall_io.spark.sink.settings import missing_fields, neighbour_problems, settings_of
from topology_api import BatchBolt, Bolt, Context, FailTuple, Fields, Tuple

if TYPE_CHECKING:
    import pyarrow

__all__ = ["SparkSink"]

#: Tuples that become Arrow's at once. A call of C lets no other thread go on, and a column of a million values is one of 20 ms;
#: of this size it is none that the worker's loop would feel, and its values stay in the processor's cache.
SLICE: Final = 4096

#: What to do about another owner of the seat; said once, as an error of the component.
_WHEN_SUPERSEDED: Final = (
    "Usually its worker was taken for dead, another one has this task, and this one is ended soon. If tuples go on to fail,"
    " see whether a copy of the cluster's store runs the topology a second time, and have its workers started anew:"
    " squall rebalance"
)

#: Called with the name of each step that a sink takes outside, before it; tests freeze, kill and fail there.
at_step: Callable[[str], None] = lambda step: None  # noqa: E731


class SparkSink(BatchBolt):
    """Writes rows to a table at `path` that Spark, Hive and Impala read, and `read_committed` reads exactly.

    path: where, as Spark takes it: `hdfs://...`, `file:///...`.
    schema: Spark's DDL text, `"word string, count bigint NOT NULL"`; its names are fields of the tuples.
    format: parquet, orc, json or csv. compression: one that the format has; None: its default.
    partition_by: columns whose values become folders.
    batch_size, batch_interval: a batch goes when it has so many rows, or so many seconds after its first one; None: what the
        class says, 10,000 and 5.0.
    master, conf: of the Spark session, which all sinks of a worker share; None: `local[*]`, in the worker's own Java.
    """

    threaded = True
    batch_size = 10_000
    batch_interval = 5.0

    def __init__(
        self,
        path: str,
        schema: str,
        format: str = "parquet",
        partition_by: Sequence[str] | str = (),
        batch_size: int | None = None,
        batch_interval: float | None = None,
        master: str | None = None,
        conf: Mapping[str, Any] | None = None,
        compression: str | None = None,
    ) -> None:
        if batch_size is not None:
            self.batch_size = batch_size
        if batch_interval is not None:
            self.batch_interval = batch_interval
        self._settings = settings_of(
            path,
            schema,
            format,
            partition_by,
            self.batch_size,
            self.batch_interval,
            master,
            conf,
            compression,
        )

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Every stream that is read must have the schema's names."""
        return missing_fields(self._settings.schema, inputs)

    def topology_problems(self, earlier: Mapping[str, Bolt]) -> Iterable[str]:
        """What sinks of one topology cannot have: sessions that differ, tables in each other's folders."""
        sinks = {name: bolt._settings for name, bolt in earlier.items() if isinstance(bolt, SparkSink)}
        return neighbour_problems(self._settings, sinks)

    def prepare(self, context: Context) -> None:
        """Starts Spark, and opens the table."""
        settings = self._settings
        life = SinkLife(settings, context, lambda step: at_step(step))
        life.open()
        self._life = life
        self._context = context
        self._rows_of = RowsOf(life.schema, settings.schema)
        self._checker = RowChecker(life.schema, settings.file_format, settings.partition_by)
        self._seconds = 0.0
        self._told_superseded = False
        self._rows = context.counter("rows")
        self._batches = context.counter("batches")
        self._bad_rows = context.counter("bad rows")
        context.gauge("seconds of the last commit", lambda: self._seconds)
        context.gauge("seconds of waiting for storage", lambda: life.trouble)

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        """Brings the rows that fit into the table, as one batch; the other tuples fail."""
        started = time.monotonic()
        table = self._table(tups)
        if table is None:
            return
        try:
            commit = self._life.commit(table)
        except Superseded as error:
            if self._told_superseded:
                raise FailTuple(str(error)) from None
            self._told_superseded = True
            raise NotCommitted(f"{error}. {_WHEN_SUPERSEDED}") from None
        at_step("ack")
        self._life.tidy(commit)
        self._rows.add(table.num_rows)
        self._batches.add()
        self._seconds = time.monotonic() - started

    def cleanup(self) -> None:
        """Gives the session back; the last one stops it."""
        self._life.close()

    def _table(self, tups: Sequence[Tuple]) -> pyarrow.Table | None:
        """The rows that fit; None: there is none. The other tuples fail."""
        from squall_io.spark.rows.arrow import joined

        tables: list[pyarrow.Table] = []
        bad: list[tuple[Tuple, str]] = []
        for start in range(0, len(tups), SLICE):
            rows, kept, lacking = self._rows_of.rows(tups[start : start + SLICE])
            columns, wrong = self._checker.split(rows)
            bad += lacking
            bad += [(kept[position], why) for position, why in wrong]
            if columns.rows:
                tables.append(self._checker.table(columns))
        self._fail(bad, len(tups))
        return joined(tables) if tables else None

    def _fail(self, bad: Sequence[tuple[Tuple, str]], count: int) -> None:
        """Fail tuples that do not fit, each with its reason, and say so once."""
        if not bad:
            return
        self._bad_rows.add(len(bad))
        self._context.log.warning(
            "%d of %d tuples do not fit the schema and fail, the first: %s", len(bad), count, bad[0][1]
        )
        for tup, why in bad:
            self.fail(tup, why)
