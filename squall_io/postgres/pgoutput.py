"""The messages of pgoutput, the output plugin of PostgreSQL's logical replication, protocol version 1.

Bytes in, values out: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html.
Must not know: connections, tuples, the types of columns.
"""

from __future__ import annotations

import struct
from datetime import datetime, timedelta, timezone
from typing import Final

import msgspec

from topology_api import SquallError

_EPOCH: Final = datetime(2000, 1, 1, tzinfo=timezone.utc)


class UnknownMessage(SquallError):
    """A message that this module cannot read."""


class Begin(msgspec.Struct, frozen=True):
    """The begin of a transaction. lsn: the position of its commit."""

    lsn: int
    at: datetime


class Commit(msgspec.Struct, frozen=True):
    """The end of a transaction. after: the position behind its commit."""

    lsn: int
    after: int


class RelationColumn(msgspec.Struct, frozen=True):
    """A column of a table. type: the oid of its type."""

    name: str
    type: int
    in_key: bool


class Relation(msgspec.Struct, frozen=True):
    """A table as it is for the changes that follow. name: with the schema, "public.orders"."""

    id: int
    name: str
    columns: tuple[RelationColumn, ...]


class Unchanged(msgspec.Struct, frozen=True):
    """Stands for a large value that an update did not change, which PostgreSQL does not send."""


UNCHANGED: Final = Unchanged()
#: The values of a row as text, in the order of the columns.
Row = tuple[str | Unchanged | None, ...]


class RowChange(msgspec.Struct, frozen=True):
    """An insert, an update or a delete. old: the row before it, or its key, if the server sends either."""

    op: str
    relation: int
    row: Row | None
    old: Row | None
    only_key: bool


class Truncate(msgspec.Struct, frozen=True):
    """All rows of these tables are deleted."""

    relations: tuple[int, ...]


class Ignored(msgspec.Struct, frozen=True):
    """A message that says nothing about rows: an origin, a type, a message of an application."""


Message = Begin | Commit | Relation | RowChange | Truncate | Ignored


def parsed(data: bytes) -> Message:
    """Return a message. Raises UnknownMessage."""
    kind = data[:1]
    try:
        if kind in (b"I", b"U", b"D"):
            return _row_change(data)
        if kind == b"B":
            lsn, micros = struct.unpack_from("!Qq", data, 1)
            return Begin(lsn, moment(micros))
        if kind == b"C":
            lsn, after = struct.unpack_from("!QQ", data, 2)
            return Commit(lsn, after)
        if kind == b"R":
            return _relation(data)
        if kind == b"T":
            count = struct.unpack_from("!I", data, 1)[0]
            return Truncate(struct.unpack_from(f"!{count}I", data, 6))
        if kind in (b"O", b"Y", b"M"):
            return Ignored()
    except (
        struct.error,
        ValueError,
        IndexError,
        OverflowError,
    ) as error:  # ValueError: no UTF-8, no 0 at its end
        raise UnknownMessage(f"a message {kind!r} of {len(data)} bytes cannot be read: {error}") from error
    raise UnknownMessage(f"a message of the unknown kind {kind!r}: this release reads pgoutput, version 1")


def moment(micros: int) -> datetime:
    """Return a time of the protocol: microseconds since the year 2000."""
    return _EPOCH + timedelta(microseconds=micros)


def _relation(data: bytes) -> Relation:
    number = struct.unpack_from("!I", data, 1)[0]
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    count = struct.unpack_from("!H", data, at + 1)[0]  # behind the replica identity
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _text(data, at + 1)
        kind = struct.unpack_from("!I", data, at)[0]
        at += 8  # behind the type's modifier
        columns.append(RelationColumn(column, kind, bool(flags & 1)))
    return Relation(number, f"{schema or 'pg_catalog'}.{name}", tuple(columns))


def _row_change(data: bytes) -> RowChange:
    op = {b"I": "insert", b"U": "update", b"D": "delete"}[data[:1]]
    relation = struct.unpack_from("!I", data, 1)[0]
    at, row, old, only_key = 5, None, None, False
    while at < len(data):
        part = data[at : at + 1]
        values, at = _row(data, at + 1)
        if part == b"N":
            row = values
        elif part in (b"K", b"O"):
            old, only_key = values, part == b"K"
        else:
            raise ValueError(f"it has a part {part!r}")
    if (row is None) != (op == "delete") or (op == "delete" and old is None):
        raise ValueError(f"its parts are not those of the op {op}")
    return RowChange(op, relation, row, old, only_key)


def _row(data: bytes, at: int) -> tuple[Row, int]:
    count = struct.unpack_from("!H", data, at)[0]
    at += 2
    values: list[str | Unchanged | None] = []
    for _ in range(count):
        kind = data[at : at + 1]
        at += 1
        if kind == b"t":
            length = struct.unpack_from("!I", data, at)[0]
            at += 4 + length
            if at > len(data):
                raise ValueError("it ends within a value")
            values.append(data[at - length : at].decode())
        elif kind == b"n":
            values.append(None)
        elif kind == b"u":
            values.append(UNCHANGED)
        else:
            raise ValueError(f"it has a value of the kind {kind!r}")
    return tuple(values), at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1
