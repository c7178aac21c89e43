"""Key groups: the shares of the keys that move as a whole when a stateful bolt gets another number of tasks.

The group of a key is its content hash modulo the number of groups, which is fixed for as long as the state lives. Each task
owns one range of groups, so the number of tasks says where each key is; and the files of tasks, in the order of
groups, can be read range by range.
Must not know: tasks that run, streams, files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from worker.routing.key_hash import key_hash

T = TypeVar("T")


class GroupRange(NamedTuple):
    """The groups from `first` up to `end`, without `end`, of `groups` in total."""

    first: int
    end: int
    groups: int

    def meets(self, other: GroupRange) -> bool:
        """Return whether a group is in both. Of two different totals, any may be."""
        return self.groups != other.groups or (self.first < other.end and other.first < self.end)

    def covers(self, other: GroupRange) -> bool:
        """Return whether all groups of another range are in this one."""
        return self.groups == other.groups and self.first <= other.first and other.end <= self.end

    def joined(self, other: GroupRange) -> GroupRange:
        """Return the smallest range that has both, which have the same total."""
        return GroupRange(min(self.first, other.first), max(self.end, other.end), self.groups)


def group_of(key: Any, groups: int) -> int:
    """Return the group of a key. Raises UngroupableKey for kinds that a key can't have."""
    return key_hash(key) % groups


def owner_of(group: int, tasks: int, groups: int) -> int:
    """Return the index of the task that owns a group."""
    return group * tasks // groups


def range_of(index: int, tasks: int, groups: int) -> GroupRange:
    """Return the groups that a task owns: at least one, if there are no more tasks than groups."""
    return GroupRange(-(-index * groups // tasks), -(-(index + 1) * groups // tasks), groups)


def by_group(of_tasks: Sequence[T], groups: int) -> list[T]:
    """Return for each group what belongs to its owner. `of_tasks`: what belongs to each task."""
    return [of_tasks[owner_of(group, len(of_tasks), groups)] for group in range(groups)]


def task_of(key: Any, tasks: int, groups: int) -> int:
    """Return the index of the task to which fields grouping sends a key. `groups`: 0 for a bolt without state, whose keys are
    divided among the tasks themselves."""
    if not groups:
        return key_hash(key) % tasks
    return owner_of(group_of(key, groups), tasks, groups)


def cut(own: GroupRange, pieces: int) -> list[GroupRange]:
    """Return a range cut into pieces, in order. `pieces`: at most as many as it has groups."""
    width = own.end - own.first
    found = [range_of(at, pieces, width) for at in range(pieces)]
    return [GroupRange(own.first + each.first, own.first + each.end, own.groups) for each in found]
