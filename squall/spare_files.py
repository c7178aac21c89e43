"""A second place for the files that a worker and its supervisor exchange, used while the worker's directory cannot be written.

A disk may turn read-only, or fail, under running workers. They could go on, but neither side could show the other that it
lives. So what cannot be written to the disk is written to memory instead, which every Linux has: to
`/dev/shm/squall-<user id>/<digest of the directory>/`. A file there replaces the one on the disk until the disk can be written
again: then it is removed. Only files of this user, in a folder that no other user can change, are used. Without such a folder
there is no second place.

What does not exist is no reason to write here: a worker whose directory was removed has to end.
Must not know: what the files contain, why they are written.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from squall import atomic_files
from squall.guarded_files import DamagedFile, read_guarded

_ROOT: Final = "/dev/shm"
#: The file that names the directory to which a folder belongs.
_OWNER: Final = "directory"
#: The most bytes of a path.
_MOST_PATH: Final = 4096
#: Errors that say that a directory exists, but cannot be written.
UNWRITABLE: Final = (
    errno.EROFS, errno.EIO, errno.EPERM, errno.EACCES, errno.EUCLEAN, errno.ESTALE, errno.ENODEV, errno.ENXIO
)  # fmt: skip


def current_path(directory: Path | str, name: str) -> str:
    """Return the path at which a file of a directory is now: in memory if it is there, else in the directory."""
    spare = os.path.join(_folder_of(directory), name)
    with suppress(OSError):
        os.lstat(spare)
        if _is_ours(_root()):
            return spare
    return os.path.join(directory, name)


def write_spare(directory: Path | str, name: str, data: bytes) -> None:
    """Write a file of a directory to memory. Raises `OSError`, also if there is no safe place."""
    root, folder = _root(), _folder_of(directory)
    with suppress(FileExistsError):
        os.mkdir(root, 0o700)
    if not _is_ours(root):
        raise PermissionError(errno.EPERM, "not private to this user", root)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    if not os.path.lexists(os.path.join(folder, _OWNER)):
        atomic_files.write_bytes(folder, _OWNER, os.fsencode(os.path.abspath(directory)), 0o600)
    atomic_files.write_bytes(folder, name, data, 0o600)


def remove_spare(directory: Path | str, name: str) -> None:
    """Remove a file from memory: the one in the directory is the latest."""
    if _is_ours(_root()):  # a stranger's folder could lead anywhere
        with suppress(OSError):
            os.unlink(os.path.join(_folder_of(directory), name))


def clear_spares(directory: Path | str) -> None:
    """Remove all files of a directory from memory."""
    if _is_ours(_root()):
        shutil.rmtree(_folder_of(directory), ignore_errors=True)


def sweep_spares() -> None:
    """Remove the files of directories that no longer exist from memory."""
    if not _is_ours(_root()):
        return
    with suppress(OSError):
        for name in os.listdir(_root()):
            folder = os.path.join(_root(), name)
            with suppress(DamagedFile):
                owner = read_guarded(os.path.join(folder, _OWNER), _MOST_PATH)
                if owner is not None and _is_gone(owner):
                    shutil.rmtree(folder, ignore_errors=True)
        os.rmdir(_root())  # fails if the folder is not empty, because it is in use


def _root() -> str:
    return os.path.join(_ROOT, f"squall-{os.geteuid()}")


def _folder_of(directory: Path | str) -> str:
    import hashlib  # rare: a worker starts faster without it

    name = hashlib.sha256(os.fsencode(os.path.abspath(directory))).hexdigest()[:32]
    return os.path.join(_root(), name)


def _is_gone(path: bytes) -> bool:
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:  # it may be there, on a disk that fails
        pass
    return False


def _is_ours(folder: str) -> bool:
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
