"""Reads a table: the rows of committed batches, and only those, as a Spark DataFrame.

The manifest is read once, when the frame is made, to find the files that count; Spark then reads exactly these files. So a
frame always shows the same moment of the table, even if it is run again after further commits.

**Replays.** A batch that counts but was never acked is replayed: its rows are written again in a later batch. With `key`, the
row that was committed first is kept, so rows that a reader has seen do not change. The first row is that of the batch with the
earliest `BatchEntry.committed` (by the clocks of the workers that wrote the batches); within a batch, the row's place in the
batch's files decides.

**Columns that were added** are null in the rows of earlier batches. Spark finds columns by name, except in CSV: CSV files are
read with the schema that they were written with.

**A plain reader** (`spark.read`, or a Hive table) of the folder of data files sees the same files, since they are in Hive's
layout. It may also see a batch just before the commit, every replay, and, until the
next sweep, batches that will never be committed.
Must not know: how batches get into the table.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, Literal

from squall.stores.files import Files, OpenStore
from squall.stores.paths import from_here
from squall_io.spark.manifest.envelopes import canonical, digest_of
from squall_io.spark.manifest.originals import RowRange
from squall_io.spark.manifest.state import require_readable
from squall_io.spark.manifest.tables import RESULTS, TableRecord, latest_schema, read_schema, read_table
from squall_io.spark.reading.file_rows import (
    FILE,
    PLACE,
    ROW,
    FilePart,
    FileRows,
    only_ranges,
    rows_of_files,
    with_places,
)
from squall_io.spark.reading.moments import ALWAYS, Moment, Span
from squall_io.spark.reading.points import NOW, Point, originals_at, version_at
from squall_io.spark.results.versions import RunInput
from squall_io.spark.rows.formats import FORMATS, read_options
from squall_io.spark.rows.schema import Schema, parse_schema
from squall_io.spark.rows.types import Array, Map, Struct, Type, quoted
from squall_io.spark.session.request import is_classic
from squall_io.spark.session.sessions import changed_settings
from squall_io.spark.stores import S3_ENDPOINT, WEBHDFS, open_files
from topology_api import SquallError
from topology_api.wording import typed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

log = logging.getLogger(__name__)

#: Spark's limit on the tasks of the job that first looks at each file. With Spark's default, this job took over 60 s for 10,000
#: files on two cores.
_LISTING_SETTING: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTING_DEFAULT: Final = 10_000
#: Squall's limits: a task for this many files, but these numbers of tasks at least and at most.
_LISTED_BY_A_TASK: Final = 1_000
_LEAST_TASKS, _MOST_TASKS = 16, 64
#: How many files Spark looks at without such a job, in its driver; by default 32.
_DRIVER_SETTING: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
#: Begins the path of a table on this machine, or in a folder that all hosts share.
_HERE: Final = "file:"
#: Held while a thread changes the setting of the session.
_listing = threading.Lock()
#: A column that exists while replays are being found: the row's rank among the rows with the same key.
_RANK: Final = "__squall_rank"


class CannotRead(SquallError):
    """A table that cannot be read as requested."""


def read_committed(
    spark: SparkSession,
    path: str | os.PathLike[str],
    since: Moment | None = None,
    until: Moment | None = None,
    key: Sequence[str] | str | None = None,
    *,
    version: int | None = None,
    timestamp: Moment | None = None,
    unreadable: Literal["refuse", "skip"] = "refuse",
) -> DataFrame:
    """Return the committed rows of the table at `path`, in its newest schema; for a table of results, the rows of its
    newest version.

    path: the table's folder; a relative path is on this machine, below the working directory.
    since, until: only batches committed at or after `since` and before `until`: a datetime with tzinfo, ISO text with a zone,
        or seconds since 1970. A batch's time is that of its worker's clock, and the batch becomes visible a moment later. To
        continue where the last read ended, give an `until` a minute or more in the past.
    key: names of columns. Of the rows that are equal in all these columns, only the row that was committed first is kept, or
        none if that row was committed before `since`. All rows with a null in the key are kept.
    version: read what the table held in this version of its Delta log, or this version of a table of results. `squall table
        PATH --versions N` shows the last versions.
    timestamp: read what the table held at a moment, which is given as `since` is: what was committed at this moment or before.
    unreadable: what to do if records of the manifest cannot be read. "refuse": raise `UnreadableManifest`, which names all of
        them. "skip": read the rows of the other batches, and log what is missing.
    Raises `NoTable`, `CannotRead`, `NoVersion`, `WrongMoment`, and `FilesError` if the file system does not answer. With Spark
    Connect, HDFS is read through WebHDFS, whose address is the session's setting `squall.webhdfs.address`; `squall.s3.endpoint`
    is one, too.
    """
    with opened(spark, path) as files:
        if unreadable not in ("refuse", "skip"):
            raise CannotRead(f"unreadable is {unreadable!r}: give 'refuse' or 'skip'")
        span = Span.of(since, until)
        wanted = choose(files, span, key, unreadable == "skip", Point.of(version, timestamp, span))
    return wanted.frame(spark)


def opened(spark: SparkSession, path: str | os.PathLike[str]) -> OpenStore:
    """Open the file system at a path in the way that fits the session, whose settings say where WebHDFS and S3 are."""
    hint = "as in read_committed(spark, '/tables/counts')"
    if not (hasattr(spark, "conf") and hasattr(spark, "read")):  # PySpark has two classes of sessions
        raise CannotRead(f"the session is {typed(spark)}: give a SparkSession, then the path, {hint}")
    if not isinstance(path, (str, os.PathLike)):
        raise CannotRead(f"the path is {typed(path)}: give text, {hint}")
    given = {name: spark.conf.get(name, None) for name in (WEBHDFS, S3_ENDPOINT)}
    conf = {name: value for name, value in given.items() if value is not None}
    return open_files(from_here(os.fspath(path)), session=spark, conf=conf)


def choose(
    files: Files,
    span: Span = ALWAYS,
    key: Sequence[str] | str | None = None,
    skip: bool = False,
    point: Point = NOW,
) -> Selection:
    """Return what `read_committed` would read now, according to the manifest; needs no Spark. `skip`: ignore unreadable
    records.
    """
    table = read_table(files)
    is_result = table.holds == RESULTS
    source = _result(files, point) if is_result else _stream(files, table, skip, point)
    if is_result and (span or key is not None):
        raise CannotRead(
            f"{source.root} holds versions of a result, which is read whole: leave out since, until and key"
        )
    inside = tuple(batch for batch in source.batches if span.holds(batch.committed))
    if key is None:
        return Selection(source, span, inside)
    before = tuple(batch for batch in source.batches if span.is_after(batch.committed))
    return Selection(source, span, inside, before, tuple(key_names(source.schema, key)))


@dataclass(frozen=True)
class Selection:
    """The batches of a table to read, and how to read them."""

    source: TableContents
    span: Span
    inside: tuple[CommittedBatch, ...]
    #: Batches committed before `span`. They may have the first row of a key; rows of `inside` with such a key are left out.
    before: tuple[CommittedBatch, ...] = ()
    key: tuple[str, ...] = ()

    @property
    def read(self) -> RunInput:
        """The input as a version's record names it. Equal digests mean equal rows: the same files, with the same columns."""
        parts = [[[batch.paths, str(batch.schema)] for batch in part] for part in (self.inside, self.before)]
        digest = digest_of(canonical({"schema": str(self.source.schema), "key": self.key, "batches": parts}))
        rows = sum(batch.rows for batch in self.inside)
        return RunInput(self.source.root, digest, rows, self.span.since, self.span.until)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows of the selected batches."""
        if not (self.key and self.inside):
            return _frame(spark, self.source, self.inside)
        return _first_rows(spark, self)


@dataclass(frozen=True)
class KeyCounts:
    """Numbers that show how many rows of a table are replays."""

    key: tuple[str, ...]
    rows: int
    #: Distinct keys.
    keys: int
    #: Rows with a null in the key, which never count as replays.
    without_key: int

    @property
    def duplicates(self) -> int:
        """Rows that `read_committed(key=...)` leaves out."""
        return self.rows - self.without_key - self.keys


def count_keys(spark: SparkSession, path: str | os.PathLike[str], key: Sequence[str]) -> KeyCounts:
    """Count the committed rows of a table by key; raises what `read_committed` raises."""
    from pyspark.sql import functions as F

    with opened(spark, path) as files:
        choice = choose(files)
    names = key_names(choice.source.schema, key)
    rows = choice.frame(spark)
    columns = [rows[quoted(name)] for name in names]
    # The columns of the key get new names, since one of them may be called "null" or "rows".
    aliased = (column.alias(f"key{place}") for place, column in enumerate(columns))
    keys = rows.select(_any_null(columns).alias("null"), *aliased)
    groups = keys.groupBy(*keys.columns).agg(F.count(F.lit(1)).alias("rows"))
    [counts] = groups.agg(
        F.sum("rows").alias("rows"),
        F.count_if(~F.col("null")).alias("keys"),
        F.sum(F.when(F.col("null"), F.col("rows"))).alias("without_key"),
    ).collect()
    return KeyCounts(tuple(names), counts["rows"] or 0, counts["keys"], counts["without_key"] or 0)


@dataclass(frozen=True)
class CommittedBatch:
    """Files that were added to a table together."""

    paths: tuple[str, ...]
    #: The schema that they were written with.
    schema: Schema
    rows: int
    committed: float
    #: Where the rows of each of these files are now.
    parts: tuple[FilePart, ...]


@dataclass(frozen=True)
class TableContents:
    """What a table contains at one moment."""

    root: str
    #: The folder below `root` that has the partition directories; "" if `root` itself has them.
    base: str
    file_format: str
    schema: Schema
    #: The batches with files, in the order of their commits, as sinks committed them.
    batches: tuple[CommittedBatch, ...]


def _stream(files: Files, table: TableRecord, skip: bool, point: Point) -> TableContents:
    """Return the contents of a stream's table: the batches that count."""
    state, found = originals_at(files, point)
    if not skip:
        require_readable(files, state)
    for problem in state.unreadable:
        log.warning("%s: rows are missing, since %s", files.root, problem)
    # The schema is read after the entries, so that none of them has a newer schema.
    if (latest := latest_schema(files)) is None:
        raise CannotRead(
            f"the table at {files.root} has no schema yet: its sink is about to start; try again in a moment"
        )
    schemas = {latest.number: latest.schema}
    for number in {entry.schema for entry in state.counted.values()} - {latest.number}:
        by_name = FORMATS[table.file_format].by_name
        schemas[number] = latest.schema if by_name else read_schema(files, number).schema
    batches = tuple(
        CommittedBatch(
            tuple(original.entry.files[each.place].path for each in original.ranges),
            schemas[original.entry.schema],
            original.rows,
            original.entry.committed,
            tuple(_part(each, schemas[each.schema]) for each in original.ranges),
        )
        for original in found
    )
    return TableContents(files.root, table.data, table.file_format, latest.schema, batches)


