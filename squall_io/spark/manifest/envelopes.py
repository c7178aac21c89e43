"""How every record of a manifest is written: JSON with its kind, its format's number and a digest over the rest.

So that a record that is truncated, damaged, of another kind or of a newer Squall is named and refused, never misread.
Must not know: the records' fields, files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from topology_api import SquallError

#: The number of the records' format. A reader knows this one and those before it.
FORMAT: Final = 1


class UnreadableRecord(SquallError):
    """A record of a manifest that cannot be read: damaged, truncated, or written by a newer Squall."""

    def __init__(self, path: str, why: str, newer: bool = False) -> None:
        super().__init__(path, why, newer)
        self.path = path
        self.why = why
        self.newer = newer
        """A newer Squall has written it."""

    def __str__(self) -> str:
        return f"{self.path} {self.why}"


def canonical(fields: Mapping[str, Any]) -> bytes:
    """The one text of a JSON object: for digests."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def digest_of(data: bytes) -> str:
    """`sha256:<hex>`."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def seal(kind: str, fields: Mapping[str, Any]) -> bytes:
    """The bytes of a record."""
    inside = {"kind": kind, "format": FORMAT, **fields}
    return json.dumps({**inside, "digest": digest_of(canonical(inside))}, indent=1).encode() + b"\n"


def unseal(kind: str, data: bytes, path: str) -> dict[str, Any]:
    """The fields of a record that was read from `path`; `UnreadableRecord`."""
    try:
        inside = json.loads(data)
    except (ValueError, RecursionError):
        raise UnreadableRecord(
            path, f"is truncated or damaged: its {len(data)} bytes are no JSON text"
        ) from None
    if not isinstance(inside, dict):
        raise UnreadableRecord(path, "is damaged: it holds no JSON object")
    number = inside.get("format")
    if type(number) is int and number > FORMAT:
        why = f"has format {number}; this Squall reads formats up to {FORMAT}: read it with a newer Squall"
        raise UnreadableRecord(path, why, newer=True)
    digest = inside.pop("digest", None)
    if digest != digest_of(canonical(inside)):
        raise UnreadableRecord(path, "is damaged: its digest does not fit what it holds")
    if inside.pop("kind", None) != kind or inside.pop("format", None) != FORMAT:
        raise UnreadableRecord(path, f"is no {kind} of a Squall table")
    return inside
