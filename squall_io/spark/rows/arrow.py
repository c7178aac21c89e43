"""A schema in Arrow's types, as Spark maps its own to them.

Must not know: rows. (pyarrow is imported where it is used: the rest of the sink can be built and checked without it.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from squall_io.spark.rows.types import Array, Column, Decimal, Map, Struct, Type

if TYPE_CHECKING:
    import pyarrow

    from squall_io.spark.rows.schema import Schema

#: pyarrow's functions that make the types without parameters.
_SIMPLE: Final = {
    "boolean": "bool_",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "string": "string",
    "binary": "binary",
    "date": "date32",
}


def arrow_schema(schema: Schema) -> pyarrow.Schema:
    """Return the schema of Arrow tables that hold rows of this schema."""
    import pyarrow

    return pyarrow.schema([_field(column) for column in schema.columns])


def joined(tables: Sequence[pyarrow.Table]) -> pyarrow.Table:
    """Return tables of one schema as one table with unchunked columns: Spark makes a partition of each chunk."""
    import pyarrow

    return tables[0] if len(tables) == 1 else pyarrow.concat_tables(tables).combine_chunks()


def _field(column: Column) -> pyarrow.Field:
    import pyarrow

    return pyarrow.field(column.name, _type(column.type), nullable=column.nullable)


def _type(kind: Type) -> pyarrow.DataType:
    import pyarrow

    if isinstance(kind, Array):
        return pyarrow.list_(pyarrow.field("element", _type(kind.element)))
    if isinstance(kind, Map):
        return pyarrow.map_(_type(kind.key), _type(kind.value))
    if isinstance(kind, Struct):
        return pyarrow.struct([_field(field) for field in kind.fields])
    if isinstance(kind, Decimal):
        return pyarrow.decimal128(kind.precision, kind.scale)
    if kind.name == "timestamp":
        return pyarrow.timestamp("us", tz="UTC")
    if kind.name == "timestamp_ntz":
        return pyarrow.timestamp("us")
    simple: pyarrow.DataType = getattr(pyarrow, _SIMPLE[kind.name])()
    return simple
