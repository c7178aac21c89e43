"""The record of a table, and its schemas, which only grow.

`table.json` is put once, by the first writer. Schemas are numbered and put if absent, so two sinks that start at the same time
with new columns agree on their order. Entries name the number of the schema of their rows.
A table is not created in a folder that already has visible files: readers of the folder would take them for rows of the table.
The layout of a table (see `layout`) is that of its record for ever, whatever a sink would give to a new table. The record's
format number is the layout, so a Squall that does not know the layout refuses the table before it touches a file.
The record of a table of versions is not final before the first version, which decides how rows are written.
Must not know: rows, Spark's sessions, who owns what.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from squall.stores.files import AbsentFile, Files
from squall_io.spark.manifest import envelopes
from squall_io.spark.manifest.envelopes import UnreadableRecord, build_type_info, decode, seal
from squall_io.spark.manifest.layout import (
    DATA,
    FIRST_LAYOUT,
    LAYOUT,
    SCHEMAS,
    TABLE,
    data_folder,
    is_hidden,
    number_of,
    numbered,
)
from squall_io.spark.rows.formats import FORMATS
from squall_io.spark.rows.schema import Schema, merge, parse_schema
from squall_io.spark.rows.types import SchemaError
from topology_api import SquallError

KIND: Final = "table"
SCHEMA_KIND: Final = "schema"
#: What a table holds: batches of a stream, or versions of a result.
ROWS: Final = "rows"
RESULTS: Final = "versions"
#: How many foreign files an error names.
_NAMED: Final = 3


class NoTable(SquallError):
    """There is no Squall table at a path."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.root = root

    def __str__(self) -> str:
        above, _, name = self.root.rpartition("/")
        hint = f"; if this is the folder of a table's rows, give {above}" if name == DATA else ""
        return (
            f"there is no Squall table at {self.root}: {self.root}/{TABLE} is missing (a SparkSink makes it when it starts)"
            f"{hint}"
        )


class TableMismatch(SquallError):
    """The existing table differs from the table to be written."""


class FolderTaken(SquallError):
    """There is no table, and other files are in the folder where the table would be created."""


class TableRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The contents of `table.json`."""

    holds: str
    #: parquet, orc, json or csv.
    file_format: str
    partition_by: tuple[str, ...]
    #: Where the files are: see `layout`. Earlier releases wrote no such field.
    layout: int = FIRST_LAYOUT

    @property
    def data(self) -> str:
        """The folder of the data files and their partition directories, relative to the table; "" is the table's own."""
        return data_folder(self.layout)


class _SchemaRecord(msgspec.Struct):
    ddl: str


@dataclass(frozen=True)
class NumberedSchema:
    """A schema of a table; the first has number 1."""

    number: int
    schema: Schema


def read_table(files: Files) -> TableRecord:
    """Return the table's record. Raises `NoTable` or `UnreadableRecord`."""
    try:
        data = files.read(TABLE)
    except AbsentFile:
        raise NoTable(files.root) from None
    number, fields = envelopes.numbered_fields(KIND, data, TABLE, newest=LAYOUT)
    table = envelopes.convert(KIND, TableRecord, fields, TABLE)
    if table.layout != number:
        raise UnreadableRecord(TABLE, f"is damaged: it has format {number} and layout {table.layout}")
    return require_known(table, TABLE)


def new_rows(file_format: str, partition_by: tuple[str, ...]) -> TableRecord:
    """Return the record of a new table of rows."""
    return TableRecord(ROWS, file_format, partition_by, LAYOUT)


def require_known(table: TableRecord, path: str) -> TableRecord:
    """Return the record that was read from `path`. Raises `UnreadableRecord` for a kind or a format that this Squall lacks:
    Spark would look for a program of that name."""
    layouts = (FIRST_LAYOUT, LAYOUT) if table.holds == ROWS else (FIRST_LAYOUT,)
    if table.holds not in (ROWS, RESULTS) or table.file_format not in FORMATS or table.layout not in layouts:
        raise UnreadableRecord(
            path, f"is of a table that this Squall does not know: {describe(table)!r:.200}"
        )
    return table


def open_table(files: Files, wanted: TableRecord) -> TableRecord:
    """Create the table, or check that the existing one is as wanted, in any layout; return its record. Raises
    `TableMismatch`, which names both records, or `FolderTaken`, which names the files in the folder.
    """
    if (existing := find_table(files, wanted)) is not None:
        return existing
    if files.put_if_absent(TABLE, seal(KIND, wanted, wanted.layout)):
        return wanted
    return find_table(files, wanted) or wanted


