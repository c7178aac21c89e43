"""Rows and schemas in Arrow: the Arrow schema that Spark uses for a schema, and plain Python values from Arrow's columns.

Must not know: where the columns come from. (pyarrow is imported only where it is used, so the rest of the sink can be built and
checked without it.)
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import repeat
from operator import sub
from typing import TYPE_CHECKING, Any, Final

from squall_io.spark.rows.fits import Nested
from squall_io.spark.rows.types import Array, Column, Decimal, Map, Struct, Type

if TYPE_CHECKING:
    import pyarrow

    from squall_io.spark.rows.schema import Schema

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: Arrow's names of types without parameters, where they differ from Spark's.
_NAMES: Final = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "date": "date32",
    "timestamp_ntz": "timestamp[us]",
}


def arrow_schema(schema: Schema) -> pyarrow.Schema:
    """Return the schema of Arrow tables that hold rows of this schema."""
    import pyarrow

    return pyarrow.schema(map(_field, schema.columns))


def array_of(values: Sequence[Any], kind: pyarrow.DataType) -> pyarrow.Array:
    """Return values, all of which fit, as an Arrow array."""
    import pyarrow

    if isinstance(values, Nested):
        return _nested(values, kind)
    if isinstance(values, array):
        return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])
    if kind == pyarrow.timestamp("us", tz="UTC"):
        # Arrow calls Python for the offset of each value's zone, which takes 190 ns per value; the code below takes 50 ns.
        # (Python needs no offset for the difference of two times in one zone.)
        try:
            since = list(map(sub, values, repeat(_EPOCH)))
        except TypeError:  # there is a None among the values
            since = [None if value is None else value - _EPOCH for value in values]
        return pyarrow.array(since, pyarrow.duration("us")).view(kind)
    return pyarrow.array(values, kind)


def _nested(values: Nested, kind: pyarrow.DataType) -> pyarrow.Array:
    """Return lists, maps or structs as an Arrow array. Arrow's own conversion looks at each value, and takes several times as
    long."""
    import pyarrow

    present = None
    if values.present is not None:
        present = pyarrow.array(values.present, pyarrow.bool_()).buffers()[1]
    if values.offsets is None:
        fields = [array_of(each, kind.field(place).type) for place, each in enumerate(values.inside)]
        return pyarrow.StructArray.from_buffers(kind, len(values), [present], children=fields)
    if isinstance(kind, pyarrow.MapType):
        keys, items = values.inside
        children = [array_of(keys, kind.key_type), array_of(items, kind.item_type)]
        entries = pyarrow.struct([kind.key_field, kind.item_field])
        inside = pyarrow.StructArray.from_buffers(entries, len(children[0]), [None], children=children)
    else:
        inside = array_of(values.inside[0], kind.value_type)
    buffers = [present, pyarrow.py_buffer(values.offsets)]
    return pyarrow.Array.from_buffers(kind, len(values), buffers, children=[inside])


def joined(tables: Sequence[pyarrow.Table]) -> pyarrow.Table:
    """Join tables of one schema into one table with unchunked columns, since Spark makes a partition of each chunk."""
    import pyarrow

    return tables[0] if len(tables) == 1 else pyarrow.concat_tables(tables).combine_chunks()


def plain_rows(
    columns: Sequence[pyarrow.Array | pyarrow.ChunkedArray], rows: int
) -> Iterator[tuple[Any, ...]]:
    """Return rows of plain Python values. Each column has `rows` values; without columns the rows are empty."""
    return zip(*map(plain_values, columns)) if columns else repeat((), rows)


def plain_values(column: pyarrow.Array | pyarrow.ChunkedArray) -> list[Any]:
    """Return the values of a column. A struct or a map becomes a dict, a timestamp an aware datetime in UTC."""
    import pyarrow

    if pyarrow.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pyarrow.timestamp("us", "UTC"))
    # Measured for texts: with this argument Arrow makes an object of its own for each value, and takes nine times as long.
    nested = {"maps_as_pydicts": "strict"} if pyarrow.types.is_nested(column.type) else {}
    values: list[Any] = column.to_pylist(**nested)
    return values


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
        return pyarrow.struct(map(_field, kind.fields))
    if isinstance(kind, Decimal):
        return pyarrow.decimal128(kind.precision, kind.scale)
    if kind.name == "timestamp":
        return pyarrow.timestamp("us", tz="UTC")
    return pyarrow.type_for_alias(_NAMES.get(kind.name, kind.name))
