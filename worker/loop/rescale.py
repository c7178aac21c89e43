"""Makes the snapshot with which a task begins from those of a commit, also where components have other numbers of tasks now.

Keys go to the tasks to which fields grouping sends their tuples now, with their state, their timers and the tuples that wait
for their next try. Those of a stateful bolt move in groups (`worker.routing.key_groups`), so a task reads only the snapshots of
the tasks that had one of its groups, and of these only what its groups have. All else that a task held goes to the task of the
same index, modulo the number of tasks now. The tasks of a spout all begin with the positions of those before, which the spout
merges. A bolt whose tuples had no keys, and have some in this version of the topology, is divided by them, too.
Must not know: files, links, objects of tasks.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from squall.unreadable import Unreadable, loads
from topology_api import StateError, StatefulBolt, Topology
from topology_api.epoch_rules import other_groups_problem
from topology_api.packing import dumps_by_value
from worker.epochs.in_memory import renumbered
from worker.epochs.records import CommitRecord, SnapshotFile, component_of
from worker.epochs.sinks import heir_of
from worker.epochs.snapshot_files import GROUPS, TaskSnapshot
from worker.loop.plan import WorkerPlan
from worker.loop.row_fields import match_fields
from worker.routing.key_groups import GroupRange, range_of, task_of
from worker.state.merging import has_time
from worker.state.saving import Part
from worker.tasks.emitter import short
from worker.tasks.fitting import ANOTHER_PATH

#: What helps where a commit cannot be divided.
AS_BEFORE = "start it with the numbers of tasks that it had until a later commit, then rebalance it"


class Rescale(msgspec.Struct, frozen=True):
    """The numbers of tasks now, and those of a commit. Empty `before`: nothing is committed. `groups`: into how many groups the
    commit has divided the keys of stateful bolts; 0: an earlier release has written it, without groups."""

    plan: WorkerPlan
    before: Mapping[str, int]
    groups: int = 0

    @property
    def changed(self) -> frozenset[str]:
        """The components whose number of tasks is another one now. Those that are gone, or new, are not among them."""
        return renumbered(self.before, self.plan.numbers)

    @property
    def divided_again(self) -> frozenset[str]:
        """The components whose keys are not in the tasks where they were at the commit."""
        again = {
            name
            for name, count in self.before.items()
            if name in self.plan.tasks_of and count > 1 and self.plan.groups_of(name) not in (0, self.groups)
        }
        return self.changed | again

    def begin(self, name: str, snapshots: list[TaskSnapshot]) -> TaskSnapshot:
        """Return the snapshot of a task, from those that `files_for` has named. Raises StateError if they cannot be divided."""
        component, _, index = name.partition("/")
        for each in snapshots:
            match_fields(each, self.plan.topology)
        if component in self.divided_again or len(snapshots) > 1:
            snapshot = self.share_of(component, int(index), snapshots)
        else:
            [snapshot] = snapshots
        if self.changed:
            snapshot.ended = self.ends_now(snapshot.ended)
        snapshot.outboxes = [moved for box in snapshot.outboxes for moved in self.rerouted(component, *box)]
        return snapshot

    # A component with another number of tasks.

    def share_of(self, component: str, index: int, snapshots: list[TaskSnapshot]) -> TaskSnapshot:
        """Return the share of one task."""
        snapshots = sorted(snapshots, key=lambda each: index_of(each.task))
        count = len(self.plan.tasks_of[component])
        own = [each for each in snapshots if heir_of(index_of(each.task), count) == index]
        first = snapshots[0]
        made = TaskSnapshot(f"{component}/{index}", first.epoch, first.rewind, first.incarnation)
        made.outboxes = [box for each in own for box in each.outboxes]
        if all(each.submission == first.submission for each in snapshots):
            made.submission = first.submission
        made.fields = first.fields
        if self.plan.topology.component(component).kind == "spout":
            self.put_source(made, snapshots, own)
        else:
            self.put_contents(made, index, snapshots, own)
        return made

    def put_source(self, made: TaskSnapshot, snapshots: list[TaskSnapshot], own: list[TaskSnapshot]) -> None:
        """Put in what a spout task begins with: all positions, and the values of its own that wait for their commit."""
        made.finished = all(each.finished for each in snapshots)
        positions = [each.position for each in snapshots if each.position is not None]
        made.state = {
            "ended": all(each.state["ended"] for each in snapshots),
            "class": snapshots[0].state.get("class"),
            "positions": positions,
        }
        made.again = [kept for each in own for kept in each.again]

    def put_contents(
        self, made: TaskSnapshot, index: int, snapshots: list[TaskSnapshot], own: list[TaskSnapshot]
    ) -> None:
        """Put in what a bolt task begins with."""
        component = component_of(made.task)
        count = len(self.plan.tasks_of[component])
        flags = {each.state["end_called"] for each in snapshots}
        if len(flags) > 1:
            raise StateError(
                f"the input of some tasks of component {component!r} had ended at the last commit, and that of others had not: "
                f"their number cannot change now: {AS_BEFORE}"
            )
        made.ended = sorted(set.intersection(*(set(each.ended) for each in snapshots)))
        share = KeyShare(index, count, self.plan.groups_of(component))
        made.state = {
            "end_called": flags.pop(),
            "ended": all(each.state["ended"] for each in snapshots),
            "key": snapshots[0].state.get("key", []),
            "states": share.states([each.state.get("states", {}) for each in snapshots]),
            "timers": share.keyed(each.state.get("timers", b"") for each in snapshots),
            "retried": share.keyed(each.state.get("retried", b"") for each in snapshots),
        }
        made.parts = share.parts([each.parts for each in snapshots])
        outcomes = [outcome for each in snapshots for outcome in each.outcomes]
        made.outcomes = [outcome for outcome in outcomes if heir_of(outcome.index, count) == index]
        made.resent = list(dict.fromkeys((id, expires) for each in snapshots for id, expires in each.resent))
        made.unread = [letter for each in own for letter in each.unread]
        keys = self.input_keys(component)
        for each in snapshots:
            for parked in each.parked:
                source, _, stream, packed = parked[0][:4]
                positions = keys.get((source, stream))
                if positions is None:
                    mine = each in own
                else:
                    mine = share.owns(key_at(loads(packed)[0], positions))
                if mine:
                    made.parked.append(parked)
            for *where, packed in [*each.held, *(recorded for _, recorded in each.recorded)]:
                positions = keys.get((where[0], where[2]))
                if positions is not None:
                    packed = share.rows(packed, positions)
                elif each not in own:
                    packed = b""
                if packed:
                    made.held.append([*where, packed])

    def input_keys(self, component: str) -> dict[tuple[str, str], tuple[int, ...]]:
        """Return where the key is in the rows of each input whose tuples fields grouping sends to the task of their key."""
        topology = self.plan.topology
        inputs = topology.component(component).inputs
        ways = Counter((entry.source, entry.stream) for entry in inputs)
        found = {}
        for entry in inputs:
            names = topology.component(entry.source).outputs[entry.stream].fields
            if entry.grouping.kind == "fields" and ways[entry.source, entry.stream] == 1:
                found[entry.source, entry.stream] = tuple(names.index(name) for name in entry.grouping.fields)
        return found

    # Its neighbours.

    def ends_now(self, ended: Iterable[str]) -> list[str]:
        """Return the source tasks that have ended, as they are numbered now: all of a component whose every task had ended."""
        kept, there = [], set(ended)
        for component, tasks in self.plan.tasks_of.items():
            names = [f"{component}/{index}" for index in range(len(tasks))]
            if component not in self.changed:
                kept += [name for name in names if name in there]
            elif all(f"{component}/{index}" in there for index in range(self.before[component])):
                kept += names
        return kept

    def rerouted(
        self, component: str, target: str, stream: str, packed: list[Any]
    ) -> list[tuple[str, str, list[Any]]]:
        """Return rows that were on their way to a task, for the tasks that get them now. Raises StateError."""
        reader, _, old = target.partition("/")
        if reader not in self.plan.tasks_of:
            return [(target, stream, packed)]
        count = len(self.plan.tasks_of[reader])
        streams = self.plan.topology.component(component).outputs
        if stream not in streams:
            return [(target, stream, packed)]  # the task says so
        names = streams[stream].fields
        groupings = [
            entry.grouping
            for entry in self.plan.topology.component(reader).inputs
            if (entry.source, entry.stream) == (component, stream)
        ]
        kinds = {grouping.kind for grouping in groupings}
        if len(groupings) == 1 and kinds == {"fields"}:
            positions = tuple(names.index(name) for name in groupings[0].fields)
            shares: dict[int, list[Any]] = {}
            groups = self.plan.groups_of(reader)
            for row in loads(packed[0])[0]:
                shares.setdefault(owner_of(key_at(row, positions), count, groups), []).append(row)
            return [
                (f"{reader}/{index}", stream, [dumps_by_value(rows, 5)])
                for index, rows in sorted(shares.items())
            ]
        if reader not in self.divided_again:
            return [(target, stream, packed)]
        if "fields" in kinds:
            raise StateError(
                f"at the last commit, tuples of stream {stream!r} were on their way from component {component!r} to "
                f"{reader!r}, which reads it in several ways and had another number of tasks: {AS_BEFORE}"
            )
        if kinds == {"all"}:
            return [(f"{reader}/{index}", stream, packed) for index in self.copies(reader, int(old), count)]
        return [(f"{reader}/{heir_of(int(old), count)}", stream, packed)]

    def copies(self, reader: str, old: int, count: int) -> list[int]:
        """Return which tasks get what was on its way to a task that gets all tuples, as the other ones do."""
        if isinstance(
            self.plan.topology.load(reader), StatefulBolt
        ):  # all have the broadcast states of the first one
            return list(range(count)) if old == 0 else []
        new = range(self.before[reader], count) if old == 0 else ()
        return [*([old] if old < count else []), *new]


class KeyShare(msgspec.Struct, frozen=True):
    """The keys of one of several tasks. `groups`: into how many groups they are divided; 0: they are not."""

    index: int
    count: int
    groups: int = 0

    def owns(self, key: Any) -> bool:
        """Return whether fields grouping sends the tuples of a key to this task."""
        return owner_of(key, self.count, self.groups) == self.index

    @property
    def range(self) -> GroupRange | None:
        """The groups of this task."""
        return range_of(self.index, self.count, self.groups) if self.groups else None

    def rows(self, packed: bytes, positions: tuple[int, ...]) -> bytes:
        """Return those of pickled rows whose key belongs to this task."""
        rows = [row for row in loads(packed)[0] if self.owns(key_at(row, positions))]
        return dumps_by_value(rows, 5) if rows else b""

    def keyed(self, packed: Iterable[bytes]) -> bytes:
        """Return those of pickled lists of (key, ...) that belong to this task."""
        rows = [row for each in packed if each for row in pickle.loads(each) if self.owns(row[0])]
        return dumps_by_value(rows, 5) if rows else b""

    def states(self, saved: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the states of this task, from those of all tasks, by name."""
        names = dict.fromkeys(name for each in saved for name in each)
        return {name: self.state([each[name] for each in saved if name in each]) for name in names}

    def parts(self, parts: list[list[Part]]) -> list[Part]:
        """Return the parts of this task, from those of all tasks."""
        found = []
        for number, own in enumerate(parts):
            for part in own:
                if part["kind"] != "BroadcastState":
                    found.append(self.part(part))
                elif number == 0:  # all tasks got the same tuples
                    found.append({name: value for name, value in part.items() if name != GROUPS})
        return found

    def part(self, part: Part) -> Part:
        """Return what belongs to this task. A part with keys of its groups only is not opened."""
        part = dict(part)
        there, groups = part.pop(GROUPS, None), self.range
        if there is not None and groups is not None and groups.covers(there):
            return part
        is_map = part["kind"] == "MapState"
        keys = pickle.loads(part["keys"]) if part["keys"] else []
        own = [at for at, key in enumerate(keys) if self.owns(key)]
        gone = [
            each
            for each in (pickle.loads(part["gone"]) if part["gone"] else ())
            if self.owns(each[0] if is_map else each)
        ]
        return {
            **part,
            "keys": dumps_by_value([keys[at] for at in own], 5) if own else b"",
            "values": [part["values"][at] for at in own],
            "times": [part["times"][at] for at in own] if part["times"] else [],
            "gone": dumps_by_value(gone, 5) if gone else b"",
        }

    def state(self, saved: list[dict[str, Any]]) -> dict[str, Any]:
        """Return one state of this task, from those of all tasks."""
        if saved[0]["kind"] == "BroadcastState":
            return saved[0]  # all tasks got the same tuples
        keys, values, times = [], [], []
        for each in saved:
            for at, key in enumerate(pickle.loads(each["keys"]) if each["keys"] else ()):
                if self.owns(key):
                    keys.append(key)
                    values.append(each["values"][at])
                    # Of some tasks the state may have none, where it had no `ttl`.
                    times.append(each["times"][at] if each["times"] else None)
        return {
            **saved[0],
            "keys": dumps_by_value(keys, 5) if keys else b"",
            "values": values,
            "times": times if any(map(has_time, times)) else [],
        }


