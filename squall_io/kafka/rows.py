"""How a message of Kafka becomes the values of a tuple.

Must not know: clients, partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from operator import methodcaller
from typing import Any, Final

from squall_io.kit.codecs import (
    Decode,
    MessageCodec,
    UnreadableMessage,
    decoder,
    format_problem,
    swift_decoder,
)
from squall_io.kit.columns import column_problems
from squall_io.lines.json_lines import JsonReader
from squall_io.spark.rows.schema import parse_schema
from topology_api.wording import listed, shown, typed

#: What a tuple can have of a message.
FIELDS: Final = ("value", "key", "headers", "timestamp", "topic", "partition", "offset")
#: The fields of the stream of messages that cannot be read.
UNREADABLE_FIELDS: Final = ("topic", "partition", "offset", "key", "value", "error")

#: Makes the values of a tuple from a message. Raises UnreadableMessage.
Row = Callable[[Any], tuple[object, ...]]
#: Makes the values of the tuples of several messages.
Rows = Callable[[Sequence[Any]], Iterator[tuple[object, ...]]]
#: Makes one of these values of each message.
Column = Callable[[Sequence[Any]], Iterator[Any]]


def runs_of(messages: list[Any], several_topics: bool) -> deque[list[Any]]:
    """Divide what a client has received, in its order: each run has messages of one partition, or one event."""
    kind = type(messages[0])
    keys: list[Any] = list(map(kind.partition, messages))
    if several_topics:
        keys = list(zip(map(kind.topic, messages), keys))
    if keys.count(keys[0]) == len(keys) and not any(map(kind.error, messages)):
        return deque([messages])
    runs: deque[list[Any]] = deque()
    before = None
    for key, message in zip(keys, messages):
        if message.error() is not None:
            key = None
        if key is None or key != before:
            runs.append([message])
        else:
            runs[-1].append(message)
        before = key
    return runs


def row_problems(
    fields: tuple[object, ...], decode: object, decode_key: object, schema: object
) -> Iterator[str]:
    """Yield what is wrong with these arguments of a spout."""
    unknown = [name for name in fields if name not in FIELDS]
    if unknown or not fields or len(set(fields)) < len(fields):
        yield f"fields are {shown(fields)}: give some of {listed(FIELDS)}, each once"
        return
    for name, format in (("decode", decode), ("decode_key", decode_key)):
        if (problem := format_problem(name, format)) is not None:
            yield problem
    if schema is None:
        return
    if decode != "json":
        yield f"schema is given, and decode is {typed(decode)}: a schema is for decode='json'; leave one of the two out"
    else:
        yield from column_problems(fields, schema)


def row_makers(
    fields: tuple[str, ...],
    decode: str | Decode | MessageCodec,
    decode_key: str | Decode | MessageCodec,
    schema: str | None,
) -> tuple[Row, Rows]:
    """Return what makes the values of a tuple, and what makes those of several without calling a Python function for each.

    Where the first makes values of a message, the second may raise any error: ask the first then. What came before is good.
    """
    read, read_key = decoder(decode), decoder(decode_key)
    value = _value(read) if schema is None else _columns(schema)
    parts: dict[str, Row] = {
        "value": value,
        "key": _key(read_key),
        "headers": lambda message: (list(message.headers() or ()),),
        "timestamp": lambda message: (_timestamp(message),),
        **{name: _plain(name) for name in ("topic", "partition", "offset")},
    }
    chosen = [parts[field] for field in fields]

    def row(message: Any) -> tuple[object, ...]:
        return tuple([each for part in chosen for each in part(message)])

    if schema is not None or "headers" in fields or "timestamp" in fields:
        return row, lambda messages: map(row, messages)
    swift = {"value": swift_decoder(decode, read), "key": swift_decoder(decode_key, read_key)}
    columns = [_column(field, swift.get(field)) for field in fields]
    return row, lambda messages: zip(*[column(messages) for column in columns])


def _column(field: str, read: Decode | None) -> Column:
    def column(messages: Sequence[Any]) -> Iterator[Any]:
        return map(getattr(type(messages[0]), field), messages)

    if read is None:
        return column
    decode = read
    return lambda messages: map(decode, column(messages))


def _plain(name: str) -> Row:
    get = methodcaller(name)
    return lambda message: (get(message),)


def _value(read: Decode) -> Row:
    def value(message: Any) -> tuple[object, ...]:
        data = message.value()
        return (None if data is None else read(data),)

    return value


def _columns(schema: str) -> Row:
    reader = JsonReader(parse_schema(schema))

    def columns(message: Any) -> tuple[object, ...]:
        data = message.value()
        if data is None:
            raise UnreadableMessage("it has no value, so it is no row")
        values = reader.values((1, 0, data), "")
        if isinstance(values, str):
            raise UnreadableMessage(values)
        return values

    return columns


def _key(read: Decode) -> Row:
    def key(message: Any) -> tuple[object, ...]:
        data = message.key()
        try:
            return (None if data is None else read(data),)
        except UnreadableMessage as error:
            raise UnreadableMessage(f"its key: {error}") from error

    return key


def _timestamp(message: Any) -> datetime | None:
    """Return when a message was sent or appended; None: it does not say."""
    kind, millis = message.timestamp()
    if kind == 0 or millis < 0:
        return None
    try:
        return datetime.fromtimestamp(millis / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError) as error:
        raise UnreadableMessage(f"its timestamp is {millis} ms: {error}") from None
