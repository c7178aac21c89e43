"""`Files` of a file system in which a rename to an absent name has one winner, and one over a name that is taken is a step too.

A file gets its content under a name in `_squall/tmp`, then its own by a rename. What a crash leaves there, `sweep` deletes.
Must not know: how the calls are made.
"""

from __future__ import annotations

import builtins
import secrets
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TypeVar

from squall_io.spark.manifest.files import (
    FileMissing,
    FilesError,
    FilesRefused,
    FileStatus,
    FilesUnavailable,
    each,
)
from squall_io.spark.manifest.layout import TMP
from squall_io.spark.stores.hadoop_errors import FileTaken

_Own = TypeVar("_Own", bound="RenamingFiles")


class RenamingFiles(ABC):
    """Everything of `Files` that is made of simpler calls."""

    def __init__(self, root: str) -> None:
        self._root = root

    @property
    def root(self) -> str:
        """The table's whole path."""
        return self._root

    @abstractmethod
    def list(self, folder: str) -> builtins.list[FileStatus]:
        """What lies in a folder, by name."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that it holds."""

    @abstractmethod
    def close(self) -> None:
        """End what it holds."""

    @abstractmethod
    def _write(self, path: str, data: bytes) -> None:
        """Make a file, or replace it, and its folders; others may see it half."""

    @abstractmethod
    def _rename(self, source: str, target: str, over: bool) -> None:
        """Rename a file in one step; `FileTaken` unless it may be over another one, `FileMissing` without source or folder."""

    @abstractmethod
    def _make_folder(self, path: str) -> None:
        """Make a folder and those above it."""

    def walk(self, folder: str) -> builtins.list[FileStatus]:
        """What lies in a folder and below it, by path."""
        found: builtins.list[FileStatus] = []
        level = [folder]
        while level:
            entries = [status for statuses in each(self.list, level) for status in statuses]
            found += entries
            level = [status.path for status in entries if status.is_folder]
        return sorted(found, key=lambda status: status.path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Make a file, unless there is one."""
        return self._put(path, data, over=False)

    def replace(self, path: str, data: bytes) -> None:
        """Make a file, or replace the one that is there."""
        self._put(path, data, over=True)

    def move_if_absent(self, source: str, target: str) -> bool:
        """Rename a file, unless there is something of the new name."""
        return self._move(source, target, over=False)

    def __enter__(self: _Own) -> _Own:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _put(self, path: str, data: bytes, over: bool) -> bool:
        """Write a file under another name, and rename it; whether that was done."""
        written = f"{TMP}/{path.rpartition('/')[2]}.{secrets.token_hex(8)}"
        try:
            self._write(written, data)
            done = self._move(written, path, over)
        except FileMissing as error:
            raise FilesUnavailable(f"{error}: folders are deleted while they are written to") from None
        except FilesRefused:
            with suppress(FilesError):  # whatever happens now, that is the error
                self.delete(written)
            raise
        if not done:
            self.delete(written)
        return done

    def _move(self, source: str, target: str, over: bool) -> bool:
        """Rename, and make the folder if it was that which was missing; whether the name was free."""
        try:
            try:
                self._rename(source, target, over)
            except FileMissing:
                self._make_folder(target.rpartition("/")[0])
                self._rename(source, target, over)
        except FileTaken:
            return False
        return True

    def _what(self, call: str, path: str) -> str:
        """The beginning of an error's text."""
        return f"cannot {call} {self._root}{'/' if path else ''}{path}"
