"""What can be wrong with a frame.

Must not know: how frames are made.
"""

from __future__ import annotations

from topology_api import SquallError


class BadFrame(SquallError):
    """Bytes that are no frame of this version."""


class Unencodable(SquallError):
    """A value of a batch cannot be encoded. `position` is its tuple, `field` its name."""

    def __init__(self, position: int, field: str, reason: str) -> None:
        super().__init__(f"the value of field {field!r} cannot be sent to another worker: {reason}")
        self.position = position
        self.field = field
