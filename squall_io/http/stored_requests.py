"""Requests as the log stores them, the bytes of a segment, and the values of tuples.

Must not know: files, servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, Final

import msgspec

from squall_io.http.segments import Segment
from squall_io.kit.codecs import Decode, MessageCodec, decoder, format_problem
from topology_api import SquallError
from topology_api.wording import listed, shown, typed

#: What a tuple can have of a request.
FIELDS: Final = ("value", "headers", "path", "query", "received", "id")
#: The fields of the stream of requests that can be read no more.
UNREADABLE_FIELDS: Final = ("id", "body", "error")
#: The version of the segments that this code writes.
VERSION: Final = 1


class UnreadableSegment(SquallError):
    """A file of the log whose content no server has stored so."""


class StoredRequest(msgspec.Struct, frozen=True, array_like=True):
    """One request. headers: names in small letters, without those that have secrets. received: seconds since 1970."""

    body: bytes
    headers: dict[str, str]
    path: str
    query: str
    received: float


class _Segment(msgspec.Struct, array_like=True):
    version: int
    requests: list[StoredRequest]


# Made here, once: several threads that make the description of a type at once can crash.
_decode = msgspec.msgpack.Decoder(_Segment).decode


def packed(requests: list[StoredRequest]) -> bytes:
    """Return the bytes of a segment."""
    return msgspec.msgpack.encode(_Segment(VERSION, requests))


def unpacked(data: bytes, name: str) -> list[StoredRequest]:
    """Return the requests of a segment. name: its file, for the error. Raises UnreadableSegment."""
    try:
        segment = _decode(data)
    except msgspec.DecodeError as error:
        raise UnreadableSegment(
            f"{name} is no segment of requests: {error}; restore it, or remove it"
        ) from None
    if segment.version != VERSION:
        raise UnreadableSegment(
            f"{name} is of version {segment.version}, and this release reads version {VERSION}: use a newer one"
        )
    return segment.requests


def id_of(segment: Segment, row: int) -> str:
    """Return the id of a request, which it keeps."""
    return f"{segment.writer}.{segment.number}.{row}"


def names_of(fields: object) -> tuple[Any, ...]:
    """Return the fields that an argument names, which may be one; what is no list of fields is returned as one."""
    return tuple(fields) if isinstance(fields, Iterable) and not isinstance(fields, str) else (fields,)


def field_problems(fields: tuple[object, ...], decode: object) -> Iterator[str]:
    """Yield what is wrong with these arguments of a spout."""
    if not fields or any(name not in FIELDS for name in fields) or len(set(fields)) < len(fields):
        yield f"fields are {shown(fields)}: give some of {listed(FIELDS)}, each once"
    if isinstance(decode, MessageCodec):
        yield f"decode is {typed(decode)}: give 'json', 'str', 'bytes' or a function; a codec needs a bolt"
    elif (problem := format_problem("decode", decode)) is not None:
        yield problem


def values_of(
    fields: Sequence[str], decode: str | Decode
) -> Callable[[StoredRequest, str], tuple[object, ...]]:
    """Return what makes the values of a tuple from a request and its id. It raises UnreadableMessage."""
    read = decoder(decode)
    parts: dict[str, Callable[[StoredRequest, str], Any]] = {
        "value": lambda request, id: read(request.body),
        "headers": lambda request, id: request.headers,
        "path": lambda request, id: request.path,
        "query": lambda request, id: request.query,
        "received": lambda request, id: datetime.fromtimestamp(request.received, timezone.utc),
        "id": lambda request, id: id,
    }
    chosen = [parts[name] for name in fields]
    return lambda request, id: tuple([part(request, id) for part in chosen])
