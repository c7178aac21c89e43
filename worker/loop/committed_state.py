"""What a topology has committed to its folder, for people who read it while the topology runs, or when it does not.

The running topology sweeps snapshots. So all files of an epoch are read before the first is opened, and if one of them has gone
meanwhile, the log is read again.
Must not know: what states hold, how it is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Final

import msgspec

from squall.stores.files import AbsentFile
from topology_api import SquallError
from topology_api.wording import listed
from worker.epochs.log import LogView
from worker.epochs.records import CommitRecord, SnapshotFile, component_of
from worker.epochs.snapshot_files import BadSnapshot, SnapshotLink, TaskSnapshot, decode_snapshot, read_chain
from worker.epochs.starting import kept_epochs
from worker.epochs.trimming import LOG
from worker.loop.epoch_store import SNAPSHOTS, EpochFiles
from worker.state.saved_rows import whole_state

#: How often the log is read.
TRIES: Final = 5
#: How many commits are kept if the log does not say it, since an earlier release has written it: those whose files are there.
MOST_KEPT: Final = sys.maxsize


class MissingSnapshot(BadSnapshot):
    """A file that is not there."""


class KeptEpoch(msgspec.Struct, frozen=True):
    """An epoch whose snapshots are kept."""

    record: CommitRecord
    #: When its record was written, in seconds since 1970, by the clock of the file system.
    committed: float
    #: How the topology ended after it: "completed" or "killed"; None: it did not, or went on.
    end: str | None
    #: Whether all snapshots are there.
    whole: bool
    #: The version of the topology that has committed it: the id of its submission.
    version: str = ""


@dataclass(slots=True)
class EpochContent:
    """The snapshots of an epoch, as bytes."""

    epoch: KeptEpoch
    #: All epochs that are kept, the newest first.
    kept: list[KeptEpoch]
    folder: str
    #: Task -> its file and the file's bytes, None if it is not there; in the order of components and indexes.
    files: dict[str, tuple[SnapshotFile, bytes | None]]
    #: The files on which those build, by name.
    earlier: dict[str, bytes | None] = field(default_factory=dict)
    #: What cannot be read; known when all snapshots were asked for.
    damaged: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What is read, for people."""
        return f"epoch {self.epoch.record.epoch} of {self.folder.rpartition('/')[2]}"

    def snapshots(self) -> Iterator[tuple[str, int, TaskSnapshot | None]]:
        """Yield each task with the bytes of its snapshot, and the snapshot; None if it is damaged. Its `state` has all that its
        parts say.
        """
        for task in self.files:
            snapshot = self.snapshot(task)
            size = 0 if snapshot is None else sum(link.bytes for link in snapshot.chain)
            if snapshot is not None and "states" in (snapshot.state or {}):
                snapshot.state = whole_state(snapshot.state, snapshot.parts)
            yield task, size or len(self.files[task][1] or b""), snapshot

    def snapshot(self, task: str, labelled: bool = False) -> TaskSnapshot | None:
        """Return the snapshot of a task, with its parts; None if it is damaged. `labelled`: each part says which key groups it
        has."""
        own, newest = self.files[task]

        def read(name: str, offset: int = 0, length: int | None = None, /) -> bytes:
            data = newest if name == own.name else self.earlier.get(name)
            if data is None:
                raise MissingSnapshot(f"{name} of task {task} is missing")
            return data[offset:] if length is None else data[offset : offset + length]

        try:
            return read_chain(own, read, labelled=labelled)
        except MissingSnapshot as error:
            self.damaged.append(f"{self.folder}/{SNAPSHOTS}/{error}")
        except BadSnapshot as error:
            self.damaged.append(f"{self.folder}/{SNAPSHOTS}: {error}")
        return None


