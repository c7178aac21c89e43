"""A file of a store as a Python file, of which only those ranges are read that are asked for.

Must not know: what files hold.
"""

from __future__ import annotations

import io
from typing import Any

from squall.stores.files import Files


class RangedFile(io.RawIOBase):
    """A file of `size` bytes; `path` is relative to the store."""

    def __init__(self, files: Files, path: str, size: int) -> None:
        super().__init__()
        self._files, self._path, self._size = files, path, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._at)
        data = self._files.read(self._path, self._at, length) if length > 0 else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
