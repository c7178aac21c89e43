"""Deletes what a topology has kept: the state of a component, or one of its states.

An operator's record goes into the log as a coordinator's does: to the number after the last one, if there is none. So a
coordinator that runs reads it before it writes its next record, and never brings back what was deleted. `fence`: nothing of the
topology may run; a coordinator that does all the same leads no longer.
Must not know: clusters, who asks.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from topology_api import SquallError
from topology_api.wording import listed
from worker.epochs.log import LogView, PutAnswer
from worker.epochs.records import CommitRecord, DropRecord, LeadRecord, LogRecord, SnapshotFile, component_of
from worker.epochs.snapshot_files import TaskSnapshot, encode_snapshot
from worker.loop.epoch_store import SNAPSHOTS, EpochFiles
from worker.loop.state_start import DIGEST_DIGITS
from worker.state.saved_rows import SavedCounts, counts_of, whole_state

#: How many commits are looked at: more than any topology keeps.
MOST_COMMITS: Final = 10_000
#: How often a record is put, while a coordinator writes records of its own.
TRIES: Final = 100


class Dropped(msgspec.Struct, frozen=True):
    """What was deleted, or would be. `keys`: those that had the state in the last commit, as far as it can be read. `files`: of
    all kept epochs."""

    what: str
    keys: int
    bytes: int
    files: int


class StateDrop:
    """Deletes from the state of one topology."""

    def __init__(self, files: EpochFiles) -> None:
        self.files = files
        self.view = LogView(MOST_COMMITS)

    def read(self) -> None:
        """Read what has been added to the log. Raises SquallError."""
        try:
            for record in self.files.records_after(self.view.last):
                self.view.add(record)
        except ValueError as error:
            raise SquallError(f"{self.files.folder}: {error}") from error

    def newest(self) -> CommitRecord:
        """Return the last commit. Raises SquallError."""
        if not self.view.commits:
            raise SquallError(f"{self.files.folder}: nothing has been committed yet")
        return self.view.commits[-1]

    def sizes(self) -> dict[str, int]:
        """Return the files of snapshots, and their sizes."""
        found = self.files.files.list(SNAPSHOTS)
        return {each.name: each.size for each in found if not each.is_folder}

    # What would be deleted.

    def find(self, component: str | None, state: str | None) -> Dropped:
        """Return what there is to delete. Raises SquallError if there is no such component or state."""
        self.read()
        newest = self.newest()
        components = sorted(set(map(component_of, newest.files)))
        if component is not None and component not in components:
            raise SquallError(
                f"{self.files.folder}: no component {component!r} has state in epoch {newest.epoch} (there is: "
                f"{listed(components)})"
            )
        keys, names = 0, set[str]()
        for task, file in newest.files.items():
            if component in (None, component_of(task)):
                try:
                    snapshot = self.snapshot(file)
                except SquallError:
                    if state is not None:
                        raise
                    continue  # to delete it, it need not be readable
                names |= states_in(snapshot)
                keys += counted(snapshot, state).keys
        if state is not None and state not in names:
            raise SquallError(
                f"{self.files.folder}: component {component!r} has no state {state!r} in epoch {newest.epoch} (it has: "
                f"{listed(sorted(names))})"
            )
        sizes = self.sizes()
        there = set(sizes) if component is None else self.all_of(component)
        what = "everything" if component is None else component + ("" if state is None else f".{state}")
        return Dropped(what, keys, sum(sizes[name] for name in there), len(there))

    def all_of(self, component: str) -> set[str]:
        """Return the snapshots of a component that are there: also those upon which others build."""
        return {name for name in self.sizes() if name.split("-", 3)[-1].rpartition(".")[0] == component}

    def named(self, component: str) -> dict[str, SnapshotFile]:
        """Return the snapshots of a component that kept commits name."""
        return {
            file.name: file
            for commit in self.view.kept
            for task, file in commit.files.items()
            if component_of(task) == component
        }

    def snapshot(self, file: SnapshotFile, labelled: bool = False) -> TaskSnapshot:
        """Read a snapshot; `labelled`: each part says which key groups it has. Raises SquallError."""
        try:
            return self.files.read_snapshot(file, labelled)
        except ValueError as error:
            raise SquallError(f"{self.files.folder}: {error}") from error

    # Deleting.

    def fence(self) -> None:
        """Take the lead from whatever still runs."""
        leader = f"drop/{secrets.token_hex(8)}"
        self.put(lambda: LeadRecord(leader, leader, self.view.assignment))

    def drop_component(self, component: str) -> None:
        """Delete a component's snapshots."""
        gone: dict[str, SnapshotFile | None] = {}

        def record() -> LogRecord:
            # Earlier commits have been swept; of the last one, what is not there was lost.
            last = {
                file.name for task, file in self.newest().files.items() if component_of(task) == component
            }
            gone.update(dict.fromkeys(self.named(component).keys() & (self.sizes().keys() | last)))
            return DropRecord(secrets.token_hex(8), dict(gone))

        self.put(record)
        self.delete(gone.keys() | self.all_of(component))

    def drop_state(self, component: str, state: str) -> int:
        """Write a component's snapshots without one of its states; return by how many bytes they are smaller."""
        sizes = self.sizes()
        made: dict[str, tuple[TaskSnapshot, SnapshotFile, bytes]] = {}
        edits: dict[str, SnapshotFile] = {}
        gone = self.all_of(component)
        for name, file in self.named(component).items():
            if name not in sizes:
                continue
            snapshot = self.snapshot(file, labelled=True)
            parts = [part for part in snapshot.parts if part["state"] != state]
            held = state in states_in(snapshot)
            snapshot.parts = parts
            (snapshot.state or {}).get("states", {}).pop(state, None)
            if held or file.since:  # what builds upon others is written as a whole one
                made[name] = snapshot, *encode_snapshot(snapshot, file.groups)
            else:
                gone.discard(name)  # as it is

        def record() -> LogRecord:
            # A coordinator that runs sweeps what no commit names. It does not sweep files with the number of a record that it
            # has not read, and this one names them.
            number = self.view.last + 1
            for name, (snapshot, file, data) in made.items():
                place = f"{file.digest[:DIGEST_DIGITS]}-{snapshot.task.replace('/', '.')}"
                edits[name] = file.renamed(f"{snapshot.epoch}-{number}-{place}")
                self.files.write_snapshot(edits[name], data)
                gone.discard(edits[name].name)  # an attempt that was interrupted has written it, too
            return DropRecord(secrets.token_hex(8), dict(edits))

        self.put(record)
        self.delete(gone)
        return sum(sizes[name] for name in gone) - sum(len(data) for _, _, data in made.values())

    def put(self, make: Callable[[], LogRecord]) -> None:
        """Put a record, made for the log as it is then. Raises SquallError."""
        for _ in range(TRIES):
            record = make()
            if self.files.put_record(self.view.last + 1, record) is PutAnswer.STORED:
                self.view.add(record)
                return
            self.read()
        raise SquallError(f"{self.files.folder}: the topology writes to its log all the time: try again")

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that no commit names any more."""
        for name in names:
            self.files.files.delete(f"{SNAPSHOTS}/{name}")


def states_in(snapshot: TaskSnapshot) -> set[str]:
    """Return the names of the states of a task; a spout has none."""
    found = set((snapshot.state or {}).get("states", {}))
    return found | {part["state"] for part in snapshot.parts} - {""}


def counted(snapshot: TaskSnapshot, state: str | None) -> SavedCounts:
    """Return how many keys have a state, or any."""
    whole = whole_state(snapshot.state or {}, snapshot.parts)
    if state is not None:
        states = whole["states"]
        whole = {"states": {state: states[state]} if state in states else {}}
    return counts_of(whole)
