"""Leftovers: what owners that died, or were superseded, left of batches that do not count.

A batch leaves data files only while its staging folder is there: it is made before anything else, and deleted last, by the
batch's owner once the batch is acked. So whoever sweeps needs to look at the staging folders of the seat's earlier epochs
alone. The partition directories of a batch's data are those below its attempts: moving files out of them leaves them there,
empty. Entries that do not count lie in the open, and temporary files have their owner's name.

Only the owner of a seat sweeps it, and only epochs before its own, after their fences are there: what it deletes can never
count any more (see `commit`). Seats of tasks that are gone (their index is not below the sink's parallelism) are taken over
like one's own first, by whichever task of the sink comes first. Seats of other components and other topologies are never
touched.
Must not know: Spark.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from squall_io.spark.manifest.claims import Superseded, list_claims, take_over
from squall_io.spark.manifest.files import Files, FileStatus, each
from squall_io.spark.manifest.layout import (
    CLAIMS,
    STAGING,
    TMP,
    BatchName,
    Seat,
    batch_of,
    claim_of,
    is_hidden,
)
from squall_io.spark.manifest.state import read_state

#: Temporary files that are no seat's own (of schemas and checkpoints) are deleted when they are so many seconds old.
TMP_AGE: Final = 24 * 3600.0


def sweep(files: Files, seat: Seat, epoch: int) -> int:
    """Delete the leftovers of a seat's epochs before `epoch`, which is ours; how many data files were deleted.

    Nothing is deleted while something of the manifest cannot be read: it may be what says that a batch counts.
    """
    state = read_state(files)
    if state.unreadable:
        return 0
    counted = {entry.batch: entry for entry in (*state.entries, *state.replaced)}
    deleted = 0
    for batch in _staged(files):
        if batch.seat == seat and batch.epoch < epoch:
            files_of = counted[batch].files if batch in counted else ()
            deleted += delete_leftovers(files, batch, {file.path for file in files_of})
    old = [batch.commit for batch in state.abandoned if batch.seat == seat and batch.epoch < epoch]
    each(files.delete, old)
    _sweep_tmp(files, seat, epoch)
    return deleted


def sweep_gone(
    files: Files, own: Seat, parallelism: int, incarnation: tuple[int, int], owner: str, now: float
) -> int:
    """Take over and sweep the seats of this sink's tasks that are gone; how many data files were deleted.

    A seat that a task with a newer incarnation has taken over is left to it.
    """
    deleted = 0
    for seat in sorted({batch.seat for batch in _staged(files)} & list_claims(files).seats):
        same_sink = (seat.topology_id, seat.component) == (own.topology_id, own.component)
        if not same_sink or seat.index < parallelism:
            continue
        try:
            epoch = take_over(files, seat, incarnation, owner, now)
        except Superseded:
            continue
        deleted += sweep(files, seat, epoch)
    return deleted


def delete_leftovers(files: Files, batch: BatchName, keep: Collection[str]) -> int:
    """Delete a batch's staging folder, and its data files but for those to `keep`; how many data files were deleted."""
    below = files.walk(batch.staging)
    # First what could still be moved, then what was moved, last the folders, which say where to look.
    each(files.delete, [status.path for status in below if not status.is_folder])
    listed = each(files.list, sorted(_directories(batch, below)))
    found = [
        status.path
        for statuses in listed
        for status in statuses
        if status.name.startswith(batch.data_prefix) and status.path not in keep
    ]
    each(files.delete, found)
    files.delete(batch.staging)
    return len(found)


def _staged(files: Files) -> list[BatchName]:
    """The batches that have a staging folder."""
    return [batch for status in files.list(STAGING) if (batch := batch_of(status.name)) is not None]


def _directories(batch: BatchName, below: list[FileStatus]) -> set[str]:
    """The directories of the table that files of a batch may have been moved to."""
    start = len(batch.staging) + 1
    # Without the attempt's number; of the attempt's own folder nothing remains, which is the table's root.
    paths = {status.path[start:].partition("/")[2] for status in below if status.is_folder}
    return {path for path in paths if not any(map(is_hidden, path.split("/")))}


def _sweep_tmp(files: Files, seat: Seat, epoch: int) -> None:
    """Delete temporary files of the seat's earlier epochs, and those of nobody that are old: `<file>.<random>`."""
    nobodys: list[FileStatus] = []
    for status in files.list(TMP):
        name = status.name.rpartition(".")[0]
        batch, claim = batch_of(name), claim_of(name)
        if batch is not None:
            old = batch.seat == seat and batch.epoch < epoch
        elif claim is not None:
            # Claim and fence of our own epoch are there: whoever else is putting one comes second.
            old = claim[0] == seat and claim[1] <= epoch
        else:
            nobodys.append(status)
            continue
        if old:
            files.delete(status.path)
    if nobodys:
        # Our own claim is a moment old by the file system's clock, which is the one that counts here.
        now = max((status.modified for status in files.list(CLAIMS)), default=0.0)
        each(files.delete, [status.path for status in nobodys if status.modified < now - TMP_AGE])
