"""A table's schema as a Delta log has it: the JSON of Spark's types, and what a reader must be able to do.

Every column may be null there, also one that is NOT NULL in Squall: Spark writes all columns of a file as nullable, and some
readers refuse a file whose column may be null where the table's may not.
Must not know: files, rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from squall_io.spark.rows.schema import Schema
from squall_io.spark.rows.types import Array, Column, Decimal, Map, Simple, Struct, Type

#: Delta's names of types, where they are not those of Spark's DDL.
_NAMES: Final = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
#: Characters that Delta does not allow in the name of a column, unless columns are mapped.
_REFUSED: Final = re.compile(r"[ ,;{}()\n\t=]")
NTZ: Final = "timestamp_ntz"


def schema_string(schema: Schema) -> str:
    """Return the `schemaString` of a schema."""
    return json.dumps(_struct(schema.columns), separators=(",", ":"))


def needs_ntz(schema: Schema) -> bool:
    """Return whether a reader must know Delta's feature `timestampNtz`."""
    return any(kind == Simple(NTZ) for column in schema.columns for kind in _types(column.type))


def refused_names(schema: Schema) -> list[str]:
    """Return the names of columns, and of fields in them, that no Delta log can hold."""
    return [name for name in _column_names(schema.columns) if _REFUSED.search(name)]


def _struct(columns: tuple[Column, ...]) -> dict[str, Any]:
    return {"type": "struct", "fields": [_field(column) for column in columns]}


def _field(column: Column) -> dict[str, Any]:
    metadata = {} if column.comment is None else {"comment": column.comment}
    return {"name": column.name, "type": _type(column.type), "nullable": True, "metadata": metadata}


def _type(kind: Type) -> Any:
    if isinstance(kind, Simple):
        return _NAMES.get(kind.name, kind.name)
    if isinstance(kind, Decimal):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, Array):
        return {"type": "array", "elementType": _type(kind.element), "containsNull": True}
    if isinstance(kind, Map):
        key, value = _type(kind.key), _type(kind.value)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return _struct(kind.fields)


def _types(kind: Type) -> Iterator[Type]:
    """Yield a type and all types in it."""
    yield kind
    for inner in _inner(kind):
        yield from _types(inner)


def _inner(kind: Type) -> tuple[Type, ...]:
    if isinstance(kind, Array):
        return (kind.element,)
    if isinstance(kind, Map):
        return kind.key, kind.value
    return tuple(column.type for column in kind.fields) if isinstance(kind, Struct) else ()


def _column_names(columns: tuple[Column, ...]) -> Iterator[str]:
    for column in columns:
        yield column.name
        for kind in _types(column.type):
            if isinstance(kind, Struct):
                yield from (inner.name for inner in kind.fields)