def _part(place: RowRange, schema: Schema) -> FilePart:
    """Return where the rows of a file are now."""
    return FilePart.of(place.file, schema, place.first, place.rows)


def _result(files: Files, point: Point) -> TableContents:
    """Return a version of a table of results, the newest one unless another is chosen, as one batch."""
    if (version := version_at(files, point)) is None:
        raise CannotRead(f"{files.root} has no version yet: no run has published its result so far")
    schema = parse_schema(version.schema)
    paths = tuple(file.path for file in version.files)
    parts = tuple(FilePart(path, schema) for path in paths)
    batches = (CommittedBatch(paths, schema, version.rows, version.published, parts),) if paths else ()
    return TableContents(files.root, version.folder, version.table.file_format, schema, batches)


def _frame(
    spark: SparkSession, source: TableContents, batches: Sequence[CommittedBatch], tagged: bool = False
) -> DataFrame:
    """Return the rows of batches; if `tagged`, with the place of each row in the columns PLACE and ROW."""
    groups: dict[tuple[Schema, bool], list[FileRows]] = {}
    for found in rows_of_files(part for batch in batches for part in batch.parts):
        as_they_are = found.is_plain if tagged else found.is_whole
        groups.setdefault((found.schema, as_they_are), []).append(found)
    if not groups:
        # Every column is nullable, as in frames that are read from files.
        columns = tuple(replace(column, nullable=True) for column in source.schema.columns)
        return spark.createDataFrame([], str(Schema(columns)))
    frames = []
    for (schema, as_they_are), there in groups.items():
        rows = _load(spark, source, schema, [each.path for each in there], tagged or not as_they_are)
        if not as_they_are:
            rows = only_ranges(spark, rows, there, source.file_format, tagged)
        elif tagged:
            rows = with_places(spark, rows, there)
        names = [*map(quoted, source.schema.names), *([PLACE, ROW] if tagged else [])]
        frames.append(rows.select(*names))
    return reduce(lambda one, other: one.unionAll(other), frames)


