"""What components leave for the benchmark that started them, when they run in other processes: JSON files in a folder.

Also how spouts in several processes begin at one moment. Moments are those of `time.perf_counter`, which is one clock for all
processes of a machine. It must not know what is measured.
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
    """Leave a note, whole or not at all; it also says from which process it is, and which core that has."""
    target = Path(folder, f"{kind}-{index:04}.json")
    beside = target.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps({"pid": os.getpid(), "core": core(), "index": index, **values}))
    beside.rename(target)


def find(folder: str, kind: str) -> list[dict[str, Any]]:
    """The notes of a kind, by their index. All processes must have the core that this one has."""
    notes = [json.loads(path.read_text()) for path in sorted(Path(folder).glob(f"{kind}-*.json"))]
    for note in notes:
        if note["core"] != core():
            raise AssertionError(f"a worker has the {note['core']} core, not the {core()} one: {note}")
    return notes


class Meeting:
    """A moment at which several begin: a little after the last of them has come."""

    def __init__(self, folder: str, index: int, members: int, lead: float = 0.1) -> None:
        self.folder = folder
        self.members = members
        self.lead = lead
        leave(folder, "came", index, at=time.perf_counter())

    def begins(self) -> float | None:
        """When it begins; None while somebody is missing."""
        came = find(self.folder, "came")
        return max(note["at"] for note in came) + self.lead if len(came) == self.members else None


class Usage:
    """The CPU that this process takes from now on."""

    def __init__(self) -> None:
        self.cpu = time.process_time()

    def read(self) -> dict[str, float]:
        """For a note: seconds of CPU so far, and peak memory in MB."""
        return {"cpu_seconds": time.process_time() - self.cpu, "peak_rss": peak_rss()}
