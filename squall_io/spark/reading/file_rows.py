"""Which rows of which files hold the wanted batches, and how Spark finds them in files that hold rows of other batches, too.

Most files are read whole. A file that a compaction wrote has rows of many batches, one after the other; if only some of them
are wanted, or if the order of the commits matters, each row is found by its place in the file.
Must not know: which batches count, keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from squall_io.spark.manifest.entries import DataFile
from squall_io.spark.rows.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Extra columns, which exist while rows are being found.
#: The name of a row's file.
FILE: Final = "__squall_file"
#: The row's place in the file.
ROW: Final = "__squall_row"
#: The place of the row's original file in the order of commits.
PLACE: Final = "__squall_place"
_INDEX: Final = "__squall_index"
_FILE_THERE: Final = "__squall_file_there"
_BUCKET: Final = "__squall_bucket"
_FIRST: Final = "__squall_first"
_END: Final = "__squall_end"


@dataclass(frozen=True)
class FilePart:
    """Rows of a file that were committed in one file."""

    #: Relative to the table.
    path: str
    #: The schema to read the file with.
    schema: Schema
    #: How many rows the file has; None: unknown, and all of them are wanted.
    total: int | None = None
    first: int = 0
    rows: int = 0

    @classmethod
    def of(cls, file: DataFile, schema: Schema, first: int, rows: int | None) -> FilePart:
        """Return rows of a file; `rows` None: all of them."""
        if rows is None:
            return cls(file.path, schema)
        return cls(file.path, schema, sum(count for _, count in file.parts), first, rows)


@dataclass
class FileRows:
    """The wanted rows of one file."""

    path: str
    schema: Schema
    total: int | None
    #: First row, end, and place in the order of commits of each of its parts.
    parts: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the file, which no other file of the table has."""
        return self.path.rpartition("/")[2]

    @property
    def is_plain(self) -> bool:
        """Whether all of its rows were committed in one file."""
        return self.total is None

    @property
    def is_whole(self) -> bool:
        """Whether all rows are wanted."""
        return self.total is None or sum(end - first for first, end, _ in self.parts) == self.total


def rows_of_files(parts: Iterable[FilePart]) -> list[FileRows]:
    """Return the wanted rows by file; the parts are in the order of commits."""
    found: dict[str, FileRows] = {}
    for place, part in enumerate(parts):
        rows = found.setdefault(part.path, FileRows(part.path, part.schema, part.total))
        rows.parts.append((part.first, part.first + part.rows, place))
    return list(found.values())


def joined_ranges(rows: FileRows) -> list[tuple[int, int, int]]:
    """Return the parts of a file in the order of its rows; parts without a gap between them are one."""
    made: list[tuple[int, int, int]] = []
    for first, end, place in sorted(rows.parts):
        if made and made[-1][1] == first:
            made[-1] = (made[-1][0], end, made[-1][2])
        elif end > first:
            made.append((first, end, place))
    return made


def buckets(ranges: Sequence[tuple[int, int, int]], width: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield ranges of rows with the number of each bucket of `width` rows that they reach into: a row is compared with the
    ranges of its own bucket only."""
    for first, end, place in ranges:
        for bucket in range(first // width, (end - 1) // width + 1 if end > first else 0):
            yield bucket, first, end, place


def only_ranges(
    spark: SparkSession, tagged: DataFrame, files: Sequence[FileRows], file_format: str, places: bool
) -> DataFrame:
    """Return those rows of files that are in their ranges, with the place of each.

    tagged: all rows of the files, with the columns FILE and ROW. places: whether the column PLACE matters.
    """
    from pyspark.sql import functions as F

    ranges = {each.name: sorted(each.parts) if places else joined_ranges(each) for each in files}
    rows = sum(end - first for found in ranges.values() for first, end, _ in found)
    width = max(1, rows // max(1, sum(map(len, ranges.values()))))
    table = _table(
        spark,
        {_FILE_THERE: "string", _BUCKET: "bigint", _FIRST: "bigint", _END: "bigint", PLACE: "int"},
        [(name, *each) for name, found in ranges.items() for each in buckets(found, width)],
    )
    indexed = tagged.withColumn(_INDEX, _index(file_format))
    there = (
        (F.col(FILE) == F.col(_FILE_THERE))
        & (F.floor(F.col(_INDEX) / width) == F.col(_BUCKET))
        & (F.col(_INDEX) >= F.col(_FIRST))
        & (F.col(_INDEX) < F.col(_END))
    )
    return indexed.join(F.broadcast(table), there).drop(_INDEX, _FILE_THERE, _BUCKET, _FIRST, _END)


def with_places(spark: SparkSession, tagged: DataFrame, files: Sequence[FileRows]) -> DataFrame:
    """Return rows of plain files with the places of the files in the order of commits."""
    from pyspark.sql import functions as F

    places = [(each.name, place) for each in files for _, _, place in each.parts]
    table = _table(spark, {FILE: "string", PLACE: "int"}, places)
    return tagged.join(F.broadcast(table), FILE, "left")


def _index(file_format: str) -> Column:
    """Return a column with the number of each row in its file."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if file_format == "parquet":
        return F.col(ROW)
    return F.row_number().over(Window.partitionBy(FILE).orderBy(ROW)) - 1


def _table(spark: SparkSession, columns: dict[str, str], rows: Sequence[tuple[object, ...]]) -> DataFrame:
    """Return a small table, which is part of the query itself."""
    from pyspark.sql import functions as F

    text = json.dumps([dict(zip(columns, row)) for row in rows])
    kind = ", ".join(f"{name} {type}" for name, type in columns.items())
    return spark.range(0, 1, 1, 1).select(F.inline(F.from_json(F.lit(text), f"array<struct<{kind}>>")))
