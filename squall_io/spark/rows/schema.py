"""The schema of a table's rows: parsed from Spark's DDL text, compared, and merged as it grows.

Columns may be added; nothing else about a table changes, so that every row ever written can be read with the latest
schema. Must not know: PySpark, rows, files.
"""

from __future__ import annotations

from dataclasses import dataclass

from squall_io.spark.rows.ddl import parse_columns
from squall_io.spark.rows.types import (
    Column,
    same_name,
)


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in order. Its text is DDL that Spark parses to the same."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column | None:
        """Return the column of this name, ignoring case as Spark does."""
        wanted = same_name(name)
        return next((column for column in self.columns if same_name(column.name) == wanted), None)

    def __str__(self) -> str:
        return ", ".join(map(str, self.columns))


def parse_schema(ddl: str) -> Schema:
    """Return the schema that Spark's DDL text declares, `"word string, count bigint"`; `SchemaError`."""
    return Schema(parse_columns(ddl))


def merge(old: Schema, new: Schema) -> tuple[Schema, list[str]]:
    """Return the old schema with the new one's columns added, and the obstacles; with obstacles, the old one unchanged.

    Columns keep the old order and spelling, new ones follow. A column may become nullable; it may not become
    NOT NULL, since rows with nulls may exist.
    """
    problems: list[str] = []
    columns = [_merged(column, new.column(column.name), problems) for column in old.columns]
    for column in new.columns:
        if old.column(column.name) is None:
            columns.append(column)
            if not column.nullable:
                problems.append(
                    f"column {column.name!r} is new and NOT NULL, but the rows that are there have no value for it"
                )
    return (old, problems) if problems else (Schema(tuple(columns)), [])


def _merged(old: Column, new: Column | None, problems: list[str]) -> Column:
    if new is None:
        if not old.nullable:
            problems.append(f"column {old.name!r} is NOT NULL and is missing in the wanted schema")
        return old
    if old.type != new.type:
        problems.append(f"column {old.name!r} is {old.type}, and {new.type} is wanted")
    elif old.nullable and not new.nullable:
        problems.append(f"column {old.name!r} may hold nulls, and NOT NULL is wanted")
    return Column(old.name, old.type, old.nullable or new.nullable, old.comment)
