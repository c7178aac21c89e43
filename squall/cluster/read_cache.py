"""A cache of reads from a store: an entry is dropped when its value changes, and after some seconds in any case.

Notifications of changes drop entries, so the cache is only as correct as the notifications. When notifications stop, everything
is dropped, and nothing is cached until they resume. Each entry lives `life_secs` at most, so that a change without a
notification is also seen. An answer is not cached if the value changed while the answer was on its way: call `begin` before the
request is sent, and `keep` with the result of `begin` when the answer has arrived. Any thread may call any method.
Must not know: where values come from, what they mean.
"""

from __future__ import annotations

import threading
from typing import Any, Final, NamedTuple

from squall.clock import Clock
from squall.cluster.store import above

#: A longer value is not cached: large values (chunks of a bundle) are read once, and would fill the memory.
MOST_BYTES: Final = 64 * 1024


class Known(NamedTuple):
    """An answer in the cache."""

    answer: Any
    until: float


class PendingRead(NamedTuple):
    """A read in progress; forgotten when its value changes."""

    what: tuple[str, str]


class ReadCache:
    """Answers by kind of request and path. `VALUE` requests the value of a path, `CHILDREN` the names below it."""

    VALUE: Final = "value"
    CHILDREN: Final = "children"

    def __init__(self, clock: Clock, life_secs: float) -> None:
        self._clock = clock
        self._life_secs = life_secs
        self._lock = threading.Lock()
        self._open = False
        self._known: dict[tuple[str, str], Known] = {}
        self._asked: dict[tuple[str, str], PendingRead] = {}

    def open(self) -> None:
        """Start caching, since changes are notified again; drop earlier entries."""
        with self._lock:
            self._clear()
            self._open = True

    def close(self) -> None:
        """Drop everything and stop caching, since changes are no longer notified."""
        with self._lock:
            self._clear()
            self._open = False

    def drop_all(self) -> None:
        """Drop everything, and continue caching."""
        with self._lock:
            self._clear()

    def find(self, kind: str, path: str) -> Known | None:
        """Return the cached answer; None if there is none, or if it is too old."""
        with self._lock:
            known = self._known.get((kind, path))
            return known if known is not None and self._clock.now() < known.until else None

    def begin(self, kind: str, path: str) -> PendingRead:
        """Register a read that is about to be sent."""
        asked = PendingRead((kind, path))
        with self._lock:
            if self._open:
                self._asked[asked.what] = asked
        return asked

    def keep(self, asked: PendingRead, answer: Any, size: int = 0) -> None:
        """Cache the answer of a read, unless the value has changed or a later read has begun since `begin`."""
        with self._lock:
            if self._asked.get(asked.what) is not asked:
                return
            del self._asked[asked.what]
            if size <= MOST_BYTES:
                self._known[asked.what] = Known(answer, self._clock.now() + self._life_secs)

    def changed(self, path: str) -> None:
        """Handle the creation, change or removal of a value."""
        with self._lock:
            self._drop(self.VALUE, path)
            self._drop(self.CHILDREN, path)
            self._drop(self.CHILDREN, above(path))

    def wrote(self, path: str) -> None:
        """Handle a write or an attempted write by this process, which may also have created or removed paths above."""
        self.changed(path)
        with self._lock:
            while path != "/":
                path = above(path)
                self._drop(self.VALUE, path)
                self._drop(self.CHILDREN, path)

    def purge(self) -> None:
        """Drop entries that are too old, to save memory; call this now and then."""
        now = self._clock.now()
        with self._lock:
            for what in [what for what, known in self._known.items() if known.until <= now]:
                del self._known[what]

    def _drop(self, kind: str, path: str) -> None:
        self._known.pop((kind, path), None)
        self._asked.pop((kind, path), None)

    def _clear(self) -> None:
        self._known.clear()
        self._asked.clear()
