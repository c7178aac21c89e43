"""Puts the rows of small Parquet files into one file, without Spark: the same rows in the same order, with the same values.

Types, metadata and compression are those of the newest of the files, as its writer chose them; so Spark reads the new file as
it read the others. Columns that were added later are null in the rows of older files.
Must not know: manifests, what is merged.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from squall.stores.files import Files
from squall_io.spark.manifest.entries import DataFile, Parts
from squall_io.spark.manifest.envelopes import digest_of
from squall_io.spark.manifest.rewriting import Merge, RowPiece
from topology_api import SquallError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: The size of a row group in memory. A reader of one batch decodes whole groups.
GROUP: Final = 32 << 20
#: Where PyArrow keeps its own form of a schema; Spark has none, and would not change it.
_ARROW: Final = b"ARROW:schema"


class CannotMerge(SquallError):
    """Files whose rows cannot be put into one file."""


def merge_parquet(files: Files, merge: Merge, path: str, sign: Callable[[], None]) -> Parts:
    """Write the rows of a merge to a file at `path`; return whose rows they are.

    sign: called now and then. In memory are at most a few of the files to be read, and a row group; the new file is a temporary
    one on disk until it is complete. Raises `CannotMerge` for a damaged file, and errors of `Files`.
    """
    import pyarrow.parquet as pq

    sources = _Sources(files, merge)
    newest = sources.open(max(merge.pieces, key=lambda piece: piece.schema).file)
    schema = _schema_of(newest)
    codec = newest.metadata.row_group(0).column(0).compression if newest.num_row_groups else "SNAPPY"
    parts: list[tuple[str, int]] = []
    with tempfile.TemporaryFile() as out:
        with pq.ParquetWriter(
            out,
            schema,
            compression={"UNCOMPRESSED": "none", "LZ4_RAW": "lz4"}.get(codec, codec.lower()),
            store_schema=False,
            store_decimal_as_integer=True,
        ) as writer:
            waiting: list[pa.Table] = []
            for piece in merge.pieces:
                sign()
                rows = 0
                for table in sources.rows(piece, schema):
                    rows += table.num_rows
                    waiting.append(table)
                    if sum(each.nbytes for each in waiting) >= GROUP:
                        _write(writer, waiting)
                parts.append((piece.name, rows))
            _write(writer, waiting)
        files.upload(path, out)
    sign()
    return tuple(parts)


def _write(writer: pq.ParquetWriter, waiting: list[pa.Table]) -> None:
    """Write tables as one row group, and forget them."""
    import pyarrow as pa

    if rows := sum(table.num_rows for table in waiting):
        writer.write_table(pa.concat_tables(waiting), row_group_size=rows)
    waiting.clear()


class _Sources:
    """The files of a merge, each kept in memory until its last rows were read."""

    def __init__(self, files: Files, merge: Merge) -> None:
        self._files = files
        self._left = Counter(piece.file.path for piece in merge.pieces)
        self._open: dict[str, pq.ParquetFile] = {}

    def open(self, file: DataFile) -> pq.ParquetFile:
        """Read a file, and compare it with its digest: a damaged file must not get a new digest."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if file.path not in self._open:
            data = self._files.read(file.path)
            if digest_of(data) != file.digest:
                raise CannotMerge(
                    f"{self._files.root}/{file.path} is damaged: its {len(data)} bytes are not those that were committed."
                    " Nothing was changed; put the file back from a backup"
                )
            source = pa.BufferReader(data)
            self._open[file.path] = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        return self._open[file.path]

    def rows(self, piece: RowPiece, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of a piece, with the columns of the new file."""
        opened = self.open(piece.file)
        for group, first, rows in groups_of(opened.metadata, piece.first, piece.rows):
            table = opened.read_row_group(group)
            if rows < table.num_rows:
                table = table.slice(first, rows)
            yield _conformed(table, schema, piece.file.path)
        self._left[piece.file.path] -= 1
        if not self._left[piece.file.path]:
            del self._open[piece.file.path]


def groups_of(metadata: pq.FileMetaData, first: int, rows: int | None) -> Iterator[tuple[int, int, int]]:
    """Yield the row groups that have wanted rows of a file: the number of each, the place in it of its first wanted row, and
    how many of its rows are wanted."""
    end = metadata.num_rows if rows is None else first + rows
    begin = 0
    for group in range(metadata.num_row_groups):
        size = metadata.row_group(group).num_rows
        low, high = max(first, begin), min(end, begin + size)
        if low < high:
            yield group, low - begin, high - low
        begin += size


def _schema_of(newest: pq.ParquetFile) -> pa.Schema:
    """Return the schema of the new file. Each column may be null, as it is in what Spark writes."""
    import pyarrow as pa

    kept = {key: value for key, value in (newest.metadata.metadata or {}).items() if key != _ARROW}
    fields = [field.remove_metadata().with_nullable(True) for field in newest.schema_arrow]
    return pa.schema(fields, metadata=kept)


def _conformed(table: pa.Table, schema: pa.Schema, path: str) -> pa.Table:
    """Return rows with exactly these columns."""
    import pyarrow as pa

    if unknown := [name for name in table.column_names if schema.get_field_index(name) < 0]:
        raise CannotMerge(f"{path} has a column {unknown[0]!r}, which a file with a newer schema lacks")
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table.column(field.name)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except pa.ArrowException as error:
                raise CannotMerge(f"column {field.name!r} of {path} is {column.type}: {error}") from None
        columns.append(column)
    return pa.table(columns, schema=schema)
