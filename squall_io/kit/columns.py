"""The columns of a schema in the place of the field `value` of a tuple: for sources whose messages are objects.

Must not know: messages.
"""

from __future__ import annotations

from collections.abc import Iterator

from squall_io.kit.message_fields import VALUE
from squall_io.lines.json_lines import json_problems
from squall_io.spark.rows.schema import parse_schema
from topology_api.names import field_problem
from topology_api.wording import shown


def column_problems(fields: tuple[object, ...], schema: object) -> Iterator[str]:
    """Yield what is wrong with a schema whose columns stand in place of `value`. fields: those of a tuple."""
    if VALUE not in fields:
        yield f"schema is given, and fields are {shown(fields)}: the columns of the schema stand in place of 'value'; add it"
    elif problems := list(json_problems(schema, ("line",), "utf-8", "strict")):
        yield from problems
    else:
        names = names_of(tuple(map(str, fields)), str(schema))
        yield from (f"a field {why}" for name in names if (why := field_problem(name)) is not None)
        if len(set(names)) < len(names):
            yield f"the fields of a tuple are {shown(names)}: a column of the schema is named like another field; rename it"


def names_of(fields: tuple[str, ...], schema: str | None) -> tuple[str, ...]:
    """Return the names of a tuple's fields."""
    if schema is None:
        return fields
    columns = parse_schema(schema).names
    return tuple(name for field in fields for name in (columns if field == VALUE else (field,)))