def placed_rows(spark: SparkSession, source: TableContents, parts: Sequence[FilePart]) -> DataFrame:
    """Return rows of files, with the place of each in the columns PLACE, which counts the parts, and ROW."""
    return _frame(spark, source, [CommittedBatch((), source.schema, 0, 0.0, tuple(parts))], tagged=True)


def _load(
    spark: SparkSession, source: TableContents, written: Schema, paths: Sequence[str], tagged: bool
) -> DataFrame:
    """Read files that have the columns of `written`; return their rows with the columns of the table."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    reader = (
        spark.read.format(source.file_format)
        .schema(str(written))
        .options(**read_options(source.file_format))
        .option("basePath", f"{source.root}/{source.base}".rstrip("/"))
        # With the session's own values of these settings, Spark could silently leave out committed rows.
        .options(ignoreCorruptFiles="false", ignoreMissingFiles="false", recursiveFileLookup="false")
    )
    with _quick_listing(spark, source.root, len(paths)):
        try:
            loaded = _loaded(spark, reader, [f"{source.root}/{path}" for path in paths])
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise CannotRead(
                f"a file of a committed batch is gone: {error}. `squall table {source.root} --verify` names all such files"
            ) from error
    columns = [
        F.lit(None).cast(str(column.type)).alias(column.name)
        if written.column(column.name) is None
        else loaded[quoted(column.name)]
        for column in source.schema.columns
    ]
    if tagged:
        metadata = loaded.metadataColumn("_metadata")
        row = _row_in_file(metadata, source.file_format)
        columns += [metadata["file_name"].alias(FILE), row.alias(ROW)]
    return loaded.select(*columns)


def _loaded(spark: SparkSession, reader: DataFrameReader, paths: list[str]) -> DataFrame:
    """Return the rows of files. PySpark hands over each path by a call of Java of its own; here one call has them all."""
    if not is_classic(spark):
        return reader.load(paths)
    java: Any = spark.sparkContext._jvm
    every = java.java.util.regex.Pattern.compile("\0").split("\0".join(paths))
    loaded: DataFrame = reader._df(reader._jreader.load(every))
    return loaded


@contextmanager
def _quick_listing(spark: SparkSession, root: str, files: int) -> Iterator[None]:
    """Let Spark list these files in few tasks; on this machine in its driver, where a file takes less than what a job adds. A
    server of Spark Connect lists them only when a query runs, after the `with` block; so in its session only the number of
    tasks is set, and stays, unless the user has changed it.
    """
    if files <= _LEAST_TASKS:
        yield
        return
    most = min(max(files // _LISTED_BY_A_TASK, _LEAST_TASKS), _MOST_TASKS)
    with _listing:
        tasks = int(spark.conf.get(_LISTING_SETTING) or most)
        if is_classic(spark):
            quick = {_DRIVER_SETTING: str(files)} if root.startswith(_HERE) else {}
            with changed_settings(spark, {_LISTING_SETTING: str(min(tasks, most)), **quick}):
                yield
            return
        if tasks == _LISTING_DEFAULT:
            spark.conf.set(_LISTING_SETTING, str(most))
    yield


def _row_in_file(metadata: Column, file_format: str) -> Column:
    """Return a column that orders the rows of one file by their position."""
    from pyspark.sql import functions as F

    if file_format == "parquet":
        return metadata["row_index"]
    # One task reads the rows of a split one after the other, so their ids rise.
    return F.struct(metadata["file_block_start"], F.monotonically_increasing_id())


def _first_rows(spark: SparkSession, choice: Selection) -> DataFrame:
    """Return the rows of `inside` whose key no row of `before` has; of rows with the same key, only the first."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rows = _frame(spark, choice.source, choice.inside, tagged=True)
    place = F.struct(PLACE, ROW)
    columns = [rows[quoted(name)] for name in choice.key]
    # A row with a null in its key is alone in its group.
    group = Window.partitionBy(*columns, F.when(_any_null(columns), place))
    ranked = rows.withColumn(_RANK, F.row_number().over(group.orderBy(place)))
    first = ranked.where(F.col(_RANK) == 1).select(*map(quoted, choice.source.schema.names))
    if not choice.before:
        return first
    earlier = _frame(spark, choice.source, choice.before)
    equal = [first[quoted(name)] == earlier[quoted(name)] for name in choice.key]
    return first.join(earlier, equal, "left_anti")


def key_names(schema: Schema, key: Sequence[str] | str) -> list[str]:
    """Return the columns of a key as the schema spells them. Raises `CannotRead` if a column does not exist, or cannot be
    compared."""
    if not (wanted := [key] if isinstance(key, str) else list(key)):
        raise CannotRead("key is empty: name the columns that are equal in a row and its replays")
    names = []
    for name in wanted:
        column = schema.column(name) if isinstance(name, str) else None
        if column is None:
            raise CannotRead(f"key names {name!r}, but the columns are {', '.join(schema.names)}")
        if _has_map(column.type):
            raise CannotRead(f"key names {column.name!r}, which is {column.type}: Spark cannot compare maps")
        names.append(column.name)
    return names


def _has_map(kind: Type) -> bool:
    if isinstance(kind, Struct):
        return any(_has_map(field.type) for field in kind.fields)
    return _has_map(kind.element) if isinstance(kind, Array) else isinstance(kind, Map)


def _any_null(columns: Sequence[Column]) -> Column:
    """Return a column that says whether one of these columns is null."""
    return reduce(or_, (column.isNull() for column in columns))
