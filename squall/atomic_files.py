"""Writes a file under a temporary name in the same folder and then renames it, so that a reader always sees a complete file.

Must not know: what the files contain.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from threading import get_ident
from typing import Final

#: The end of the temporary names. A temporary file is left behind only if a process is killed during a write.
TEMPORARY: Final = ".new"


def write_bytes(directory: Path | str, name: str, data: bytes, mode: int = 0o644) -> None:
    """Write bytes to `directory`/`name`. If this raises OSError, the file is unchanged."""
    # Each thread has a temporary name of its own. It does not contain the name of the file, which may be long.
    beside = os.path.join(directory, f".{os.getpid()}.{get_ident()}{TEMPORARY}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as file:
            file.write(data)
        os.rename(beside, os.path.join(directory, name))
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside)
        raise
