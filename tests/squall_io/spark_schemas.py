"""Schemas for tests: Hypothesis makes any schema that Squall accepts, with Spark's names for its types."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from squall_io.spark.rows.schema import Schema
from squall_io.spark.rows.types import (
    SIMPLE,
    WHOLE,
    Array,
    Column,
    Decimal,
    Map,
    Simple,
    Struct,
    Type,
    same_name,
)

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_NAMES = st.one_of(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
    st.sampled_from(
        ["select", "not", "array", "comment", "1a", "a b", "a`b", "é", "a.b", "a,b", "''", "`", "\\"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8),
)
_SIMPLE = st.sampled_from(sorted(SIMPLE)).map(Simple)
_DECIMALS = st.integers(1, 38).flatmap(
    lambda precision: st.integers(0, precision).map(lambda scale: Decimal(precision, scale))
)
_KEYS = st.one_of(
    st.sampled_from(sorted({*WHOLE, "string", "binary", "date", "boolean"})).map(Simple), _DECIMALS
)


def _columns(types: st.SearchStrategy[Type], most: int) -> st.SearchStrategy[tuple[Column, ...]]:
    column = st.builds(Column, _NAMES, types, st.booleans(), st.none() | _TEXT)
    unique = st.lists(column, min_size=1, max_size=most, unique_by=lambda each: same_name(each.name))
    return unique.map(tuple)


TYPES: st.SearchStrategy[Type] = st.recursive(
    st.one_of(_SIMPLE, _DECIMALS),
    lambda types: st.one_of(types.map(Array), st.builds(Map, _KEYS, types), _columns(types, 3).map(Struct)),
    max_leaves=5,
)
SCHEMAS: st.SearchStrategy[Schema] = _columns(TYPES, 5).map(Schema)

_SPARK_NAMES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}


def as_spark(schema: Schema) -> dict[str, Any]:
    """Spark's own schema as JSON."""
    return {"type": "struct", "fields": [_column(column) for column in schema.columns]}


def _column(column: Column) -> dict[str, Any]:
    metadata = {} if column.comment is None else {"comment": column.comment}
    return {
        "name": column.name,
        "type": _type(column.type),
        "nullable": column.nullable,
        "metadata": metadata,
    }


def _type(kind: Type) -> Any:
    if isinstance(kind, Array):
        return {"type": "array", "elementType": _type(kind.element), "containsNull": True}
    if isinstance(kind, Map):
        types = {"keyType": _type(kind.key), "valueType": _type(kind.value)}
        return {"type": "map", **types, "valueContainsNull": True}
    if isinstance(kind, Struct):
        return as_spark(Schema(kind.fields))
    if isinstance(kind, Decimal):
        return str(kind)
    return _SPARK_NAMES.get(kind.name, kind.name)
