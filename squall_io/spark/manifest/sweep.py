"""Leftovers: files of batches that do not count, left by owners that died or were superseded.

Leftover data files exist only as long as the batch's staging folder: the folder is made before anything else, and the batch's
owner deletes it last, once the batch is acked. So a sweeper only needs to check the staging folders of the writer id's earlier
epochs. The directories in the folders of a batch's attempts show where the batch's moved files are: moving a file leaves its
empty directory behind. They are looked for in the data folders of both layouts: a sweeper need not read the table's record.
Entries that do not count are found without the staging folder, and the names of temporary files contain
the writer id.

Only past epochs are swept: those with a later claim and its fence. No deleted file of a past epoch can ever count, even
if two tasks sweep at once (see `commit`). After a task has taken over its own writer id, it sweeps that id, and the writer ids
of tasks of its sink that are gone (their index is not below the sink's parallelism). It takes over the id of such a task only
if the newest owner left files: without this rule, every start whose sweep fails would add a claim. A task never touches writer
ids of other components or topologies: see `ended`.
Must not know: Spark.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from squall.stores.concurrently import map_concurrently
from squall.stores.files import Files, FileStatus
from squall_io.spark.manifest import layout
from squall_io.spark.manifest.claims import Superseded, list_claims, publish_fences, take_over
from squall_io.spark.manifest.layout import BatchName, WriterId
from squall_io.spark.manifest.state import read_state

#: Seconds after which temporary files that belong to no writer id (those of schemas and checkpoints) are deleted.
TMP_AGE: Final = 24 * 3600.0


def sweep(files: Files, writer_id: WriterId, epoch: int) -> int:
    """Delete the leftovers of a writer id's epochs before the caller's `epoch`; return how many data files were deleted."""
    return sweep_before(files, {writer_id: epoch})


def sweep_before(files: Files, epochs: Mapping[WriterId, int]) -> int:
    """Delete the leftovers of each writer id's epochs before its epoch in `epochs`; return how many data files were deleted.

    The claims and fences of `epochs` must exist.

    Deletes nothing if part of the manifest cannot be read: that part may say that a batch counts.
    """
    if (state := read_state(files)).unreadable:
        return 0
    counted = state.counted
    deleted = 0
    for batch in staged_batches(files):
        if _is_over(batch, epochs):
            deleted += delete_leftovers(files, batch, counted[batch].paths if batch in counted else ())
    map_concurrently(files.delete, [batch.commit for batch in state.abandoned if _is_over(batch, epochs)])
    _sweep_tmp(files, epochs)
    return deleted


def sweep_gone(
    files: Files, own: WriterId, parallelism: int, incarnation: tuple[int, int], owner: str, now: float
) -> int:
    """Sweep the writer ids of those tasks of this sink that are gone; return how many data files were deleted.

    A writer id whose newest owner left something is taken over first, unless a task with a newer incarnation owns it.
    """
    # The newest epoch in which each writer id left a staging folder.
    left = {batch.writer_id: batch.epoch for batch in sorted(staged_batches(files))}
    listing = list_claims(files)
    epochs: dict[WriterId, int] = {}
    for writer_id in sorted(left.keys() & listing.writer_ids):
        same_sink = (writer_id.topology_id, writer_id.component) == (own.topology_id, own.component)
        if not same_sink or writer_id.index < parallelism:
            continue
        newest = listing.newest(writer_id)
        if left[writer_id] < newest:
            publish_fences(files, writer_id, newest, listing)
        else:
            try:
                newest = take_over(files, writer_id, incarnation, owner, now)
            except Superseded:
                continue
        epochs[writer_id] = newest
    return sweep_before(files, epochs) if epochs else 0


def now_of(files: Files) -> float:
    """Return seconds since 1970 by the file system's own clock, which dates its files. Puts and deletes a temporary file."""
    path = f"{layout.TMP}/clock.{secrets.token_hex(8)}"
    files.replace(path, b"")
    try:
        return max((status.modified for status in files.list(layout.TMP) if status.path == path), default=0.0)
    finally:
        files.delete(path)


def delete_leftovers(files: Files, batch: BatchName, keep: Collection[str]) -> int:
    """Delete a batch's staging folder, and its data files except those in `keep`; return how many data files were deleted."""
    below = files.walk(batch.staging)
    # Files that could still be moved are deleted first, then moved files. The folders are last: they show where to look.
    map_concurrently(files.delete, [status.path for status in below if not status.is_folder])
    found = [status.path for status in moved_files(files, batch, below) if status.path not in keep]
    map_concurrently(files.delete, found)
    files.delete(batch.staging)
    return len(found)


def moved_files(files: Files, batch: BatchName, staged: Iterable[FileStatus]) -> list[FileStatus]:
    """Return a batch's files in the table: those in the directories that the batch's staging folder has too."""
    start = len(batch.staging) + 1
    # The paths leave out the attempt's number: the attempt's own folder becomes "", the table's root.
    paths = {status.path[start:].partition("/")[2] for status in staged if status.is_folder}
    seen = sorted(path for path in paths if not any(map(layout.is_hidden, path.split("/"))))
    directories = [layout.place_in(data, path) for data in ("", layout.DATA) for path in seen]
    listed = map_concurrently(files.list, directories)
    return [status for found in listed for status in found if status.name.startswith(batch.data_prefix)]


def staged_batches(files: Files) -> list[BatchName]:
    """Return the batches that have a staging folder."""
    named = (layout.batch_of(status.name) for status in files.list(layout.STAGING))
    return [batch for batch in named if batch is not None]


def _is_over(batch: BatchName, epochs: Mapping[WriterId, int]) -> bool:
    """Return whether a batch belongs to an epoch that is being swept."""
    return batch.epoch < epochs.get(batch.writer_id, 0)


def _sweep_tmp(files: Files, epochs: Mapping[WriterId, int]) -> None:
    """Delete temporary files (`<file>.<random>`) of writer ids' earlier epochs, and old files that belong to no writer id."""
    unowned: list[FileStatus] = []
    for status in files.list(layout.TMP):
        name = status.name.rpartition(".")[0]
        batch, claim = layout.batch_of(name), layout.claim_of(name)
        if batch is None and claim is None:
            unowned.append(status)
        # The claim and fence of the epoch itself exist, so a temporary file for the same claim or fence is of no use.
        elif (batch and _is_over(batch, epochs)) or (claim and claim[1] <= epochs.get(claim[0], 0)):
            files.delete(status.path)
    if unowned:
        # A claim was put a moment ago. So the time of the newest claim is the present time by the file system's clock, which
        # dates all files.
        now = max((status.modified for status in files.list(layout.CLAIMS)), default=0.0)
        map_concurrently(files.delete, [status.path for status in unowned if status.modified < now - TMP_AGE])
