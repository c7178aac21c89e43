"""The commit protocol: how a batch gets into the table once, whatever dies, freezes or asks twice, and wherever.

A batch of the owner of (seat, epoch n) goes through these steps, each of which may be tried again:

1. write    Spark writes its rows to `staging/<batch>/`.
2. move     each file is renamed to its place among the table's files, under a name that only this batch has.
3. publish  the manifest entry, with every file and its digest, is put at `commits/<batch>.json`, where nothing was.
4. look     is there a claim of epoch n + 1? If so, the batch is not acked: `Superseded`.
5. ack      the batch's tuples are acked.
6. clear    `staging/<batch>/` is deleted.

**What counts.** An entry of epoch n counts if there is no claim n + 1, or if fence n + 1 names it. A fence is put once (put
if absent) and never changed. `state.read_state` lists the entries first and the claims after them.

**Why it is right.** Calls on the store are atomic, and what was put before a call began is seen by it (`files.Files`).

*What was acked counts for ever.* A was acked in epoch n, so its entry was there before step 4 began, and no claim n + 1 was
there when step 4 looked; so claim n + 1, if there ever is one, was put after the entry. Fence n + 1 is made from a listing
that begins after its maker has seen claim n + 1, hence after the entry: it names the entry, whoever made it. And until there
is a claim n + 1, the entry counts without a fence. Entries are deleted only once a checkpoint has them (`checkpoints`).

*What a reader has seen to count will count for ever.* With no claim n + 1 in a listing that was begun after the entry was seen, the
same argument holds. With a fence, fences do not change.

*What does not count is never acked.* The entry is not in fence n + 1, so it was put after the listing that made the fence,
so after claim n + 1; step 4 comes after it and finds the claim.

*Once.* The name of a batch is given by its owner alone: an epoch has one owner (its claim is put if absent), which numbers
its batches one after the other. Should the answer to step 3 be lost, it is tried again, and "taken" is success when the
entry that is there has the digest of ours: nobody else writes that name.

*Whole.* A reader knows a batch's files from its entry alone, and the entry is put after all of them are in place.

**What may be there twice.** An owner that dies between 3 and 5 leaves a batch that counts and was not acked: its tuples are
replayed, and their rows come again in a batch of the next owner. `key=` removes those on reading.

**Leftovers**: see `sweep`.
Must not know: Spark, tuples, threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from squall_io.spark.manifest.claims import Superseded, is_owner, read_claim
from squall_io.spark.manifest.entries import DataFile, Entry, decode_entry, encode_entry
from squall_io.spark.manifest.files import FileMissing, Files, FileStatus, each
from squall_io.spark.manifest.layout import BatchName, Seat
from topology_api import SquallError


class BatchLost(SquallError):
    """What Spark wrote for a batch is not there any more: it has to be written again."""


class BatchConflict(SquallError):
    """Somebody else has written under a name that is this batch's alone."""


@dataclass(frozen=True)
class Owner:
    """The owner of a seat in an epoch, with the names that go into its entries."""

    seat: Seat
    epoch: int
    topology: str
    topology_id: str
    component: str
    incarnation: tuple[int, int]


@dataclass
class BatchCommit:
    """One batch on its way into the table, after Spark has written it to `name.staging`.

    `run` takes all steps that are left. When it raises `FilesUnavailable`, run it again later: it goes on where it was.
    """

    files: Files
    owner: Owner
    name: BatchName
    rows: int
    schema: int
    #: Called with each step's name before it is taken; tests freeze, kill and fail here.
    at: Callable[[str], None] = lambda step: None
    wall: Callable[[], float] = time.time
    _moves: list[tuple[str, DataFile]] = field(default_factory=list)
    _entry: Entry | None = None
    _listed: bool = False
    _moved: bool = False
    _published: bool = False

    def run(self) -> Entry:
        """Move, publish, look; the entry, which counts. `Superseded`, `BatchLost`, `BatchConflict`, and what `Files` raises."""
        if not self._listed:
            self.at("list")
            self._list()
        if not self._moved:
            self.at("move")
            self._move()
        if not self._published:
            self.at("publish")
            self._publish()
        self.at("look")
        self._look()
        assert self._entry is not None
        return self._entry

    def clear(self) -> None:
        """Delete what is left of the staging folder; the batch has been acked."""
        self.at("clear")
        self.files.delete(self.name.staging)

    def _list(self) -> None:
        """Find what Spark wrote, and give each file its place."""
        below = len(self.name.staging) + 1
        staged = [status for status in self.files.walk(self.name.staging) if is_data(status, below)]
        if self.rows and not staged:
            raise BatchLost(f"batch {self.name}: Spark has left no file in {self.files.root}/{self.name.staging}")
        digests = each(lambda status: self.files.digest(status.path), staged)
        self._moves = []
        for number, (status, digest) in enumerate(zip(staged, digests)):
            folder, _, name = status.path[below:].rpartition("/")
            place = self.name.data_file(number, suffix_of(name))
            target = f"{folder}/{place}" if folder else place
            self._moves.append((status.path, DataFile(target, status.size, digest)))
        self._listed = True

    def _move(self) -> None:
        """Rename each file to its place."""
        each(lambda move: self._move_file(*move), self._moves)
        self._moved = True

    def _move_file(self, source: str, file: DataFile) -> None:
        try:
            if self.files.move_if_absent(source, file.path):
                return
        except FileMissing:
            if not self.files.exists(file.path):
                self._look()  # a new owner sweeps; else it is a riddle
                raise BatchLost(f"batch {self.name}: {self.files.root}/{source} is gone") from None
        # An earlier try of ours did it, and its answer was lost; or somebody writes under our names.
        if self.files.digest(file.path) != file.digest:
            raise BatchConflict(
                f"batch {self.name}: {self.files.root}/{file.path} is there already, with other content. The name is this"
                " batch's alone: is this table written by a copy of the topology's store, or was the file changed by hand?"
            )

    def _publish(self) -> None:
        """Put the manifest entry."""
        if self._entry is None:
            owner = self.owner
            self._entry = Entry(
                self.name,
                owner.topology,
                owner.topology_id,
                owner.component,
                owner.incarnation,
                self.schema,
                self.rows,
                tuple(file for _, file in self._moves),
                self.wall(),
            )
        path = self.name.commit
        if not self.files.put_if_absent(path, encode_entry(self._entry)):
            there = decode_entry(self.files.read(path), path)
            if there.content != self._entry.content:
                raise BatchConflict(
                    f"batch {self.name}: its entry {self.files.root}/{path} is there already, and is another batch's"
                )
            self._entry = there
        self._published = True

    def _look(self) -> None:
        """Whether this owner is still the owner; `Superseded`."""
        seat, epoch = self.owner.seat, self.owner.epoch
        if not is_owner(self.files, seat, epoch):
            claim = read_claim(self.files, seat, epoch + 1)
            raise Superseded(seat, epoch + 1, f"{claim.owner}, incarnation {claim.incarnation}")


def is_data(status: FileStatus, below: int) -> bool:
    """Whether a file in a staging folder holds rows: no part of its path there is hidden, as Spark's own files are."""
    return not status.is_folder and not any(part[:1] in "_." for part in status.path[below:].split("/"))


def suffix_of(name: str) -> str:
    """The ending by which readers know format and compression: ".snappy.parquet" of "part-00000-<uuid>-c000.snappy.parquet"."""
    dot = name.find(".")
    return name[dot:] if dot >= 0 else ""
