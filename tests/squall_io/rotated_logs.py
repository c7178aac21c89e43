"""A log that is written and rotated as logrotate does, for tests of FileSpout."""

from __future__ import annotations

import os
from pathlib import Path


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def rotate(path: Path) -> None:
    """As logrotate does: app.log.1 becomes app.log.2, app.log becomes app.log.1."""
    count = 1
    while Path(f"{path}.{count}").exists():
        count += 1
    for number in range(count, 1, -1):
        os.rename(f"{path}.{number - 1}", f"{path}.{number}")
    os.rename(path, f"{path}.1")
