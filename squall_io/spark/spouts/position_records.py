"""The folder in which a reading spout keeps what it reads, and how far its tasks have come.

```
POSITIONS/reader.json                                     what is read, and by whom; put once
POSITIONS/snapshots/<topology id>.json                    what there is to be read for a submission; put once
POSITIONS/files/<number>.json                             the files of a reader of lines; see `file_list`
POSITIONS/tasks/<index>of<parallelism>.<owner>.json       the record of one owner of one task
```
Each owner of a task writes a file of its own, so that one which was superseded, and does not know, overwrites nothing.
An owner that starts puts together all that it finds, and once that is in a file of its own, deletes those of the owners
before it. Records of another parallelism stay: they are small, and what they say of units that belong to others now is needed.
Must not know: what units are, spouts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from squall_io.spark.manifest.envelopes import UnreadableRecord, seal, unseal
from squall_io.spark.manifest.files import FileMissing, Files
from squall_io.spark.manifest.layout import FOLDER, safe
from squall_io.spark.spouts.positions import Positions, read_record
from topology_api import SquallError

#: Below a table or a folder of text, where positions are kept unless told otherwise. Readers do not see it.
READERS: Final = f"{FOLDER}/readers"
READER: Final = "reader.json"
SNAPSHOTS: Final = "snapshots"
TASKS: Final = "tasks"
KIND: Final = "reader"
SNAPSHOT_KIND: Final = "reader's snapshot"
TASK_KIND: Final = "reader's position"

_RECORD: Final = re.compile(r"([0-9]+)of([0-9]+)\..*\.json", re.ASCII)
#: A look begins anew when a file goes away under it; so often at the most.
_LOOKS: Final = 20


class ReaderMismatch(SquallError):
    """A folder of positions belongs to another reader."""


@dataclass(frozen=True)
class Reader:
    """Who reads what; a folder of positions is one reader's."""

    topology: str
    component: str
    reads: str
    """Of what is read: its path, and whatever else decides what is in it."""

    def __str__(self) -> str:
        return f"{self.component} of topology {self.topology}, which reads {self.reads}"


def default_folder(below: str, topology_id: str, component: str) -> str:
    """Where positions are kept unless told otherwise: a folder of each submission of a topology."""
    return f"{below}/{READERS}/{safe(topology_id)}.{safe(component)}"


def require_reader(files: Files, reader: Reader) -> None:
    """That the folder is this reader's, from now on if it was nobody's; `ReaderMismatch`."""
    record = {"topology": reader.topology, "component": reader.component, "reads": reader.reads}
    fields = _agreed(files, READER, KIND, lambda: record)
    try:
        there = Reader(str(fields["topology"]), str(fields["component"]), str(fields["reads"]))
    except KeyError as error:
        raise UnreadableRecord(f"{files.root}/{READER}", f"is no record of a reader: {error!r}") from None
    if there != reader:
        raise ReaderMismatch(
            f"the positions in {files.root} are another reader's:\n"
            f"  theirs: {there}\n"
            f"  ours:   {reader}\n"
            "Give another folder as positions, or delete this one, if nobody needs it any more."
        )


def agree(files: Files, topology_id: str, snapshot: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """What there was to be read when the first task of this submission looked, the same for all."""
    return _agreed(files, f"{SNAPSHOTS}/{safe(topology_id)}.json", SNAPSHOT_KIND, snapshot)


def _agreed(files: Files, path: str, kind: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of a record that is put once: those of whoever was first."""
    try:
        data = files.read(path)
    except FileMissing:
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
        """Put together what all owners of all tasks have left; `UnreadableRecord`."""
        for _ in range(_LOOKS):
            try:
                return self._load()
            except FileMissing:
                continue  # another owner has just put it into a file of its own
        self._load()

    def _load(self) -> None:
        self._before = []
        for status in self._files.list(TASKS):
            found = _RECORD.fullmatch(status.name)
            if found is None or status.is_folder:
                continue
            same_parallelism = int(found[2]) == self._positions.parallelism
            same_task = same_parallelism and int(found[1]) == self._positions.index
            if same_parallelism and not same_task:
                continue  # it has nothing of ours
            path = f"{self._files.root}/{status.path}"
            fields = unseal(TASK_KIND, self._files.read(status.path), path)
            try:
                done, begun = read_record(fields)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise UnreadableRecord(path, f"is no position of a reader: {error!r}") from None
            self._positions.learn(done, begun)
            if same_task and status.path != self._path:
                self._before.append(status.path)

    def save(self) -> None:
        """Write how far the task has come; then delete the files of its owners before."""
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
    """An owner of a task, as a part of a file name."""
    return f"{safe(topology_id)}.{incarnation[0]}.{incarnation[1]}"
