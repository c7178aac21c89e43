"""SparkSink: a batch bolt that writes its tuples' values into a table by Spark, each committed batch exactly once.

    SparkSink("hdfs://namenode:9000/warehouse/counts", "word string, count bigint")

If a tuple does not fit the schema, only this tuple fails; the rest of its batch is committed. A batch's tuples are acked once
the batch is in the table and is known to count (`manifest.commit`). In a topology with epochs, the rows of all tasks in an
epoch are one batch, which is in the table after the commit of the epoch (`manifest.epochs`). While storage or Spark is
unavailable, the sink waits: spouts slow down, and nothing is lost.
Must not know: how files are written, what a manifest is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from squall_io.spark.manifest.claims import Superseded
from squall_io.spark.rows.checker import RowChecker
from squall_io.spark.rows.formats import format_problems
from squall_io.spark.rows.from_tuples import SLICE, Row, RowsOf, table_of
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.sink.epoch_writer import EpochWriter
from squall_io.spark.sink.errors import NotCommitted
from squall_io.spark.sink.settings import (
    SinkSettings,
    batch_problems,
    compaction_problems,
    names_of,
    parsed,
)
from squall_io.spark.sink.sink_writer import SinkWriter
from squall_io.spark.stores.opening import check_table_path, place_problems, settings_in
from topology_api import (
    Bolt,
    Context,
    FailTuple,
    Fields,
    InvalidConfig,
    StagedSink,
    Tuple,
)
from topology_api.epoch_rules import state_path
from topology_api.wording import shown, typed

if TYPE_CHECKING:
    import pyarrow

#: Advice if another task owns the writer id. It is reported once, as an error of the component.
_WHEN_SUPERSEDED: Final = (
    "Usually this worker was declared dead, another worker now runs this task, and this worker will be ended soon. If tuples"
    " keep failing, check whether a second cluster, made from a copy of this cluster's store, runs the topology too, and"
    " restart the topology's workers: squall rebalance"
)

#: Called before each external step, with the step's name: tests replace it to freeze, kill or fail a sink at that step.
at_step: Callable[[str], None] = lambda step: None  # noqa: E731


class SparkSink(StagedSink):
    """Writes rows to the table at `path`. Spark, Hive and Impala can read it; `read_committed` reads only committed rows.

    With `topology.state.path` each row is there once, and the rows of an epoch, of all tasks, are one batch, which readers see
    as a whole. Then `batch_interval` is how often an epoch ends, unless `topology.epoch.secs` says so, and `batch_size` has no
    effect.

    path: the table's folder: `hdfs://host:port/...`, `hdfs:///...`, `viewfs://...`, `file:///...`, or `/...` on this machine.
        Refused: relative paths, since each worker has its own working directory, and paths inside a table's `_squall`.
    schema: Spark's DDL text, `"word string, count bigint NOT NULL"`. Its names are fields of the tuples; a stream that lacks
        one of them is refused when the topology is built.
    format: "parquet", "orc", "json" or "csv".
    partition_by: a column, or a list of columns, whose values become folders.
    batch_size: a batch is committed when it has this many rows; None: the attribute of the class, 10,000, which a subclass may
        set.
    batch_interval: a batch is committed at the latest this many seconds after its first row; None: the attribute of the class,
        5.
    master: where Spark runs, with one session for all sinks of a worker: in the worker's own Java process (`local[2]`), or
        elsewhere (`spark://host:7077`, `yarn`, `sc://host`). None: `local[*]`.
    conf: Spark's settings (`spark.*`), Hadoop's (`spark.hadoop.*`), and three settings of Squall's own.
    compression: a compression of this format; None: the format's default.
    compact_after: how many small files a partition may have until the sink puts their rows together, as `squall compact` does;
        None: any number. Tables of parquet only.
    """

    threaded = True
    # Its batches are committed in any case; with a path, all of the topology waits for a commit of the table.
    keeps_by_default = False
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
        compact_after: int | None = None,
    ) -> None:
        if batch_size is not None:
            self.batch_size = batch_size
        if batch_interval is not None:
            self.batch_interval = batch_interval
        problems: list[str] = []
        wrong = f"path is {typed(path)}: give the table's path as text, 'hdfs://host:9000/warehouse/counts'"
        where = parsed(path, (str, os.PathLike), check_table_path, wrong, problems)
        wrong = f"schema is {typed(schema)}: give Spark's DDL text, 'word string, count bigint'"
        columns = parsed(schema, str, parse_schema, wrong, problems)
        by = names_of(partition_by, problems)
        if columns is not None:
            problems += format_problems(columns, format, by, compression)
        problems += batch_problems(self.batch_size, self.batch_interval)
        problems += compaction_problems(compact_after, format)
        wrong = f"conf is {typed(conf)}: give Spark's settings as a dict, {{'spark.executor.memory': '2g'}}"
        given = {} if conf is None else conf
        settings = parsed(given, Mapping, lambda conf: settings_in(conf, problems), wrong, problems) or {}
        if master is None or isinstance(master, str):
            problems += place_problems(master, settings, writes=[where] if where else [])
        else:
            problems.append(f"master is {typed(master)}: give it as Spark takes it, 'local[2]'")
        if problems or where is None or columns is None:
            raise InvalidConfig(problems, f"a SparkSink to {shown(path)}")
        by = tuple(column.name for name in by if (column := columns.column(name)) is not None)
        packed = None if compression is None else str(compression)
        self._settings = SinkSettings(
            where, columns, str(format), by, packed, master, settings, compact_after
        )

    @property
    def settings(self) -> SinkSettings:
        """Where and how the sink writes."""
        return self._settings

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Yield the fields of the schema that input streams lack."""
        return self._settings.missing_fields(inputs)

    def topology_problems(self, earlier: Mapping[str, Bolt]) -> Iterable[str]:
        """Yield conflicts between sinks of one topology: different sessions, or tables in each other's folders."""
        sinks = {name: bolt._settings for name, bolt in earlier.items() if isinstance(bolt, SparkSink)}
        return self._settings.neighbour_problems(sinks)

    def prepare(self, context: Context) -> None:
        """Start Spark and open the table."""
        settings = self._settings
        step: Callable[[str], None] = lambda step: at_step(step)  # noqa: E731
        writer: SinkWriter | EpochWriter
        if state_path(context.conf) is None:
            writer = self._writer = SinkWriter(settings, context, step)
        else:
            writer = self._epochs = EpochWriter(settings, context, step)
        writer.open()
        self._opened = writer
        self._context = context
        self._rows_of = RowsOf(writer.schema, settings.schema)
        self._checker = RowChecker(writer.schema, settings.file_format, settings.partition_by)
        self._seconds = 0.0
        self._committed_at = time.monotonic()
        #: Seconds in which Spark wrote what was staged last.
        self._staged_in = 0.0
        self._reported_superseded = False
        #: How many tuples did not fit, which `row` counts; how many of them `stage`, beside it, has logged; and the first
        #: reason of the others.
        self._misfits = self._logged_misfits = 0
        self._first_misfit = ""
        self._rows = context.counter("rows")
        self._batches = context.counter("batches")
        self._bytes = context.counter("bytes")
        self._took = context.histogram("seconds a commit")
        self._bad_rows = context.counter("bad rows")
        context.gauge("seconds of the last commit", lambda: self._seconds)
        context.gauge("seconds since the last commit", lambda: time.monotonic() - self._committed_at)
        context.gauge("seconds of waiting for storage", lambda: writer.trouble)
        context.gauge("seconds that the Delta log is behind", lambda: writer.behind)

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        """Commit the rows that fit as one batch; fail the other tuples."""
        started = time.monotonic()
        if (table := self._table(tups)) is None:
            return
        try:
            commit = self._writer.commit(table)
        except Superseded as error:
            if self._reported_superseded:
                raise FailTuple(str(error)) from None
            self._reported_superseded = True
            raise NotCommitted(f"{error}. {_WHEN_SUPERSEDED}") from None
        at_step("ack")
        self._writer.tidy(commit)
        self._batches.add()
        self._count(table.num_rows, commit.size, started)

    def row(self, tup: Tuple) -> Row:
        """Return the row of a tuple. Raises FailTuple for a tuple that does not fit the schema."""
        try:
            return self._rows_of.row(tup, self._checker)
        except FailTuple as error:
            self._bad_rows.add()
            if self._misfits == self._logged_misfits:
                self._first_misfit = str(error)
            self._misfits += 1
            raise

    def stage(self, epoch: int | None, rows: list[Any]) -> dict[str, Any]:
        """Let Spark write the rows of an epoch where no reader sees them; return the name of this part of the epoch."""
        assert epoch is not None
        started = time.monotonic()
        if misfits := self._misfits - self._logged_misfits:
            what = "%d tuples did not fit the schema and failed until epoch %d was staged, the first: %s"
            self._context.log.warning(what, misfits, epoch, self._first_misfit)
            self._logged_misfits += misfits
        name = self._epochs.stage(self.lineage, epoch, table_of(rows, self._checker))
        self._staged_in = time.monotonic() - started
        return {"part": name, "rows": len(rows)}

    def commit(self, epoch: int | None, handle: Any) -> None:
        """Put the epoch's batch into the table, with the parts of all tasks, unless another task has done so."""
        assert epoch is not None
        started = time.monotonic() - self._staged_in
        made = self._epochs.show(self.lineage, epoch, handle["part"])
        self._batches.add(int(made is not None))
        self._count(handle["rows"], 0 if made is None else made.size, started)

    def abort(self, epoch: int | None, handle: Any) -> None:
        """Delete what was staged for an epoch that is void."""
        assert epoch is not None
        self._epochs.drop(self.lineage, epoch, handle["part"])

    def _count(self, rows: int, size: int, started: float) -> None:
        """Count what was committed. size: bytes; started: when the commit began, by the monotonic clock."""
        self._committed_at = now = time.monotonic()
        self._seconds = now - started
        self._rows.add(rows)
        self._bytes.add(size)
        self._took.add(self._seconds)

    def cleanup(self) -> None:
        """Release the session; the last sink that does so stops the session."""
        self._opened.close()

    def _table(self, tups: Sequence[Tuple]) -> pyarrow.Table | None:
        """Return the rows that fit, if any; the other tuples fail."""
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
        """Fail tuples that do not fit, each with its reason; log only the first reason."""
        if not bad:
            return
        self._bad_rows.add(len(bad))
        self._context.log.warning(
            "%d of %d tuples do not fit the schema and fail, the first: %s", len(bad), count, bad[0][1]
        )
        for tup, why in bad:
            self.fail(tup, FailTuple(why))  # another attempt would not help
