"""The scratch directories of tasks (`Context.directory`), on disk.

Must not know: tasks, plans (they name the paths).
"""

from __future__ import annotations

import os
import shutil


def make_scratch(path: str) -> str:
    """Make a directory, which only this user may read, if there is none; return its path."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def remove_scratch(path: str) -> None:
    """Remove a directory with all that is in it, if there is one."""
    shutil.rmtree(path, ignore_errors=True)
