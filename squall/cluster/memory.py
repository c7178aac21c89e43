"""A store in this process's memory: the cluster's state for the local cluster and for tests.

Every call may come from any thread. Watches are called by the thread that made the change, after it and
outside the lock, so that a watch may read the store.
Must not know: what the values mean.
"""

from __future__ import annotations

import threading
from itertools import count

from squall.cluster.store import Cancel, Conflict, Exists, Watch, below, checked_path, checked_value


class InMemoryStore:
    """`squall.cluster.store.Store` in a dictionary."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, tuple[bytes, int]] = {}
        # For each path with something below it: the names, and how many values each leads to.
        self._names: dict[str, dict[str, int]] = {}
        self._watches: dict[int, tuple[str, Watch]] = {}
        self._numbers = count()

    def get(self, path: str) -> tuple[bytes, int] | None:
        """The value and its version, or None where there is no value."""
        checked_path(path)
        with self._lock:
            return self._values.get(path)

    def put(self, path: str, data: bytes, expected_version: int | None = None) -> int:
        """Write a value, whatever stands there, or only over `expected_version`; gives the new version."""
        checked_value(checked_path(path), data)
        with self._lock:
            found = self._version(path)
            if expected_version is not None and found != expected_version:
                raise Conflict(path, expected_version, found)
            version = self._write(path, data, found)
        self._tell(path)
        return version

    def create(self, path: str, data: bytes) -> int:
        """Write a value where there is none; gives its version, or raises `Exists`."""
        checked_value(checked_path(path), data)
        with self._lock:
            if path in self._values:
                raise Exists(path)
            version = self._write(path, data, None)
        self._tell(path)
        return version

    def delete(self, path: str, expected_version: int | None = None) -> None:
        """Remove a value (what lies below it stays). None there is fine unless a version is expected."""
        checked_path(path)
        with self._lock:
            found = self._version(path)
            if expected_version is not None and found != expected_version:
                raise Conflict(path, expected_version, found)
            if found is None:
                return
            del self._values[path]
            self._count(path, -1)
        self._tell(path)

    def children(self, path: str) -> list[str]:
        """Names directly below `path` that hold a value or lead to one, sorted."""
        checked_path(path)
        with self._lock:
            return sorted(self._names.get(path, ()))

    def watch(self, prefix: str, callback: Watch) -> Cancel:
        """Call `callback(path)` after each change at or below `prefix`; gives the function that ends it."""
        checked_path(prefix)
        with self._lock:
            number = next(self._numbers)
            self._watches[number] = (prefix, callback)

        def cancel() -> None:
            with self._lock:
                self._watches.pop(number, None)

        return cancel

    def _version(self, path: str) -> int | None:
        found = self._values.get(path)
        return None if found is None else found[1]

    def _write(self, path: str, data: bytes, found: int | None) -> int:
        version = 0 if found is None else found + 1
        self._values[path] = (bytes(data), version)
        if found is None:
            self._count(path, 1)
        return version

    def _count(self, path: str, change: int) -> None:
        """Note in every path above that one value more, or less, lies below."""
        while path != "/":
            above, _, name = path.rpartition("/")
            above = above or "/"
            names = self._names.setdefault(above, {})
            names[name] = names.get(name, 0) + change
            if not names[name]:
                del names[name]
            if not names:
                del self._names[above]
            path = above

    def _tell(self, path: str) -> None:
        with self._lock:
            callbacks = [callback for prefix, callback in self._watches.values() if below(prefix, path)]
        for callback in callbacks:
            callback(path)
