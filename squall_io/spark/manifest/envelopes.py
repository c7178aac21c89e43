"""The form of every record of a manifest, and of a reader's positions: JSON with the record's kind, a format number, the
record's fields, and a digest of all of these.

A record that is truncated, damaged, of a different kind or written by a newer Squall is reported and refused, never misread.
Must not know: the records' fields, files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from squall.stores.paths import leaves_table
from topology_api import SquallError

_Record = TypeVar("_Record")
#: The format number of records, except those of tables of a later layout (see `tables`): the same number says that an earlier
#: Squall must not use the table.
FORMAT: Final = 1


class UnreadableRecord(SquallError):
    """A manifest record that cannot be read: damaged, truncated, or written by a newer Squall."""

    def __init__(self, path: str, why: str, newer: bool = False) -> None:
        super().__init__(path, why, newer)
        self.path = path
        self.why = why
        #: Whether a newer Squall wrote the record.
        self.newer = newer

    def __str__(self) -> str:
        return f"{self.path} {self.why}"


def canonical(fields: Mapping[str, Any]) -> bytes:
    """Return the canonical text of a JSON object, for digests."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def digest_of(data: bytes) -> str:
    """Return `sha256:<hex>`."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def seal(kind: str, record: Mapping[str, Any] | msgspec.Struct, number: int = FORMAT) -> bytes:
    """Return the bytes of a record of this format number."""
    inside = {"kind": kind, "format": number, **msgspec.to_builtins(record)}
    return json.dumps({**inside, "digest": digest_of(canonical(inside))}, indent=1).encode() + b"\n"


def build_type_info(*kinds: type) -> None:
    """Make msgspec build its description of these records during the import of their module.

    Otherwise msgspec builds a description at its first use, without a lock. If two threads do so at the same time, the process
    crashes (seen with msgspec 0.22).
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)


def decode(kind: str, record: type[_Record], data: bytes, path: str) -> _Record:
    """Return the record in bytes that were read from `path`. Raises `UnreadableRecord`."""
    return convert(kind, record, unseal(kind, data, path), path)


def convert(kind: str, record: type[_Record], fields: object, path: str) -> _Record:
    """Return the record with these JSON values, which were read from `path`. Raises `UnreadableRecord`."""
    try:
        return msgspec.convert(fields, record)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter: a text is not Unicode
        raise UnreadableRecord(path, f"{_invalid(kind)}: {error}") from None


def unseal(kind: str, data: bytes, path: str) -> dict[str, Any]:
    """Return the fields of a record that was read from `path`. Raises `UnreadableRecord`."""
    return numbered_fields(kind, data, path)[1]


def numbered_fields(kind: str, data: bytes, path: str, newest: int = FORMAT) -> tuple[int, dict[str, Any]]:
    """Return format number and fields of a record that was read from `path`. newest: the newest format of this kind. Raises
    `UnreadableRecord`.
    """
    try:
        inside = json.loads(data)
    except (ValueError, RecursionError):
        raise UnreadableRecord(path, f"is truncated or damaged: its {len(data)} bytes are not JSON") from None
    if not isinstance(inside, dict):
        raise UnreadableRecord(path, "is damaged: it holds no JSON object")
    number = inside.get("format")
    if type(number) is int and number > newest:
        why = f"has format {number}; this Squall reads formats up to {newest}: read it with a newer Squall"
        raise UnreadableRecord(path, why, newer=True)
    digest = inside.pop("digest", None)
    if digest != digest_of(canonical(inside)):
        raise UnreadableRecord(path, "is damaged: its digest does not fit what it holds")
    known = range(FORMAT, newest + 1)
    if inside.pop("kind", None) != kind or inside.pop("format", None) not in known:
        raise UnreadableRecord(path, _invalid(kind))
    assert number is not None
    return int(number), inside


def require_below(names: Iterable[str], folder: str, path: str) -> None:
    """Check paths that a record names: each must lie below the folder of the table ("": anywhere in the table). `path`: that of
    the record. Raises `UnreadableRecord`; without this check, a forged record would choose files outside of the table.
    """
    above = f"{folder}/" if folder else ""
    for name in names:
        if leaves_table(name) or not name.startswith(above):
            raise UnreadableRecord(
                path, f"is forged: it names {name!r:.200}, which is not below {above or 'the table'}"
            )


def _invalid(kind: str) -> str:
    """Return what is wrong with a record. The text names no table, since some records belong to a reader (its positions)."""
    return f"is not a valid Squall record of a {kind}"
