"""A table in memory with all actors that work on it: owners of writer ids, Spark's jobs, readers, makers of checkpoints.

The invariants of a run are checked at each read of a reader (`World.checked_look`) and at the end (`World.settle`). The world
defines the steps, not their order: a `Gate` from outside does (`step`), which may freeze, kill, or lose answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

from squall.stores.files import Files, FilesRefused, FilesUnavailable
from squall_io.spark.delta.log_names import FOLDER as DELTA
from squall_io.spark.manifest.claims import Superseded, take_over
from squall_io.spark.manifest.commit import BatchCommit, BatchLost, Owner
from squall_io.spark.manifest.entries import BatchEntry
from squall_io.spark.manifest.envelopes import digest_of
from squall_io.spark.manifest.layout import (
    DATA,
    FOLDER,
    REWRITER,
    STAGING,
    TMP,
    BatchName,
    WriterId,
    batch_of,
    claim_of,
    place_in,
)
from squall_io.spark.manifest.rewriting import Wanted
from squall_io.spark.manifest.state import TableState, checkpoint_if_due, read_state
from squall_io.spark.manifest.sweep import sweep, sweep_gone
from tests.squall_io import toy_compaction
from tests.squall_io.memory_files import HDFS, Gate, Manners, MemoryFiles, MemoryStore, Step, straight
from tests.squall_io.object_files import ObjectFiles, ObjectStore

T = TypeVar("T")

TOPOLOGY: Final = "counts-1-1700000000"
SINK: Final = "sink"
#: The rows of a batch: one file in each of these directories.
DIRECTORIES: Final = ("day=1", "day=2")
#: Files that must stay untouched: another topology's, another component's, with similar names.
OTHERS: Final = {
    f"{STAGING}/counts-2-1700000000.sink.0.1.1/1/day=1/part-00000-x.parquet": b"theirs 1",
    f"{STAGING}/{TOPOLOGY}.sink2.0.1.1/1/day=1/part-00000-x.parquet": b"theirs 2",
    f"{STAGING}/notes.txt": b"a person's",
    "day=1/squall-counts-2-1700000000.sink.0.1.1-1-00000.parquet": b"theirs 3",
    f"day=1/squall-{TOPOLOGY}.sink2.0.1.1-1-00000.parquet": b"theirs 4",
    f"day=1/squall-{TOPOLOGY}.sink.0.1.10-1-00000.parquet": b"of a batch that looks like batch 1",
    "day=1/old.parquet": b"a person's rows",
    f"{TMP}/counts-2-1700000000.sink.0.1.1.json.0123": b"theirs 5",
    f"{TMP}/1.json.0123": b"of an unfinished checkpoint",
}


class Broken(AssertionError):
    """The protocol has broken a promise."""


def writer_id(index: int = 0) -> WriterId:
    """The writer id of one of the sink's tasks."""
    return WriterId.of(TOPOLOGY, SINK, index)


