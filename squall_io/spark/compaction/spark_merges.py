"""Puts the rows of small files into one file with Spark, for the formats that only Spark reads as it has written them.

Must not know: manifests, what is merged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from squall.stores.files import Files
from squall_io.spark.compaction.parquet_merges import CannotMerge
from squall_io.spark.manifest.commit import is_data
from squall_io.spark.manifest.entries import Parts
from squall_io.spark.manifest.rewriting import Merge
from squall_io.spark.manifest.tables import TableRecord, read_schema
from squall_io.spark.reading.committed import TableContents, placed_rows
from squall_io.spark.reading.file_rows import PLACE, ROW, FilePart
from squall_io.spark.rows.formats import FORMATS
from squall_io.spark.rows.schema import Schema
from squall_io.spark.rows.types import same_name
from squall_io.spark.sink.writing import TableWriter, WriteAs, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What the names of files have for a compression, as Hadoop writes them.
_COMPRESSIONS: Final = {"gz": "gzip", "bz2": "bzip2"}


class SparkMerges:
    """Merges files of one table in a session of its own."""

    def __init__(self, session: SparkSession, files: Files, table: TableRecord) -> None:
        self._table = table
        self._files = files
        self._given = session
        self._schemas: dict[int, Schema] = {}

    def __call__(self, files: Files, merge: Merge, path: str, sign: Callable[[], None]) -> Parts:
        """Write the rows of a merge to a file at `path`; return whose rows they are. Raises errors of Spark and of `Files`."""
        from pyspark.sql import functions as F

        sign()
        schema = self._schema(merge.schema)
        by_name = FORMATS[self._table.file_format].by_name
        parts = [
            FilePart.of(
                piece.file,
                schema if by_name else self._schema(piece.schema),
                piece.first,
                piece.rows,
            )
            for piece in merge.pieces
        ]
        name = path.rpartition("/")[2]
        write_as = WriteAs(self._table.file_format, (), _compression(name, self._table.file_format))
        writer = TableWriter(self._given, schema, write_as)
        try:
            source = TableContents(files.root, self._table.data, self._table.file_format, schema, ())
            placed = placed_rows(writer.session, source, parts)
            counted = placed.groupBy(PLACE).agg(F.count(F.lit(1)).alias("rows")).collect()
            counts = {row[PLACE]: row["rows"] for row in counted}
            in_folders = set(map(same_name, self._table.partition_by))
            kept = [name for name in schema.names if same_name(name) not in in_folders]
            ordered = placed.repartition(1).sortWithinPartitions(PLACE, ROW)
            folder = f"{path.rpartition('/')[0]}/_{name}"  # hidden: what is in it is not a file of the batch
            save(
                ordered.select(*(ordered[f"`{name.replace('`', '``')}`"] for name in kept)),
                "overwrite",
                write_as,
                f"{files.root}/{folder}",
            )
        finally:
            writer.close()
        written = [status for status in files.walk(folder) if is_data(status, len(folder) + 1)]
        if len(written) != 1:
            raise CannotMerge(f"Spark has left {len(written)} files in {files.root}/{folder} instead of one")
        files.move_if_absent(written[0].path, path)
        files.delete(folder)
        sign()
        return tuple((piece.name, counts.get(place, 0)) for place, piece in enumerate(merge.pieces))

    def _schema(self, number: int) -> Schema:
        if number not in self._schemas:
            self._schemas[number] = read_schema(self._files, number).schema
        return self._schemas[number]


def _compression(name: str, file_format: str) -> str:
    """Return the compression that a file's name shows."""
    endings = set(name.split("."))
    for each in FORMATS[file_format].compressions:
        if each in endings:
            return each
    return next((_COMPRESSIONS[ending] for ending in sorted(endings) if ending in _COMPRESSIONS), "none")
