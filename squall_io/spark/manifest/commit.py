"""The commit protocol: how a batch gets into the table exactly once, whichever process dies, freezes or retries, at any step.

A batch of the owner of (writer id, epoch n) goes through these steps, each of which may be tried again:

1. write    Spark writes its rows to `staging/<batch>/<attempt>/`, a folder that no other job has ever written to.
2. list     the files that Spark wrote are found.
3. check    is there a claim of epoch n + 1? If so, nothing more is moved: `Superseded`.
4. move     each file is renamed to its place among the table's files, under a name that only this attempt has.
5. publish  the manifest entry, with every file and its digest, is put if absent at `commits/<batch>.json`.
6. look     is there a claim of epoch n + 1? If so, the batch is not acked: `Superseded`.
7. ack      the batch's tuples are acked.
8. clear    `staging/<batch>/` is deleted.

**What counts.** Readers see the rows of a batch if its entry counts. An entry counts if a checkpoint contains it. Any other
entry of epoch n counts if there is no claim n + 1, or if fence n + 1 names it. A fence is put once (put if absent) and never
changed. `state.read_state` lists the entries first, then claims and fences, and reads the newest checkpoint last.

**Why it is right.** A call sees everything that was put before the call began, unless it was deleted (`files.Files`). Claims,
fences and the newest checkpoint are never deleted; those of rewriters are when a checkpoint has closed their epochs, which
`claims` describes, and what follows holds for epochs that are not closed. An entry is deleted only if a checkpoint has it, or
if a fence leaves it out.

*The lemma.* Suppose a process found entry A of epoch n, and later found no claim n + 1. Then A counts for every read that
begins after that. Proof: if there ever is a claim n + 1, it was put after A existed. Fence n + 1 is made from a listing that
begins after its maker has seen claim n + 1, hence after A existed. If the listing shows A, the fence names it. Otherwise A was
deleted before the listing. No sweeper did that, since sweepers delete only entries that a fence leaves out; so a checkpoint has
A, and is older than the fence. A reader looks for checkpoints after it has read the fence, so it finds this checkpoint, or a
newer one, which contains the same entries. Without a fence, the reader sees A itself, or finds that A is gone; in that case, a
checkpoint has A.

*A batch that was acked counts for ever*: its owner put its entry A, and later found no claim n + 1 (step 6). *A batch that a
reader has seen to count will count for ever*: the reader found A and later no claim n + 1, or a fence that names A, or a
checkpoint that has A. Fences do not change, and neither do checkpoints. So the maker of a checkpoint may include all entries
that it has seen to count.

*A batch that does not count is never acked.* Suppose fence n + 1 does not name A, and no checkpoint has A. Then A was put after
the listing for the fence began, so after claim n + 1 was put. Step 6 comes even later, and finds the claim.

*Once.* An epoch has one owner, since its claim is put if absent. Only this owner names batches of the epoch, and it numbers
them one after the other. If the answer to step 5 is lost, the step is tried again. If the second try finds an entry with this
batch's digest, the first try succeeded, since no other task uses the entry's name. If the name is taken, but the entry is gone
when it is read, either a checkpoint has the entry or a sweeper has deleted it. There is a sweeper only if there is a claim
n + 1, so step 6 shows which of the two happened. If an entry is put again although a checkpoint has it, readers see one batch.

*Whole.* A reader learns a batch's files only from its entry, which is put after all of the files are in place. Spark tasks of a
failed attempt may still write, but only to the folder of their own attempt, which is not the attempt that the entry describes.

*Nothing of a dead owner is left* after a sweep that began when claim and fence n + 1 existed, except new files in the staging
folder of a zombie. Files are moved only if step 3 saw no claim after step 2 had found the files, so every file that is ever
moved was in the staging folder before claim n + 1 was put. A sweeper looks for files after that claim was put. It finds each
file either in the staging folder, or moved to the table's directory that has the same path as the file's directory in the
staging folder (see `sweep`), and deletes it. Files that a zombie's Spark job writes later are never moved. The job creates the
staging folder again, so the next sweeper finds it. An entry that a zombie puts later does not count, and the next sweeper
deletes it too.

*A sweeper need not own the writer id.* It must only make sure that claim and fence n + 1 exist before it reads what counts:
from then on, a batch that does not count never will. Three kinds of sweepers do so: the next owner; a task of the same sink,
for a task that is gone; and `squall table --sweep`, for submissions that have ended. The command puts a sweeper's claim if
there is no claim n + 1 (see `ended`). A task that was wrongly presumed dead finds the claim at step 3 or 6.

*An owner that is alive, and finds only sweepers' claims after its own, takes the writer id back* (`claims.take_back`). It puts
the next claim if absent, so the new epoch also has one owner, and no other owner is superseded. If the entry of its current
batch may have been put, it then checks whether that batch counts (`state.has_counted`). The batch counts for ever and is acked
if fence n + 1 names it, or if it is in a checkpoint that is read after the fence. In all other cases it will never count,
even if the entry arrives late: a task that put the entry into a later checkpoint would have seen it count while there was no
claim n + 1; by the lemma, the fence would name the entry, or a checkpoint older than the fence would have it. So the owner
writes the rows again, as a batch of the new epoch, which goes through the same steps.

If a batch counts, those of its files that are not in its entry may be deleted at any time, without a claim: the owner is past
step 4.

**Possible duplicates.** If an owner dies between steps 5 and 7, it leaves a batch that counts but was not acked. The batch's
tuples are replayed, and their rows are written again in a batch of the next owner. The same happens if an owner's entry existed
when the fence was made, but the owner found itself superseded at step 6. Reading with `key=` removes such rows. An owner that
takes its writer id back causes no duplicates: it checks whether its batch counts.

**A reader without write access** that finds a claim without its fence cannot make the fence. The reader assumes that all
entries of the previous epoch count: those that were acked, and perhaps one more (`TableState.uncertain`).
Must not know: Spark, tuples, threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field

from squall.stores.concurrently import map_concurrently
from squall.stores.files import AbsentFile, Files, FileStatus
from squall_io.spark.manifest.claims import require_owner
from squall_io.spark.manifest.entries import BatchEntry, DataFile, Parts, decode_entry, encode_entry
from squall_io.spark.manifest.layout import BatchName, WriterId, is_hidden, place_in
from squall_io.spark.manifest.sweep import delete_leftovers
from topology_api import SquallError


class BatchLost(SquallError):
    """The files that Spark wrote for a batch are gone: they have to be written again."""


class BatchConflict(SquallError):
    """Another process has written a file whose name belongs only to this batch."""


@dataclass(frozen=True)
class Owner:
    """The owner of a writer id in an epoch, with the names that the owner writes into its entries."""

    writer_id: WriterId
    epoch: int
    topology: str
    topology_id: str
    component: str
    incarnation: tuple[int, int]


@dataclass(frozen=True)
class Replacement:
    """What a batch replaces whose rows were committed before: see `rewriting`."""

    #: The names of the batches.
    replaces: tuple[str, ...] = ()
    #: The parts of each file that was written, by its path below the folder of the attempt.
    parts: Mapping[str, Parts] = field(default_factory=dict)
    #: Files of the replaced batches that stay as they are.
    kept: tuple[DataFile, ...] = ()
    #: As in `BatchEntry`.
    dropped: Parts = ()


@dataclass
class BatchCommit:
    """One batch on its way into the table, after Spark has written it to `name.attempt(attempt)`.

    `run` takes all remaining steps. If it raises `FilesUnavailable`, run it again later: it continues at the same step. After
    `BatchLost`, Spark must write the batch again, to the folder of the next attempt, and a new commit is made for that attempt.
    """

    files: Files
    owner: Owner
    name: BatchName
    rows: int
    schema: int
    attempt: int = 1
    _: KW_ONLY
    #: The table's folder of data files (`TableRecord.data`).
    data: str
    replacement: Replacement = field(default_factory=Replacement)
    #: The wall clock, in seconds since 1970.
    wall: Callable[[], float]
    #: Called before each step, with the step's name: tests use it to freeze, kill or fail a commit at that step.
    at: Callable[[str], None] = lambda step: None
    #: The current path of each file, and the data file that it becomes; None: not listed yet.
    _moves: list[tuple[str, DataFile]] | None = field(default=None, init=False)
    _entry: BatchEntry | None = field(default=None, init=False)
    _moved: bool = field(default=False, init=False)

    @property
    def entry(self) -> BatchEntry | None:
        """The entry, if this commit has put it, or has found it; a batch may count without."""
        return self._entry

    @property
    def size(self) -> int:
        """Bytes of the files that Spark has written; 0: they are not listed yet."""
        return sum(file.size for _, file in self._moves or ())

    def run(self) -> BatchEntry:
        """Take steps 2 to 6, and return the entry, which then counts. Raises `Superseded`, `BatchLost`, `BatchConflict`, and
        errors of `Files`.
        """
        if self._moves is None:
            self.at("list")
            self._moves = self._list()
        if not self._moved:
            self.at("move")
            map_concurrently(lambda move: self._move(*move), self._moves)
            self._moved = True
        if self._entry is None:
            self.at("publish")
            self._entry = self._publish()
        self.at("look")
        self._look()
        return self._entry

    def clear(self) -> None:
        """Delete the rest of the staging folder, and files that earlier attempts moved. The batch must have been acked."""
        self.at("clear")
        if self.attempt > 1:
            delete_leftovers(self.files, self.name, {file.path for _, file in self._moves or ()})
        else:
            self.files.delete(self.name.staging)

    def _list(self) -> list[tuple[str, DataFile]]:
        """Find what Spark wrote, and give each file its place."""
        folder = self.name.attempt(self.attempt)
        below = len(folder) + 1
        staged = [status for status in self.files.walk(folder) if is_data(status, below)]
        self.at("check")
        self._look()
        written = self.replacement.parts
        if self.rows and not staged and not self.replacement.kept:
            raise BatchLost(f"batch {self.name}: Spark has left no file in {self.files.root}/{folder}")
        if written.keys() - {status.path[below:] for status in staged}:
            raise self._lost(folder)
        try:
            digests = map_concurrently(lambda status: self.files.digest(status.path), staged)
        except AbsentFile as missing:
            raise self._lost(folder) from missing
        moves = []
        for number, (status, digest) in enumerate(zip(staged, digests)):
            directory, _, name = status.path[below:].rpartition("/")
            place = place_in(directory, self.name.data_file(self.attempt, number, suffix_of(name)))
            parts = written.get(status.path[below:], ())
            moves.append((status.path, DataFile(place_in(self.data, place), status.size, digest, parts)))
        return moves

    def _move(self, source: str, file: DataFile) -> None:
        """Rename a file to its place, unless an earlier try, whose answer was lost, has already renamed it."""
        with suppress(AbsentFile):
            if self.files.move_if_absent(source, file.path):
                return
        try:
            digest = self.files.digest(file.path)
        except AbsentFile as missing:
            raise self._lost(source) from missing
        if digest != file.digest:
            raise BatchConflict(
                f"batch {self.name}: {self.files.root}/{file.path} is there already, with other content. Only this batch"
                " may use this name: does a second cluster, made from a copy of this cluster's store, write to this table, or"
                " was the file changed by hand?"
            )

    def _publish(self) -> BatchEntry:
        """Put the manifest entry; return the entry that is then in the table."""
        entry = BatchEntry(
            batch=self.name,
            topology=self.owner.topology,
            topology_id=self.owner.topology_id,
            component=self.owner.component,
            incarnation=self.owner.incarnation,
            schema=self.schema,
            rows=self.rows,
            files=(*(file for _, file in self._moves or ()), *self.replacement.kept),
            committed=self.wall(),
            replaces=self.replacement.replaces,
            dropped=self.replacement.dropped,
        )
        path = self.name.commit
        if self.files.put_if_absent(path, encode_entry(entry)):
            return entry
        try:
            there = decode_entry(self.files.read(path), path)
        except AbsentFile:
            return entry  # put by an earlier try, and now in a checkpoint or swept: step 6 shows which
        if there.content != entry.content:
            raise BatchConflict(
                f"batch {self.name}: its entry {self.files.root}/{path} is there already, and belongs to a different"
                " batch. Only this batch may use this name: does a second cluster, made from a copy of this cluster's store,"
                " write to this table?"
            )
        return there

    def _look(self) -> None:
        """Raise `Superseded` if this owner is no longer the owner."""
        require_owner(self.files, self.owner.writer_id, self.owner.epoch)

    def _lost(self, path: str) -> BatchLost:
        """Return the error for a file that is gone. Raises `Superseded` if a new owner may have swept the file."""
        self._look()
        return BatchLost(f"batch {self.name}: {self.files.root}/{path}, or a file in it, is gone")


def is_data(status: FileStatus, below: int) -> bool:
    """Return whether a file in a staging folder holds rows. Spark's other files there have a hidden part in their path."""
    return not status.is_folder and not any(map(is_hidden, status.path[below:].split("/")))


def suffix_of(name: str) -> str:
    """Return the ending that shows readers the format and compression of a file: ".snappy.parquet" for
    "part-00000-<uuid>-c000.snappy.parquet"."""
    return "".join(name.partition(".")[1:])
