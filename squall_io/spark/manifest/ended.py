"""Leftovers of submissions that have ended: no task of such a submission will start again and sweep its leftovers.

A table does not know which topologies run. It only shows activity: what a submission's tasks have claimed, staged and
committed, and when (by the file system's clock). A submission without activity for a long time is presumed ended. That is a
guess, and no row may depend on it. So every batch that might still be committed is fenced off first: the sweeper claims its
writer id (`claims.retire`). If the task is alive after all, it finds the claim as any zombie does: its batch of that epoch does
not count and is not acked. The task takes its writer id back and writes the rows again in a new batch. Nothing that is deleted
after the claim can count (see `commit`).

Leftovers of a batch that counts are deleted without a claim: the batch's entry names all files that belong to the batch, and
the batch's owner moves no other files.
Claims and fences stay, for zombies to find.
Must not know: Spark, which topologies run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from squall.stores.files import AbsentFile, Files, FileStatus
from squall_io.spark.manifest import sweep
from squall_io.spark.manifest.claims import CLAIM, list_claims, publish_fences, read_claim, retire
from squall_io.spark.manifest.entries import BatchEntry
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.layout import CLAIMS, COMMITS, TMP, BatchName, WriterId, batch_of, claim_of
from squall_io.spark.manifest.state import TableState, read_state, require_readable


@dataclass(frozen=True)
class Leftover:
    """Files that a batch left outside the table."""

    batch: BatchName
    files: int
    #: The bytes of these files. An entry that does not count is among the files, but its bytes are not added.
    size: int
    #: The batch's entry if the batch counts; the files in the entry stay.
    entry: BatchEntry | None
    #: Whether the batch may still be committed, as far as the manifest shows.
    is_open: bool


@dataclass(frozen=True)
class SubmissionLeftovers:
    """A submitted topology that left files."""

    #: The topology's id in the form that file names contain.
    topology_id: str
    #: The time of the last activity, in seconds since 1970 by the file system's clock.
    last_sign: float
    leftovers: tuple[Leftover, ...]


@dataclass(frozen=True)
class Leftovers:
    """Everything that could be swept."""

    #: Submissions presumed ended.
    ended: tuple[SubmissionLeftovers, ...]
    #: Submissions that may be running: their own tasks sweep their leftovers.
    others: tuple[SubmissionLeftovers, ...]
    #: Abandoned temporary files.
    temporary: tuple[str, ...] = ()


def find_leftovers(files: Files, age: float) -> Leftovers:
    """Find the leftovers of all submissions. Those without activity for `age` seconds are presumed ended. Deletes nothing.

    Raises `UnreadableManifest` if part of the manifest cannot be read: that part may say that a batch counts.
    """
    staged = sweep.staged_batches(files)
    state = require_readable(files, read_state(files))
    # A batch without a claim belongs to no known writer.
    known = [batch for batch in staged if 0 < batch.epoch <= state.claims.newest(batch.writer_id)]
    below: dict[BatchName, Sequence[FileStatus]] = dict.fromkeys(state.abandoned, ())
    below |= {batch: files.walk(batch.staging) for batch in known}
    now = sweep.now_of(files)
    signs = _signs(files, state, below, now, now - age)
    left = [_leftover(files, batch, below[batch], state) for batch in sorted(below)]
    submissions = [
        SubmissionLeftovers(name, signs[name], tuple(group))
        for name, group in groupby(left, lambda each: each.batch.writer_id.topology_id)
    ]
    old = now - max(age, sweep.TMP_AGE)
    return Leftovers(
        ended=tuple(each for each in submissions if each.last_sign <= now - age),
        others=tuple(each for each in submissions if each.last_sign > now - age),
        temporary=tuple(status.path for status in files.list(TMP) if status.modified <= old),
    )


def sweep_ended(files: Files, found: Leftovers, owner: str, now: float) -> None:
    """Delete the leftovers of submissions that are presumed ended. `owner` names the sweeper to tasks that are still alive."""
    left = [leftover for submission in found.ended for leftover in submission.leftovers]
    for owned in sorted({(each.batch.writer_id, each.batch.epoch) for each in left if each.is_open}):
        retire(files, *owned, owner, now)
    listing = list_claims(files)
    epochs = {each.batch.writer_id: listing.newest(each.batch.writer_id) for each in left}
    for writer_id, newest in epochs.items():
        publish_fences(files, writer_id, newest, listing)
    sweep.sweep_before(files, epochs)
    for each in left:
        if each.entry is not None:
            sweep.delete_leftovers(files, each.batch, each.entry.paths)
    for path in found.temporary:
        files.delete(path)


def _leftover(files: Files, batch: BatchName, below: Sequence[FileStatus], state: TableState) -> Leftover:
    """Return what a batch left, given the contents of its staging folder."""
    entry = state.counted.get(batch)
    keep = set() if entry is None else entry.paths
    lost = [status for status in below if not status.is_folder]
    lost += [status for status in sweep.moved_files(files, batch, below) if status.path not in keep]
    is_open = entry is None and batch.epoch == state.claims.newest(batch.writer_id)
    count = len(lost) + (batch in state.abandoned)
    return Leftover(batch, count, sum(status.size for status in lost), entry, is_open)


def _signs(
    files: Files, state: TableState, below: Mapping[BatchName, Sequence[FileStatus]], now: float, young: float
) -> dict[str, float]:
    """Return the time of the last activity of each submission that left something."""
    signs = dict.fromkeys((batch.writer_id.topology_id for batch in below), 0.0)
    # `committed` is a time of a worker's clock, which may be fast.
    active = [(entry.batch.writer_id, min(entry.committed, now)) for entry in state.checkpoint.entries]
    for batch, statuses in below.items():
        # The times of folders are used only if there are no files: object stores keep no times for folders.
        shown = [status for status in statuses if not status.is_folder] or statuses
        active += [(batch.writer_id, status.modified) for status in shown]
    for status in (*files.list(COMMITS), *files.list(TMP)):
        if committing := batch_of(status.name) or batch_of(status.name.rpartition(".")[0]):
            active.append((committing.writer_id, status.modified))
    for status in files.list(CLAIMS):
        named = claim_of(status.name)
        if named is None or named[0].topology_id not in signs or named[2] != CLAIM:
            continue
        # A sweeper's claim is not activity. Claims older than `young` are not read: they make no submission active.
        if status.modified <= young or not _is_retired(files, named[0], named[1]):
            active.append((named[0], status.modified))
    for writer_id, when in active:
        if writer_id.topology_id in signs:
            signs[writer_id.topology_id] = max(signs[writer_id.topology_id], when)
    return signs


def _is_retired(files: Files, writer_id: WriterId, epoch: int) -> bool:
    with suppress(UnreadableRecord, AbsentFile):
        return read_claim(files, writer_id, epoch).retired
    return False
