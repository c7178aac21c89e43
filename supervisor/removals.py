"""Removes unused files and folders off the supervisor's loop. The names of removed files and folders are free at once.

User code may have left millions of files. They are removed off the loop, because meanwhile other workers need new leases. A
path is first renamed into `<state>/gone/`, so that a half-removed folder is never mistaken for a complete one. If a supervisor
ends before it has removed everything, the next supervisor removes the rest.
Must not know: the contents of directories.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from supervisor.jobs import Jobs

_log = logging.getLogger(__name__)

GONE: Final = "gone"
#: Levels that are removed at once: each takes a descriptor and a call. A path may have any number of levels.
DEEPEST: Final = 32
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Removals:
    """The removals of one supervisor."""

    def __init__(self, state: Path, threads: bool = False) -> None:
        """`threads`: remove in a thread instead of in the call."""
        self._gone = Path(os.path.abspath(state)) / GONE
        self._jobs: Jobs[None] = Jobs("removals", 1 * threads)
        #: Paths whose failed removal was logged.
        self._told: set[Path] = set()

    def remove(self, path: Path) -> None:
        """Remove a file or a folder, if it exists."""
        if not os.path.lexists(path):
            return
        gone = self._gone / secrets.token_hex(8)
        try:
            with contextlib.suppress(FileExistsError):
                self._gone.mkdir(mode=0o700)
            os.rename(path, gone)
        except OSError:  # for example, the disk is full
            self._delete(path)
            return
        self._begin(gone)

    def sweep(self) -> None:
        """Continue the removals of an earlier supervisor."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._gone):
                self._begin(self._gone / name)

    def close(self) -> None:
        """Start no more removals."""
        self._jobs.close()

    def _begin(self, gone: Path) -> None:
        self._jobs.state(str(gone), lambda: self._delete(gone), 0.0)
        self._jobs.forget(lambda key: False)

    def _delete(self, path: Path) -> None:
        delete(path)
        if os.path.lexists(path) and path not in self._told:
            self._told.add(path)
            _log.warning("%s is unused, but cannot be removed: remove it by hand", path)


def delete(path: Path) -> None:
    """Remove a file or a folder now, as far as possible, even if it is write-protected, and however deep its folders are."""
    if not path.is_dir() or path.is_symlink():
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return
    with contextlib.suppress(OSError):
        _done(os.chmod, path, 0o700)
        top = os.open(path, _FOLDER)
        try:
            while _clear(top, top):
                pass
        finally:
            os.close(top)
        os.rmdir(path)


def _clear(folder: int, top: int, depth: int = 0) -> bool:
    """Remove what is in a folder, `depth` levels below `top`; what is too deep moves up into `top`. Return whether anything
    changed."""
    changed = False
    for name, is_folder in _entries(folder):
        if not is_folder:
            changed |= _done(os.unlink, name, dir_fd=folder)
            continue
        _done(os.chmod, name, 0o700, dir_fd=folder)
        if depth == DEEPEST:
            up = secrets.token_hex(8)
            changed |= _done(os.rename, name, up, src_dir_fd=folder, dst_dir_fd=top)
            continue
        with contextlib.suppress(OSError):
            inner = os.open(name, _FOLDER, dir_fd=folder)
            try:
                changed |= _clear(inner, top, depth + 1)
            finally:
                os.close(inner)
        changed |= _done(os.rmdir, name, dir_fd=folder)
    return changed


def _entries(folder: int) -> list[tuple[str, bool]]:
    """Return the names in a folder, and whether they are folders. A link is none."""
    with os.scandir(folder) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


def _done(call: Callable[..., None], *where: object, **folders: int) -> bool:
    """Return whether a call succeeded."""
    try:
        call(*where, **folders)
    except OSError:
        return False
    return True
