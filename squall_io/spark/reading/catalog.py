"""Registers a table of rows in the catalog of a Spark session, such as a Hive metastore, under a name for SQL.

What is registered is an external table over the folder of data files: any program that knows the metastore can read it, without
Squall and without Delta's jars. It shows what a plain reader of that folder sees: files, not batches.

A table may be registered again: that adds what the catalog does not know yet, new columns and partitions.
Must not know: which files are committed, where the catalog is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from squall.stores.files import Files
from squall_io.spark.manifest.layout import place_in
from squall_io.spark.manifest.tables import ROWS, describe, latest_schema, read_table
from squall_io.spark.rows.schema import Schema
from squall_io.spark.rows.types import Column, quoted, same_name
from topology_api import SquallError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The setting that gives a Spark session a Hive metastore, and the value; without, the catalog ends with the session.
METASTORE: Final = ("spark.sql.catalogImplementation", "hive")
#: Formats whose files every reader of a metastore reads as they were written.
_FORMATS: Final = ("parquet", "orc")
#: A name that is the same in Spark and in a Hive metastore, which ignores case.
_NAME: Final = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)?", re.ASCII)


class CannotRegister(SquallError):
    """A table that cannot be registered under a name."""


@dataclass(frozen=True)
class Registered:
    """A table in a catalog."""

    name: str
    #: The folder that the name shows.
    location: str
    #: Whether the name is new.
    made: bool
    #: Columns that the catalog did not know.
    columns: tuple[str, ...]


@dataclass(frozen=True)
class External:
    """A table as a catalog is to know it."""

    name: str
    #: The folder of the data files.
    location: str
    file_format: str
    partition_by: tuple[str, ...]
    #: Every column may be null: a catalog does not check what is there.
    schema: Schema


def external(files: Files, name: str) -> External:
    """Return how a table is registered under a name; needs no Spark. Raises `CannotRegister`, `NoTable`, and errors of
    `Files`."""
    if _NAME.fullmatch(name) is None:
        raise CannotRegister(
            f"{name!r:.200} cannot be the name of a table in a catalog: write TABLE or DATABASE.TABLE, of letters, digits and _"
        )
    table, newest = read_table(files), latest_schema(files)
    if table.holds != ROWS or table.file_format not in _FORMATS:
        raise CannotRegister(
            f"{files.root} holds {describe(table)}: only batches of parquet or orc can be registered, read it by read_committed"
        )
    if newest is None:
        raise CannotRegister(
            f"{files.root} has no schema yet: its sink is about to start; try again in a moment"
        )
    loose = tuple(replace(column, nullable=True) for column in newest.schema.columns)
    return External(
        name, place_in(files.root, table.data), table.file_format, table.partition_by, Schema(loose)
    )


def register(spark: SparkSession, wanted: External) -> Registered:
    """Register a table, or add to a registered one the columns and partitions that it lacks. Raises `CannotRegister`, and
    Spark's errors."""
    named = ".".join(map(quoted, wanted.name.split(".")))
    new: list[Column] = []
    made = not spark.catalog.tableExists(wanted.name)
    if made:
        columns = ", ".join(map(quoted, wanted.partition_by))
        by = f" PARTITIONED BY ({columns})" if columns else ""
        kind = f"({wanted.schema}) USING {wanted.file_format}{by}"
        spark.sql(f"CREATE TABLE {named} {kind} LOCATION {_text(wanted.location)}")
    else:
        _require_same(spark, named, wanted.location)
        known = {same_name(column) for column in spark.table(named).columns}
        new = [column for column in wanted.schema.columns if same_name(column.name) not in known]
        if new:
            spark.sql(f"ALTER TABLE {named} ADD COLUMNS ({Schema(tuple(new))})")
    if wanted.partition_by:
        spark.sql(f"MSCK REPAIR TABLE {named}")
    spark.sql(f"REFRESH TABLE {named}")
    return Registered(wanted.name, wanted.location, made, tuple(column.name for column in new))


def _require_same(spark: SparkSession, named: str, location: str) -> None:
    """Raise `CannotRegister` unless a name of the catalog shows this folder."""
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {named}").collect()
    there = next((row["data_type"] for row in described if row["col_name"] == "Location"), None)
    if there is None or _place(there) != _place(location):
        what = "a view" if there is None else f"a table at {there}"
        raise CannotRegister(
            f"{named} is already {what}, not at {location}: give another name, or drop it in the catalog first"
        )


def _place(location: str) -> tuple[str, str]:
    """Return scheme and rest of a location, which Spark writes with one slash or three, and with %20 for a blank."""
    scheme, _, rest = location.partition(":")
    return scheme, f"/{unquote(rest).strip('/')}"


def _text(value: str) -> str:
    """Return a text in SQL. No path of a table has a backslash."""
    return "'" + value.replace("'", "\\'") + "'"
