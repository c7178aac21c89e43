"""A wall clock that steps: that of all processes that a test starts, but not of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

#: Put into a folder of PYTHONPATH: each process of the cluster then has a wall clock that differs from this machine's.
CLOCK: Final = """
import os, time
_file, _real = os.environ.get("STEPPED_CLOCK"), time.time

def _offset():
    try:
        with open(_file) as file:
            return float(file.read() or 0)
    except (OSError, ValueError):
        return 0.0

if _file:
    time.time = lambda: _real() + _offset()
    time.time_ns = lambda: int((_real() + _offset()) * 1e9)
"""


class SteppedClock:
    """The wall clock of processes with `folder` in their PYTHONPATH."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._offset = tmp_path / "offset"
        self.set(0)
        self.folder = tmp_path / "shim"
        self.folder.mkdir()
        (self.folder / "sitecustomize.py").write_text(CLOCK)
        monkeypatch.setenv("STEPPED_CLOCK", str(self._offset))

    def set(self, ahead: float) -> None:
        """Step to this number of seconds ahead of the machine's clock."""
        fresh = self._offset.with_suffix(".tmp")
        fresh.write_text(str(ahead))
        fresh.rename(self._offset)
