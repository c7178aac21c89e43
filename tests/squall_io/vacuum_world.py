"""The world of `delta_world` with vacuums, and readers with leases, which find every file.

A reader reads the manifest, and then the files of all batches, one after the other, some of them after all other actors.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from squall.stores.files import AbsentFile, FilesUnavailable
from squall_io.spark.manifest.layout import LEASES
from squall_io.spark.manifest.leases import ReaderLease, new_path, put_lease, seen_in
from squall_io.spark.manifest.state import TableState, read_state
from squall_io.spark.manifest.vacuums import read_vacuums, vacuumed_in
from squall_io.spark.retention.vacuum import Vacuumed, vacuum
from tests.squall_io.commit_world import Broken, again
from tests.squall_io.delta_world import DeltaWorld
from tests.squall_io.memory_files import Gate, MemoryStore


@dataclass
class VacuumWorld(DeltaWorld):
    """A table whose replaced batches lose their files."""

    #: What all vacuums have deleted.
    done: list[Vacuumed] = field(default_factory=list)
    #: How many files readers have read.
    read: int = 0

    def furnish(self) -> None:
        """A table, and what is there before any actor."""
        assert isinstance(self.store, MemoryStore)
        self.store.clock = 2e9  # by this clock, too, all entries are old
        super().furnish()

    def vacuuming(self, gate: Gate, at: Callable[[str], None] = lambda step: None) -> None:
        """A vacuum that keeps nothing but what leases hold."""
        self.vacuumed = True
        with suppress(FilesUnavailable):  # the command reports it, and the user repeats it
            self.done.append(vacuum(self.files(gate), 0.0, "a vacuum", self.far, at=at))

    def far(self) -> float:
        """A clock by which all entries are old."""
        return self.time + 1_000_000.0

    def lessee(self, gate: Gate, pause: Callable[[], None], early: bool) -> None:
        """A reader with a lease: of the present, or, if `early`, of everything that still has files."""
        files = self.files(gate)
        path, lease = new_path(), ReaderLease("a reader", self.time, 1e12)
        again(lambda: put_lease(files, path, lease))
        state = again(lambda: read_state(files))
        if early:
            gone = vacuumed_in(again(lambda: read_vacuums(files)).values())
            names = {
                name for entry in state.counted.values() if entry.batch in gone for name in entry.replaces
            }
            wanted = [entry for entry in state.counted.values() if str(entry.batch) not in names]
        else:
            wanted = list(state.entries)
            lease = msgspec.structs.replace(lease, seen=seen_in(state.counted.values()))
            again(lambda: put_lease(files, path, lease))
        for entry in wanted:
            pause()
            for file in entry.files:
                try:
                    again(lambda: files.read(file.path))  # noqa: B023
                except AbsentFile:
                    raise Broken(f"{entry.batch} is read under a lease, and {file.path} is gone") from None
                self.read += 1
        again(lambda: files.delete(path))

    def compactor(self, gate: Gate, target: int = 1_000, insists: bool = True) -> None:
        """As in `World`; another compaction may have been faster, and the files of what it has replaced may be gone."""
        with suppress(AbsentFile):
            super().compactor(gate, target, insists)

    def _deleted(self, path: str) -> bytes:
        """A file of an earlier version of the log, or of a later state of the table than that version."""
        assert isinstance(self.store, MemoryStore)
        return dict(self.store.deleted)[path]

    def _check_leftovers(self, state: TableState) -> None:
        """After a vacuum, only files of entries that are not replaced are there."""
        for path in [path for path in self.store.files if path.startswith(f"{LEASES}/")]:
            self.store.remove(path)  # of dead readers
        for by in ("the last vacuum", "what the log still had"):
            self.done.append(vacuum(self.files(), 0.0, by, self.far))
        for number, record in read_vacuums(self.files()).items():
            if not record.done:
                raise Broken(f"vacuum {number} is not done: {record}")
        super()._check_leftovers(replace(state, replaced=()))
        if vacuum(self.files(), 0.0, "one more", self.far).batches:
            raise Broken("a vacuum finds something after the last one")
