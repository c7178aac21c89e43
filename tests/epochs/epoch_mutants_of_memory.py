"""Guards of returns in memory, removed: each function makes a method without it.

Must not know: which mutants there are, how they are found.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from worker.epochs.in_memory import InMemory
from worker.state.history import StateHistory, StateMark


def newest_held(old: Any) -> Any:
    """A task returns to its newest snapshot, whatever is committed."""

    def method(self: InMemory, epoch: int, files: Any) -> Any:
        if self.held and self.undo.can_return(newest := max(self.held)):
            epoch, files = newest, self.held[newest].files
        return old(self, epoch, files)

    return method


def without_link(old: Any) -> Any:
    """The next changes are written as if they were on top of the snapshot before."""

    def method(self: InMemory, *args: Any) -> Any:
        self.held = {epoch: structs.replace(held, link=None) for epoch, held in self.held.items()}
        return old(self, *args)

    return method


def newest_changes_only(old: Any) -> Any:
    """What had changed before the last marker is not undone."""

    def method(self: StateHistory, epoch: int, handles: Any) -> StateMark:
        for mark in self.marks:
            mark.changes = None
        found: StateMark = old(self, epoch, handles)
        return found

    return method


def void_changes_stay(old: Any) -> Any:
    """What has changed since the last marker is not undone."""

    def method(self: StateHistory, epoch: int, handles: Any) -> StateMark:
        for handle in self.left or ():
            handle.touched = {}
        found: StateMark = old(self, epoch, handles)
        return found

    return method


def later_value_wins(old: Any) -> Any:
    """A key that has changed in two epochs returns to what it was at the later marker."""

    def method(self: StateHistory, epoch: int, handles: Any) -> StateMark:
        later = [handle.touched or {} for handle in self.left or ()]
        for mark in reversed(self.marks):
            for changes, own in zip(later, mark.changes or ()):
                own.update({cell: changes[cell] for cell in changes.keys() & own.keys()})
                changes.update(own)
        found: StateMark = old(self, epoch, handles)
        return found

    return method


def as_it_was(old: Any) -> Any:
    """What is held is not changed for other numbers of tasks."""

    def method(self: InMemory, epoch: int, before: Any) -> bool:
        return False

    return method
