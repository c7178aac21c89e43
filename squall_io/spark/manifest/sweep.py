"""Leftovers: what owners that died, or were superseded, left of batches that do not count.

A batch leaves traces only while its staging folder is there: it is made before anything else, and deleted last, by the batch's
owner once the batch is acked. So whoever sweeps needs to look at the staging folders of the seat's earlier epochs alone. The partition
directories of a batch's data are those below its staging folder: moving files out of it leaves them there, empty.

Only the owner of a seat sweeps it, and only epochs before its own, after their fences are there: what it deletes can never
count any more. Seats of tasks that are gone (their index is not below the sink's parallelism) are taken over like one's own first,
by whichever task of the sink comes first. Seats of other components and other topologies are never touched.
Must not know: Spark.
"""

from __future__ import annotations

from squall_io.spark.manifest.claims import Superseded, list_claims, take_over
from squall_io.spark.manifest.files import FileMissing, Files, each
from squall_io.spark.manifest.layout import STAGING, TMP, BatchName, Seat, batch_of
from squall_io.spark.manifest.state import State, read_state


def sweep(files: Files, seat: Seat, epoch: int) -> int:
    """Delete the leftovers of a seat's epochs before `epoch`, which is ours; how many data files were deleted.

    Nothing is deleted while something of the manifest cannot be read: it may be what says that a batch counts.
    """
    state = read_state(files)
    if state.unreadable:
        return 0
    deleted = sum(
        _sweep_batch(files, batch, state)
        for status in files.list(STAGING)
        if (batch := batch_of(status.name)) is not None and batch.seat == seat and batch.epoch < epoch
    )
    old = [batch for batch in state.abandoned if batch.seat == seat and batch.epoch < epoch]
    each(files.delete, [batch.commit for batch in old])
    _sweep_tmp(files, seat, epoch)
    return deleted


def _sweep_batch(files: Files, batch: BatchName, state: State) -> int:
    """Delete one batch's staging folder, and its data unless it counts."""
    below = files.walk(batch.staging)
    if batch in state.counted:
        files.delete(batch.staging)
        return 0
    # First what could still be moved, then what was moved, last the folders, which say where to look.
    each(files.delete, [status.path for status in below if not status.is_folder])
    start = len(batch.staging) + 1
    folders = ["", *(status.path[start:] for status in below if status.is_folder)]
    prefix = batch.data_file(0, "").rpartition("-")[0] + "-"
    found = [
        status.path
        for folder in folders
        for status in files.list(folder)
        if status.name.startswith(prefix) and not status.is_folder
    ]
    each(files.delete, found)
    files.delete(batch.staging)
    return len(found)


def _sweep_tmp(files: Files, seat: Seat, epoch: int) -> None:
    """Delete files of earlier epochs that were never finished; `<batch>.json.<random>`."""
    for status in files.list(TMP):
        batch = batch_of(status.name.rpartition(".")[0])
        if batch is not None and batch.seat == seat and batch.epoch < epoch:
            files.delete(status.path)


def sweep_gone(
    files: Files, own: Seat, parallelism: int, incarnation: tuple[int, int], owner: str, now: float
) -> int:
    """Take over and sweep the seats of this sink's tasks that are gone; how many data files were deleted.

    A seat that another task of the sink takes over first is left to it.
    """
    deleted = 0
    staged = {batch.seat for status in files.list(STAGING) if (batch := batch_of(status.name)) is not None}
    for seat in sorted(list_claims(files).seats & staged):
        same_sink = (seat.topology_id, seat.component) == (own.topology_id, own.component)
        if not same_sink or seat.index < parallelism:
            continue
        try:
            deleted += sweep(files, seat, take_over(files, seat, incarnation, owner, now))
        except (Superseded, FileMissing):
            continue
    return deleted


