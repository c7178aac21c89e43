"""CommittedRows: the rows of committed batches as a stream, in the order of the commits.

    builder.set_spout("rows", CommittedRows("hdfs://namenode:9000/counts", ["word", "count"], follow=True), parallelism=2)

A batch is read by one task, completely and once. How far it is read is stored under the batch's name (see `positions`), so it
does not matter when and in which order tasks discover batches. A task reads its batches in the order of their commits, and the
rows of a batch in the order of the batch's files.

Values are the same in every file format. Parquet, the default, is read without Spark. The other formats need a session, since
only Spark reads back exactly what it wrote.
Must not know: how positions are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from squall.stores.files import AbsentFile, FilesUnavailable
from squall.stores.java.java import require_packages
from squall.stores.paths import check_path
from squall_io.lines.errors import UnreadableFile
from squall_io.spark.manifest import tables
from squall_io.spark.manifest.envelopes import digest_of
from squall_io.spark.manifest.layout import CHECKPOINTS, COMMITS, place_in
from squall_io.spark.manifest.originals import OriginalBatch, RowRange, originals
from squall_io.spark.manifest.state import TableState, read_state, require_readable
from squall_io.spark.reading.moments import Moment, Span, WrongMoment
from squall_io.spark.retention.holding import Holding
from squall_io.spark.rows.arrow import arrow_schema, plain_rows
from squall_io.spark.rows.formats import FORMATS, read_options
from squall_io.spark.rows.partitions import partition_of, partition_value
from squall_io.spark.rows.schema import Schema
from squall_io.spark.rows.types import quoted, same_name
from squall_io.spark.session.sessions import SessionLease, is_broken, shared_session
from squall_io.spark.spouts.merged_files import MergedFile, MergedFiles
from squall_io.spark.spouts.positions import Ranges, Unit, owner_of
from squall_io.spark.spouts.reading_spout import Item, ReadingSpout, Units, path_problems
from topology_api import Replay, SquallError
from topology_api.names import field_problem
from topology_api.wording import listed, nearest

if TYPE_CHECKING:
    import pyarrow as pa

    from topology_api import Context

#: Seconds between two looks for new batches, unless the spout says so.
POLL_SECONDS: Final = 2.0
#: How many rows are converted to Python values at once.
_AT_ONCE: Final = 4_096


class CannotStream(SquallError):
    """A table whose rows cannot be streamed as requested."""


class CommittedRows(ReadingSpout):
    """The committed rows of a table, one tuple each.

    With `topology.state.path` each row counts once: how far the tasks have read is part of the topology's commits, and is not
    stored in `positions`, where the tasks only agree on what there is to read. The first start begins where an earlier run has
    recorded that it ended.

    path: the table's path.
    fields: the columns that a tuple has, in this order. Values are Python's own: a struct or a map is a dict, and a timestamp
        is an aware datetime in UTC.
    since, until: only batches committed at or after `since` and before `until`: a datetime with tzinfo, ISO text with a zone,
        or seconds since 1970.
    follow: False reads the batches that exist when the spout's first task starts, and ends; True continues with new batches.
    poll_interval: with `follow`, the seconds between two looks for new batches, at least 0.2; None: 2.
    positions: the folder where tasks store how far they have read; None: a folder for this submission alone, in
        `_squall/readers` of the table. If you give a folder, a later submission continues where the last one ended, with the
        batches that were added since.
    replay: as `Spout.replay`.
    master, conf: Spark's master and settings; give the same as to the topology's `SparkSink`s. Parquet tables are read without
        Spark.
    """

    poll_interval = POLL_SECONDS

    def __init__(
        self,
        path: str,
        fields: Sequence[str],
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        follow: bool = False,
        poll_interval: float | None = None,
        positions: str | None = None,
        replay: Replay | None = ReadingSpout.replay,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        problems = [*path_problems(path, "path"), *_field_problems(names)]
        try:
            self.span = Span.of(since, until)
        except WrongMoment as error:
            problems.append(str(error))
        super().__init__(names, follow, poll_interval, positions, replay, conf, problems)
        self.path = check_path(path)
        self.master = master

    def _units(self) -> Units:
        return BatchUnits(self)


class BatchUnits(Units):
    """The batches of a table, for one task."""

    #: The table's file format, and the whole path of its data files; set by `open`.
    _format: str
    _base: str
    #: Schemas by number; 0 is the newest, which has all requested fields. Set by `open`.
    _schemas: dict[int, Schema]

    def __init__(self, spout: CommittedRows) -> None:
        self._spout = spout
        self._lease: SessionLease | None = None
        #: Keeps files that a vacuum would delete; set by `open`.
        self._holding: Holding | None = None
        #: The table at the last look.
        self._state: TableState | None = None
        #: This task's batches.
        self._entries: dict[Unit, OriginalBatch] = {}
        #: Files that a compaction wrote, of which this task reads the rows of single batches.
        self._merged = MergedFiles()
        #: The file of these that Spark has read last, and its rows.
        self._by_spark_last: tuple[str, pa.Table] | None = None
        #: The files of commits and checkpoints at the last poll.
        self._seen: frozenset[str] | None = None
        span = spout.span
        since = "" if span.since is None else f" since {span.since!r}"
        until = "" if span.until is None else f" until {span.until!r}"
        super().__init__(spout, spout.path, f"{spout.path}{since}{until}")

    def open(self, context: Context) -> None:
        """Open the table, and check that it has the wanted columns."""
        require_packages()
        super().open(context)
        table = tables.read_table(self._files)
        self._check(table)
        self._format = table.file_format
        self._base = place_in(self._files.root, table.data)
        reader = f"CommittedRows of {context.topology_id}, task {context.component}/{context.index}"
        self._holding = Holding(self._files, reader, context.log)
        self._holding.hold()

    def snapshot(self) -> Mapping[str, Any]:
        """Return the batches that count now, by owner and number; nothing with `follow`."""
        if self._follow:
            return {}
        numbers: dict[str, Ranges] = {}
        for unit in self._batches():
            numbers.setdefault(unit.series, Ranges()).add(unit.number)
        return {"batches": {series: list(map(list, ranges)) for series, ranges in numbers.items()}}

    def units(self, snapshot: Mapping[str, Any]) -> Iterable[Unit]:
        """Return the batches of the snapshot; with `follow`, the existing batches."""
        if self._follow:
            return self._new_units()
        wanted = {series: Ranges(map(tuple, ranges)) for series, ranges in snapshot["batches"].items()}
        entries = self._batches()
        units = [unit for unit in entries if unit.number in wanted.get(unit.series, ())]
        gone = sum(last - first + 1 for ranges in wanted.values() for first, last in ranges) - len(units)
        if gone:
            raise CannotStream(
                f"{self._files.root} has lost {gone} of the batches that it had when reading began: something other than"
                " Squall changed its manifest"
            )
        self._keep(entries, units)
        self._hold_less()
        return units

    def more(self) -> tuple[Iterable[Unit], float] | None:
        """Return new batches; None without `follow`."""
        return (self._new_units(), self._poll_interval) if self._follow else None

    def name(self, unit: Unit) -> object:
        """Return the batch's name."""
        return f"{unit.series}.{unit.number}"

    def items(self, unit: Unit, position: int) -> Iterator[Item]:
        """Yield the rows of a batch; a row's position is its place among all rows of the batch."""
        while True:
            batch = self._entries[unit]
            try:
                for place, after, row in self._items(batch, position):
                    yield place, after, row
                    position = after
                return
            except AbsentFile as error:
                # The rows may have been moved, and the file deleted, since this task has looked.
                moved = self._batches().get(unit)
                if moved is None or moved.ranges == batch.ranges:
                    name = batch.entry.batch
                    raise UnreadableFile(f"batch {name} is no longer complete: {error}") from None
                self._entries[unit] = moved

    def _items(self, batch: OriginalBatch, position: int) -> Iterator[Item]:
        read = 0
        for part in batch.ranges:
            # Rows that were dropped keep their places, so that positions from before are right.
            before = sum(rows for at, rows in batch.dropped.items() if at < part.place)
            for place, row in enumerate(self._rows(part), before + read):
                if place >= position:
                    yield place, place + 1, row
                read += 1
        if read != batch.rows and (batch.is_whole or batch.dropped):
            raise UnreadableFile(
                f"batch {batch.entry.batch} has {read} rows in its files, but {batch.rows} were committed"
            )

    def _schema_of(self, part: RowRange) -> Schema:
        # In formats that do not find columns by name, a file is read with the schema that it was written with.
        number = 0 if FORMATS[self._format].by_name else part.schema
        if number not in self._schemas:
            self._schemas[number] = tables.read_schema(self._files, number).schema
        return self._schemas[number]

    def close(self) -> None:
        """Close the table, and release the session and the files."""
        if self._holding is not None:
            self._holding.release()
        super().close()
        if self._lease is not None:
            self._lease.release()

    def _check(self, table: tables.TableRecord) -> None:
        """Raise `CannotStream` if the table has no batches or lacks requested columns."""
        root = self._files.root
        if table.holds != tables.ROWS:
            raise CannotStream(
                f"{root} holds {tables.describe(table)}: only rows of batches can be read as a stream"
            )
        if (newest := tables.latest_schema(self._files)) is None:
            raise CannotStream(
                f"the table at {root} has no schema yet: its sink is starting; try again in a moment"
            )
        if unknown := [name for name in self._spout.fields if newest.schema.column(name) is None]:
            near = nearest(unknown[0], newest.schema.names)
            raise CannotStream(
                f"the table at {root} has no column {listed(unknown)} (it has {newest.schema}){near}"
            )
        self._schemas = {0: newest.schema}

    def _batches(self) -> dict[Unit, OriginalBatch]:
        """Return all committed batches, oldest first. Batches of compactions, which only move rows, are left out.

        Raises `FilesUnavailable` if it is not yet certain which batches count.
        """
        state = self._state = require_readable(self._files, read_state(self._files))
        if state.uncertain:
            raise FilesUnavailable(
                f"it is not decided whether batch {state.uncertain[0]} of {self._files.root} counts: a task of its sink"
                " has restarted, and will decide in a moment"
            )
        where = {original.entry.batch: original for original in originals(state)}
        if odd := [batch for batch, original in where.items() if original.entry.replaces]:
            raise CannotStream(
                f"{self._files.root} has rows in batch {odd[0]} that replace those of other batches, and it does not say which:"
                " something other than Squall wrote it"
            )
        entries = (entry for entry in (*state.entries, *state.replaced) if not entry.replaces)
        inside = [entry for entry in entries if self._spout.span.holds(entry.committed)]
        return {
            Unit(f"{entry.batch.writer_id}.{entry.batch.epoch}", entry.batch.number): where.get(
                entry.batch, OriginalBatch(entry, ())
            )
            for entry in sorted(inside, key=lambda entry: (entry.committed, entry.batch))
        }

    def _new_units(self) -> list[Unit]:
        """Return all existing batches if anything has changed since the last poll."""
        # An entry may be in a checkpoint before any task has seen the entry's own file.
        names = frozenset(
            status.path for folder in (COMMITS, CHECKPOINTS) for status in self._files.list(folder)
        )
        if names == self._seen:
            return []
        entries = self._batches()
        self._keep(entries, entries)
        self._hold_less()
        self._seen = names
        return list(entries)

    def _keep(self, entries: Mapping[Unit, OriginalBatch], units: Iterable[Unit]) -> None:
        index, parallelism = self._context.index, self._context.parallelism
        self._entries = {unit: entries[unit] for unit in units if owner_of(unit, parallelism) == index}

    def _hold_less(self) -> None:
        """Let a vacuum delete what no batch of this task needs any more."""
        if self._holding is not None and self._state is not None:
            self._holding.saw(self._state)

    def _rows(self, part: RowRange) -> Iterator[tuple[object, ...]]:
        """Yield rows of a file in order; a column that the file does not have is None. Raises `UnreadableFile`."""
        for table in self._parquet(part) if self._format == "parquet" else self._spark_rows(part):
            for batch in table.to_batches(max_chunksize=_AT_ONCE):
                yield from plain_rows(batch.columns, batch.num_rows)

    def _parquet(self, part: RowRange) -> Iterator[pa.Table]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if part.rows is None:
            data = self._files.read(part.file.path)
            if digest_of(data) != part.file.digest:
                raise UnreadableFile(
                    f"{self._files.root}/{part.file.path} is damaged: its {len(data)} bytes are not those that were"
                    " committed. Read it from a backup"
                )
            opened = pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us")
            there = {same_name(name): name for name in opened.schema_arrow.names}
            yield self._with_fields(part, opened.read(columns=self._in_file(there)), there)
            return
        merged: MergedFile = self._merged.open(self._files, part.file)
        there = {same_name(name): name for name in merged.names}
        for read in merged.rows(part.first, part.rows, self._in_file(there)):
            yield self._with_fields(part, read, there)

    def _in_file(self, there: Mapping[str, str]) -> list[str]:
        """Return the names of the wanted columns that a file has, in its own spelling."""
        return [there[same_name(name)] for name in self._spout.fields if same_name(name) in there]

    def _with_fields(self, part: RowRange, read: pa.Table, there: Mapping[str, str]) -> pa.Table:
        """Return rows with all fields of the tuples."""
        import pyarrow as pa

        schema = self._schema_of(part)
        partition = partition_of(part.file.path)
        columns = [(name, schema.column(name)) for name in self._spout.fields]
        made = []
        for name, column in columns:
            kind = pa.null() if column is None else arrow_schema(Schema((column,))).field(0).type
            if same_name(name) in there:
                made.append(read.column(there[same_name(name)]).cast(kind))
            else:
                text = partition.get(same_name(name))
                value = None if text is None or column is None else partition_value(text, column)
                made.append(pa.repeat(pa.scalar(value, kind), read.num_rows))
        return pa.table(made, names=[str(place) for place in range(len(made))])

    def _spark_rows(self, part: RowRange) -> Iterator[pa.Table]:
        """Yield rows that Spark reads."""
        path = part.file.path
        if part.rows is None:
            yield self._by_spark(path, self._schema_of(part))
            return
        if self._by_spark_last is None or self._by_spark_last[0] != path:
            self._by_spark_last = (path, self._by_spark(path, self._schema_of(part)))
        yield self._by_spark_last[1].slice(part.first, part.rows)

    def _by_spark(self, below: str, schema: Schema) -> pa.Table:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as sql

        if self._lease is None:  # the first file that Spark reads for this task
            spout, context = self._spout, self._context
            self._lease = shared_session(spout.master, spout.conf, context.log, context.progress)
        session = self._lease.session
        path = f"{self._files.root}/{below}"
        try:
            reader = session.read.format(self._format).schema(str(schema)).option("basePath", self._base)
            loaded = reader.options(**read_options(self._format)).load(path)
            columns = [
                (sql.lit(None) if column is None else sql.col(quoted(column.name))).alias(f"c{place}")
                for place, column in enumerate(map(schema.column, self._spout.fields))
            ]
            return loaded.select(*columns).toArrow()
        except Exception as error:
            if is_broken(session):
                self._lease.renew(session)
                raise FilesUnavailable(f"cannot read {path}: Spark's driver has ended") from None
            if isinstance(error, PySparkException):
                raise UnreadableFile(f"Spark cannot read {path}: {error}") from None
            raise


def _field_problems(names: tuple[Any, ...]) -> Iterator[str]:
    if not names:
        yield "fields is empty: name the columns that a tuple has"
    yield from (f"a field {problem}" for name in names if (problem := field_problem(name)) is not None)
    if len(set(map(str, names))) < len(names):
        yield f"fields are {listed(names)}: name each column only once"
