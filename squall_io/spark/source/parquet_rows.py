"""Rows of Parquet files as Arrow batches: those of some ranges, with the columns of the table.

A data source in Python reads its files itself. The values are those that Spark would read: columns are found by their names,
those of partitions are in the folders' names, and a column that a file lacks is null. A small file is read at once, a large one
by pieces.
Must not know: batches, which rows are wanted, sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from squall.stores.files import AbsentFile, Files
from squall.stores.ranged_file import RangedFile
from squall_io.lines.errors import UnreadableFile
from squall_io.spark.rows.partitions import partition_of, partition_value
from squall_io.spark.rows.schema import Schema
from squall_io.spark.rows.types import same_name
from squall_io.spark.source.row_ranges import FileRange

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: Files up to this size are read in one call: a call to HDFS costs about 5 ms.
_AT_ONCE: Final = 8 * 2**20
#: Rows of an Arrow batch, as many as Spark gives Python by default.
_ROWS: Final = 10_000
#: Bytes that the rows of one Spark task have, about.
_TASK: Final = 32 * 2**20
#: What opening a file costs, in bytes that are read in the same time.
_OPENING: Final = 2**20


def in_tasks(ranges: Iterable[FileRange]) -> list[list[FileRange]]:
    """Divide ranges among tasks. Those of one file are read by one task, which opens the file once."""
    by_file: dict[str, list[FileRange]] = {}
    for each in ranges:
        by_file.setdefault(each.path, []).append(each)
    tasks: list[list[FileRange]] = []
    left = 0
    for those in by_file.values():
        cost = _OPENING + those[0].size
        if cost > left:
            tasks.append([])
            left = _TASK
        tasks[-1] += _joined(those)
        left -= cost
    return tasks


def _joined(ranges: list[FileRange]) -> Iterator[FileRange]:
    """Yield the ranges of a file, of which those that follow each other are one."""
    last = ranges[0]
    for each in ranges[1:]:
        if last.rows is not None and each.rows is not None and last.first + last.rows == each.first:
            last = last._replace(rows=last.rows + each.rows)
        else:
            yield last
            last = each
    yield last


def read_ranges(
    files: Files, ranges: Iterable[FileRange], schema: Schema, target: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some ranges. `target`: Spark's Arrow schema of the columns of `schema`. Raises `UnreadableFile`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path, those in groupby(ranges, key=lambda each: each.path):
        wanted = list(those)
        whole = f"{files.root}/{path}"
        try:
            opened = pq.ParquetFile(_open(files, wanted[0]), coerce_int96_timestamp_unit="us")
            for each in wanted:
                yield from _batches(opened, each, schema, target)
        except AbsentFile:
            raise UnreadableFile(
                f"{whole} of a committed batch is gone: `squall table {files.root} --verify` names all such files"
            ) from None
        except pa.ArrowException as error:
            raise UnreadableFile(f"{whole} cannot be read as Parquet: {error}") from None


def _open(files: Files, each: FileRange) -> Any:
    import pyarrow as pa

    if each.size > _AT_ONCE:
        return RangedFile(files, each.path, each.size)
    data = files.read(each.path)
    if len(data) != each.size:
        raise UnreadableFile(
            f"{files.root}/{each.path} has {len(data)} bytes, but {each.size} were committed: read it from a backup"
        )
    return pa.BufferReader(data)


def _batches(
    opened: pq.ParquetFile, each: FileRange, schema: Schema, target: pa.Schema
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    there = {same_name(name): name for name in opened.schema_arrow.names}
    partition = partition_of(each.path)
    names = [there[same_name(name)] for name in schema.names if same_name(name) in there]
    for table in _rows(opened, each, names):
        columns = []
        for column, field in zip(schema.columns, target):
            if (name := there.get(same_name(column.name))) is not None:
                columns.append(table.column(name).cast(field.type))
            else:
                text = partition.get(same_name(column.name))
                value = None if text is None else partition_value(text, column)
                columns.append(pa.repeat(pa.scalar(value, field.type), table.num_rows))
        yield pa.RecordBatch.from_arrays(columns, schema=target)


def _rows(opened: pq.ParquetFile, each: FileRange, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range; groups of rows that are outside are not read."""
    first, end = each.first, each.first + each.rows if each.rows is not None else opened.metadata.num_rows
    if end > opened.metadata.num_rows:
        raise UnreadableFile(
            f"{each.path} has {opened.metadata.num_rows} rows, but the rows up to number {end} were committed"
        )
    groups: list[int] = []
    start = place = 0
    for group in range(opened.num_row_groups):
        rows = opened.metadata.row_group(group).num_rows
        if place < end and place + rows > first:
            start = start if groups else place
            groups.append(group)
        place += rows
    for batch in opened.iter_batches(_ROWS, row_groups=groups, columns=names):
        begin, stop = max(first - start, 0), min(end - start, batch.num_rows)
        if begin < stop:
            yield batch.slice(begin, stop - begin)
        start += batch.num_rows
