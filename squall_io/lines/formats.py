"""What a line of a file can be: text, or an object of JSON; and which fields its tuple has.

Must not know: file systems, spouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from squall_io.lines.cutting import Line
from squall_io.lines.json_lines import JsonReader, json_problems
from squall_io.lines.texts import TextReader, text_problems
from squall_io.spark.rows.schema import parse_schema
from topology_api.wording import listed, typed

FORMATS: Final = ("lines", "jsonl")


class LineReader(Protocol):
    """Makes the values of tuples from lines."""

    def values(self, line: Line, path: str) -> tuple[object, ...] | str:
        """Return the values of a line's tuple, or why the line is left out."""


class LinesAs(Protocol):
    """The arguments of a spout that say what its lines are."""

    format: str
    schema: str | None
    fields: tuple[str, ...]
    encoding: str
    errors: str


def reader_of(spout: LinesAs) -> LineReader:
    """Return what makes the values of a spout's tuples."""
    if spout.schema is not None:
        return JsonReader(parse_schema(spout.schema))
    return TextReader(spout.fields, spout.encoding, spout.errors)


def line_problems(
    format: object, schema: object, fields: tuple[object, ...], encoding: object, errors: object
) -> Iterator[str]:
    """Yield what is wrong with these arguments of a spout."""
    if format == "jsonl":
        yield from json_problems(schema, fields, encoding, errors)
        return
    yield from text_problems(fields, encoding, errors)
    if format not in FORMATS:
        yield f"format is {typed(format)}: give one of {listed(FORMATS)}"
    elif schema is not None:
        yield f"schema is {typed(schema)}: it is for format 'jsonl'; leave it out, or give format='jsonl'"


def fields_of(schema: str) -> tuple[str, ...]:
    """Return the fields of the tuples of a spout with this schema."""
    return parse_schema(schema).names
