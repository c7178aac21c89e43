"""Writes a file under a temporary name in the same folder and then renames it, so that a reader always sees a complete file.

What has to survive a power failure is written to the disk before it gets its name, and so is its folder: otherwise a name may
lead to a file of zeros afterwards, or to no file.
Must not know: what the files contain.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from threading import get_ident
from typing import Final

#: The end of the temporary names. A temporary file is left behind only if a process is killed during a write.
TEMPORARY: Final = ".new"
#: More files than this are written to the disk by one call for the whole system: one call for each file takes milliseconds.
_MOST_SYNCED: Final = 64
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write_bytes(
    directory: Path | str, name: str, data: bytes, mode: int = 0o644, durable: bool = False
) -> None:
    """Write bytes to `directory`/`name`. `durable`: return when they are on the disk. If this raises OSError, the file is
    unchanged, or (from `durable`) the file has its new content, but may lose it in a power failure."""
    # Each thread has a temporary name of its own. It does not contain the name of the file, which may be long.
    beside = os.path.join(directory, f".{os.getpid()}.{get_ident()}{TEMPORARY}")
    try:
        try:
            descriptor = os.open(beside, _NEW, mode)
        except (
            FileExistsError
        ):  # from a killed process with this pid; or user code has put a pipe or a link there
            os.unlink(beside)
            descriptor = os.open(beside, _NEW, mode)
        with open(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(descriptor)
        os.rename(beside, os.path.join(directory, name))
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside)
        raise
    if durable:
        sync_folder(directory)


def sync_folder(folder: Path | str) -> None:
    """Write the names in a folder to the disk, where the file system can do that for folders. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path | str) -> None:
    """Write all files and folders below a folder, and the folder itself, to the disk. Raises `OSError`."""
    files = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]
    if len(files) > _MOST_SYNCED:
        os.sync()
        return
    for file in files:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for path, _, _ in os.walk(folder):
        sync_folder(path)
