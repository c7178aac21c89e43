"""The commit protocol: how a batch gets into the table once, whatever dies, freezes or asks twice, and wherever.

A batch of the owner of (writer id, epoch n) goes through these steps, each of which may be tried again:

1. write    Spark writes its rows to `staging/<batch>/<attempt>/`, a folder that no other job has ever written to.
2. list     the files that it left are found.
3. check    is there a claim of epoch n + 1? If so, nothing is moved any more: `Superseded`.
4. move     each file is renamed to its place among the table's files, under a name that only this attempt has.
5. publish  the manifest entry, with every file and its digest, is put at `commits/<batch>.json`, where nothing was.
6. look     is there a claim of epoch n + 1? If so, the batch is not acked: `Superseded`.
7. ack      the batch's tuples are acked.
8. clear    `staging/<batch>/` is deleted.

**What counts.** An entry that a checkpoint has counts. Any other entry of epoch n counts if there is no claim n + 1, or if
fence n + 1 names it. A fence is put once (put if absent) and never changed. `state.read_state` lists the entries first, then
claims and fences, and reads the newest checkpoint last.

**Why it is right.** What was put before a call began, and is not deleted, is seen by it (`files.Files`). Claims, fences and
the newest checkpoint are never deleted. An entry is deleted only when a checkpoint has it, or when a fence has left it out.

*The lemma.* Let a process have found entry A of epoch n, and later have found no claim n + 1. Then A counts for every look that
begins after that. For claim n + 1, if there ever is one, was put after A was there; fence n + 1 is made from a listing that
begins after its maker has seen claim n + 1, hence after A was there. Either the listing shows A: then the fence names it. Or
A was deleted before; not by a sweeper, who deletes only what a fence has left out, so because a checkpoint has it. Then the
checkpoint is older than the fence, and a reader, who looks for it after it has read the fence, finds it, or a newer one,
which has all that it has. Without a fence the reader sees A itself, or finds it gone, and then the same holds.

*What was acked counts for ever*: its owner put A, and found no claim later (step 6). *What a reader has seen
to count will count for ever*: it found A, and no claim later, or a fence that names it, or a checkpoint that has it; those do
not change. So the maker of a checkpoint may put what it has seen to count into it.

*What does not count is never acked.* Fence n + 1 does not name A and no checkpoint has it: A was put after the listing that
made the fence began, so after claim n + 1; step 6 comes after it and finds the claim.

*Once.* The name of a batch is given by its owner alone: an epoch has one owner (its claim is put if absent), which numbers
its batches one after the other. Should the answer to step 5 be lost, it is tried again, and "taken" is success when the
entry that exists has this batch's digest: no other task writes that name. If it is taken, and gone when it is read, a
checkpoint has it or a sweeper has deleted it; there is a sweeper only if there is a claim n + 1, so step 6 tells which.
Should an entry be put again that a checkpoint has, it is the same batch still.

*Whole.* A reader knows a batch's files from its entry alone, and the entry is put after all of them are in place. Files under
another attempt's name are not this one's, whatever still writes to its folder.

*Nothing of a dead owner is left* after a sweep that began when claim and fence n + 1 existed, apart from what is in the
zombie's staging folder: step 3 saw no claim after step 2 had found the files; so all that is ever moved was in the staging
folder before claim n + 1, and who sweeps, and looks there after it, finds each file either there, and deletes it, or moved, in
the directory of the table that has the name of the one in the staging folder (see `sweep`). What a zombie's Spark job writes
later is never moved. It creates the staging folder again, so the next sweeper finds it. An entry that a zombie puts later
does not count, and is deleted by the next sweeper too.

*Who sweeps need not own the writer id.* All that is asked of a sweeper is that claim and fence n + 1 are there before it
looks what counts: from then on what it finds not to count never will. The next owner sees to that, a task of the same sink
for one that is gone, and `squall table --sweep` for submissions that have ended, by a sweeper's claim if there is none (see
`ended`). Who was wrongly taken for dead finds the claim at step 3 or 6.

*An owner that is alive, and finds only sweepers' claims after its own, takes the writer id back* (`claims.take_back`): it
puts the next claim if absent, so the new epoch has one owner, too, and no other owner is superseded by it. Of the batch in
hand, if its entry may have been put, it asks after that whether it counts (`state.has_counted`): named by fence n + 1, or in
a checkpoint that is read after the fence, it counts for ever, and is acked. Else it never will, even if an entry arrives
late: who puts it into a later checkpoint has seen it to count, so there was no claim n + 1 yet, and by the lemma the fence
would name it, or a checkpoint before the fence have it. Then its rows are written again, as a batch of the new epoch, whose
steps are these.

Of a batch that counts all files that are not in its entry may be deleted
at any time, without a claim: its owner is past step 4.

**What may be there twice.** An owner that dies between 5 and 7 leaves a batch that counts and was not acked: its tuples are
replayed, and their rows come again in a batch of the next owner. So does an owner whose entry was there when the fence was
made, and which was superseded when it looked. `key=` removes those on reading. An owner that takes its writer id back does
not: it knows what became of its batch.

**Who may only read** and finds a claim without its fence cannot make the fence; it takes all entries of the epoch for counted:
those that were acked, and perhaps one more (`State.uncertain`).
Must not know: Spark, tuples, threads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

from squall_io.spark.concurrently import map_concurrently
from squall_io.spark.manifest.claims import require_owner
from squall_io.spark.manifest.entries import BatchEntry, DataFile, decode_entry, encode_entry
from squall_io.spark.manifest.files import AbsentFile, Files, FileStatus
from squall_io.spark.manifest.layout import BatchName, WriterId, is_hidden
from squall_io.spark.manifest.sweep import delete_leftovers
from topology_api import SquallError


class BatchLost(SquallError):
    """The files that Spark wrote for a batch are gone: they have to be written again."""


class BatchConflict(SquallError):
    """Another process has written under a name that is this batch's alone."""


