"""What a table holds at a moment: the entries that count, as far as they can be read.

The order of the look is what makes it right: first the commits, then the checkpoints (an entry that was deleted before the
first listing is in a checkpoint that the second one shows), then the claims (see `commit`).
Must not know: Spark, rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from squall_io.spark.manifest.checkpoints import Checkpoint, read_newest
from squall_io.spark.manifest.claims import Listing, list_claims, publish_fence, read_fence
from squall_io.spark.manifest.entries import Entry, decode_entry
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.files import FileMissing, Files, FilesRefused, each
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
    """Those that count and that the checkpoint lacks."""
    claims: Listing

    @property
    def counted(self) -> set[BatchName]:
        """The names of all batches that count."""
        return {entry.batch for entry in (*self.entries, *self.replaced)}


def read_state(files: Files) -> State:
    """Look at a table. What `Files` raises comes through, and `UnreadableRecord` for a fence."""
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


def _look(files: Files) -> State:
    found = [batch_of(status.name) for status in files.list(COMMITS)]
    checkpoint = read_newest(files)
    claims = list_claims(files)
    covered = {entry.batch for entry in checkpoint.entries}
    open_names = sorted({batch for batch in found if batch is not None and batch not in covered})
    counting, abandoned = _decide(files, open_names, claims)
    read: list[Entry] = []
    unreadable = list(checkpoint.unreadable)
    for result in each(lambda batch: _read_entry(files, batch), counting):
        if isinstance(result, Entry):
            read.append(result)
        else:
            unreadable.append(result)
    every = sorted((*checkpoint.entries, *read), key=lambda entry: (entry.committed, entry.batch))
    replaced = {name for entry in every for name in entry.replaces}
    return State(
        entries=tuple(entry for entry in every if str(entry.batch) not in replaced),
        replaced=tuple(entry for entry in every if str(entry.batch) in replaced),
        abandoned=tuple(abandoned),
        unreadable=tuple(unreadable),
        checkpoint=checkpoint,
        uncovered=tuple(read),
        claims=claims,
    )


def _read_entry(files: Files, batch: BatchName) -> Entry | UnreadableRecord:
    try:
        return decode_entry(files.read(batch.commit), batch.commit)
    except UnreadableRecord as problem:
        return problem


def _decide(
    files: Files, batches: Iterable[BatchName], claims: Listing
) -> tuple[list[BatchName], list[BatchName]]:
    """Which of the batches count, and which do not."""
    decided: dict[tuple[Seat, int], frozenset[int] | None] = {}
    counting, abandoned = [], []
    for batch in batches:
        key = (batch.seat, batch.epoch)
        if key not in decided:
            decided[key] = counted_of(files, batch.seat, batch.epoch, claims)
        numbers = decided[key]
        (counting if numbers is None or batch.number in numbers else abandoned).append(batch)
    return counting, abandoned


def counted_of(files: Files, seat: Seat, epoch: int, claims: Listing) -> frozenset[int] | None:
    """The numbers of an epoch's batches that count, as its fence has them; None: all, since nobody came after it."""
    after = (seat, epoch + 1)
    if after not in claims.claims:
        return None
    if after in claims.fences:
        return read_fence(files, *after).counts
    # The new owner has put its claim and not its fence: it may have died in between. Whoever comes by may make it.
    try:
        return publish_fence(files, *after).counts
    except FilesRefused:
        return None  # we may only read: whatever was acked is in our listing too, and perhaps one more
