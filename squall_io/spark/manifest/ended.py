"""Leftovers of submissions that have ended: none of their tasks starts again, which would sweep them.

A table does not know which topologies run. It shows signs of life: what tasks of a submission have claimed, staged and
committed, and when, by the file system's clock. A submission that has shown none for long is taken for ended. That is a guess,
and no row may depend on it. So what might still be committed is fenced off first: its seat is claimed for nobody
(`claims.retire`). Should its task live after all, it finds the claim as any zombie does: what it commits in that epoch does not
count, and is not acked. It takes its seat back and writes the batch again. What is deleted after that can never count (see
`commit`).

A batch that counts needs no claim: all of its files are in its entry, and its owner moves no others any more.
Claims and fences stay, for zombies to find.
Must not know: Spark, which topologies run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from squall_io.spark.manifest.claims import CLAIM, list_claims, publish_fences, read_claim, retire
from squall_io.spark.manifest.clock import now_of
from squall_io.spark.manifest.entries import Entry
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.files import Files, FileStatus
from squall_io.spark.manifest.layout import CLAIMS, COMMITS, TMP, BatchName, Seat, batch_of, claim_of
from squall_io.spark.manifest.state import State, read_state, require_readable
from squall_io.spark.manifest.sweep import (
    TMP_AGE,
    delete_leftovers,
    moved_files,
    staged_batches,
    sweep_before,
)

_NOTHING: Final[Sequence[FileStatus]] = ()


@dataclass(frozen=True)
class Leftover:
    """What a batch has left that is not in the table."""

    batch: BatchName
    files: int
    size: int
    """Bytes, but for its entry that does not count."""
    entry: Entry | None
    """The one that counts, whose files stay."""
    is_open: bool
    """It may still be committed, as far as the manifest knows."""


@dataclass(frozen=True)
class Submission:
    """A submitted topology that has left something."""

    topology_id: str
    """As file names have it."""
    last_sign: float
    """Of life, in seconds since 1970 by the file system's clock."""
    leftovers: tuple[Leftover, ...]


@dataclass(frozen=True)
class Leftovers:
    """What there is to sweep."""

    ended: tuple[Submission, ...]
    """Submissions without a sign of life for long."""
    others: tuple[Submission, ...]
    """Those that may be at work: their own tasks sweep."""
    temporary: tuple[str, ...] = ()
    """Files that somebody began to put so long ago that nobody waits for them."""


def find_leftovers(files: Files, age: float) -> Leftovers:
    """What submissions have left, and which of them have shown no sign of life for `age` seconds. Deletes nothing.

    `UnreadableManifest`: what cannot be read may be what says that a batch counts.
    """
    staged = staged_batches(files)
    state = require_readable(files, read_state(files))
    # Without a claim it is nobody's that we know.
    known = [batch for batch in staged if 0 < batch.epoch <= state.claims.newest(batch.seat)]
    below = dict.fromkeys(state.abandoned, _NOTHING) | {batch: files.walk(batch.staging) for batch in known}
    now = now_of(files)
    signs = _signs(files, state, below, now, now - age)
    entries = {entry.batch: entry for entry in (*state.entries, *state.replaced)}
    found: dict[str, list[Leftover]] = {name: [] for name in sorted(signs)}
    for batch in sorted(below):
        left = _leftover(files, batch, below[batch], entries.get(batch), state)
        found[batch.seat.topology_id].append(left)
    submissions = [Submission(name, signs[name], tuple(left)) for name, left in found.items()]
    old = now - max(age, TMP_AGE)
    return Leftovers(
        ended=tuple(each for each in submissions if each.last_sign <= now - age),
        others=tuple(each for each in submissions if each.last_sign > now - age),
        temporary=tuple(status.path for status in files.list(TMP) if status.modified <= old),
    )


def sweep_ended(files: Files, found: Leftovers, owner: str, now: float) -> None:
    """Delete what submissions have left that are taken for ended. `owner` is what their tasks are told, should they live."""
    left = [leftover for submission in found.ended for leftover in submission.leftovers]
    for seat, epoch in sorted({(each.batch.seat, each.batch.epoch) for each in left if each.is_open}):
        retire(files, seat, epoch, owner, now)
    listing = list_claims(files)
    epochs = {each.batch.seat: listing.newest(each.batch.seat) for each in left}
    for seat, newest in epochs.items():
        publish_fences(files, seat, newest, listing)
    sweep_before(files, epochs)
    for each in left:
        if each.entry is not None:
            delete_leftovers(files, each.batch, {file.path for file in each.entry.files})
    for path in found.temporary:
        files.delete(path)


def _leftover(
    files: Files, batch: BatchName, below: Sequence[FileStatus], entry: Entry | None, state: State
) -> Leftover:
    """What a batch has left, of which its staging folder holds this."""
    keep = set() if entry is None else {file.path for file in entry.files}
    lost = [status for status in below if not status.is_folder]
    lost += [status for status in moved_files(files, batch, below) if status.path not in keep]
    is_open = entry is None and batch.epoch == state.claims.newest(batch.seat)
    return Leftover(
        batch,
        files=len(lost) + (batch in state.abandoned),
        size=sum(status.size for status in lost),
        entry=entry,
        is_open=is_open,
    )


def _signs(
    files: Files, state: State, below: Mapping[BatchName, Sequence[FileStatus]], now: float, young: float
) -> dict[str, float]:
    """The last sign of life of each submission that has left something."""
    signs = dict.fromkeys((batch.seat.topology_id for batch in below), 0.0)

    def sign(seat: Seat, when: float) -> None:
        if seat.topology_id in signs:
            signs[seat.topology_id] = max(signs[seat.topology_id], when)

    for batch, statuses in below.items():
        # Folders only where there is nothing else: object stores have no times of theirs.
        written = [status for status in statuses if not status.is_folder] or statuses
        for status in written:
            sign(batch.seat, status.modified)
    for status in (*files.list(COMMITS), *files.list(TMP)):
        committing = batch_of(status.name) or batch_of(status.name.rpartition(".")[0])
        if committing is not None:
            sign(committing.seat, status.modified)
    for entry in state.checkpoint.entries:
        sign(entry.batch.seat, min(entry.committed, now))  # by a worker's clock, which may be fast
    for seat, when in _claimed(files, signs, young):
        sign(seat, when)
    return signs


def _claimed(files: Files, submissions: Iterable[str], young: float) -> Iterator[tuple[Seat, float]]:
    """Which seats of submissions were claimed by tasks, and when. A sweeper's claim is no sign of life, if it is young."""
    for status in files.list(CLAIMS):
        named = claim_of(status.name)
        if named is None or named[0].topology_id not in submissions or named[2] != CLAIM:
            continue
        if status.modified <= young or not _is_retired(files, named[0], named[1]):
            yield named[0], status.modified


def _is_retired(files: Files, seat: Seat, epoch: int) -> bool:
    try:
        return read_claim(files, seat, epoch).retired
    except UnreadableRecord:
        return False
