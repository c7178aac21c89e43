"""A mark that distinguishes a state directory from every copy, until its host is restarted.

A copied directory has the same files, including a daemon's id and keys, but it is a different directory, or on a different
host.
Must not know: whose directory it is.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path


def state_mark(directory: Path) -> str:
    """Return the mark of an existing directory."""
    found = os.stat(directory)
    return f"{_boot_id()}/{found.st_dev}:{found.st_ino}"


def _boot_id() -> str:
    """Return the id of this boot of the operating system."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()
