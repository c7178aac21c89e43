"""Opens and reads files that user code may have replaced by anything: by a named pipe, a link, a device, a folder, a huge file.

A worker runs user code as the supervisor's own user, so nothing in a worker's directory can be trusted. Every daemon and
command that reads such a file reads it here: only regular files are opened, no call blocks, no link is followed, and no more
than a given number of bytes is read. Every other finding is one error, `DamagedFile`.

A program of the same user can still replace a folder above the file; what is read through it obeys the same rules.
Must not know: what the files contain, who wrote them.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from topology_api.errors import SquallError

#: Without O_NONBLOCK, opening a named pipe would wait for its other end.
_GUARDED: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Errors of a process that has no descriptors or no memory left.
_OWN_TROUBLE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class DamagedFile(SquallError):
    """A file that is not a regular file, is too large, or cannot be read."""


def read_guarded(path: Path | str, most: int) -> bytes | None:
    """Return the bytes of a regular file; None if there is no file. Raises `DamagedFile`, also for more than `most` bytes; and
    `OSError` if this process can open no file at the moment, which says nothing about the file."""
    try:
        descriptor = open_guarded(path)
        if descriptor is None:
            return None
        with open(descriptor, "rb", buffering=0) as file:
            data = _up_to(file.fileno(), most + 1)
    except OSError as error:
        if is_own_trouble(error):
            raise
        raise DamagedFile(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > most:
        raise DamagedFile(f"{path} cannot be read: it is longer than {most:,} bytes")
    return data


def is_own_trouble(error: OSError) -> bool:
    """Return whether this process could have opened no file at all, so that the error says nothing about the file."""
    return error.errno in _OWN_TROUBLE


def open_guarded(path: Path | str) -> int | None:
    """Return a descriptor for reading a regular file; None if there is no file. Raises `DamagedFile` for anything that is not a
    regular file, and `OSError` if the file cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _GUARDED)
    except FileNotFoundError:
        return None
    except OSError:
        if os.path.islink(path):
            raise DamagedFile(f"{path} cannot be read: it is a link") from None
        raise
    return _checked(descriptor, path)


def open_to_append(path: Path | str, mode: int) -> int:
    """Return a descriptor for appending to a regular file, which is created if it is missing. Raises `OSError` or
    `DamagedFile`."""
    return _checked(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _GUARDED, mode), path)


def open_to_overwrite(path: Path | str) -> int:
    """Return a descriptor for overwriting an existing regular file. Raises `OSError` or `DamagedFile`."""
    return _checked(os.open(path, os.O_WRONLY | _GUARDED), path)


def open_to_change(path: Path | str, mode: int) -> int:
    """Return a descriptor for reading and writing a regular file, which is created if it is missing. A symbolic link is not
    followed: what another user has put there could lead to any file of this user. Raises `OSError` or `DamagedFile`."""
    try:
        return _checked(os.open(path, os.O_RDWR | os.O_CREAT | _GUARDED, mode), path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedFile(f"{path} is a symbolic link, which is not followed: remove it") from None
        raise


def is_file(path: Path | str) -> bool:
    """Return whether there is a regular file at a path (not a link to one)."""
    with suppress(OSError):
        return stat.S_ISREG(os.lstat(path).st_mode)
    return False


def size_of(path: Path | str) -> int:
    """Return the size of a regular file in bytes; 0 for anything else."""
    with suppress(OSError):
        found = os.lstat(path)
        return found.st_size if stat.S_ISREG(found.st_mode) else 0
    return 0


def _checked(descriptor: int, path: Path | str) -> int:
    """Return the descriptor if it belongs to a regular file; otherwise close it and raise `DamagedFile`."""
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            # The flag means nothing for a regular file, but a child process would inherit it.
            os.set_blocking(descriptor, True)
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    raise DamagedFile(f"{path} cannot be used: it is not a regular file")


def _up_to(descriptor: int, most: int) -> bytes:
    """Return the first bytes of a file, `most` at most."""
    pieces: list[bytes] = []
    left = most
    while left and (piece := os.read(descriptor, min(left, 1024 * 1024))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
