"""`Files` for file systems with atomic renames: a rename to an absent name has one winner, and a rename over an existing file
is one step.

A file is written under a name in `_squall/tmp`, then renamed. A crash leaves it there: the users of a store sweep that folder.
Must not know: how the calls are made.
"""

from __future__ import annotations

import builtins
import secrets
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO, Final

from squall.stores import files
from squall.stores.concurrently import map_concurrently
from squall.stores.paths import TMP

#: How many times a folder is created that other processes delete because it is empty.
_TRIES: Final = 20


#: Bytes of a piece of a file that is written piece by piece.
_PIECE: Final = 1 << 20


def pieces_of(content: bytes | BinaryIO) -> Iterator[bytes]:
    """Yield bytes, or those of an open file from its beginning, in pieces."""
    if isinstance(content, (bytes, bytearray, memoryview)):
        yield content
        return
    content.seek(0)
    while piece := content.read(_PIECE):
        yield piece


class RenamingFiles(files.OpenStore):
    """The methods of `Files` that are built from simpler calls."""

    def __init__(self, root: str) -> None:
        self.root = root

    @abstractmethod
    def _write(self, path: str, content: bytes | BinaryIO) -> None:
        """Create a file, or replace its content; create its folders. Other processes may see the file half written.

        An open file is written from its beginning, and is not read into memory as a whole.
        """

    @abstractmethod
    def _rename(self, source: str, target: str, over: bool) -> None:
        """Rename a file in one step. Raises `FileTaken` if the target exists and `over` is False, and `AbsentFile` if the
        source or the target's folder is missing.
        """

    @abstractmethod
    def _make_folder(self, path: str) -> None:
        """Create a folder and those above it."""

    def walk(self, folder: str) -> builtins.list[files.FileStatus]:
        """Return everything below a folder, by path."""
        found: builtins.list[files.FileStatus] = []
        level = [folder]
        while level:
            entries = [status for statuses in map_concurrently(self.list, level) for status in statuses]
            found += entries
            level = [status.path for status in entries if status.is_folder]
        return sorted(found)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file, unless there is one."""
        return self._put(path, data, over=False)

    def upload(self, path: str, content: BinaryIO) -> None:
        """Create a file, or replace the existing one, piece by piece."""
        self._put(path, content, over=True)

    def replace(self, path: str, data: bytes) -> None:
        """Create a file, or replace the existing one."""
        self._put(path, data, over=True)

    def move_if_absent(self, source: str, target: str) -> bool:
        """Rename a file, unless the new name exists."""
        return self._move(source, target, over=False)

    def _put(self, path: str, content: bytes | BinaryIO, over: bool) -> bool:
        """Write a file under a temporary name and rename it to `path`; return whether it was renamed."""
        written = f"{TMP}/{path.rpartition('/')[2]}.{secrets.token_hex(8)}"
        try:
            self._write(written, content)
            done = self._move(written, path, over)
        except files.AbsentFile as error:
            raise files.FilesUnavailable(f"{error}: folders are deleted while they are written to") from None
        except files.FilesRefused:
            with suppress(files.FilesError):  # the first error is raised, even if this call fails too
                self.delete(written)
            raise
        if not done:
            self.delete(written)
        return done

    def _move(self, source: str, target: str, over: bool) -> bool:
        """Rename a file, and create the target's folder if it is missing; return whether the file was renamed."""
        try:
            self._into_folder(source, target, over)
        except files.FileTaken:
            return False
        return True

    def _into_folder(self, source: str, target: str, over: bool) -> None:
        """Rename a file; create the target's folder if it is missing, again and again while others delete it."""
        for turn in range(_TRIES):
            try:
                return self._rename(source, target, over)
            except files.AbsentFile:
                if turn and not self.exists(source):
                    raise
            self._make_folder(target.rpartition("/")[0])
        self._rename(source, target, over)