def misfits(newest: CommitRecord, here: Iterable[str], topology: Topology, groups: int) -> list[str]:
    """Return what keeps the tasks of a topology (`here`) from going on from a commit. Components may have gone, and their
    snapshots are kept; new ones begin with nothing. `groups`: into how many groups the topology divides keys."""
    before, now = count_tasks(newest.files), count_tasks(here)
    found = [other_groups_problem(newest.groups, groups)] if newest.groups not in (0, groups) else []
    found += [
        f"spout {spec.id!r} has {now[spec.id]} tasks and had {before[spec.id]}, and has no merge_positions"
        for spec in topology.spouts
        if spec.keeps_tasks and spec.id in before and before[spec.id] != now[spec.id]
    ]
    ended = set(map(component_of, newest.finished))
    return found + [
        f"bolt {spec.id!r} is new and reads {entry.source!r}, whose input has ended"
        for spec in topology.bolts
        if spec.id not in before
        for entry in spec.inputs
        if entry.source in ended
    ]


def count_tasks(names: Iterable[str]) -> dict[str, int]:
    """Return the number of tasks of each component."""
    return dict(Counter(map(component_of, names)))


def files_for(
    name: str, files: dict[str, SnapshotFile], count: int, own: GroupRange | None = None
) -> dict[str, SnapshotFile]:
    """Return the snapshots that a task needs, of those of its component. `count`: how many tasks it has now; `own`: the groups
    of this task's keys, if they are divided into groups."""
    component, _, index = name.partition("/")
    if set(files) == {f"{component}/{each}" for each in range(count)} and has_own(name, files, own):
        return {name: files[name]}
    if own is None or any(file.groups is None or file.ending for file in files.values()):
        return files  # the keys of each may be anywhere, or it must be known what has ended in all
    return {
        each: file
        for each, file in files.items()
        if file.groups is None or own.meets(file.groups) or heir_of(index_of(each), count) == int(index)
    }


