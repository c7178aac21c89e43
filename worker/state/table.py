"""What the states of one task share: the key at hand, and what undoes the running call.

Each call of the user's code is a transaction of its own: `begin`, then `commit` or `undo`. A handle that changes for the first
time in a call keeps what it needs to undo that change, and adds itself to `changed`. Most calls change few states of one key,
so this costs one entry per state and call.
Must not know: tasks, tuples, streams, files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from topology_api import StateError

try:
    import cython
except ImportError:
    from topology_api import plain_cython as cython


class NoKey:
    """The key at hand while there is none, and the value of a cell that is absent."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<none>"


NONE = NoKey()


class StoredBytes:
    """A value, or a part of one, as a snapshot has it: encoded, and not looked at since."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class StateTable:
    """The key at hand of one task, and the changes of the running call."""

    def __init__(self, where: str, now: Callable[[], float]) -> None:
        #: Component and task, for messages.
        self.where = where
        #: The clock of `ttl` and of timers.
        self.now = now
        self.key: Any = NONE
        #: NONE, where compiled code finds it fastest.
        self.none: Any = NONE
        #: Whether the running call may write broadcast states: it executes a tuple that all tasks get.
        self.for_all = False
        #: The number of calls so far.
        self.turn = 0
        #: The handles that the running call has changed: the first of them, and all others. Most calls change one, and then no
        #: list is filled and emptied.
        self.first: StateHandle | None = None
        self.others: list[StateHandle] = []
        self.handles: dict[str, StateHandle] = {}

    def begin(self, key: Any) -> None:
        """Begin a call with this key at hand; NONE: no key."""
        self.turn += 1
        self.key = key

    def add_changed(self, handle: StateHandle) -> None:
        """A handle has changed for the first time in the running call."""
        if self.first is None:
            self.first = handle
        else:
            self.others.append(handle)

    @property
    def changed(self) -> list[StateHandle]:
        """The handles that the running call has changed."""
        return [] if self.first is None else [self.first, *self.others]

    @cython.locals(handle="StateHandle")
    def undo(self) -> None:
        """Take back what the running call has changed. The key stays at hand until the next call."""
        others = self.others
        while others:
            handle = others.pop()
            handle.undo()
        if self.first is not None:
            handle, self.first = self.first, None
            handle.undo()

    def commit(self) -> None:
        """Keep what the running call has changed."""
        self.first = None
        if self.others:
            self.others.clear()

    def end(self) -> None:
        """End the call: no key is at hand."""
        self.key = NONE
        self.for_all = False

    def no_key(self, what: str) -> NoReturn:
        """Raise the error for a use of keyed state while no key is at hand."""
        raise StateError(
            f"{self.where}: {what} belongs to a key, and no key is at hand: use it in execute, for a tuple that came by "
            "fields_grouping, or in on_timer"
        )


class MarkingTable(StateTable):
    """The table of a task that has epochs: each handle knows which of its cells have changed, and what they were."""

    def add_changed(self, handle: StateHandle) -> None:
        StateTable.add_changed(self, handle)
        handle.mark_at_hand()


class StateHandle:
    """The common base of the handles, one for each state of a task.

    A *cell* is what a snapshot holds as one: the value or list of a key, or an item of a key's map. With a `MarkingTable`, each
    cell is marked when it changes for the first time after a snapshot began: what it was then is kept. The snapshot that is
    still being encoded takes it from there, the next one sees which cells have changed, and a rewind brings it back.

    What a snapshot has given stays bytes until a call touches it, so that a start decodes keys only. A first touch moves it
    from `raw` to the handle's `cells`. This changes nothing that a snapshot or an undone call would have to know.
    """

    def __init__(self, table: StateTable, name: str) -> None:
        self.table = table
        self.name = name
        #: The cells that were changed, or may have been, since the last snapshot began, each with what `kept` says of it as it
        #: was then (of lists, see `MarkingListHandle`; `PlainValueHandle` has `RecentValues` instead of a dict); None without a
        #: `MarkingTable`.
        self.touched: Any = {} if isinstance(table, MarkingTable) else None
        #: What no call has touched since the task began, encoded: the value of a key, the first elements of its list, or a dict
        #: of its map's items.
        self.raw: dict[Any, Any] = {}
        #: Grows when something begins to move out of `raw`, and when it has: a thread that reads meanwhile reads again.
        self.moves = 0
        table.handles[name] = self

    def __reduce__(self) -> Any:
        raise StateError(
            f"{self.table.where}: self.{self.name} is the state itself, and works only in calls of this task: emit, or keep, "
            "what it holds, such as its .value, dict(...) or list(...)"
        )

    def mark(self, cell: Any) -> None:
        """A cell is about to change."""
        touched = self.touched
        if touched is not None and cell not in touched:
            touched[cell] = self.kept(cell)

    def mark_at_hand(self) -> None:
        """The running call is about to change the cell of the key at hand, and has kept what undoes this. A map marks each item
        instead."""
        self.mark(self.table.key)

    def kept(self, cell: Any) -> Any:
        """Return (value, time of writing or None) of a cell, in a form that does not change: parts of a mutable type are
        encoded, and those that no call has touched are StoredBytes. NONE if it is absent.
        """
        raise AssertionError("every kind of handle has its own kept")

    def begin_epoch(self) -> None:
        """A marker is reached: what was touched before it is saved by others, from now on."""
        self.touched = {}

    def merge_older(self, found: dict[Any, Any], older: dict[Any, Any]) -> None:
        """Add to what cells were at a snapshot what they were at the one before it."""
        found.update(older)

    def bring_back(self, cells: dict[Any, Any]) -> None:
        """Let cells be what `touched` says that they were. The handle keeps the values."""
        raise AssertionError("every kind of handle has its own bring_back")

    def take_over(self, other: Any) -> None:
        """Get the contents of a handle of the same state, whose task was closed."""
        raise AssertionError("every kind of handle has its own take_over")

    def undo(self) -> None:
        """Take back the changes of the running call."""
        raise AssertionError("every kind of handle has its own undo")

    def what(self) -> str:
        """Return the state with its place, for messages."""
        return f"state {self.name!r}"
