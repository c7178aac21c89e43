"""The scratch directories of tasks (`Context.directory`), on disk.

Must not know: tasks, plans (they name the paths).
"""

from __future__ import annotations

import os
import shutil


class Scratch:
    """Makes and removes scratch directories, which only this user may read."""

    def make(self, path: str) -> str:
        """Make a directory, if there is none; return its path."""
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def remove(self, path: str) -> None:
        """Remove a directory with all that is in it, if there is one."""
        shutil.rmtree(path, ignore_errors=True)
