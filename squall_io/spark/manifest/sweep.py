"""Leftovers: what owners that died, or were superseded, left of batches that do not count.

A batch leaves data files only while its staging folder is there: it is made before anything else, and deleted last, by the
batch's owner once the batch is acked. So whoever sweeps needs to look at the staging folders of the seat's earlier epochs
alone. The partition directories of a batch's data are those below its attempts: moving files out of them leaves them there,
empty. Entries that do not count lie in the open, and temporary files have their owner's name.

Swept are only epochs that are over: the claim after them is there, and its fence. What is deleted of them can never count any
more, whoever sweeps, also two at once (see `commit`). A task sweeps its own seat when it has taken it over, and those of tasks
of its sink that are gone (their index is not below the sink's parallelism); of these it takes over the ones whose newest owner
has left something, and no others: else claims would grow with each start that cannot sweep. Seats of other components and other
topologies a task never touches: see `ended`.
Must not know: Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from squall_io.spark.manifest.claims import Superseded, list_claims, publish_fences, take_over
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
    """Delete the leftovers of a seat's epochs before `epoch`, which is ours; how many data files were deleted."""
    return sweep_before(files, {seat: epoch})


def sweep_before(files: Files, epochs: Mapping[Seat, int]) -> int:
    """Delete the leftovers of seats' epochs before these, whose claims and fences are there; how many data files were deleted.

    Nothing is deleted while something of the manifest cannot be read: it may be what says that a batch counts.
    """
    state = read_state(files)
    if state.unreadable:
        return 0
    counted = {entry.batch: entry for entry in (*state.entries, *state.replaced)}
    deleted = 0
    for batch in staged_batches(files):
        if _is_over(batch, epochs):
            files_of = counted[batch].files if batch in counted else ()
            deleted += delete_leftovers(files, batch, {file.path for file in files_of})
    each(files.delete, [batch.commit for batch in state.abandoned if _is_over(batch, epochs)])
    _sweep_tmp(files, epochs)
    return deleted


def sweep_gone(
    files: Files, own: Seat, parallelism: int, incarnation: tuple[int, int], owner: str, now: float
) -> int:
    """Sweep the seats of this sink's tasks that are gone; how many data files were deleted.

    One whose newest owner has left something is taken over first, unless a task with a newer incarnation has it.
    """
    left = newest_staged(staged_batches(files))
    listing = list_claims(files)
    epochs: dict[Seat, int] = {}
    for seat in sorted(left.keys() & listing.seats):
        same_sink = (seat.topology_id, seat.component) == (own.topology_id, own.component)
        if not same_sink or seat.index < parallelism:
            continue
        newest = listing.newest(seat)
        if left[seat] < newest:
            publish_fences(files, seat, newest, listing)
        else:
            try:
                newest = take_over(files, seat, incarnation, owner, now)
            except Superseded:
                continue
        epochs[seat] = newest
    return sweep_before(files, epochs) if epochs else 0


def delete_leftovers(files: Files, batch: BatchName, keep: Collection[str]) -> int:
    """Delete a batch's staging folder, and its data files but for those to `keep`; how many data files were deleted."""
    below = files.walk(batch.staging)
    # First what could still be moved, then what was moved, last the folders, which say where to look.
    each(files.delete, [status.path for status in below if not status.is_folder])
    found = [status.path for status in moved_files(files, batch, below) if status.path not in keep]
    each(files.delete, found)
    files.delete(batch.staging)
    return len(found)


def moved_files(files: Files, batch: BatchName, staged: Iterable[FileStatus]) -> list[FileStatus]:
    """A batch's files in the directories of the table, by what its staging folder holds."""
    listed = each(files.list, sorted(_directories(batch, staged)))
    return [status for found in listed for status in found if status.name.startswith(batch.data_prefix)]


def staged_batches(files: Files) -> list[BatchName]:
    """The batches that have a staging folder."""
    return [batch for status in files.list(STAGING) if (batch := batch_of(status.name)) is not None]


def newest_staged(batches: Iterable[BatchName]) -> dict[Seat, int]:
    """The newest epoch of each seat that has a staging folder."""
    found: dict[Seat, int] = {}
    for batch in batches:
        found[batch.seat] = max(batch.epoch, found.get(batch.seat, 0))
    return found


def _directories(batch: BatchName, below: Iterable[FileStatus]) -> set[str]:
    """The directories of the table that files of a batch may have been moved to."""
    start = len(batch.staging) + 1
    # Without the attempt's number; of the attempt's own folder nothing remains, which is the table's root.
    paths = {status.path[start:].partition("/")[2] for status in below if status.is_folder}
    return {path for path in paths if not any(map(is_hidden, path.split("/")))}


def _is_over(batch: BatchName, epochs: Mapping[Seat, int]) -> bool:
    """Whether a batch is of an epoch before its seat's, of those that are swept."""
    return batch.epoch < epochs.get(batch.seat, 0)


def _sweep_tmp(files: Files, epochs: Mapping[Seat, int]) -> None:
    """Delete temporary files of seats' earlier epochs, and those of nobody that are old: `<file>.<random>`."""
    nobodys: list[FileStatus] = []
    for status in files.list(TMP):
        name = status.name.rpartition(".")[0]
        batch, claim = batch_of(name), claim_of(name)
        if batch is not None:
            old = _is_over(batch, epochs)
        elif claim is not None:
            # Claim and fence of the epoch itself are there: whoever else is putting one comes second.
            old = claim[1] <= epochs.get(claim[0], 0)
        else:
            nobodys.append(status)
            continue
        if old:
            files.delete(status.path)
    if nobodys:
        # A claim is a moment old by the file system's clock, which is the one that counts here.
        now = max((status.modified for status in files.list(CLAIMS)), default=0.0)
        each(files.delete, [status.path for status in nobodys if status.modified < now - TMP_AGE])