def has_own(name: str, files: Mapping[str, SnapshotFile], own: GroupRange | None) -> bool:
    """Return whether the snapshot of a task has all its keys and no others, if there are as many tasks as before."""
    return own is None or len(files) == 1 or files[name].groups == own


def range_wanted(name: str, files: Mapping[str, SnapshotFile], own: GroupRange | None) -> GroupRange | None:
    """Return the groups that a task needs of the snapshots that `files_for` has named; None: it needs all that they hold."""
    if own is None or (set(files) == {name} and (files[name].groups is None or files[name].groups == own)):
        return None
    return own


def key_at(row: Any, positions: tuple[int, ...]) -> Any:
    """Return the key of a row: one value, or a tuple of values. Raises StateError if its stream had fewer fields."""
    if len(row) <= max(positions):
        raise StateError(
            f"at the last commit, a tuple {short(row, 100)} was on its way or waited, and its stream has other fields now, by "
            f"which tuples are grouped: {ANOTHER_PATH}"
        )
    return row[positions[0]] if len(positions) == 1 else tuple(row[position] for position in positions)


def owner_of(key: Any, count: int, groups: int) -> int:
    """Return which of several tasks has a key. One that cannot be read makes its tuple a dead letter, of the first task."""
    if type(key) is Unreadable or (type(key) is tuple and any(type(part) is Unreadable for part in key)):
        return 0
    return task_of(key, count, groups)


def index_of(task: str) -> int:
    """Return the index in a task's name."""
    return int(task.rpartition("/")[2])
