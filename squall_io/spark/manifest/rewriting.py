"""Replaces batches of a table by others with the same rows in fewer files, while writers and readers go on.

    rewriter = Rewriter(files, whose, wall)
    rewriter.begin()                                # becomes the owner of the writer id of rewriters
    state = rewriter.read()
    for step in plan(state, Wanted(target_size)):
        name = rewriter.next_batch()
        parts = ...                                 # write the files of each of step.merges below name.attempt(1)
        rewriter.commit(name, step, parts, table.data)
    rewriter.end()

A rewriter is an owner as a task of a sink is: its batch goes through the steps of `commit`, and the entry names the batches
that it *replaces*. Who reads the manifest reads either these, or the batch that replaces them.

**Why no row is there twice, and none is lost.** All rewriters of a table share one writer id. A rewriter chooses what to
replace from the entries that count for certain, among those that nothing has replaced, after it has made the fence of the
rewriter before it. So an entry of an earlier rewriter is either in the state that it reads, or will never count. In its own
epoch it replaces each batch once. (Of an epoch that a checkpoint has closed, nothing counts that no checkpoint has: see
`claims`.) So of the entries that count, at most one replaces a batch, and it has all of its rows: what is replaced counts for
ever, and its files do not change.

*Nothing is deleted here.* The files of replaced batches stay for readers that began earlier, until a vacuum. Their entries
stay for ever: a batch that is replaced has been taken, and readers of single batches find its rows by them (see `originals`).

*An entry that is not certain* is left out by readers that may not write (see `state`): its rows are in the batches it
replaces.
Must not know: Spark, file formats, sinks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from squall.stores.files import AbsentFile, Files
from squall_io.spark.manifest import layout
from squall_io.spark.manifest.claims import list_claims, read_claim, require_owner, take_over
from squall_io.spark.manifest.commit import BatchCommit, Owner, Replacement
from squall_io.spark.manifest.entries import BatchEntry, DataFile, Parts
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.holders import Holder, Myself
from squall_io.spark.manifest.layout import REWRITER, BatchName
from squall_io.spark.manifest.originals import OriginalBatch, originals_of
from squall_io.spark.manifest.state import TableState, read_state, require_readable
from squall_io.spark.manifest.sweep import now_of, sweep
from topology_api import SquallError

#: The size of a file after a compaction, in bytes: a block of HDFS.
TARGET: Final = 128 << 20
#: A file below this share of the target is small.
_SMALL: Final = 0.75
#: A small file that is this many times as large as all others stays.
_MUCH: Final = 4
#: The most files that a batch takes rows from: its entry names each of them, in some 100 bytes.
MOST_PARTS: Final = 50_000
#: Without a sign of life for so long, in seconds, a rewriter is presumed dead.
QUIET: Final = 600.0
#: Seconds between two signs of life.
_SIGN: Final = 30.0
#: The component in the entries of rewriters.
COMPONENT: Final = "table"


class RewriterBusy(SquallError):
    """Another rewriter works on the table."""


@dataclass(frozen=True)
class Wanted:
    """What a compaction is to do."""

    target: int = TARGET
    #: Only files below this partition directory, relative to the folder of the data files: `day=1`; "": all.
    partition: str = ""
    #: The folder of the data files (`TableRecord.data`).
    data: str = ""
    #: Only files of these directories; None: of all.
    only: frozenset[str] | None = None

    @property
    def small(self) -> int:
        """Files with fewer bytes are small."""
        return int(self.target * _SMALL)

    def has(self, directory: str) -> bool:
        """Return whether the files of a directory are to be compacted."""
        if self.only is not None and directory not in self.only:
            return False
        below = layout.place_in(self.data, self.partition)
        return directory == below or not below or directory.startswith(f"{below}/")


@dataclass(frozen=True)
class RowPiece:
    """Consecutive rows of a file, which were committed in one file."""

    file: DataFile
    #: The name of the file that they were committed in.
    name: str
    first: int
    #: None: all rows of `file`.
    rows: int | None
    #: The number of the schema that `file` was written with.
    schema: int
    #: Their place in the order of commits.
    order: tuple[object, ...] = field(compare=False)


@dataclass(frozen=True)
class Merge:
    """Files of one directory that become one file."""

    directory: str
    sources: tuple[DataFile, ...]
    #: The rows of the new file, in their order.
    pieces: tuple[RowPiece, ...]
    #: The number of the schema of the new file.
    schema: int

    @property
    def size(self) -> int:
        """The bytes to be read."""
        return sum(file.size for file in self.sources)


@dataclass(frozen=True)
class Step:
    """What one new batch replaces."""

    replaced: tuple[BatchEntry, ...]
    merges: tuple[Merge, ...]
    #: Files of the replaced batches that the new batch takes over as they are.
    kept: tuple[DataFile, ...]
    #: The files whose rows the new batch does not have, and how many (`BatchEntry.dropped`).
    dropped: Parts = ()

    @property
    def rows(self) -> int:
        """The rows of the batch."""
        return sum(entry.rows for entry in self.replaced) - sum(rows for _, rows in self.dropped)

    @property
    def schema(self) -> int:
        """The number of the schema of the new files; without any, that of the replaced batches."""
        return max(each.schema for each in self.merges or self.replaced)

    @property
    def replaces(self) -> tuple[str, ...]:
        """The names of the replaced batches."""
        return tuple(str(entry.batch) for entry in self.replaced)


def plan(state: TableState, wanted: Wanted) -> list[Step]:
    """Decide what to compact: small files of the same directory, in the order of the commits, up to the target size."""
    uncertain = set(state.uncertain)
    certain = [entry for entry in state.entries if entry.batch not in uncertain and entry.files]
    return [step for group in _groups(certain, wanted) if (step := _step(group, state, wanted)) is not None]


def _groups(entries: Iterable[BatchEntry], wanted: Wanted) -> Iterator[list[BatchEntry]]:
    """Yield consecutive entries that may become one batch: their small files fill one file in each of their directories."""
    group: list[BatchEntry] = []
    directories: set[str] = set()
    size = parts = 0
    for entry in entries:
        small = [file for file in entry.files if file.size < wanted.small and wanted.has(file.directory)]
        added = sum(len(file.parts) or 1 for file in entry.files)
        if not small:
            continue
        if group and parts + added > MOST_PARTS:
            yield group
            group, directories, size, parts = [], set(), 0, 0
        group.append(entry)
        directories.update(file.directory for file in small)
        size += sum(file.size for file in small)
        parts += added
        if size >= wanted.small * len(directories):
            yield group
            group, directories, size, parts = [], set(), 0, 0
    yield group


def _step(group: Sequence[BatchEntry], state: TableState, wanted: Wanted) -> Step | None:
    """Return how a group becomes one batch; None if nothing is gained."""
    pieces = {entry.batch: _pieces(entry, state) for entry in group}
    small: dict[str, list[tuple[DataFile, list[RowPiece]]]] = defaultdict(list)
    for entry in group:
        for file in entry.files:
            own = pieces[entry.batch].get(file.path)
            if own and file.size < wanted.small and wanted.has(file.directory):
                small[file.directory].append((file, own))
    chosen = [
        (directory, each)
        for directory, found in sorted(small.items())
        for each in _chosen(sorted(found, key=lambda each: each[1][0].order), wanted.small)
    ]
    merged = {file.path for _, each in chosen for file, _ in each}
    replaced = tuple(entry for entry in group if entry.paths & merged)
    if not replaced:
        return None
    kept = tuple(file for entry in replaced for file in entry.files if file.path not in merged)
    # Schemas only grow: the newest one has all columns of the others.
    schema = max(entry.schema for entry in replaced)
    merges = (
        Merge(directory, tuple(file for file, _ in each), _in_order(each), schema)
        for directory, each in chosen
    )
    return Step(replaced, tuple(merges), kept)


def _chosen(
    found: Sequence[tuple[DataFile, list[RowPiece]]], small: int
) -> Iterator[list[tuple[DataFile, list[RowPiece]]]]:
    """Yield the files that become one file each. A file that is much larger than all others together stays, unless the new file
    is large enough to stay for good: otherwise each compaction would write its rows again."""
    chosen: list[tuple[DataFile, list[RowPiece]]] = []
    for each in found:
        chosen.append(each)
        if sum(file.size for file, _ in chosen) >= small:
            if len(chosen) > 1:
                yield chosen
            chosen = []
    while len(chosen) > 1:
        largest = max(chosen, key=lambda each: each[0].size)
        others = sum(file.size for file, _ in chosen) - largest[0].size
        if largest[0].size <= _MUCH * others:
            yield chosen
            return
        chosen.remove(largest)


def _in_order(chosen: Iterable[tuple[DataFile, list[RowPiece]]]) -> tuple[RowPiece, ...]:
    pieces = [piece for _, own in chosen for piece in own]
    return tuple(sorted(pieces, key=lambda piece: piece.order))


def _pieces(entry: BatchEntry, state: TableState) -> dict[str, list[RowPiece]]:
    """Return the pieces of each file of an entry, by its path. A file with rows whose batch is unknown has none."""
    found: dict[str, list[RowPiece]] = defaultdict(list)
    for original in originals_of(entry, state):
        for piece in _pieces_of(original):
            found[piece.file.path].append(piece)
    return {path: sorted(own, key=lambda piece: piece.first) for path, own in found.items()}


def _pieces_of(original: OriginalBatch) -> Iterator[RowPiece]:
    for each in original.ranges:
        name = original.entry.files[each.place].name
        yield RowPiece(each.file, name, each.first, each.rows, each.schema, (*original.order, each.place))


@dataclass
class Rewriter:
    """The one that may replace batches of a table, until another one begins.

    whose: host and process, for people. topology: what the entries name as their topology.
    """

    files: Files
    whose: str
    wall: Callable[[], float]
    topology: str = "squall compact"
    #: For those that would wait for this rewriter.
    holder: Holder = field(default_factory=Holder)
    #: Called before each step, with the step's name: tests use it to freeze, kill or fail a rewriter at that step.
    at: Callable[[str], None] = lambda step: None
    _owner: Owner | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)
    _last_sign: float | None = field(default=None, init=False)

    @property
    def epoch(self) -> int:
        """The epoch that this rewriter owns; 0 before `begin`."""
        return 0 if self._owner is None else self._owner.epoch

    def begin(self) -> None:
        """Become the rewriter, and delete what earlier rewriters have left. What an earlier one writes from now on does not
        count. After an error, call it again; after `end`, too, to go on in the same epoch, unless a call to commit has failed.
        """
        if self._owner is None:
            self.at("claim")
            incarnation = (1, 0)
            epoch = take_over(self.files, REWRITER, incarnation, self.whose, self.wall(), self.holder)
            self._owner = Owner(REWRITER, epoch, self.topology, REWRITER.topology_id, COMPONENT, incarnation)
        self.sign()
        self.at("sweep")
        sweep(self.files, REWRITER, self._owner.epoch)

    def require_owner(self) -> None:
        """Raise `Superseded` if another rewriter has begun."""
        require_owner(self.files, REWRITER, self._owned.epoch)

    def read(self) -> TableState:
        """Return the table, for `plan`. Raises `UnreadableManifest`."""
        return require_readable(self.files, read_state(self.files))

    def next_batch(self) -> BatchName:
        """Return the name of the next batch; its files are written below its first attempt."""
        self._number += 1
        return BatchName(REWRITER, self._owned.epoch, self._number)

    def sign(self) -> None:
        """Leave a sign of life, unless the last one is young."""
        now, last = self.wall(), self._last_sign
        if last is None or not last <= now < last + _SIGN:  # a clock may be set back
            self.files.replace(_sign_path(self._owned.epoch), b"")
            self._last_sign = now

    def commit(self, name: BatchName, step: Step, parts: Mapping[str, Parts], data: str) -> BatchCommit:
        """Return the commit of a step whose files are written: run it, until it returns.

        parts: what each file has, by its path below the folder of the attempt. data: as `TableRecord.data`. What the commit
        raises, see there; the rewriter is not needed any more after `Superseded`.
        """
        return BatchCommit(
            self.files,
            self._owned,
            name,
            step.rows,
            step.schema,
            data=data,
            replacement=Replacement(step.replaces, parts, step.kept, step.dropped),
            wall=self.wall,
            at=self.at,
        )

    def end(self) -> None:
        """Say that the work is done: another rewriter need not wait for signs of life."""
        self.at("end")
        self.files.delete(BatchName(REWRITER, self._owned.epoch, 0).staging)
        self._last_sign = None

    def give_up(self) -> None:
        """Delete what was staged for the newest batch, of which nothing was moved, and `end`."""
        if self._owner is not None:
            self.files.delete(BatchName(REWRITER, self._owner.epoch, self._number).staging)
            self.end()

    @property
    def _owned(self) -> Owner:
        assert self._owner is not None, "begin() comes first"
        return self._owner


def require_idle(files: Files, me: Myself = Myself()) -> None:  # noqa: B008 - it is frozen
    """Raise `RewriterBusy` if another rewriter seems to be alive. It is only polite: two at once do no harm."""
    epoch = list_claims(files).newest(REWRITER)
    staged = [named for status in files.list(layout.STAGING) if (named := layout.batch_of(status.name))]
    alive = [batch for batch in staged if (batch.writer_id, batch.epoch) == (REWRITER, epoch)]
    below = [status for batch in alive for status in files.walk(batch.staging) if not status.is_folder]
    last = max((status.modified for status in below), default=None)
    if last is None or (quiet := now_of(files) - last) > QUIET:
        return
    try:
        claim = read_claim(files, REWRITER, epoch)
    except (AbsentFile, UnreadableRecord) as error:
        who = f"one whose claim {error}"
    else:
        if claim.holder is not None and me.knows_to_be_gone(claim.holder):
            return
        who = f"that of {claim.owner}"
    raise RewriterBusy(
        f"another compaction is at work on {files.root}: {who}; its last sign of life was {max(quiet, 0.0):.0f} s ago"
    )


def _sign_path(epoch: int) -> str:
    return f"{BatchName(REWRITER, epoch, 0).staging}/alive"
