"""The rows of one data file of a table as tuples: the same values in every format.

Parquet, the default, is read without Spark. Of the other formats only Spark reads back exactly what it wrote, so
they need a session.
Must not know: which files count, spouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from squall_io.spark.manifest.entries import DataFile
from squall_io.spark.manifest.envelopes import digest_of
from squall_io.spark.manifest.files import Files, FilesUnavailable
from squall_io.spark.rows.arrow import arrow_schema, plain_rows
from squall_io.spark.rows.formats import FORMATS, NULL_PARTITION, read_options
from squall_io.spark.rows.schema import Schema
from squall_io.spark.rows.types import WHOLE, Column, Simple, quoted, same_name
from squall_io.spark.spouts.splits import UnreadableFile

if TYPE_CHECKING:
    import pyarrow as pa

    from squall_io.spark.session.sessions import SessionLease

#: Rows that become Python values at once.
_AT_ONCE: Final = 4_096


class RowFiles:
    """Reads data files of one table."""

    def __init__(
        self,
        files: Files,
        file_format: str,
        fields: Sequence[str],
        lease: Callable[[], SessionLease],
    ) -> None:
        self._files = files
        self._format = file_format
        self._fields = tuple(fields)
        self._lease = lease

    @property
    def wants_written(self) -> bool:
        """Whether a file must be read with the schema that it was written with, not with the newest."""
        return not FORMATS[self._format].by_name

    def rows(self, file: DataFile, schema: Schema) -> Iterator[tuple[object, ...]]:
        """Yield the rows of a file in order; a column that the file does not have is None. `UnreadableFile`."""
        table = self._parquet(file, schema) if self._format == "parquet" else self._by_spark(file, schema)
        for batch in table.to_batches(max_chunksize=_AT_ONCE):
            yield from plain_rows(batch.columns, batch.num_rows)

    def _columns(self, schema: Schema) -> list[tuple[str, Column | None]]:
        return [(name, schema.column(name)) for name in self._fields]

    def _parquet(self, file: DataFile, schema: Schema) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        data = self._files.read(file.path)
        whole = f"{self._files.root}/{file.path}"
        if digest_of(data) != file.digest:
            raise UnreadableFile(
                f"{whole} is damaged: its {len(data)} bytes are not those that were committed. Read it from a backup"
            )
        partition = partition_of(file.path)
        opened = pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us")
        there = {same_name(name): name for name in opened.schema_arrow.names}
        columns = self._columns(schema)
        in_file = [there[same_name(name)] for name, _ in columns if same_name(name) in there]
        read = opened.read(columns=in_file)
        made = []
        for name, column in columns:
            kind = pa.null() if column is None else arrow_schema(Schema((column,))).field(0).type
            if same_name(name) in there:
                made.append(read.column(there[same_name(name)]).cast(kind))
            else:
                text = partition.get(same_name(name))
                value = None if text is None or column is None else _partition_value(text, column)
                made.append(pa.repeat(pa.scalar(value, kind), opened.metadata.num_rows))
        return pa.table(made, names=[str(place) for place in range(len(made))])

    def _by_spark(self, file: DataFile, schema: Schema) -> pa.Table:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as sql

        from squall_io.spark.session.sessions import is_broken

        lease = self._lease()
        session = lease.session
        path = f"{self._files.root}/{file.path}"
        try:
            reader = (
                session.read.format(self._format).schema(str(schema)).options(**read_options(self._format))
            )
            loaded = reader.option("basePath", self._files.root).load(path)
            columns = [
                (sql.lit(None) if column is None else sql.col(quoted(column.name))).alias(f"c{place}")
                for place, (_, column) in enumerate(self._columns(schema))
            ]
            return loaded.select(*columns).toArrow()
        except Exception as error:
            if is_broken(session):
                lease.renew(session)
                raise FilesUnavailable(f"cannot read {path}: Spark's driver has ended") from None
            if isinstance(error, PySparkException):
                raise UnreadableFile(f"Spark cannot read {path}: {error}") from None
            raise


def partition_of(path: str) -> dict[str, str]:
    """Return the partition values in a data file's path as text, by lower-case column name."""
    folders = (folder.partition("=") for folder in path.split("/")[:-1])
    return {same_name(unquote(name)): unquote(text) for name, equal, text in folders if equal}


def _partition_value(text: str, column: Column) -> object:
    """Return a column's value from the name of a partition's folder."""
    if text in (NULL_PARTITION, ""):
        return None
    kind = column.type
    assert isinstance(kind, Simple)
    if kind.name in WHOLE:
        return int(text)
    return _PARTITION_VALUES[kind.name](text)


_PARTITION_VALUES: Final[Mapping[str, Callable[[str], Any]]] = {
    "boolean": lambda text: text.lower() == "true",
    "string": str,
    "date": date.fromisoformat,
}
