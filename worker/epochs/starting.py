"""Where a submission begins that does not go on from the last commit: an epoch of its own log, or of another topology's.

Must not know: stores, coordinators.
"""

from __future__ import annotations

import msgspec

from worker.epochs.log import LogView
from worker.epochs.records import CommitRecord, StartPoint


class FetchStart(msgspec.Struct, frozen=True):
    """Copy the snapshots of an epoch of another log into this store, and pass a commit that names them to `Coordinator.claim`.
    None: its last commit."""

    path: str
    epoch: int | None


class NoSuchEpoch(msgspec.Struct, frozen=True):
    """The submission is to begin with an epoch that is not kept. `kept`: those that are. Nothing follows."""

    epoch: int
    kept: tuple[int, ...]


def kept_epochs(view: LogView) -> dict[int, CommitRecord]:
    """Return the epochs of a log with which a submission may begin, the oldest first."""
    starts = [view.start.commit] if view.start is not None and not view.start.foreign else []
    kept = {each.epoch: each for each in [*view.switches, *starts, *view.commits]}
    return dict(sorted(kept.items()))


def start_of(view: LogView, path: str, epoch: int | None) -> StartPoint | FetchStart | NoSuchEpoch:
    """Return where a submission begins, or how to find out. `path`: that of another log, or ""; `epoch`: None: the last one."""
    if path:
        return FetchStart(path, epoch)
    kept = kept_epochs(view)
    if epoch not in kept:
        return NoSuchEpoch(epoch or 0, tuple(kept))
    return StartPoint(kept[epoch])
