"""Folders that a test makes read-only in earnest: every write below them fails with EROFS, for every user.

Files that are open stay writable, as on a file system that was mounted read-only after an error. Must not know: what is inside.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Mount a folder read-only over itself; without the right to mount, skip the test."""
    path = str(folder)
    commands = (["mount", "--bind", path, path], ["mount", "-o", "remount,bind,ro", path])
    for command in commands:  # if the second one fails, the folder stays as it was
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