@dataclass(frozen=True)
class Owner:
    """The owner of a writer id in an epoch, with the names for its entries."""

    writer_id: WriterId
    epoch: int
    topology: str
    topology_id: str
    component: str
    incarnation: tuple[int, int]


@dataclass
class BatchCommit:
    """One batch on its way into the table, after Spark has written it to `name.attempt(attempt)`.

    `run` takes all steps that are left. When it raises `FilesUnavailable`, run it again later: it goes on where it was. After
    `BatchLost` Spark has to write the batch again, to the folder of the next attempt, for a commit of that attempt.
    """

    files: Files
    owner: Owner
    name: BatchName
    rows: int
    schema: int
    attempt: int = 1
    _: KW_ONLY
    #: The wall clock, in seconds since 1970.
    wall: Callable[[], float]
    #: Called with each step's name before the step; tests freeze, kill and fail here.
    at: Callable[[str], None] = lambda step: None
    #: Where each file is, and what it becomes; None: not listed yet.
    _moves: list[tuple[str, DataFile]] | None = None
    _entry: BatchEntry | None = None
    _moved: bool = False

    def run(self) -> BatchEntry:
        """Take steps 2 to 6; the entry, which counts. `Superseded`, `BatchLost`, `BatchConflict`, and what `Files` raises."""
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
        """Delete the rest of the staging folder, and files that earlier attempts have moved; the batch has been acked."""
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
        if self.rows and not staged:
            raise BatchLost(f"batch {self.name}: Spark has left no file in {self.files.root}/{folder}")
        try:
            digests = map_concurrently(lambda status: self.files.digest(status.path), staged)
        except AbsentFile as missing:
            raise self._lost(folder) from missing
        moves = []
        for number, (status, digest) in enumerate(zip(staged, digests)):
            directory, _, name = status.path[below:].rpartition("/")
            place = self.name.data_file(self.attempt, number, suffix_of(name))
            target = f"{directory}/{place}" if directory else place
            moves.append((status.path, DataFile(target, status.size, digest)))
        return moves

    def _move(self, source: str, file: DataFile) -> None:
        """Rename a file to its place, unless an earlier try, whose answer was lost, did it."""
        with suppress(AbsentFile):
            if self.files.move_if_absent(source, file.path):
                return
        try:
            digest = self.files.digest(file.path)
        except AbsentFile as missing:
            raise self._lost(source) from missing
        if digest != file.digest:
            raise BatchConflict(
                f"batch {self.name}: {self.files.root}/{file.path} is there already, with other content. The name is this"
                " batch's alone: does a copy of the cluster's store write to this table, or was the file changed by hand?"
            )

    def _publish(self) -> BatchEntry:
        """Put the manifest entry; return the one that exists."""
        owner = self.owner
        entry = BatchEntry(
            self.name,
            owner.topology,
            owner.topology_id,
            owner.component,
            owner.incarnation,
            self.schema,
            self.rows,
            tuple(file for _, file in self._moves or ()),
            self.wall(),
        )
        path = self.name.commit
        if self.files.put_if_absent(path, encode_entry(entry)):
            return entry
        try:
            there = decode_entry(self.files.read(path), path)
        except AbsentFile:
            return entry  # an earlier try put it, and it is in a checkpoint, or swept: the look will tell
        if there.content != entry.content:
            raise BatchConflict(
                f"batch {self.name}: its entry {self.files.root}/{path} is there already, and is another batch's. The name"
                " is this batch's alone: does a copy of the cluster's store write to this table?"
            )
        return there

    def _look(self) -> None:
        """Whether this owner is still the owner. Raises `Superseded`."""
        require_owner(self.files, self.owner.writer_id, self.owner.epoch)

    def _lost(self, path: str) -> BatchLost:
        """Return what a file that is gone means, if no new owner has swept it. Raises `Superseded`."""
        self._look()
        return BatchLost(f"batch {self.name}: {self.files.root}/{path} is gone, or a file in it")


def is_data(status: FileStatus, below: int) -> bool:
    """Return whether a file in a staging folder holds rows: no part of its path there is hidden, as Spark's own files are."""
    return not status.is_folder and not any(map(is_hidden, status.path[below:].split("/")))


def suffix_of(name: str) -> str:
    """Return the ending by which readers know format and compression: ".snappy.parquet" of
    "part-00000-<uuid>-c000.snappy.parquet"."""
    dot = name.find(".")
    return name[dot:] if dot >= 0 else ""
