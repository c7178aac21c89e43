"""How an entry of a stream becomes the values of a tuple.

Must not know: connections, positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import astuple

from squall_io.kit.codecs import Decode, MessageCodec, UnreadableMessage, decoder, format_problem
from squall_io.kit.columns import column_problems
from squall_io.lines.json_lines import JsonReader, row_type
from squall_io.spark.rows.schema import Schema, parse_schema
from squall_io.spark.rows.types import Array, Map, Struct
from topology_api.wording import listed, shown, typed

#: What a tuple can have of an entry.
FIELDS: Final = ("value", "id", "stream")
#: The fields of the stream of entries that cannot be read.
UNREADABLE_FIELDS: Final = ("stream", "id", "entry", "error")


class StreamEntry(NamedTuple):
    """An entry. pairs: its fields and their values, in order."""

    stream: str
    id: str
    pairs: list[tuple[bytes, bytes]]


#: Makes the values of a tuple. Raises UnreadableMessage.
MakeValues = Callable[[StreamEntry], tuple[object, ...]]


def entry_problems(
    fields: tuple[object, ...], field: object, decode: object, schema: object
) -> Iterator[str]:
    """Yield what is wrong with these arguments of a spout."""
    if not fields or [name for name in fields if name not in FIELDS] or len(set(fields)) < len(fields):
        yield f"fields are {shown(fields)}: give some of {listed(FIELDS)}, each once"
        return
    if field is not None and (not isinstance(field, str) or not field):
        yield f"field is {typed(field)}: give the name of a field of entries, or None for all"
    if (problem := format_problem("decode", decode)) is not None:
        yield problem
    if schema is None:
        return
    wanted = "str" if field is None else "json"
    if decode != wanted:
        kind = "entries" if field is None else "one field"
        yield f"schema is given, and decode is {typed(decode)}: a schema of {kind} is for decode={wanted!r}"
    else:
        yield from column_problems(fields, schema)


def values_maker(
    fields: tuple[str, ...], field: str | None, decode: str | Decode | MessageCodec, schema: str | None
) -> MakeValues:
    """Return what makes the values of tuples."""
    if schema is not None:
        columns = parse_schema(schema)
        value = _columns(columns) if field is None else _object(field.encode(), columns)
    elif field is None:
        value = _whole(decoder(decode))
    else:
        value = _one(field.encode(), decoder(decode))
    if fields == ("value",):
        return value
    parts: dict[str, MakeValues] = {
        "value": value,
        "id": lambda entry: (entry.id,),
        "stream": lambda entry: (entry.stream,),
    }
    chosen = [parts[name] for name in fields]
    return lambda entry: tuple([each for part in chosen for each in part(entry)])


def _whole(read: Decode) -> MakeValues:
    return lambda entry: ({_name(name): read(value) for name, value in entry.pairs},)


def _name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise UnreadableMessage(f"the name of its field {name[:50]!r} is no text in UTF-8") from None


def _found(entry: StreamEntry, name: bytes) -> bytes:
    for each, value in entry.pairs:
        if each == name:
            return value
    raise UnreadableMessage(f"it has no field {name.decode()!r}; it has {listed(_names(entry.pairs))}")


def _names(pairs: Sequence[tuple[bytes, bytes]]) -> list[str]:
    return [name.decode(errors="replace") for name, _ in pairs]


def _one(name: bytes, read: Decode) -> MakeValues:
    return lambda entry: (read(_found(entry, name)),)


def _object(name: bytes, schema: Schema) -> MakeValues:
    reader = JsonReader(schema)

    def values(entry: StreamEntry) -> tuple[object, ...]:
        found = reader.values((1, 0, _found(entry, name)), "")
        if isinstance(found, str):
            raise UnreadableMessage(found)
        return found

    return values


def _columns(schema: Schema) -> MakeValues:
    """Return what makes a column of each field: text becomes the column's type. A list, a map or a struct is JSON."""
    kind = row_type(schema)
    readers: dict[bytes, Callable[[bytes], Any]] = {}
    for column in schema.columns:
        nested = isinstance(column.type, (Array, Map, Struct))
        plain = _same if getattr(column.type, "name", "") == "binary" else bytes.decode
        readers[column.name.encode()] = msgspec.json.Decoder().decode if nested else plain

    def values(entry: StreamEntry) -> tuple[object, ...]:
        try:
            found = {name.decode(): readers[name](value) for name, value in entry.pairs if name in readers}
            return astuple(msgspec.convert(found, kind, strict=False, builtin_types=(bytes,)))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableMessage(f"it is no entry of {str(schema)!r}: {error}") from None

    return values


def _same(value: bytes) -> bytes:
    return value
