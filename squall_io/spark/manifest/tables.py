"""What a table is: its record, and its schemas, which only grow.

`table.json` is put once, by whoever writes first; the schemas are numbered and put if absent, so that two sinks that start at
the same time with new columns agree on one order of them. Entries name the number of the schema that their rows have.
A table is not made in a folder that has visible files already: who reads the folder would take them for the table's.
Of a table of versions the record says only that it is one: how its rows are written is said by its first version.
Must not know: rows, Spark's sessions, who owns what.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from squall_io.spark.manifest.envelopes import UnreadableRecord, seal, unseal
from squall_io.spark.manifest.files import FileMissing, Files
from squall_io.spark.manifest.layout import SCHEMAS, TABLE, is_hidden, number_of, schema_path
from squall_io.spark.rows.schema import Schema, SchemaError, merge, parse_schema
from topology_api import SquallError

KIND: Final = "table"
SCHEMA_KIND: Final = "schema"
#: What a table holds: batches of a stream, or versions of a result.
ROWS: Final = "rows"
RESULTS: Final = "versions"
#: Files of others that an error names.
_NAMED: Final = 3


class NoTable(SquallError):
    """There is no Squall table at a path."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.root = root

    def __str__(self) -> str:
        return f"there is no Squall table at {self.root}: {self.root}/{TABLE} is missing (a SparkSink makes it when it starts)"


class TableMismatch(SquallError):
    """A table is there already, and is another one than what is to be written."""


class FolderTaken(SquallError):
    """There is no table, and others' files lie where it would be made."""


@dataclass(frozen=True)
class Table:
    """What `table.json` says."""

    holds: str
    file_format: str
    """parquet, orc, json or csv."""
    partition_by: tuple[str, ...]


@dataclass(frozen=True)
class NumberedSchema:
    """A schema of a table, 1 is the first."""

    number: int
    schema: Schema


def read_table(files: Files) -> Table:
    """The table's record; `NoTable`, `UnreadableRecord`."""
    try:
        data = files.read(TABLE)
    except FileMissing:
        raise NoTable(files.root) from None
    fields = unseal(KIND, data, TABLE)
    try:
        return Table(str(fields["holds"]), str(fields["file_format"]), tuple(fields["partition_by"]))
    except (KeyError, TypeError) as error:
        raise UnreadableRecord(TABLE, f"is no record of a Squall table: {error}") from None


def open_table(files: Files, wanted: Table) -> Table:
    """Make the table, or find that it is as wanted; `TableMismatch` names both, `FolderTaken` what is in its place."""
    if not find_table(files, wanted) and not files.put_if_absent(TABLE, _record_of(wanted)):
        find_table(files, wanted)
    return wanted


def correct_table(files: Files, settled: Table) -> None:
    """Have the record of a table of versions say what its first one has settled for good."""
    if read_table(files) != settled:
        files.replace(TABLE, _record_of(settled))


def _record_of(table: Table) -> bytes:
    fields = {
        "holds": table.holds,
        "file_format": table.file_format,
        "partition_by": list(table.partition_by),
    }
    return seal(KIND, fields)


def find_table(files: Files, wanted: Table) -> bool:
    """Whether the table is there, and may be as wanted; False: it may be made. `TableMismatch`, `FolderTaken`."""
    try:
        there = read_table(files)
    except NoTable:
        found = list(islice(_visible_files(files, ""), _NAMED + 1))
        if not found:
            return False
        try:
            there = read_table(files)  # files of ours may be there since, and the record is there before them
        except NoTable:
            more = ", and more" if len(found) > _NAMED else ""
            raise FolderTaken(
                f"{files.root} is no Squall table, and has files already ({', '.join(found[:_NAMED])}{more}), which whoever"
                " reads the folder would take for rows of the table: give another path, or move them away"
            ) from None
    if there != wanted and not there.holds == wanted.holds == RESULTS:
        raise mismatch(files, there, wanted)
    return True


def mismatch(files: Files, there: Table, wanted: Table) -> TableMismatch:
    """The error that names both."""
    return TableMismatch(
        f"{files.root} is a table already, and another one:\n"
        f"  there:  {describe(there)}\n"
        f"  wanted: {describe(wanted)}\n"
        "Give another path, or write what the table has."
    )


def _visible_files(files: Files, folder: str) -> Iterator[str]:
    """The files below a folder that Spark's readers do not pass over. Lists one folder at a time: there may be very many."""
    folders = []
    for status in files.list(folder):
        if is_hidden(status.name):
            continue
        if status.is_folder:
            folders.append(status.path)
        else:
            yield status.path
    for each in folders:
        yield from _visible_files(files, each)


def describe(table: Table) -> str:
    """A table in one line."""
    kind = "batches of a stream" if table.holds == ROWS else "versions of a result"
    by = f"partitioned by {', '.join(table.partition_by)}" if table.partition_by else "not partitioned"
    return f"{kind}, {table.file_format}, {by}"


def read_schema(files: Files, number: int) -> NumberedSchema:
    """A schema by its number."""
    path = schema_path(number)
    fields = unseal(SCHEMA_KIND, files.read(path), path)
    try:
        return NumberedSchema(number, parse_schema(fields["ddl"]))
    except (KeyError, TypeError, SchemaError) as error:
        raise UnreadableRecord(path, f"is no schema of a Squall table: {error}") from None


def latest_schema(files: Files) -> NumberedSchema | None:
    """The newest schema, which has all columns that any has; None: there is none yet."""
    numbers = [number_of(status.name) for status in files.list(SCHEMAS)]
    known = [number for number in numbers if number is not None]
    return read_schema(files, max(known)) if known else None


def agree_on_schema(files: Files, wanted: Schema) -> NumberedSchema:
    """The table's schema with the wanted columns in it, added if need be; `TableMismatch` names both schemas."""
    while True:
        latest = latest_schema(files)
        merged, problems = (wanted, []) if latest is None else merge(latest.schema, wanted)
        if latest is not None and problems:
            lines = "".join(f"\n  - {problem}" for problem in problems)
            raise TableMismatch(
                f"the rows of {files.root} cannot take this schema:{lines}\n"
                f"  the table's: {latest.schema}\n"
                f"  wanted:      {wanted}\n"
                "Columns may be added; another type wants another path."
            )
        if latest is not None and merged == latest.schema:
            return latest
        number = 1 if latest is None else latest.number + 1
        if files.put_if_absent(schema_path(number), seal(SCHEMA_KIND, {"ddl": str(merged)})):
            return NumberedSchema(number, merged)
