"""The current time by a file system's own clock, which is the one that dates its files.

Must not know: what is old.
"""

from __future__ import annotations

import secrets

from squall_io.spark.manifest.files import Files
from squall_io.spark.manifest.layout import TMP


def now_of(files: Files) -> float:
    """Return seconds since 1970. It puts a file, and deletes it."""
    path = f"{TMP}/clock.{secrets.token_hex(8)}"
    files.replace(path, b"")
    try:
        return max((status.modified for status in files.list(TMP) if status.path == path), default=0.0)
    finally:
        files.delete(path)
