"""`OpenStore`: a file system below one table that was opened, and has to be closed.

Must not know: which file systems there are.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from squall_io.spark.manifest.files import Files

_Own = TypeVar("_Own", bound="OpenStore")


class OpenStore(Files, Protocol):
    """`Files` that may hold connections, or a JVM of their own."""

    def close(self) -> None:
        """Release what it holds, but not a session that it was given. May be called twice."""

    def __enter__(self: _Own) -> _Own:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
