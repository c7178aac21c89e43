"""FileSink: a bolt that writes tuples to files of a folder, which readers see whole, epoch by epoch.

    builder.set_bolt("write", FileSink("/data/orders", format="jsonl")).shuffle_grouping("orders")
    builder.set_bolt("write", FileSink("s3://bucket/orders", format="jsonl")).shuffle_grouping("orders")

Must not know: how files become visible, how values become lines or columns.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from squall_io.files.staging import StagedFiles
from squall_io.files.store_staging import StagedInStore, is_in_store, store_problems
from squall_io.files.written import ENDS, json_line, text_line
from squall_io.spark.rows.schema import Schema, parse_schema
from squall_io.spark.rows.types import SchemaError
from squall_io.spark.stores.opening import check_table_path
from topology_api import Fields, InvalidConfig, SquallError, StagedSink
from topology_api.wording import listed, typed

if TYPE_CHECKING:
    from squall_io.files.parquet import ParquetRows
    from topology_api import Context, Tuple

#: Digits of an epoch in a name, so that names sort by epoch.
DIGITS: Final = 12
#: The longest name of a file, in bytes, and what a staged file's name has besides the component.
LONGEST, BESIDE = 255, 100


class FileSink(StagedSink):
    """Writes a line or a row for each tuple to files of a folder. No reader sees a file before it is complete.

    With `topology.state.path` each row is there once: each task writes a file for each epoch in which it gets tuples, named
    `<component>-<index>-<lineage>-<epoch>.txt` (or `.jsonl`, `.parquet`). The names of a task sort by epoch. The lineage names
    the state of the topology: one with another state writes files with other names. Without `topology.state.path` there is a
    file for each batch, with a time in place of lineage and epoch, and rows may be there twice.

    Files are written in `.staging` of the folder, synced to the disk, and renamed after the commit. If the topology's workers
    are on several hosts, the folder must be one that all of them share, or one of a store. `.staging` may keep files of killed
    workers; a task removes its own with a later commit.

    On HDFS and S3 a file is put into `.staging`, and moved after the commit: by a rename, or by a copy that S3 makes only if
    there is no such object. A server of S3 must honour such conditions, and is refused otherwise. While the store is away, the
    sink waits.

    folder: where the files are, from the root, `hdfs://HOST:PORT/folder` or `s3://BUCKET/folder`; it is made if it is missing.
    format: "lines" writes a text as a line, "jsonl" an object with the fields of the tuple, both in UTF-8. "parquet" writes
        columns, for pyarrow, pandas, DuckDB or Spark; it needs the extra `squall[parquet]`.
    fields: which fields are written; None: all. "lines" takes one. A tuple whose value cannot be written, such as a text with
        line breaks ("lines"), a value that JSON does not have ("jsonl") or one that does not fit its column ("parquet"), fails
        with a reason that names field and value.
    schema: for "parquet", the columns: Spark's DDL text, `"word string, count bigint NOT NULL"`, as of a `SparkSink`. Its names
        are fields of the tuples.
    conf: for a folder of a store: `squall.webhdfs.address`, with which HDFS is reached without Java, `squall.s3.endpoint`, and
        Hadoop's settings, under names that begin with `spark.hadoop.`.
    """

    _place: str | None = None
    _columns: ParquetRows | None = None
    _files: StagedFiles | StagedInStore

    def __init__(
        self,
        folder: str | os.PathLike[str],
        format: str = "lines",
        *,
        fields: Sequence[str] | None = None,
        schema: str | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        names = (fields,) if isinstance(fields, str) else None if fields is None else tuple(fields)
        problems: list[str] = []
        path = os.fspath(folder) if isinstance(folder, (str, os.PathLike)) else None
        if not isinstance(path, str):
            problems.append(f"folder is {typed(folder)}: give text, or a pathlib.Path")
        elif is_in_store(path):
            problems += store_problems(path, {} if conf is None else conf)
        elif conf is not None:
            problems.append(f"conf is {typed(conf)}: it is for a folder of a store, hdfs:// or s3://")
        elif not path.startswith("/") or not path.isprintable():
            problems.append(
                f"folder is {path!r}: write it from the root, with characters that can be printed: '/...', or name a"
                " store: 'hdfs://HOST:PORT/...', 's3://BUCKET/...'"
            )
        if format not in ENDS:
            problems.append(f"format is {typed(format)}: give one of {listed(ENDS)}")
        if names is not None and not (names and all(isinstance(name, str) for name in names)):
            problems.append(f"fields is {typed(fields)}: give names of fields, or None for all")
        elif names is not None and format == "lines" and len(names) != 1:
            problems.append(f"fields is {typed(fields)}: format 'lines' writes one field")
        columns = None
        try:
            columns = columns_of(format, schema, fields)
        except SchemaError as error:
            problems.append(str(error))
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.in_store = is_in_store(str(path))
        self.folder = check_table_path(str(path)) if self.in_store else os.path.normpath(str(path))
        self.conf = dict(conf or {})
        self.format = format
        self.fields = names if columns is None else columns.names
        self.schema = columns

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Yield each input that lacks a field, or has several where one is written."""
        for (component, stream), fields in inputs.items():
            where = f"stream {stream!r} of component {component!r}"
            for name in self.fields or ():
                if name not in fields:
                    yield f"{where} has no field {name!r} to write; it has: {listed(fields)}"
            if self.fields is None and self.format == "lines" and len(fields) != 1:
                yield f"format 'lines' writes one field, and {where} has {len(fields)}: give fields=, or format='jsonl'"

    def prepare(self, context: Context) -> None:
        """Make the folder. Raises SquallError if it cannot be made."""
        self._log = context.log
        if self.in_store:
            self._files = StagedInStore(self.folder, self.conf, context)
        else:
            self._files = StagedFiles(self.folder)
        self._place = self._files.place(context.component, context.index)
        self._columns = None if self.schema is None else parquet_rows(self.schema)
        if len(self._place.encode()) > LONGEST - BESIDE:
            raise SquallError(
                f"the id {context.component!r} is too long for names of files: give the sink an id of at most 140 bytes"
            )
        self._files.make_folders()

    def row(self, tup: Tuple) -> Any:
        """Return the line of a tuple, or its values. Raises FailTuple for a value that cannot be written."""
        if self._columns is not None:
            return self._columns.row(tup)
        fields = self.fields or tup.fields
        return text_line(tup, fields[0]) if self.format == "lines" else json_line(tup, fields)

    def stage(self, epoch: int | None, rows: list[Any]) -> dict[str, str]:
        """Write the rows to a file in `.staging`; return its name, and the one that it will have."""
        if epoch is None:
            name = f"{self._place}-{time.time_ns():020}-{uuid.uuid4().hex[:8]}"
        else:
            name = f"{self._place}-{self.lineage}-{epoch:0{DIGITS}}"
        name += ENDS[self.format]
        data = b"".join(row + b"\n" for row in rows) if self._columns is None else self._columns.file(rows)
        return {"staged": self._files.write(name, data), "name": name}

    def commit(self, epoch: int | None, handle: Any) -> None:
        """Give a file its name, then remove what earlier attempts of the task have left."""
        self._files.show(handle["staged"], handle["name"])
        if epoch is not None:
            try:
                self._sweep(epoch)
            except SquallError as error:
                self._log.warning("cannot tidy up: %s", error)

    def abort(self, epoch: int | None, handle: Any) -> None:
        """Remove a file from `.staging`."""
        self._files.remove(handle["staged"])

    def cleanup(self) -> None:
        """Close the connections to a store."""
        if self._place is not None:
            self._files.close()

    def _sweep(self, epoch: int) -> None:
        """Remove what is staged up to an epoch that is visible: by attempts that were not committed."""
        own = f"{self._place}-{self.lineage}-"

        def is_old(name: str) -> bool:
            number = name.removeprefix(own)[:DIGITS]
            return name.startswith(own) and number.isdecimal() and int(number) <= epoch

        self._files.remove_old(is_old)


def columns_of(format: str, schema: object, fields: object) -> Schema | None:
    """Return the columns of a "parquet" sink; None for any other. Raises SchemaError, also if arguments do not go together."""
    if format != "parquet":
        if schema is not None:
            raise SchemaError(
                f"schema is {typed(schema)}: it is for format 'parquet', and the format is {format!r}"
            )
        return None
    if schema is None:
        raise SchemaError("format 'parquet' needs schema=, the columns: schema=\"word string, count bigint\"")
    if fields is not None:
        raise SchemaError(
            f"fields is {typed(fields)}: with format 'parquet' the names in schema say what is written"
        )
    return parse_schema(schema)


def parquet_rows(schema: Schema) -> ParquetRows:
    """Return what makes parquet files. Raises SquallError if pyarrow is not installed."""
    from squall_io.files.parquet import ParquetRows

    return ParquetRows(schema)
