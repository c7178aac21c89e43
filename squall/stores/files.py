"""The calls that Squall needs of a file system that holds a table or a topology's state, and their errors. The docstrings below
say "the table" for both. Paths are relative to the table, and separated by "/".

Four guarantees make a commit possible, and every store must keep them:
1. `put_if_absent` and `move_if_absent` have one winner, however many callers try; a loser changes nothing.
2. A file exists with its whole content, or not at all.
3. A file that one call has put is seen by every call that begins later, from any machine: `list`, `read` and `exists` are never
   stale. A file that is put during a listing may be in the result or not: HDFS returns a large folder in pieces. A folder of at
   most `SMALL_FOLDER` entries is listed as it is at one moment.
4. A folder that a file was moved from is there until it is deleted, and is seen before the file's new name. Sweepers find the
   moved files of a dead process so. Other folders may be gone with their last file.

A call that raised `FilesUnavailable` may have taken effect, or may still do so later: the request can wait in a frozen server.
Must not know: what files hold, Spark.
"""

from __future__ import annotations

import builtins
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

from topology_api import SquallError

#: Entries of a folder that every file system returns in one piece: HDFS returns 1,000 at a time by default.
SMALL_FOLDER: Final = 100


class FilesError(SquallError):
    """A failed call to a file system. The text names the call, the full path, and the file system's own message."""


class FilesUnavailable(FilesError):
    """The same call may succeed later (server unreachable, safe mode, disk full, no DataNode). Whether the failed call took
    effect is unknown.
    """


class NotServed(FilesUnavailable):
    """The server that was asked does not serve: none runs there, or it is a standby. Nothing was done."""


class FilesRefused(FilesError):
    """The call keeps failing until someone changes something: no permission, unknown host, a file where a folder must be."""


class FilesFull(FilesRefused):
    """A quota is used up: the call fails until someone deletes files or raises the quota. Nothing was done."""


class AbsentFile(FilesError):
    """The file does not exist."""


class FileTaken(FilesError):
    """The name is taken. Stores turn this error into their return value."""


@dataclass(frozen=True, order=True)
class FileStatus:
    """One entry of a folder."""

    #: Relative to the table.
    path: str
    #: Bytes; 0 for a folder.
    size: int
    is_folder: bool = False
    #: Seconds since 1970, by the file system's clock.
    modified: float = 0.0

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @classmethod
    def of_entry(cls, folder: str, name: str, size: int, is_folder: bool, modified: float) -> FileStatus:
        """Return the status of an entry of this name in a folder."""
        return cls(f"{folder}/{name}" if folder else name, 0 if is_folder else size, is_folder, modified)


class Files(Protocol):
    """The file system below one table. Every method may raise `FilesUnavailable` or `FilesRefused`. Any thread may call any
    method.
    """

    #: The table's full path, as users write it: `hdfs://host:9000/warehouse/counts`.
    root: str

    def list(self, folder: str) -> builtins.list[FileStatus]:
        """Return the entries of a folder, by name; an empty list if there is no such folder."""

    def walk(self, folder: str) -> builtins.list[FileStatus]:
        """Return everything below a folder, folders included, by path; an empty list if there is no such folder."""

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes from `offset`, at most `length` of them. Raises `AbsentFile`."""

    def digest(self, path: str) -> str:
        """Return `sha256:<hex>` of a file's bytes. Raises `AbsentFile`."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file with this content, and its folders, if there is no such file; return whether the file was absent."""

    def replace(self, path: str, data: bytes) -> None:
        """Create a file with this content, or replace the existing one, atomically."""

    def upload(self, path: str, content: BinaryIO) -> None:
        """As `replace`, with the content of an open file, from its beginning: the file may be larger than the memory."""

    def move_if_absent(self, source: str, target: str) -> bool:
        """If there is no target, rename the source and create the target's folders; return whether the target was absent.
        Raises `AbsentFile` if there is no source. After a crash, or an error, the file may have both names; then a further try
        returns False.
        """

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with everything in it; do nothing if there is neither."""

    def delete_if_empty(self, folder: str) -> None:
        """Delete a folder in which nothing is, in one step; do nothing if something is there, or if there is no such folder.
        A caller who is about to create a file there makes the folder again."""


class OpenStore(Files, AbstractContextManager["OpenStore"], Protocol):
    """`Files` that may own connections or a JVM."""

    def close(self) -> None:
        """Close the connections and the JVM that this store started, but not a session that was passed in. May be called
        twice."""

    def __exit__(self, *raised: object) -> None:
        self.close()

    def upload(self, path: str, content: BinaryIO) -> None:
        """Create a file, or replace the existing one, in one piece."""
        content.seek(0)
        self.replace(path, content.read())

    def delete_if_empty(self, folder: str) -> None:
        """Do nothing, as in a store that has no folders without files."""
        return None

    def _what(self, call: str, path: str) -> str:
        """Return the beginning of an error's text: the call and the full path."""
        return f"cannot {call} {self.root}{'/' if path else ''}{path}"
