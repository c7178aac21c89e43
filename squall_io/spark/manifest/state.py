"""The contents of a table at one moment: the entries that count, as far as they can be read.

The order of the reads makes the result right: the commits, then claims and fences, the checkpoint last (see `commit`). Entries
in the checkpoint count, whatever the fences say: an entry that was deleted before a fence was made is not in that fence. Other
entries of epochs that the checkpoint has closed do not count: their claims and fences may be gone (see `claims`).
This module also decides when a checkpoint is made: after many batches, by any task of a sink.
Must not know: Spark, rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from squall.stores.concurrently import map_concurrently
from squall.stores.files import AbsentFile, Files, FilesRefused
from squall_io.spark.manifest.checkpoints import Checkpoint, read_newest, write_next
from squall_io.spark.manifest.claims import (
    Listing,
    closable,
    delete_closed,
    list_claims,
    publish_fence,
    read_fence,
)
from squall_io.spark.manifest.entries import BatchEntry, decode_entry
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.layout import COMMITS, REWRITER, BatchName, WriterId, batch_of
from topology_api import SquallError

#: How many times reading may start over. It starts over if a file disappears meanwhile because a checkpoint was made.
_ATTEMPTS: Final = 20
#: The number of entries in separate files at which a checkpoint is made: reading a small file of HDFS costs about 5 ms.
DUE: Final = 200


class UnreadableManifest(SquallError):
    """Records of a manifest cannot be read. `problems` lists all of them."""

    def __init__(self, root: str, problems: Iterable[UnreadableRecord]) -> None:
        self.root = root
        self.problems = tuple(problems)
        super().__init__(root, self.problems)

    def __str__(self) -> str:
        lines = [f"  - {problem}" for problem in self.problems]
        count = "1 record" if len(lines) == 1 else f"{len(lines)} records"
        return "\n".join([f"the manifest of {self.root} has {count} that cannot be read:", *lines])


@dataclass(frozen=True)
class TableState:
    """What a table holds."""

    #: Entries that count and are not replaced, oldest first.
    entries: tuple[BatchEntry, ...]
    #: Entries that count, but whose rows are in another entry's files.
    replaced: tuple[BatchEntry, ...]
    #: Batches with an entry that does not count.
    abandoned: tuple[BatchName, ...]
    #: Unreadable records, each with the reason; the rows of their batches are missing here.
    unreadable: tuple[UnreadableRecord, ...]
    #: The newest checkpoint; number 0 if there is none.
    checkpoint: Checkpoint
    #: Entries that count for certain and are not yet in the checkpoint.
    uncovered: tuple[BatchEntry, ...]
    #: Batches whose entry still has its own file although the checkpoint contains the entry too.
    needless: tuple[BatchName, ...]
    #: Batches that are assumed to count because this process may only read: a new owner has claimed their writer id, but the
    #: new epoch has no fence yet. That fence may leave out one batch that was not acked; all other batches count.
    uncertain: tuple[BatchName, ...]
    claims: Listing

    @cached_property
    def counted(self) -> dict[BatchName, BatchEntry]:
        """The entries of all batches that count, by their names."""
        return {entry.batch: entry for entry in (*self.entries, *self.replaced)}

    @cached_property
    def dropped(self) -> dict[str, int]:
        """The rows of each file whose rows were dropped, by the name under which a sink had committed it."""
        return {name: rows for entry in self.counted.values() for name, rows in entry.dropped}


def read_state(files: Files) -> TableState:
    """Read the state of a table. Raises the errors of `Files`."""
    for _ in range(_ATTEMPTS):
        with suppress(AbsentFile):
            return _read(files)
    return _read(files)


def require_readable(files: Files, state: TableState) -> TableState:
    """Return the state if all of it could be read. Raises `UnreadableManifest`."""
    if state.unreadable:
        raise UnreadableManifest(files.root, state.unreadable)
    return state


def has_counted(files: Files, batch: BatchName) -> bool:
    """Return whether a batch of a past epoch, whose entry was or may have been put, counts. The answer is final.

    Raises `UnreadableRecord` if the record that decides cannot be read. The caller must have seen the claim of the next epoch.
    The fence of that epoch is read first, and then the checkpoint: see `commit`.
    """
    if batch.number in publish_fence(files, batch.writer_id, batch.epoch + 1):
        return True
    state = read_state(files)
    if batch not in state.counted and state.checkpoint.unreadable:
        raise state.checkpoint.unreadable[0]
    return batch in state.counted


@dataclass(frozen=True)
class _Decision:
    """Which batches of a writer id's epoch count."""

    #: The numbers of the batches that count; None: all.
    counts: frozenset[int] | None = None
    certain: bool = True
    #: The reason if the fence exists but cannot be read; then it is unknown which batches count.
    problem: UnreadableRecord | None = None

    def has(self, batch: BatchName) -> bool:
        """Return whether a batch of the epoch counts."""
        return self.counts is None or batch.number in self.counts


