"""What the Kafka sink decides without Kafka: the message of a tuple, which messages a topic refuses, what failures mean.

Must not know: clients, brokers, transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from squall_io.kafka.client import TOPIC
from squall_io.kit.codecs import Encode
from topology_api import FailTuple, Tuple
from topology_api.wording import typed

#: Value and key; where a sink names them also topic, partition, timestamp and headers (`Message`).
Row = tuple[Any, ...]
#: No partition of its own: the key decides.
ANY: Final = -1
#: Bytes of a batch of one message besides its key, value and headers: never less, and never more with less than 2 GB.
_LEAST_BESIDE, _MOST_BESIDE = 68, 90

#: Errors of a message that comes back whenever it is sent: by the name that librdkafka has for them.
REFUSALS: Final = frozenset((
    "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP", "_UNKNOWN_PARTITION",
))  # fmt: skip


class Message(NamedTuple):
    """A message with all that a sink may name."""

    value: bytes | None
    key: bytes | None
    topic: str
    partition: int
    #: Milliseconds since 1970; 0: when it is sent.
    timestamp: int
    headers: list[tuple[str, bytes | None]] | None


class Shape(msgspec.Struct, frozen=True):
    """How tuples become messages: the names of fields.

    fields: one name for the value itself; several for an object of them; None for an object of all.
    """

    topic: str | Callable[[Tuple], str]
    fields: str | tuple[str, ...] | None
    key: str | None
    headers: Mapping[str, str] | None
    partition: str | None
    timestamp: str | None

    @property
    def is_plain(self) -> bool:
        """Whether messages have only a value and a key."""
        beside = (self.headers, self.partition, self.timestamp)
        return isinstance(self.topic, str) and all(each is None for each in beside)

    def used(self) -> list[str]:
        """Return the fields that are named."""
        values = [self.fields] if isinstance(self.fields, str) else list(self.fields or ())
        others = [self.key, *(self.headers or {}).values(), self.partition, self.timestamp]
        return values + [name for name in others if name is not None and name not in values]


def row_maker(shape: Shape, encode: Encode, encode_key: Encode) -> Callable[[Tuple], Row]:
    """Return what makes the row of a tuple. It raises FailTuple."""
    value_of = _value_maker(shape.fields, encode)
    field = shape.key

    def plain(tup: Tuple) -> Row:
        if field is None:
            return value_of(tup), None
        key = _taken(tup, field)
        return value_of(tup), None if key is None else encode_key(key)

    if shape.is_plain:
        return plain

    def whole(tup: Tuple) -> Row:
        value, key = plain(tup)
        return Message(
            value,
            key,
            shape.topic if isinstance(shape.topic, str) else _topic(shape.topic, tup),
            ANY if shape.partition is None else _partition(shape.partition, tup),
            0 if shape.timestamp is None else _timestamp(shape.timestamp, tup),
            None if shape.headers is None else _headers(shape.headers, tup),
        )

    return whole


def _value_maker(fields: str | tuple[str, ...] | None, encode: Encode) -> Callable[[Tuple], bytes | None]:
    if fields is None:
        return lambda tup: encode(dict(zip(tup.fields, tup.values, strict=True)))
    if not isinstance(fields, str):
        names = fields
        return lambda tup: encode({name: _taken(tup, name) for name in names})
    field = fields

    def one(tup: Tuple) -> bytes | None:
        value = _taken(tup, field)
        return None if value is None else encode(value)

    return one


def _taken(tup: Tuple, field: str) -> Any:
    try:
        return tup[field]
    except KeyError as error:
        raise FailTuple(str(error.args[0])) from None


def _topic(function: Callable[[Tuple], str], tup: Tuple) -> str:
    try:
        topic = function(tup)
    except FailTuple:
        raise
    except Exception as error:
        raise FailTuple(
            f"the function that names the topic raises {type(error).__name__}: {error}"
        ) from error
    if not isinstance(topic, str) or not TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise FailTuple(
            f"the function that names the topic returned {typed(topic)}: a topic's name has letters, digits, '.', '_' and '-'"
        )
    return topic


def _partition(field: str, tup: Tuple) -> int:
    value = _taken(tup, field)
    if type(value) is int and 0 <= value < 2**31:
        return value
    raise FailTuple(f"field {field!r} is {typed(value)}: the number of a partition is 0 or more")


def _timestamp(field: str, tup: Tuple) -> int:
    value = _taken(tup, field)
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = round(value.timestamp() * 1000)
    if type(value) is int and 0 < value < 2**63:
        return value
    raise FailTuple(
        f"field {field!r} is {typed(value)}: a timestamp is a datetime with a time zone, or milliseconds since 1970"
    )


def _headers(headers: Mapping[str, str], tup: Tuple) -> list[tuple[str, bytes | None]]:
    made: list[tuple[str, bytes | None]] = []
    for name, field in headers.items():
        value = _taken(tup, field)
        if isinstance(value, str):
            value = value.encode(errors="surrogatepass")
        if value is not None and not isinstance(value, bytes):
            raise FailTuple(f"field {field!r} is {typed(value)}: header {name!r} takes text, bytes or None")
        made.append((name, value))
    return made


# What a topic takes.


class TopicLimits(msgspec.Struct, frozen=True):
    """What is known of a topic.

    most_bytes: of a batch, as it is sent; None: not known. needs_key: it is compacted.
    """

    partitions: int
    most_bytes: int | None = None
    needs_key: bool = False


def refused_by(
    rows: Sequence[Row], topic: str, limits: Mapping[str, TopicLimits], most: int, compressed: bool
) -> dict[int, str]:
    """Return why rows would be refused, by position, as far as that is known before they are sent.

    topic: of rows that name none. most: bytes of a message that the client takes. compressed: whether the client compresses, so
    that only the broker knows how large a batch is.
    """
    found: dict[int, str] = {}
    single = limits.get(topic)
    # Most sinks have rows of a value and a key, and no limit near: one look at each.
    if single is not None and rows and len(rows[0]) == 2 and not single.needs_key:
        near = most if compressed or single.most_bytes is None else min(most, single.most_bytes)
        near -= _MOST_BESIDE
        doubtful: Collection[int] = [
            at for at, (value, key) in enumerate(rows) if len(value or b"") + len(key or b"") > near
        ]
    else:
        doubtful = range(len(rows))
    for at in doubtful:
        row = rows[at]
        name = topic if len(row) == 2 else row[2]
        if (why := _why_refused(row, limits.get(name), most, compressed)) is not None:
            found[at] = f"topic {name!r} refuses the message: {why}"
    return found


def _why_refused(row: Row, limits: TopicLimits | None, most: int, compressed: bool) -> str | None:
    size = size_of(row)
    if limits is not None and limits.needs_key and row[1] is None:
        return "it has no key, and the topic is compacted (cleanup.policy=compact)"
    taken = None if limits is None or compressed else limits.most_bytes
    if taken is not None and size + _LEAST_BESIDE > taken:
        return f"it has {size} bytes, and the topic takes {taken} (`max.message.bytes` of the topic)"
    if size > most:
        return f"it has {size} bytes, and the client takes {most} (`message.max.bytes` in settings)"
    if limits is None:
        return None
    if len(row) > 2 and row[3] >= limits.partitions:
        return f"it is for partition {row[3]}, and the topic has {limits.partitions}, from 0"
    return None


def size_of(row: Row) -> int:
    """Return the bytes of a message: key, value and headers."""
    size = len(row[0] or b"") + len(row[1] or b"")
    if len(row) > 2 and row[5]:
        size += sum(len(name.encode()) + len(value or b"") for name, value in row[5])
    return size


# What has failed.


class Undelivered(NamedTuple):
    """A message that was not delivered. error: the name that librdkafka has for why. at: its position among the rows; None: not
    known."""

    error: str
    text: str
    topic: str
    partition: int
    value: bytes | None
    key: bytes | None
    at: int | None = None


def doubtful_positions(rows: Sequence[Row], topic: str, failed: Sequence[Undelivered]) -> list[int]:
    """Return the positions of rows of which some may be refused for good: their content is that of a message that was."""
    contents = {(each.topic, each.value, each.key) for each in failed if each.error in REFUSALS}
    if not contents:
        return []
    return [
        at for at, row in enumerate(rows) if (topic if len(row) == 2 else row[2], row[0], row[1]) in contents
    ]


def refused_positions(failed: Sequence[Undelivered]) -> dict[int, str]:
    """Return why rows are refused for good, by position, of messages whose positions are known."""
    return {
        each.at: f"topic {each.topic!r} refuses the message: {each.text} ({each.error})"
        for each in failed
        if each.at is not None and each.error in REFUSALS
    }