class Store(Protocol):
    """The content of the store, without `Files`."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """The content of each file."""

    @property
    def folders(self) -> Collection[str]:
        """The paths of all folders."""

    def write(self, path: str, data: bytes) -> None:
        """Make a file with its folders, or replace it."""

    def remove(self, path: str) -> None:
        """Delete a file."""


@dataclass
class World:
    """The store, and an outside observer's knowledge of it."""

    manners: Manners = HDFS
    store: Store = field(default_factory=MemoryStore)
    #: Acked batches, with their entries; batches that a finished read has counted.
    acked: dict[BatchName, BatchEntry] = field(default_factory=dict)
    seen: set[BatchName] = field(default_factory=set)
    #: Writes that dead Spark jobs still have to make: each call writes one file.
    orphans: list[Callable[[], None]] = field(default_factory=list)
    #: How many jobs Spark has had, and how many batches compactions have made.
    jobs: int = 0
    merged: int = 0
    time: float = 1_700_000_000.0
    #: Whether files of replaced batches may be gone.
    vacuumed: bool = False
    #: The table's folder of data files: "" in a table of layout 1.
    data: str = DATA

    def __post_init__(self) -> None:
        if self.manners.objects:
            self.store = ObjectStore()
        self.furnish()

    def furnish(self) -> None:
        """Put into the store what is there before any actor."""
        for path, data in OTHERS.items():
            self.store.write(path, data)

    def files(self, gate: Gate = straight) -> Files:
        """The store as an actor sees it."""
        if isinstance(self.store, ObjectStore):
            return ObjectFiles(self.store, gate)
        assert isinstance(self.store, MemoryStore)
        return MemoryFiles(self.store, gate, self.manners)

    def wall(self) -> float:
        """A clock that advances."""
        self.time += 1.0
        return self.time

    # Actions

    def owner(
        self,
        gate: Gate,
        index: int = 0,
        incarnation: tuple[int, int] = (1, 0),
        batches: int = 1,
        parallelism: int = 1,
        job: Callable[[], str] = lambda: "good",
        checkpoint: bool = False,
    ) -> None:
        """A sink's task from its start: it takes over, sweeps, and commits batches, each until it is acked; or it is
        superseded.
        """
        files = self.files(gate)
        try:
            epoch = again(lambda: take_over(files, writer_id(index), incarnation, "host:1", self.time))
            again(lambda: sweep(files, writer_id(index), epoch))
            again(lambda: sweep_gone(files, writer_id(index), parallelism, incarnation, "host:1", self.time))
            for number in range(1, batches + 1):
                self.commit(files, index, epoch, number, incarnation, job)
                if checkpoint:
                    self.checkpoint(gate)
        except Superseded:
            pass

    def commit(
        self,
        files: Files,
        index: int,
        epoch: int,
        number: int,
        incarnation: tuple[int, int] = (1, 0),
        job: Callable[[], str] = lambda: "good",
    ) -> BatchEntry:
        """One batch of an owner, until it is acked."""
        owner = Owner(writer_id(index), epoch, "counts", TOPOLOGY, SINK, incarnation)
        name = BatchName(owner.writer_id, epoch, number)
        attempt = 0
        while True:
            attempt += 1
            if not self.spark(files, name, attempt, job()):
                continue
            commit = BatchCommit(
                files, owner, name, len(DIRECTORIES), 1, attempt, data=self.data, wall=self.wall
            )
            try:
                entry = again(commit.run)
            except BatchLost:
                continue
            self.acked[name] = entry
            again(commit.clear)
            return entry

    def spark(self, files: Files, name: BatchName, attempt: int, how: str) -> bool:
        """Spark writes a batch; return whether the job succeeds. How: "good", or "orphan": it fails, and a
        part of it goes on.
        """
        self.jobs += 1
        folder = name.attempt(attempt)
        again(
            lambda: files.replace(f"{folder}/_temporary/0/part-00000.parquet", b"what Spark has not finished")
        )
        writes = [
            (
                f"{folder}/{directory}/part-00000-{attempt}-c000.snappy.parquet",
                _rows(name, attempt, directory),
            )
            for directory in DIRECTORIES
        ]
        for number, (path, data) in enumerate(writes):
            if how == "orphan" and number == 1:
                self.orphans.append(partial(self.store.write, path, data))
                return False
            again(partial(files.replace, path, data))
        return True

    def reader(self, gate: Gate, looks: int = 1, may_write: bool = True) -> None:
        """A reader of the table."""
        for _ in range(looks):
            self.checked_look(gate if may_write else _read_only(gate))

    def checked_look(self, gate: Gate = straight) -> TableState:
        """Read the table, which must show everything that was acked, or seen by others, before the read began."""
        acked, seen = dict(self.acked), set(self.seen)
        files = self.files(gate)
        state = again(lambda: read_state(files))
        self._check(state, acked, seen)
        self.seen |= state.counted.keys() - set(state.uncertain)
        return state

    def checkpoint(self, gate: Gate) -> None:
        """A task that makes a checkpoint."""
        files = self.files(gate)
        with suppress(FilesUnavailable):  # the sink logs it, and tries again later
            checkpoint_if_due(files)

    def compactor(self, gate: Gate, target: int = 1_000, insists: bool = True) -> None:
        """A compaction; `insists`: it goes on if the store does not answer."""
        wanted = Wanted(target, data=self.data)
        for _ in range(3):
            with suppress(FilesUnavailable, Superseded):  # the command reports it, and the user repeats it
                insist = again if insists else lambda call: call()
                self.merged += toy_compaction.compact(
                    self.files(gate), self.wall, wanted, insist, self._compacted
                )

    def _compacted(self, entry: BatchEntry) -> None:
        self.acked[entry.batch] = entry

    def vacuum(self) -> None:
        """Delete the files of the batches that were replaced."""
        state = self.checked_look()
        kept = {path for entry in state.entries for path in entry.paths}
        for path in {path for entry in state.replaced for path in entry.paths} - kept:
            self.store.remove(path)
            self.vacuumed = True

    # Invariants

    def _check(self, state: TableState, acked: dict[BatchName, BatchEntry], seen: set[BatchName]) -> None:
        if state.unreadable:
            raise Broken(f"unreadable: {[str(problem) for problem in state.unreadable]}")
        entries = (*state.entries, *state.replaced)
        if len({entry.batch for entry in entries}) != len(entries):
            raise Broken(f"a batch is there twice: {sorted(str(entry.batch) for entry in entries)}")
        for batch in acked:
            if batch not in state.counted:
                raise Broken(f"{batch} was acked and does not count")
        for batch in seen - state.counted.keys():
            raise Broken(f"{batch} has counted and does not count any more")
        for entry in state.entries if self.vacuumed else entries:
            if not entry.replaces:
                self._check_whole(entry)
        self._check_moved(state)
        for entry in entries:
            if entry.batch in acked and entry.content != acked[entry.batch].content:
                raise Broken(f"{entry.batch} is another one than the one that was acked")

    def _check_moved(self, state: TableState) -> None:
        """A reader of single batches finds their rows, wherever compactions have moved them."""
        if wrong := toy_compaction.wrong_rows(state, self.store.files, DIRECTORIES):
            raise Broken(wrong)

    def _check_whole(self, entry: BatchEntry) -> None:
        """All rows of the batch are there exactly once."""
        rows: list[str] = []
        attempts: set[int] = set()
        for file in entry.files:
            data = self.store.files.get(file.path)
            if data is None:
                raise Broken(f"{entry.batch} counts, and its file {file.path} is gone")
            if (digest_of(data), len(data)) != (file.digest, file.size):
                raise Broken(f"{entry.batch} counts, and its file {file.path} has other content")
            record = json.loads(data)
            rows.append(record["directory"])
            attempts.add(record["attempt"])
            place = place_in(self.data, record["directory"])
            if record["batch"] != str(entry.batch) or file.path.rpartition("/")[0] != place:
                raise Broken(f"{entry.batch} has the rows of {record}")
        if sorted(rows) != sorted(DIRECTORIES) or len(attempts) != 1:
            raise Broken(f"{entry.batch} has rows {rows} of attempts {attempts}")

    def settle(self, writer_ids: int) -> None:
        """Let new owners take over everything, undisturbed; then only the table may be left."""
        files = self.files()
        for owned in (*map(writer_id, range(writer_ids)), REWRITER):
            epoch = take_over(files, owned, (99, 0), "host:9", self.time)
            sweep(files, owned, epoch)
        self.check_swept()

    def check_swept(self) -> None:
        """Check that only the table is left, once a checkpoint is made."""
        files = self.files()
        state = self.checked_look()
        checkpoint_if_due(files)
        after = self.checked_look()
        if after.entries != state.entries:
            raise Broken(f"a checkpoint has changed what is there: {state.entries} {after.entries}")
        self._check_leftovers(after)

    def _check_leftovers(self, state: TableState) -> None:
        kept = {file.path for entry in state.counted.values() for file in entry.files}
        for path, data in OTHERS.items():
            if self.store.files.get(path) != data:
                raise Broken(f"{path} belongs to another owner, and was touched")
        for path in sorted({*self.store.files, *self.store.folders} - kept - set(OTHERS)):
            name = path.rpartition("/")[2]
            ours = batch_of(name) if path.startswith((f"{STAGING}/", f"{FOLDER}/commits/")) else None
            if path in self.store.files and not path.startswith((f"{FOLDER}/", f"{DELTA}/")):
                raise Broken(f"{path} is left, and no batch that counts has it")
            if ours is not None and (
                ours.writer_id == REWRITER
                or (ours.writer_id.component, ours.writer_id.topology_id) == (SINK, TOPOLOGY)
            ):
                raise Broken(f"{path} is left")
            stem = name.rpartition(".")[0]
            if path.startswith(f"{TMP}/") and (batch_of(stem) or claim_of(stem)):
                raise Broken(f"{path} is left")


def _rows(name: BatchName, attempt: int, directory: str) -> bytes:
    return json.dumps({"batch": str(name), "attempt": attempt, "directory": directory}).encode()


def again(call: Callable[[], T]) -> T:
    """Try until the store answers."""
    while True:
        try:
            return call()
        except FilesUnavailable:
            continue


def _read_only(gate: Gate) -> Gate:
    def refusing(step: Step, effect: Callable[[], T]) -> T:
        if step.writes:
            raise FilesRefused(f"{step.call} {step.path}: permission denied")
        return gate(step, effect)

    return refusing
