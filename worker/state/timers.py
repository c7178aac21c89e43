"""The timers of one task: at most one for each key and name, fired in the order of their times.

A timer that is moved to a later time, as "an hour after the last tuple" is with each tuple, adds nothing to the queue: its
entry stays at the earlier time, and goes on to the later one when it comes to the front. What cancelled timers leave is
removed when it is most of the queue. So the queue is as long as there are timers, not as there were calls.
Must not know: clocks, user code, tasks.
"""

from __future__ import annotations

import heapq
from typing import Any, Final

import msgspec

from worker.state.table import NONE, StateHandle, StateTable

#: How many entries of timers that are gone the queue may hold beside as many as there are timers.
SPARE_ENTRIES: Final = 1_000


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
        #: (time, number, key, name). A timer has an entry at its time, or an earlier one. Those of a timer that was cancelled,
        #: or moved to an earlier time, stay until they come to the front or are most of the queue.
        self.queue: list[tuple[float, int, Any, str]] = []
        #: The time of the first entry of a timer where it is earlier than the timer's time.
        self.entered: dict[tuple[Any, str], float] = {}
        #: The number of timers.
        self.count = 0
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
        """Remove entries at the front whose timer was cancelled or fired, and let those of moved timers go on."""
        while self.queue:
            time, _, key, name = self.queue[0]
            wanted = self.times.get(key, {}).get(name)
            if wanted == time:
                return
            heapq.heappop(self.queue)
            if self.entered.get((key, name)) == time:
                del self.entered[key, name]
                self.enter(key, name, self.times[key][name])

    def enter(self, key: Any, name: str, time: float) -> None:
        """Add an entry to the queue."""
        self.numbers += 1
        heapq.heappush(self.queue, (time, self.numbers, key, name))
        if len(self.queue) > 2 * self.count + SPARE_ENTRIES:
            self.remove_stale()

    def remove_stale(self) -> None:
        """Remove all entries but one of each timer."""
        kept: dict[tuple[Any, str], tuple[float, int, Any, str]] = {}
        for entry in self.queue:
            time, _, key, name = entry
            if time == self.entered.get((key, name), self.times.get(key, {}).get(name)):
                kept.setdefault((key, name), entry)
        self.queue = list(kept.values())
        heapq.heapify(self.queue)

    def move(self, key: Any, name: str, before: float | None, time: float) -> None:
        """Let a timer have an entry at its time, or an earlier one. `before`: its time until now; None: it had none."""
        first = self.entered.pop((key, name), before)
        self.count += before is None
        if first is None or time < first:
            self.enter(key, name, time)
        elif time > first:
            self.entered[key, name] = first

    def put(self, key: Any, name: str, time: float) -> None:
        """Set a timer; nothing undoes this."""
        self.mark(key)
        names = self.times.setdefault(key, {})
        before, names[name] = names.get(name), time
        self.move(key, name, before, time)

    def drop(self, key: Any, name: str) -> None:
        """Remove a timer; nothing undoes this."""
        self.mark(key)
        names = self.times[key]
        del names[name]
        if not names:
            del self.times[key]
        self.leave(key, name)

    def leave(self, key: Any, name: str) -> None:
        """Note that a timer is gone: its entries say nothing any more."""
        self.entered.pop((key, name), None)
        self.count -= 1

    def drop_all(self, key: Any) -> None:
        """Remove the timers of a key; nothing undoes this."""
        for name in list(self.times.get(key, ())):
            self.drop(key, name)

    def kept(self, cell: Any) -> Any:
        names = self.times.get(cell)
        return (dict(names), None) if names else NONE

    def bring_back(self, cells: dict[Any, Any]) -> None:
        for key, was in cells.items():
            names, now = {} if was is NONE else was[0], self.times.setdefault(key, {})
            for name in now.keys() - names.keys():
                del now[name]
                self.leave(key, name)
            for name, time in names.items():
                before, now[name] = now.get(name), time
                self.move(key, name, before, time)
            if not now:
                del self.times[key]

    def take_over(self, other: Any) -> None:
        self.times, self.queue, self.numbers = other.times, other.queue, other.numbers
        self.entered, self.count = other.entered, other.count

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
