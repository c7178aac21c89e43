"""Writes a backup: under a temporary name beside the file, mode 0600, on the disk before it gets its name, over no other file.

Must not know: where the contents come from.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Final

from squall.atomic_files import sync_folder
from squall_cli.backups.layout import (
    BLOCK,
    FILES,
    HEAD,
    LAST,
    MOST_ZEROS,
    TOPOLOGIES,
    BackedUp,
    BackupMember,
    Head,
    as_bytes,
    header,
    last_member,
    padding,
)
from topology_api.errors import SquallError

_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
#: Errors of file systems without hard links.
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class BackupWriter:
    """Writes the members of a backup into a file that can be sought."""

    def __init__(self, file: BinaryIO, head: Head) -> None:
        self._file = file
        self.members: list[BackupMember] = []
        self._put(HEAD, as_bytes(head))

    def has(self, sha256: str) -> bool:
        """Return whether a file is there already."""
        return any(each.name == f"{FILES}{sha256}" for each in self.members)

    def add_bytes(self, data: bytes) -> str:
        """Add a file, unless it is there; return its SHA-256."""
        sha256 = hashlib.sha256(data).hexdigest()
        if not self.has(sha256):
            self._put(f"{FILES}{sha256}", data)
        return sha256

    def add_file(self, sha256: str, fetch: Callable[[BinaryIO], str]) -> None:
        """Add a file, unless it is there. `fetch` writes it and returns the SHA-256 of what it has written; if it raises, or
        writes something else, nothing is added."""
        if self.has(sha256):
            return
        at = self._file.tell()
        try:
            self._file.write(bytes(BLOCK))  # its header, once the size is known
            found = fetch(self._file)
            if found != sha256:
                raise SquallError(f"the file {sha256} arrived with the SHA-256 {found}")
        except BaseException:
            self._file.seek(at)
            self._file.truncate()
            raise
        start, end = at + BLOCK, self._file.tell()
        name, size = f"{FILES}{sha256}", end - start
        self._file.seek(at)
        self._file.write(header(name, size))
        self._file.seek(end)
        self._file.write(bytes(padding(size)))
        self.members.append(BackupMember(name, size, sha256, start))

    def add_topology(self, topology: BackedUp) -> None:
        """Add a topology, whose files are there."""
        number = sum(each.name.startswith(TOPOLOGIES) for each in self.members)
        self._put(f"{TOPOLOGIES}{number:06}.json", as_bytes(topology))

    def finish(self) -> int:
        """Write the last member; return the size of the backup."""
        self._put(LAST, last_member(self.members))
        self._file.write(bytes(MOST_ZEROS))
        return self._file.tell()

    def _put(self, name: str, data: bytes) -> None:
        self._file.write(header(name, len(data)))
        start = self._file.tell()
        self._file.write(data + bytes(padding(len(data))))
        self.members.append(BackupMember(name, len(data), hashlib.sha256(data).hexdigest(), start))


def check_new(path: Path) -> None:
    """Raise `SquallError` if there is a file with this name, or no folder for it."""
    if os.path.lexists(path):
        raise SquallError(f"{path} exists: give the name of a new file")
    if not path.parent.is_dir():
        raise SquallError(f"{path.parent} is not a folder: a backup is written into an existing folder")


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name when the block ends without an error, and is gone otherwise. Raises `SquallError` if there
    is a file with this name by then, and `OSError`."""
    check_new(path)
    beside = path.with_name(f".squall-backup-{token_hex(8)}.new")
    try:
        with open(os.open(beside, _NEW, 0o600), "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _name(beside, path)
        sync_folder(path.parent)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside)


def _name(beside: Path, path: Path) -> None:
    """Give a file its name. A rename would replace another file, a link does not."""
    try:
        os.link(beside, path)
    except FileExistsError:
        check_new(path)
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        check_new(path)
        os.rename(beside, path)
