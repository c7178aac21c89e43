"""The timers of one task: at most one for each key and name, fired in the order of their times.

Must not know: clocks, user code, tasks.
"""

from __future__ import annotations

import heapq
from typing import Any

import msgspec

from worker.state.table import NONE, StateHandle, StateTable


class Due(msgspec.Struct, frozen=True):
    """A timer whose time has come."""

    key: Any
    name: str
    time: float


class KeyTimers(StateHandle):
    """KeyTimers by key and name. Changes within a call are undone with the call's other changes."""

    def __init__(self, table: StateTable) -> None:
        super().__init__(table, "timers")
        #: Key -> name -> time.
        self.times: dict[Any, dict[str, float]] = {}
        #: (time, number, key, name); entries whose timer was moved or cancelled stay until they come to the front.
        self.queue: list[tuple[float, int, Any, str]] = []
        self.numbers = 0
        self.turn = 0
        #: What undoes the running call: (key, name, time before).
        self.log: list[tuple[Any, str, float | None]] = []

    def set(self, key: Any, name: str, time: float) -> None:
        """Set a timer, or move it."""
        self.keep_old(key, name)
        self.put(key, name, time)

    def cancel(self, key: Any, name: str) -> bool:
        """Cancel a timer; return whether there was one."""
        if name not in self.times.get(key, ()):
            return False
        self.keep_old(key, name)
        self.drop(key, name)
        return True

    def due(self, now: float) -> Due | None:
        """Return the first timer that is due; it stays until it is cancelled."""
        self.skip_stale()
        if self.queue and self.queue[0][0] <= now:
            time, _, key, name = self.queue[0]
            return Due(key, name, time)
        return None

    def next_time(self) -> float | None:
        """Return the time of the first timer."""
        self.skip_stale()
        return self.queue[0][0] if self.queue else None

    def skip_stale(self) -> None:
        """Remove entries at the front whose timer was moved, cancelled or fired."""
        while self.queue:
            time, _, key, name = self.queue[0]
            if self.times.get(key, {}).get(name) == time:
                return
            heapq.heappop(self.queue)

    def put(self, key: Any, name: str, time: float) -> None:
        """Set a timer; nothing undoes this."""
        self.mark(key)
        self.times.setdefault(key, {})[name] = time
        self.numbers += 1
        heapq.heappush(self.queue, (time, self.numbers, key, name))

    def drop(self, key: Any, name: str) -> None:
        """Remove a timer; nothing undoes this."""
        self.mark(key)
        names = self.times[key]
        del names[name]
        if not names:
            del self.times[key]

    def drop_all(self, key: Any) -> None:
        """Remove the timers of a key; nothing undoes this."""
        for name in list(self.times.get(key, ())):
            self.drop(key, name)

    def kept(self, cell: Any) -> Any:
        names = self.times.get(cell)
        return (dict(names), None) if names else NONE

    def bring_back(self, cells: dict[Any, Any]) -> None:
        for key, was in cells.items():
            names = {} if was is NONE else was[0]
            for name, time in names.items():
                if self.times.get(key, {}).get(name) != time:  # else its entry in the queue is still there
                    self.numbers += 1
                    heapq.heappush(self.queue, (time, self.numbers, key, name))
            if names:
                self.times[key] = names
            else:
                self.times.pop(key, None)

    def take_over(self, other: Any) -> None:
        self.times, self.queue, self.numbers = other.times, other.queue, other.numbers

    def keep_old(self, key: Any, name: str) -> None:
        """Keep what undoes a change within the running call."""
        if self.turn != self.table.turn:
            self.turn = self.table.turn
            self.log.clear()
            self.table.add_changed(self)
        self.log.append((key, name, self.times.get(key, {}).get(name)))

    def undo(self) -> None:
        while self.log:
            key, name, time = self.log.pop()
            if name in self.times.get(key, ()):
                self.drop(key, name)
            if time is not None:
                self.put(key, name, time)
        self.turn = 0


def current(table: StateTable, what: str) -> Any:
    """Return the key at hand. Raises StateError if there is none."""
    if table.key is NONE:
        table.no_key(what)
    return table.key
