"""The types that a column of a Spark table may have in Squall, as plain values whose text is Spark's DDL.

Each of these types stays the same on every way into Spark and out of Spark. The parser refuses all other types: intervals,
variants, `char(n)` and so on. Must not know: how the text is parsed (schema.py), values (values.py), file formats (formats.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from topology_api import SquallError

#: Whole numbers, with the least and the greatest value of each.
WHOLE: Final = {
    "tinyint": (-(2**7), 2**7 - 1),
    "smallint": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
}
SIMPLE: Final = frozenset(
    {*WHOLE, "boolean", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz"}
)
MAX_PRECISION: Final = 38

#: Names that need no back quotes. Spark accepts more names without back quotes, but which ones depends on its version.
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\0": "\\0"})


class SchemaError(SquallError):
    """A schema that cannot be used; the text says where and what helps."""


@dataclass(frozen=True)
class Simple:
    """A type without parameters, by its canonical name."""

    name: str

    def __str__(self) -> str:
        # The meaning of plain `timestamp` depends on the session's setting spark.sql.timestampType.
        return "timestamp_ltz" if self.name == "timestamp" else self.name


@dataclass(frozen=True)
class Decimal:
    """Exact numbers of at most `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class Array:
    """Lists; each element may be null, since Spark's DDL cannot say otherwise."""

    element: Type

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class Map:
    """Maps; keys are never null, values may be."""

    key: Type
    value: Type

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


@dataclass(frozen=True)
class Struct:
    """Named values in a fixed order."""

    fields: tuple[Column, ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(f'{quoted(each.name)}: {each.declaration}' for each in self.fields)}>"


Type = Simple | Decimal | Array | Map | Struct


@dataclass(frozen=True)
class Column:
    """A column of a table or a field of a struct. Two columns that differ only in their comments are equal."""

    name: str
    type: Type
    nullable: bool = True
    comment: str | None = field(default=None, compare=False)

    @property
    def declaration(self) -> str:
        """The part of the column's DDL that follows the name."""
        null = "" if self.nullable else " NOT NULL"
        comment = "" if self.comment is None else f" COMMENT '{self.comment.translate(_ESCAPES)}'"
        return f"{self.type}{null}{comment}"

    def __str__(self) -> str:
        return f"{quoted(self.name)} {self.declaration}"


def quoted(name: str) -> str:
    """Return a name in DDL, in back quotes if needed."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def same_name(name: str) -> str:
    """Return the same text for all names that are the same for Spark, which ignores case."""
    return name.lower()
