"""What a table holds at a moment: the entries that count, as far as they can be read.

The order of the look is what makes it right: the commits, then the claims and fences, the checkpoint last (see `commit`). What
the checkpoint has counts, whatever the fences say: an entry that was deleted before a fence was made is not in that fence.
Must not know: Spark, rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from squall_io.spark.manifest.checkpoints import Checkpoint, read_newest
from squall_io.spark.manifest.claims import Listing, list_claims, publish_fence, read_fence
from squall_io.spark.manifest.entries import Entry, decode_entry
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.files import FileMissing, Files, FilesRefused, FileStatus, each
from squall_io.spark.manifest.layout import COMMITS, BatchName, Seat, batch_of
from topology_api import SquallError

#: A look begins anew when a file goes away under it, since somebody has made a checkpoint; so often at the most.
_LOOKS = 20


class UnreadableManifest(SquallError):
    """Records of a manifest cannot be read. `problems` are all of them."""

    def __init__(self, root: str, problems: Iterable[UnreadableRecord]) -> None:
        self.root = root
        self.problems = tuple(problems)
        super().__init__(root, self.problems)

    def __str__(self) -> str:
        lines = [f"  - {problem}" for problem in self.problems]
        count = "1 record" if len(lines) == 1 else f"{len(lines)} records"
        return "\n".join([f"the manifest of {self.root} has {count} that cannot be read:", *lines])


@dataclass(frozen=True)
class State:
    """What a table holds."""

    entries: tuple[Entry, ...]
    """Those that count and are not replaced, the oldest first."""
    replaced: tuple[Entry, ...]
    """Those that count, whose rows are in the files of another one."""
    abandoned: tuple[BatchName, ...]
    """Batches with an entry that does not count."""
    unreadable: tuple[UnreadableRecord, ...]
    """Records that cannot be read, and what is wrong with each; the rows of their batches are missing here."""
    checkpoint: Checkpoint
    """The newest checkpoint; number 0: there is none."""
    uncovered: tuple[Entry, ...]
    """Those that count for certain and that the checkpoint lacks."""
    needless: tuple[BatchName, ...]
    """Batches with an entry of their own that the checkpoint has too."""
    uncertain: tuple[BatchName, ...]
    """Batches that are taken for counted because we may only read: a new owner has claimed their task, and has not said yet
    what counts. It may leave one out that was not acked; the others count."""
    claims: Listing

    @property
    def counted(self) -> set[BatchName]:
        """The names of all batches that count."""
        return {entry.batch for entry in (*self.entries, *self.replaced)}


def read_state(files: Files) -> State:
    """Look at a table. What `Files` raises comes through."""
    for _ in range(_LOOKS):
        try:
            return _look(files)
        except FileMissing:
            continue
    return _look(files)


def require_readable(files: Files, state: State) -> State:
    """The state, if all of it could be read; `UnreadableManifest`."""
    if state.unreadable:
        raise UnreadableManifest(files.root, state.unreadable)
    return state


def has_counted(files: Files, batch: BatchName) -> bool:
    """Whether a batch counts of which an entry was put, or may have been, in an epoch that is over: it always will, or never.

    `UnreadableRecord`: what would say so cannot be read.
    The claim after its epoch was seen before this is called. Its fence comes first, and the checkpoint after it: see `commit`.
    """
    if batch.number in publish_fence(files, batch.seat, batch.epoch + 1):
        return True
    state = read_state(files)
    if batch not in state.counted and state.checkpoint.unreadable:
        raise state.checkpoint.unreadable[0]
    return batch in state.counted


@dataclass(frozen=True)
class _Verdict:
    """What counts of a seat's epoch."""

    counts: frozenset[int] | None = None
    """The numbers of its batches; None: all of them."""
    certain: bool = True
    problem: UnreadableRecord | None = None
    """The fence cannot be read: nobody knows."""

    def has(self, batch: BatchName) -> bool:
        """Whether a batch of the epoch counts."""
        return self.counts is None or batch.number in self.counts


def _look(files: Files) -> State:
    found = {batch for status in files.list(COMMITS) if (batch := _batch_at(status)) is not None}
    claims = list_claims(files)
    epochs = sorted({(batch.seat, batch.epoch) for batch in found})
    verdicts = dict(zip(epochs, each(lambda epoch: _decide(files, *epoch, claims), epochs)))
    checkpoint = read_newest(files)
    covered = {entry.batch for entry in checkpoint.entries}
    counting, abandoned = _sorted_out(found - covered, verdicts)
    results = each(lambda batch: _read_entry(files, batch), counting)
    read = [result for result in results if isinstance(result, Entry)]
    every = sorted((*checkpoint.entries, *read), key=lambda entry: (entry.committed, entry.batch))
    replaced = {name for entry in every for name in entry.replaces}
    uncertain = {batch for batch in counting if not verdicts[batch.seat, batch.epoch].certain}
    return State(
        entries=tuple(entry for entry in every if str(entry.batch) not in replaced),
        replaced=tuple(entry for entry in every if str(entry.batch) in replaced),
        abandoned=tuple(abandoned),
        unreadable=(
            *checkpoint.unreadable,
            *(verdict.problem for verdict in verdicts.values() if verdict.problem is not None),
            *(result for result in results if isinstance(result, UnreadableRecord)),
        ),
        checkpoint=checkpoint,
        uncovered=tuple(entry for entry in read if entry.batch not in uncertain),
        needless=tuple(sorted(found & covered)),
        uncertain=tuple(sorted(uncertain)),
        claims=claims,
    )


def _batch_at(status: FileStatus) -> BatchName | None:
    batch = batch_of(status.name)
    is_entry = batch is not None and batch.commit == status.path and not status.is_folder
    return batch if is_entry else None


def _decide(files: Files, seat: Seat, epoch: int, claims: Listing) -> _Verdict:
    """What counts of an epoch; all of it if nobody came after it."""
    after = (seat, epoch + 1)
    if after not in claims.claims:
        return _Verdict()
    try:
        if after in claims.fences:
            # It has decided: who is refused it knows nothing, and is not to take its batches for counted.
            return _Verdict(read_fence(files, *after))
        try:
            # The new owner has put its claim and not its fence: it may have died in between. Whoever comes by may make it.
            return _Verdict(publish_fence(files, *after))
        except FilesRefused:
            return _Verdict(certain=False)
    except UnreadableRecord as problem:
        return _Verdict(frozenset(), problem=problem)


def _sorted_out(
    batches: Iterable[BatchName], verdicts: Mapping[tuple[Seat, int], _Verdict]
) -> tuple[list[BatchName], list[BatchName]]:
    """Which of the batches count, and which do not; of an epoch whose fence cannot be read, neither is known."""
    counting, abandoned = [], []
    for batch in sorted(batches):
        verdict = verdicts[batch.seat, batch.epoch]
        if verdict.has(batch):
            counting.append(batch)
        elif verdict.problem is None:
            abandoned.append(batch)
    return counting, abandoned


def _read_entry(files: Files, batch: BatchName) -> Entry | UnreadableRecord:
    try:
        return decode_entry(files.read(batch.commit), batch.commit)
    except UnreadableRecord as problem:
        return problem
