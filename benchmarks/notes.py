"""Notes that components in other processes leave for the benchmark that started them: JSON files in a folder.

Also how spouts in several processes begin at the same moment. Moments are those of `time.perf_counter`, which is one clock for
all processes of a machine. It must not know what is measured.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.child import core, peak_rss

__all__ = ["Meeting", "Usage", "find", "leave"]


def leave(folder: str, kind: str, index: int, **values: Any) -> None:
    """Write a note atomically; it also has the process id and the core of that process."""
    target = Path(folder, f"{kind}-{index:04}.json")
    beside = target.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps({"pid": os.getpid(), "core": core(), "index": index, **values}))
    beside.rename(target)


def find(folder: str, kind: str) -> list[dict[str, Any]]:
    """Return the notes of a kind, by their index. All their processes must have this process's core."""
    notes = [json.loads(path.read_text()) for path in sorted(Path(folder).glob(f"{kind}-*.json"))]
    for note in notes:
        if note["core"] != core():
            raise AssertionError(f"a worker has the {note['core']} core, not the {core()} one: {note}")
    return notes


class Meeting:
    """A moment at which several spouts begin: a little after the last of them is ready."""

    def __init__(self, folder: str, index: int, members: int, lead: float = 0.1) -> None:
        self.folder = folder
        self.members = members
        self.lead = lead
        leave(folder, "came", index, at=time.perf_counter())

    def begins(self) -> float | None:
        """Return the moment at which to begin; None while a spout is missing."""
        came = find(self.folder, "came")
        return max(note["at"] for note in came) + self.lead if len(came) == self.members else None


class Usage:
    """Measures the CPU of this process from now on."""

    def __init__(self) -> None:
        self.cpu = time.process_time()

    def read(self) -> dict[str, float]:
        """For a note: CPU seconds so far, and peak memory in MB."""
        return {"cpu_seconds": time.process_time() - self.cpu, "peak_rss": peak_rss()}
