"""The folder in which a reading spout stores what it reads, and how far its tasks have read.

```
POSITIONS/reader.json                                     what is read, and by which component; put once
POSITIONS/snapshots/<topology id>.json                    what there is to read for a submission; put once
POSITIONS/files/<number>.json                             the files of a reader of lines; see `file_list`
POSITIONS/tasks/<index>of<parallelism>.<owner>.json       the record of one owner of one task
```
Each owner of a task writes a file of its own, so a superseded owner that does not know it overwrites nothing.
A starting owner combines all existing records, and once that is in a file of its own, deletes those of the previous
owners. Records of another parallelism are kept: they are small, and tell about units that belong to other tasks now.
Must not know: what units are, spouts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from squall_io.spark.manifest.envelopes import UnreadableRecord, build_type_info, convert, seal, unseal
from squall_io.spark.manifest.files import AbsentFile, Files
from squall_io.spark.manifest.layout import FOLDER, safe
from squall_io.spark.spouts.positions import Positions, read_record
from topology_api import SquallError

#: Default place of positions, below a table or a folder of text. Readers of the folder ignore it.
READERS: Final = f"{FOLDER}/readers"
READER: Final = "reader.json"
SNAPSHOTS: Final = "snapshots"
TASKS: Final = "tasks"
KIND: Final = "reader"
SNAPSHOT_KIND: Final = "reader's snapshot"
TASK_KIND: Final = "reader's position"

_RECORD: Final = re.compile(r"([0-9]+)of([0-9]+)\..*\.json", re.ASCII)
#: Loading starts over when a file disappears meanwhile; at most this often.
_ATTEMPTS: Final = 20


class ReaderMismatch(SquallError):
    """A folder of positions belongs to another reader."""


class ReaderIdentity(msgspec.Struct, frozen=True):
    """Who reads what; a folder of positions belongs to one reader."""

    topology: str
    component: str
    reads: str
    """What is read: its path, and what else determines its contents."""

    def __str__(self) -> str:
        return f"{self.component} of topology {self.topology}, which reads {self.reads}"


def default_folder(below: str, topology_id: str, component: str) -> str:
    """Return the default folder of positions, one per submission of a topology."""
    return f"{below}/{READERS}/{safe(topology_id)}.{safe(component)}"


def require_reader(files: Files, reader: ReaderIdentity) -> None:
    """Check that the folder belongs to this reader, and claim it if it is new; `ReaderMismatch`."""
    fields = _agreed(files, READER, KIND, lambda: msgspec.to_builtins(reader))
    existing = convert(KIND, ReaderIdentity, fields, f"{files.root}/{READER}")
    if existing != reader:
        raise ReaderMismatch(
            f"the positions in {files.root} are another reader's:\n"
            f"  theirs: {existing}\n"
            f"  this:   {reader}\n"
            "Give another folder, or delete this one if that reader is not needed any more."
        )


def agree(files: Files, topology_id: str, snapshot: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what there was to read when this submission's first task started, the same for all."""
    return _agreed(files, f"{SNAPSHOTS}/{safe(topology_id)}.json", SNAPSHOT_KIND, snapshot)


def _agreed(files: Files, path: str, kind: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of a record that is put once: those of the first caller."""
    try:
        data = files.read(path)
    except AbsentFile:
        data = seal(kind, make())
        if not files.put_if_absent(path, data):
            data = files.read(path)
    return unseal(kind, data, f"{files.root}/{path}")


class PositionRecords:
    """The files of one owner of one task."""

    def __init__(self, files: Files, positions: Positions, owner: str) -> None:
        self._files = files
        self._positions = positions
        self._path = f"{TASKS}/{positions.index}of{positions.parallelism}.{owner}.json"
        self._before: list[str] = []

    def load(self) -> None:
        """Combine what all owners of all tasks have left; `UnreadableRecord`."""
        for _ in range(_ATTEMPTS):
            try:
                return self._load()
            except AbsentFile:
                continue  # another owner has just put it into a file of its own
        self._load()

    def _load(self) -> None:
        self._before = []
        for status in self._files.list(TASKS):
            named = _RECORD.fullmatch(status.name)
            if named is None or status.is_folder:
                continue
            same_parallelism = int(named[2]) == self._positions.parallelism
            same_task = same_parallelism and int(named[1]) == self._positions.index
            if same_parallelism and not same_task:
                continue  # another task's, of the same parallelism
            path = f"{self._files.root}/{status.path}"
            fields = unseal(TASK_KIND, self._files.read(status.path), path)
            try:
                done, begun = read_record(fields)
            except ValueError as error:
                raise UnreadableRecord(path, f"is no position of a reader: {error!r}") from None
            self._positions.learn(done, begun)
            if same_task and status.path != self._path:
                self._before.append(status.path)

    def save(self) -> None:
        """Write how far the task has read; then delete the files of its previous owners."""
        fields = self._positions.record()
        try:
            self._files.replace(self._path, seal(TASK_KIND, fields))
        except BaseException:
            self._positions.changed = True
            raise
        while self._before:
            self._files.delete(self._before[-1])
            self._before.pop()


def owner_name(topology_id: str, incarnation: tuple[int, int]) -> str:
    """Return the owner of a task, as part of a file name."""
    return f"{safe(topology_id)}.{incarnation[0]}.{incarnation[1]}"


build_type_info(ReaderIdentity)
