"""How simulated tasks begin where their component had another number of tasks: with the keys of their groups, as in workers.

What is chosen and read is decided by the real functions; a simulated task's state is simpler than a real one's, so it is
divided here.
"""

from __future__ import annotations

from typing import Any

from worker.epochs.records import SnapshotFile
from worker.epochs.sinks import heir_of
from worker.epochs.snapshot_files import GROUPS as LABEL
from worker.epochs.snapshot_files import TaskSnapshot
from worker.loop import rescale
from worker.routing.key_groups import GroupRange, range_of, task_of

#: More than there are tasks, and than there are keys.
GROUPS = 7


class NewNumbers:
    """What a task needs to know of the numbers of tasks, before and now."""

    def __init__(self, name: str, kind: str, is_sink: bool) -> None:
        self.name, self.kind, self.is_sink = name, kind, is_sink
        self.component, _, index = name.partition("/")
        self.index = int(index)
        self.count = 1
        #: Whether the component had another number of tasks at the last commit.
        self.changed = False

    @property
    def own(self) -> GroupRange | None:
        """The groups of a task with keyed state."""
        return range_of(self.index, self.count, GROUPS) if self.kind == "count" else None

    def owns(self, key: int) -> bool:
        """Whether a key's rows come to this task."""
        return task_of(key, self.count, GROUPS) == self.index

    def choose_files(self, files: dict[str, SnapshotFile]) -> dict[str, SnapshotFile]:
        """The files that this task reads: a sink's tasks inherit from all that they are the heir of."""
        self.changed = bool(files) and len(files) != self.count
        if self.kind == "count":
            return rescale.files_for(self.name, files, self.count, self.own)
        if not self.is_sink:
            return {name: file for name, file in files.items() if name == self.name}
        return {name: file for name, file in files.items() if self.inherits(name)}

    def inherits(self, task: str) -> bool:
        """Whether this task has what belonged to a task and no key."""
        return heir_of(int(task.rpartition("/")[2]), self.count) == self.index

    def wanted(self, files: dict[str, SnapshotFile]) -> GroupRange | None:
        """The groups that are read of these files; None: all."""
        return rescale.range_wanted(self.name, files, self.own)

    def merge(self, snapshots: list[TaskSnapshot]) -> TaskSnapshot:
        """One snapshot of several tasks."""
        snapshots = sorted(snapshots, key=lambda each: int(each.task.rpartition("/")[2]))
        if self.kind == "count" and self.changed:
            return self.share(snapshots)
        first, *others = snapshots
        for other in others:
            first.parked += other.parked
            first.outcomes += other.outcomes
        if self.changed:
            first.ended = []
            first.state["end_called"] = False
        return first

    def share(self, snapshots: list[TaskSnapshot]) -> TaskSnapshot:
        """What this task has of several tasks with keys."""
        own = self.own
        assert own is not None
        made = TaskSnapshot(self.name, snapshots[0].epoch, 0, 0)
        made.state = {**snapshots[0].state, "end_called": False, "timers": []}
        for each in snapshots:
            made.state["timers"] += [timer for timer in each.state["timers"] if self.owns(timer[1][3])]
            for part in each.parts:
                keys = part["keys"]
                if part[LABEL] is None or not own.covers(part[LABEL]):
                    keys = {key: rows for key, rows in keys.items() if self.owns(key)}
                made.parts.append({"keys": keys})
            made.parked += [parked for parked in each.parked if self.owns(key_of(parked[0]))]
            if self.inherits(each.task):
                made.outcomes += each.outcomes
                made.outboxes += each.outboxes
        made.state["timers"].sort()
        return made


def key_of(item: Any) -> int:
    """The key of a parked row or timer."""
    key: int = item[4] if item[0] == "T" else item[3]
    return key
