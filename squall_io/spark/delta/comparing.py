"""How far the Delta log of a table is behind its manifest.

Must not know: how the result is shown, Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

from squall.stores.files import Files
from squall_io.spark.delta.actions import ForeignLog
from squall_io.spark.delta.delta_log import DeltaLog
from squall_io.spark.manifest.state import read_state


@dataclass(frozen=True)
class LogState:
    """What a Delta log lacks."""

    #: The newest version.
    version: int
    #: The batches that are committed, and of which the log lacks files; and when the oldest of them was committed, in seconds
    #: since 1970.
    lacks: int = 0
    since: float | None = None
    #: Why the log does not follow the manifest; "": it does.
    problem: str = ""


def compare_log(files: Files) -> LogState | None:
    """Compare the Delta log of a table with its manifest; None if it has none."""
    log = DeltaLog(files)
    try:
        log.refresh()
    except ForeignLog as error:
        return LogState(log.version, problem=str(error))
    if log.version < 0:
        return None
    entries = read_state(files).entries
    lacking = [entry for entry in entries if any(file.path not in log.live for file in entry.files)]
    since = min((entry.committed for entry in lacking), default=None)
    return LogState(log.version, len(lacking), since)
