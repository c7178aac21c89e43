"""`format("squall")`: the committed rows of a table as a frame or a stream of Spark, by PySpark's API for data sources.

Spark pickles the source, and runs it in processes of its own: one that plans, and its tasks. So Squall must be installed there,
and the file system is used without Java: HDFS through WebHDFS.

A frame always shows the moment at which it was made. The source keeps that moment as an offset, which is small, and finds the
files when Spark plans a query; by then the rows may be in the files of a compaction.

A stream holds a lease from the start of its query on, in the process that plans it. Spark ends that process with the query, in
most cases by a kill, after which the lease expires. The process that plans a frame ends before the first file is read, and
nothing says when the last one was: a frame has no lease.
Must not know: how offsets advance, how files are read, how a lease is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from squall.stores.files import Files, OpenStore
from squall.stores.opening import open_store
from squall_io.spark.manifest.layout import BatchName
from squall_io.spark.manifest.state import TableState, read_state, require_readable
from squall_io.spark.manifest.tables import RESULTS, latest_schema, read_table
from squall_io.spark.reading.committed import CannotRead
from squall_io.spark.results.versions import newest_version, read_version
from squall_io.spark.retention.holding import Holding
from squall_io.spark.rows.schema import Schema, parse_schema
from squall_io.spark.rows.types import Array, Column, Map, Struct, Type
from squall_io.spark.source.offsets import (
    Limit,
    Offset,
    TableReading,
    between,
    deliverable,
    next_offset,
    order_of,
)
from squall_io.spark.source.parquet_rows import in_tasks, read_ranges
from squall_io.spark.source.row_ranges import FileRange, places_of
from squall_io.spark.source.settings import SourceSettings
from squall_io.spark.source.watching import TableWatch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class SquallSource(DataSource):
    """A table, as Spark's source "squall"."""

    #: Where WebHDFS is served, if no option says so; `register` takes it from the session.
    webhdfs: ClassVar[str | None] = None
    s3_endpoint: ClassVar[str | None] = None
    #: The rows' schema; None if Spark has not asked for it.
    columns: str | None = None
    # What a frame shows: a version of a result, or the batches of an offset and those on which a new owner has yet to decide.
    _version: int = 0
    _moment: Offset | None = None
    _uncertain: tuple[BatchName, ...] = ()

    @classmethod
    def name(cls) -> str:
        """Return the name that a user gives to `format`."""
        return "squall"

    def schema(self) -> str:
        """Return the newest schema, and keep the moment of the table for a frame."""
        with self.opened() as files:
            self.columns = str(self._look(files))
        return self.columns

    def reader(self, schema: StructType) -> FrameReader:
        """Return what plans and reads a frame."""
        self.settings.require_for_frame()
        return FrameReader(self, self._arrow(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return what plans and reads a stream."""
        self.settings.require_for_stream()
        if self._version:
            raise CannotRead(
                f"{self.settings.path} holds versions of a result, which are no stream: read it with spark.read"
            )
        return StreamReader(self, self._arrow(schema))

    @property
    def settings(self) -> SourceSettings:
        """What the options say."""
        return SourceSettings.of(
            {name.lower(): text for name, text in self.options.items()}, self.webhdfs, self.s3_endpoint
        )

    def opened(self) -> OpenStore:
        """Open the file system of the table."""
        settings = self.settings
        return open_store(settings.path, webhdfs=settings.webhdfs, s3_endpoint=settings.s3_endpoint)

    def ranges(self) -> list[FileRange]:
        """Return the rows of a frame."""
        span = self.settings.span
        with self.opened() as files:
            if self._version:
                if span:
                    raise CannotRead(f"{files.root} holds versions of a result: leave out since and until")
                return [FileRange(file.path, file.size) for file in read_version(files, self._version).files]
            assert self._moment is not None
            state = require_readable(files, read_state(files))
            entries = between(files.root, state, Offset(), self._moment)
            entries += [state.counted[name] for name in self._uncertain if name in state.counted]
            places = places_of(state)
            inside = (entry for entry in sorted(entries, key=order_of) if span.holds(entry.committed))
            return [each for entry in inside for each in places.get(str(entry.batch), ())]

    def _look(self, files: Files) -> Schema:
        """Return the schema of the rows, and keep the moment."""
        table = read_table(files)
        if table.file_format != "parquet":
            raise CannotRead(
                f'the files of {files.root} are {table.file_format}: format("squall") reads Parquet alone; read this table'
                " with squall_io.spark.read_committed(spark, path)"
            )
        if table.holds == RESULTS:
            if (version := newest_version(files)) is None:
                raise CannotRead(f"{files.root} has no version yet: no run has published its result so far")
            self._version = version.number
            return _nullable(parse_schema(version.schema))
        state = require_readable(files, read_state(files))
        # The schema is read after the entries, so that none of them has a newer schema.
        if (latest := latest_schema(files)) is None:
            raise CannotRead(
                f"the table at {files.root} has no schema yet: its sink is about to start; try again in a moment"
            )
        self._moment = next_offset(TableReading(files.root, state, Offset()), Limit())
        self._uncertain = state.uncertain
        return _nullable(latest.schema)

    def _arrow(self, schema: StructType) -> pa.Schema:
        """Return Spark's Arrow schema for the rows."""
        from pyspark.sql.pandas.types import to_arrow_schema

        if self.columns is None:  # Spark has not asked for the schema
            raise CannotRead("a schema is given: leave out schema(), since the table has its own")
        return to_arrow_schema(schema, timezone="UTC")


class _Reader:
    """What frames and streams have in common: the tasks that read."""

    def __init__(self, source: SquallSource, target: pa.Schema) -> None:
        self._source = source
        self._target = target

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        if not partition.value:  # Spark has a task for a frame without rows
            return
        assert self._source.columns is not None
        with self._source.opened() as files:
            yield from read_ranges(files, partition.value, parse_schema(self._source.columns), self._target)


class FrameReader(_Reader, DataSourceReader):
    """Plans and reads a frame."""

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads."""
        return _tasks(self._source.ranges())


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads a stream, whose offsets are those of `offsets`."""

    def __init__(self, source: SquallSource, target: pa.Schema) -> None:
        super().__init__(source, target)
        self._limit = source.settings.limit
        self._watch = TableWatch()
        self._files: OpenStore | None = None
        self._holding: Holding | None = None
        #: What the table held, and the offset, when there was nothing to read.
        self._idle: tuple[TableState, dict[str, Any]] | None = None
        #: The batches that a query reads which ends when it has read what was there at its start.
        self._within: frozenset[BatchName] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset of a new query."""
        return Offset(self._source.settings.since).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what the options say about the most that is read at once."""
        if self._limit.files is not None:
            return ReadMaxFiles(self._limit.files)
        return ReadAllAvailable() if self._limit.rows is None else ReadMaxRows(self._limit.rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset at which the next rows end; `start` if there are none."""
        files = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        opened = self._opened()
        state = self._watch.state_of(opened)
        if self._idle is not None and self._idle[0] is state and self._idle[1] == start:
            return start
        offset = Offset.of_json(start, opened.root)
        end = next_offset(TableReading(opened.root, state, offset), Limit(files, rows, self._within))
        self._idle = (state, start) if end is offset else None
        return start if end is offset else end.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read only what is there now."""
        self._within = deliverable(self._watch.state_of(self._opened()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return what each task reads between two offsets."""
        files = self._opened()
        state, root = self._watch.state_of(files), files.root
        # Spark asks when the rows before these are read: it needs nothing any more that was replaced before this state.
        if self._holding is not None:
            self._holding.saw(state)
        entries = between(root, state, Offset.of_json(start, root), Offset.of_json(end, root))
        places = places_of(state)
        return _tasks(each for entry in entries for each in places.get(str(entry.batch), ()))

    def stop(self) -> None:
        """Give up the lease, and close the file system."""
        if self._holding is not None:
            self._holding.release()
        if self._files is not None:
            self._files.close()

    def _opened(self) -> OpenStore:
        """Return the file system of the table, which is held before the manifest is read."""
        if self._files is None:
            self._files = self._source.opened()
        if self._holding is None:
            holding = Holding(self._files, 'a stream of format("squall")')
            holding.hold()
            self._holding = holding
        return self._files


def _tasks(ranges: Iterable[FileRange]) -> list[InputPartition]:
    return [InputPartition(task) for task in in_tasks(ranges)]


def _nullable(schema: Schema) -> Schema:
    """Return a schema in which every column and field is nullable, as in frames that are read from files."""
    return Schema(tuple(map(_nullable_column, schema.columns)))


def _nullable_column(column: Column) -> Column:
    return replace(column, type=_nullable_type(column.type), nullable=True)


def _nullable_type(kind: Type) -> Type:
    if isinstance(kind, Struct):
        return Struct(tuple(map(_nullable_column, kind.fields)))
    if isinstance(kind, Array):
        return Array(_nullable_type(kind.element))
    return Map(kind.key, _nullable_type(kind.value)) if isinstance(kind, Map) else kind
