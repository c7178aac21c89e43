"""What the manifest needs of a file system, and the errors it may give. Paths are relative to the table, parts joined by "/".

Three things make the commit protocol possible, and every store must keep them:
1. `put_if_absent` and `move_if_absent` have one winner, however many try; the loser changes nothing.
2. A file is there with all of its content, or not at all.
3. What one call has put, a call that begins later sees, from whatever machine: `list`, `read` and `exists` are never stale.
   What is put while a listing is under way may be in it or not: HDFS gives a large folder piece by piece.

A call that raised `FilesUnavailable` may have been done, or may be done at any later time: a request waits in a frozen server.
Must not know: what files hold, Spark.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from topology_api import SquallError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: Calls to a file system that are under way at once: each is mostly waiting.
_AT_ONCE = 8


class FilesError(SquallError):
    """A call to a file system did not succeed. The text names the call, the whole path, and what the file system said."""


class FilesUnavailable(FilesError):
    """It may succeed later as it stands: not reachable, safe mode, no room, no DataNode. The outcome is unknown."""


class FilesRefused(FilesError):
    """It will not succeed until somebody changes something: no permission, no such host, a file where a folder must be."""


class FileMissing(FilesError):
    """There is no such file."""


@dataclass(frozen=True)
class FileStatus:
    """One entry of a folder."""

    path: str
    """Relative to the table."""
    size: int
    """Bytes; 0 of a folder."""
    is_folder: bool = False
    modified: float = 0.0
    """Seconds since 1970, by the file system's clock."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


class Files(Protocol):
    """The file system below one table. Every method may raise `FilesUnavailable` or `FilesRefused`. Any thread may call."""

    @property
    def root(self) -> str:
        """The table's whole path, as people write it: `hdfs://host:9000/warehouse/counts`."""

    def list(self, folder: str) -> builtins.list[FileStatus]:
        """What lies in a folder, by name; nothing if there is no such folder."""

    def walk(self, folder: str) -> builtins.list[FileStatus]:
        """What lies in a folder and below it, folders included, by path; nothing if there is no such folder."""

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """A file's bytes from `offset`, at most `length` of them; `FileMissing`."""

    def digest(self, path: str) -> str:
        """`sha256:<hex>` of a file's bytes; `FileMissing`."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Make a file with this content, and its folders; whether it was absent."""

    def replace(self, path: str, data: bytes) -> None:
        """Make a file with this content, or replace the one that is there, at once."""

    def move_if_absent(self, source: str, target: str) -> bool:
        """Rename a file, and make the target's folders; whether the target was absent. `FileMissing`: no source."""

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that it holds; nothing happens if there is none."""


def each(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """The function's results in order, several calls at once; the first error comes through."""
    listed = list(items)
    at_once = min(_AT_ONCE, len(listed))
    if at_once < 2:
        return [function(item) for item in listed]
    with ThreadPoolExecutor(at_once, thread_name_prefix="squall-files") as pool:
        return list(pool.map(function, listed))
