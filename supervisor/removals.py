"""The removal of what nobody uses any more: it loses its name at once, and goes from the disk off the supervisor's loop.

What user code left may be millions of files, and the leases of all other workers must not wait for that. It is renamed into
`<state>/gone/` first, so that half of it is never taken for all, and what comes next finds its name free. What a supervisor
has not removed when it ends is removed by the next.
Must not know: what is removed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
from pathlib import Path
from typing import Final

from supervisor.jobs import Jobs

_log = logging.getLogger(__name__)

GONE: Final = "gone"


class Removals:
    """The removals of one supervisor."""

    def __init__(self, state: Path, threads: bool = False) -> None:
        """`threads`: remove in a thread, and not while one asks for it."""
        self._gone = Path(os.path.abspath(state)) / GONE
        self._jobs: Jobs[None] = Jobs("removals", 1 * threads)
        #: What could not be removed, said once.
        self._told: set[Path] = set()

    def take(self, path: Path) -> None:
        """Remove a file or a folder, or nothing where there is none."""
        if not os.path.lexists(path):
            return
        gone = self._gone / secrets.token_hex(8)
        try:
            with contextlib.suppress(FileExistsError):
                self._gone.mkdir(mode=0o700)
            os.rename(path, gone)
        except OSError:  # no room for another name, say
            self._remove(path)
            return
        self._begin(gone)

    def sweep(self) -> None:
        """Go on with what a supervisor before this one had not removed yet."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._gone):
                self._begin(self._gone / name)

    def close(self) -> None:
        """Begin nothing more."""
        self._jobs.close()

    def _begin(self, gone: Path) -> None:
        self._jobs.state(str(gone), lambda: self._remove(gone), 0.0)
        self._jobs.forget(lambda key: False)

    def _remove(self, path: Path) -> None:
        remove(path)
        if os.path.lexists(path) and path not in self._told:
            self._told.add(path)
            _log.warning("%s is not used any more, but cannot be removed: remove it by hand", path)


def remove(path: Path) -> None:
    """Remove a file or a folder here and now, also one that may not be written to; as much of it as can be."""
    if not path.is_dir() or path.is_symlink():
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return
    with contextlib.suppress(RecursionError):  # deeper than Python goes down: what it came to is gone
        for folder, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                os.chmod(folder, 0o700)
        shutil.rmtree(path, ignore_errors=True)