#: Of a closed epoch, no batch counts without a checkpoint.
_VOID: Final = _Decision(frozenset())


def _is_closed(batch: BatchName, checkpoint: Checkpoint) -> bool:
    return batch.writer_id == REWRITER and batch.epoch < checkpoint.closed


def _read(files: Files) -> TableState:
    entries = {status.path: batch_of(status.name) for status in files.list(COMMITS) if not status.is_folder}
    found = {batch for path, batch in entries.items() if batch is not None and batch.commit == path}
    claims = list_claims(files)
    epochs = sorted({(batch.writer_id, batch.epoch) for batch in found})
    decisions = dict(zip(epochs, map_concurrently(lambda epoch: _decide(files, *epoch, claims), epochs)))
    checkpoint = read_newest(files)
    covered = {entry.batch for entry in checkpoint.entries}
    # Batches of an epoch with an unreadable fence are neither counted nor abandoned.
    decided = {
        batch: _VOID if _is_closed(batch, checkpoint) else decisions[batch.writer_id, batch.epoch]
        for batch in sorted(found - covered)
    }
    counting = [batch for batch, decision in decided.items() if decision.has(batch)]
    results = map_concurrently(lambda batch: _read_entry(files, batch), counting)
    uncertain = {batch for batch in counting if not decided[batch].certain}
    found_entries = [result for result in results if isinstance(result, BatchEntry)]
    # The rows of a batch that replaces others are in those, too: it is left out until it is certain.
    doubtful = {entry.batch for entry in found_entries if entry.replaces} & uncertain
    uncertain -= doubtful
    read = [entry for entry in found_entries if entry.batch not in doubtful]
    every = sorted((*checkpoint.entries, *read), key=lambda entry: (entry.committed, entry.batch))
    replaced = {name for entry in every for name in entry.replaces}
    return TableState(
        entries=tuple(entry for entry in every if str(entry.batch) not in replaced),
        replaced=tuple(entry for entry in every if str(entry.batch) in replaced),
        abandoned=tuple(
            batch
            for batch, decision in decided.items()
            if decision.problem is None and not decision.has(batch)
        ),
        unreadable=(
            *checkpoint.unreadable,
            *(decision.problem for decision in decisions.values() if decision.problem is not None),
            *(result for result in results if isinstance(result, UnreadableRecord)),
        ),
        checkpoint=checkpoint,
        uncovered=tuple(entry for entry in read if entry.batch not in uncertain),
        needless=tuple(sorted(found & covered)),
        uncertain=tuple(sorted(uncertain)),
        claims=claims,
    )


def _decide(files: Files, writer_id: WriterId, epoch: int, claims: Listing) -> _Decision:
    """Return which batches of an epoch count: all of them if no claim follows."""
    after = (writer_id, epoch + 1)
    if after not in claims.claims:
        return _Decision()
    try:
        if after in claims.fences:
            # The fence has decided. If the fence cannot be read, the batches must not be assumed to count.
            return _Decision(read_fence(files, *after))
        try:
            # The new owner has put its claim but not yet the fence, and may be dead. Any reader may make the fence.
            return _Decision(publish_fence(files, *after))
        except FilesRefused:
            return _Decision(certain=False)
    except UnreadableRecord as problem:
        return _Decision(frozenset(), problem=problem)


def _read_entry(files: Files, batch: BatchName) -> BatchEntry | UnreadableRecord:
    try:
        return decode_entry(files.read(batch.commit), batch.commit)
    except UnreadableRecord as problem:
        return problem


def checkpoint_if_due(files: Files) -> bool:
    """Make a checkpoint if one is due; return whether one was made. If none is due, the call costs one listing."""
    if len(files.list(COMMITS)) < DUE:
        return False
    claims = list_claims(files)  # before the entries are listed: see `claims`
    if (state := read_state(files)).checkpoint.unreadable:
        return False
    # An entry in a checkpoint may still have its own file: the checkpoint's writer died before it deleted the file, or the
    # commit was retried because its answer was lost.
    map_concurrently(files.delete, [batch.commit for batch in state.needless])
    if len(state.uncovered) < DUE:
        return False
    # An entry that cannot be read now may count, and its epoch must stay open.
    before = state.checkpoint.closed
    closed = before if state.unreadable else closable(claims, before)
    made = write_next(files, state.checkpoint, state.uncovered, closed)
    if made and closed > 1:
        delete_closed(files, closed)
    return made