class CommittedState:
    """The kept epochs of one topology."""

    def __init__(self, files: EpochFiles) -> None:
        self.store = files

    def epochs(self) -> list[KeptEpoch]:
        """Return the epochs that are kept, the newest first: those with which the topology could begin (`kept_epochs`), as far
        as their files are there, and the last commit. Raises SquallError."""
        there = {each.name for each in self.store.files.list(SNAPSHOTS)}
        view = self.view()
        written = self.store.numbers(LOG)
        found = []
        for epoch, record in reversed(kept_epochs(view).items()):
            fact = view.facts[epoch]
            at = fact.at if fact.at is not None else written.get(fact.number, 0.0)
            found.append(KeptEpoch(record, at, fact.end, is_whole(record, there), fact.submission))
        return [each for each in found if each.whole or each is found[0]]

    def view(self) -> LogView:
        """Return what the log says. Raises SquallError."""
        view = LogView(MOST_KEPT)
        try:
            for record in self.store.records_after(0):
                view.add(record)
        except ValueError as error:
            raise SquallError(f"{self.store.folder}: {error}") from error
        return view

    def read(self, number: int | None = None, component: str | None = None) -> EpochContent:
        """Read the snapshots of an epoch, of the newest one unless a number is given, or only those of a component. Raises
        SquallError if there is no such epoch, or no such component in it.
        """
        content = None
        for _ in range(TRIES):
            kept = self.epochs()
            epoch = self.chosen(kept, number)
            if content is not None and content.epoch.record == epoch.record:
                break  # nothing is swept here: the file is gone
            content = EpochContent(epoch, kept, str(self.store.folder), self.files_of(epoch, component))
            self.read_earlier(content)
            every = [*(data for _, data in content.files.values()), *content.earlier.values()]
            if all(data is not None for data in every):
                break
        assert content is not None
        return content

    def chosen(self, epochs: list[KeptEpoch], number: int | None) -> KeptEpoch:
        """Return the epoch of a number, or the newest."""
        if not epochs:
            raise SquallError(f"{self.store.folder}: nothing has been committed yet")
        for epoch in epochs:
            if number in (None, epoch.record.epoch):
                return epoch
        there = ", ".join(str(epoch.record.epoch) for epoch in epochs)
        raise SquallError(f"{self.store.folder}: epoch {number} is not kept; these are: {there}")

    def files_of(
        self, epoch: KeptEpoch, component: str | None
    ) -> dict[str, tuple[SnapshotFile, bytes | None]]:
        """Read the files of an epoch."""
        record = epoch.record
        components = sorted(set(map(component_of, record.files)))
        if component is not None and component not in components:
            raise SquallError(
                f"{self.store.folder}: epoch {record.epoch} has no component {component!r} (it has: {listed(components)})"
            )
        return {
            task: (file, self.bytes_of(file))
            for task, file in sorted(record.files.items(), key=lambda item: place_of(item[0]))
            if component in (None, component_of(task))
        }

    def read_earlier(self, content: EpochContent) -> None:
        """Read the files on which those of an epoch build."""
        for file, data in content.files.values():
            if file.since and data is not None:
                try:
                    earlier = decode_snapshot(file, data).chain
                except BadSnapshot:
                    continue  # it is said when the snapshots are opened
                for link in earlier:
                    content.earlier[link.name] = self.bytes_of(link)

    def bytes_of(self, file: SnapshotFile | SnapshotLink) -> bytes | None:
        """Return the bytes of a file; None if it is not there."""
        try:
            return self.store.files.read(f"{SNAPSHOTS}/{file.name}")
        except AbsentFile:
            return None


def is_whole(record: CommitRecord, names: Set[str]) -> bool:
    """Return whether all that a commit needs is there. Of a chain, it is enough to look at the first and the last file."""
    places = {(epoch_of(name), name.split("-", 3)[-1]) for name in names}
    return all(
        file.name in names and (not file.since or (file.since, task.replace("/", ".")) in places)
        for task, file in record.files.items()
    )


def epoch_of(file: str) -> int:
    """Return the epoch in the name of a snapshot's file; a high number for other files."""
    number = file.partition("-")[0]
    return int(number) if number.isdecimal() else sys.maxsize


def place_of(task: str) -> tuple[str, int]:
    """Return component and index of "component/index"."""
    component, _, index = task.rpartition("/")
    return component, int(index)