def correct_table(files: Files, settled: TableRecord) -> None:
    """Update the record of a table of versions to the format that its first version has fixed."""
    if read_table(files) != settled:
        files.replace(TABLE, seal(KIND, settled))


def find_table(files: Files, wanted: TableRecord) -> TableRecord | None:
    """Return the record of the table that exists as wanted; None if it may be created. Raises `TableMismatch` or
    `FolderTaken`."""
    try:
        existing = read_table(files)
    except NoTable:
        if not (visible := list(islice(_visible_files(files, ""), _NAMED + 1))):
            return None
        try:
            # The table may have been created since the first read; its record is put before its other files.
            existing = read_table(files)
        except NoTable:
            more = ", and more" if len(visible) > _NAMED else ""
            raise FolderTaken(
                f"{files.root} is not a Squall table and already has files ({', '.join(visible[:_NAMED])}{more}), which readers"
                " of the folder would take for rows of the table: give another path, or move them away"
            ) from None
    is_same = existing == msgspec.structs.replace(wanted, layout=existing.layout)
    if not is_same and not existing.holds == wanted.holds == RESULTS:
        raise mismatch(files, existing, wanted)
    return existing


def mismatch(files: Files, existing: TableRecord, wanted: TableRecord) -> TableMismatch:
    """Return the error that names both records."""
    return TableMismatch(
        f"{files.root} is already a different table:\n  existing: {describe(existing)}\n  wanted:   {describe(wanted)}\n"
        "Give a different path, or write with the existing settings."
    )


def _visible_files(files: Files, folder: str) -> Iterator[str]:
    """Yield the files below a folder that Spark's readers see. Lists one folder at a time, since there may be very many
    folders.
    """
    statuses = [status for status in files.list(folder) if not is_hidden(status.name)]
    for status in sorted(statuses, key=lambda status: status.is_folder):
        if status.is_folder:
            yield from _visible_files(files, status.path)
        else:
            yield status.path


def describe(table: TableRecord) -> str:
    """Return a table in one line."""
    kind = "batches of a stream" if table.holds == ROWS else "versions of a result"
    by = f"partitioned by {', '.join(table.partition_by)}" if table.partition_by else "not partitioned"
    return f"{kind}, {table.file_format}, {by}"


def read_schema(files: Files, number: int) -> NumberedSchema:
    """Return a schema by its number. Raises `UnreadableRecord`."""
    path = numbered(SCHEMAS, number)
    record = decode(SCHEMA_KIND, _SchemaRecord, files.read(path), path)
    try:
        return NumberedSchema(number, parse_schema(record.ddl))
    except SchemaError as error:
        raise UnreadableRecord(path, f"is not a valid schema of a Squall table: {error}") from None


def latest_schema(files: Files) -> NumberedSchema | None:
    """Return the newest schema, which has the columns of all others; None if there is none yet."""
    newest = max((number_of(status.name) or 0 for status in files.list(SCHEMAS)), default=0)
    return read_schema(files, newest) if newest else None


def agree_on_schema(files: Files, wanted: Schema) -> NumberedSchema:
    """Return the table's schema, to which missing columns of `wanted` are added. Raises `TableMismatch`, which names both
    schemas.
    """
    while True:
        latest = latest_schema(files) or NumberedSchema(0, Schema(()))
        merged, problems = merge(latest.schema, wanted) if latest.number else (wanted, [])
        if problems:
            lines = "".join(f"\n  - {problem}" for problem in problems)
            raise TableMismatch(
                f"the rows of {files.root} cannot take this schema:{lines}\n"
                f"  the table's: {latest.schema}\n"
                f"  wanted:      {wanted}\n"
                "Columns may be added; to change a column's type, write to a different path."
            )
        if merged == latest.schema:
            return latest
        number = latest.number + 1
        if files.put_if_absent(numbered(SCHEMAS, number), seal(SCHEMA_KIND, {"ddl": str(merged)})):
            return NumberedSchema(number, merged)


def oldest_schema_for(files: Files, wanted: Schema, latest: NumberedSchema) -> NumberedSchema:
    """Return the oldest schema of the table that has all columns of `wanted`: the same for all who ask, whatever columns others
    add. `latest`: what `agree_on_schema` has returned for `wanted`. Raises `UnreadableRecord`.
    """
    for number in range(1, latest.number):
        older = read_schema(files, number)
        merged, problems = merge(older.schema, wanted)
        if merged == older.schema and not problems:
            return older
    return latest


build_type_info(TableRecord, _SchemaRecord)
