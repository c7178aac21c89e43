"""The body of every answer of the HTTP API whose status is 400 or more.

Must not know: paths, handlers, which errors there are.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class ErrorBody(Struct, frozen=True):
    """An error: `message` is for people; `problems` lists all problems if there can be more than one."""

    kind: str
    message: str
    problems: list[str]


class ErrorAnswer(Struct, frozen=True):
    """The body of every answer whose status is 400 or more."""

    error: ErrorBody

    @classmethod
    def of(cls, kind: str, message: str, problems: Iterable[str] = ()) -> ErrorAnswer:
        """Return the answer for an error of this kind."""
        return cls(ErrorBody(kind, message, list(problems)))
