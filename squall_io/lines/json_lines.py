"""How a line of JSON becomes the values of a tuple: an object whose members are the columns of a schema.

A value has the type of its column when it leaves the reader, so the sink of a table with the same schema takes it unchanged.
JSON has no times, dates and bytes: they are text as Spark's own JSON has it (ISO 8601, base64).
Must not know: file systems, spouts.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal as Number
from types import new_class
from typing import Annotated, Any, Final, Optional, TypedDict

import msgspec
from msgspec.structs import astuple

from squall_io.lines.cutting import LONGEST, Line
from squall_io.spark.rows.formats import format_problems
from squall_io.spark.rows.schema import Schema, parse_schema
from squall_io.spark.rows.types import WHOLE, Array, Column, Decimal, Map, SchemaError, Struct, Type
from topology_api.names import field_problem
from topology_api.wording import shown

_SIMPLE: Final[dict[str, Any]] = {
    **{name: Annotated[int, msgspec.Meta(ge=least, le=most)] for name, (least, most) in WHOLE.items()},
    "boolean": bool,
    "float": float,
    "double": float,
    "string": str,
    "binary": bytes,
    "date": date,
    "timestamp": Annotated[datetime, msgspec.Meta(tz=True)],
    "timestamp_ntz": Annotated[datetime, msgspec.Meta(tz=False)],
}


class JsonReader:
    """Makes the values of tuples from lines of JSON."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._decode = msgspec.json.Decoder(row_type(schema)).decode

    def values(self, line: Line, path: str) -> tuple[object, ...] | str:
        """Return the values of a line's tuple, or why the line is left out."""
        place, _, data = line
        if data is None:
            return f"it has more than {LONGEST} bytes"
        try:
            return astuple(self._decode(data if place else data.removeprefix(codecs.BOM_UTF8)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return f"it is no JSON object of {str(self._schema)!r}: {error}"


def row_type(schema: Schema) -> Any:
    """Return a class whose objects have the columns of a schema, in order, under the columns' names outside of Python."""
    # Names of columns need not be names of Python.
    names = {f"f{place}": column.name for place, column in enumerate(schema.columns)}
    fields = [
        (own, _nullable(column), None) if column.nullable else (own, _type(column.type))
        for own, column in zip(names, schema.columns)
    ]
    # A collector has nothing to do with an object that lives as long as a call.
    return msgspec.defstruct("Line", fields, rename=names, kw_only=True, gc=False)


def _nullable(column: Column) -> Any:
    kind = _type(column.type)
    return Optional[kind] if column.nullable else kind  # noqa: UP045


def _type(kind: Type) -> Any:
    """Return the type that a value is decoded to."""
    if isinstance(kind, Array):
        return list[_nullable(Column("element", kind.element))]  # type: ignore[misc]
    if isinstance(kind, Map):
        return dict[str, _nullable(Column("value", kind.value))]  # type: ignore[misc]
    if isinstance(kind, Struct):
        return _dict_of(kind)
    return Number if isinstance(kind, Decimal) else _SIMPLE[kind.name]


def _dict_of(kind: Struct) -> Any:
    """Return the type of a dict with the fields of a struct, of which those that may be null may be missing."""
    needed = TypedDict("Fields", {each.name: _type(each.type) for each in kind.fields if not each.nullable})  # type: ignore[misc]
    others = {each.name: _nullable(each) for each in kind.fields if each.nullable}
    return new_class(
        "Fields", (needed,), {"total": False}, lambda space: space.update(__annotations__=others)
    )


def json_problems(
    schema: object, fields: tuple[object, ...], encoding: object, errors: object
) -> Iterator[str]:
    """Yield what is wrong with these arguments of a spout with format "jsonl"."""
    if schema is None:
        yield "format is 'jsonl', and schema is missing: give the members to read as Spark's DDL, 'word string, count bigint'"
    else:
        try:
            columns = parse_schema(schema)
            yield from format_problems(columns, "json")
            yield from (
                f"a column {why}" for name in columns.names if (why := field_problem(name)) is not None
            )
        except SchemaError as error:
            yield str(error)
    if fields != ("line",):
        yield f"fields are {shown(fields)}: with format 'jsonl' a tuple has the columns of the schema; leave fields out"
    if (encoding, errors) != ("utf-8", "strict"):
        yield "encoding or errors is given: with format 'jsonl' lines are UTF-8, as JSON has it; leave both out"
