"""Errors of encoding and decoding frames.

Must not know: how frames are encoded.
"""

from __future__ import annotations

from topology_api import SquallError


class BadFrame(SquallError):
    """Bytes are not a valid frame of this version."""


class Unencodable(SquallError):
    """A value of a batch cannot be encoded: field `field` of the tuple at `position`."""

    def __init__(self, position: int, field: str, reason: str) -> None:
        super().__init__(f"the value of field {field!r} cannot be sent to another worker: {reason}")
        self.position = position
        self.field = field
