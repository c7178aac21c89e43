"""A store in this process's memory: the cluster's state for the local cluster, `squall dev` and tests.

The store itself is a session that never ends; `session` gives others over the same values, which `expire` ends.
Every call may come from any thread. Watches are called by the thread that made the change, after it and
outside the lock, so that a watch may read the store.
Must not know: what the values mean.
"""

from __future__ import annotations

import math
import threading
from itertools import count

from squall.cluster.store import (
    Cancel,
    Conflict,
    Deposed,
    Exists,
    Guard,
    Unavailable,
    Watch,
    below,
    checked_path,
    checked_value,
)


class _Tree:
    """The values that all sessions share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.values: dict[str, tuple[bytes, int]] = {}
        # For each path with something below it: the names, and how many values each leads to.
        self.names: dict[str, dict[str, int]] = {}
        # The session that an ephemeral value belongs to.
        self.owners: dict[str, object] = {}
        self.watches: dict[int, tuple[str, Watch]] = {}
        self.numbers = count()

    def version(self, path: str) -> int | None:
        found = self.values.get(path)
        return None if found is None else found[1]

    def check(self, path: str, expected: int | None, guard: Guard | None) -> None:
        if guard is not None and self.version(guard.path) != guard.version:
            raise Deposed(f"{path} is not written: {guard.path} is not at version {guard.version} any more")
        found = self.version(path)
        if expected is not None and found != expected:
            raise Conflict(path, expected, found)

    def write(self, path: str, data: bytes) -> int:
        found = self.version(path)
        version = 0 if found is None else found + 1
        self.values[path] = (bytes(data), version)
        if found is None:
            self.count(path, 1)
        return version

    def remove(self, path: str) -> None:
        del self.values[path]
        self.owners.pop(path, None)
        self.count(path, -1)

    def count(self, path: str, change: int) -> None:
        """Count one value more, or less, in every path above."""
        while path != "/":
            above, _, name = path.rpartition("/")
            above = above or "/"
            names = self.names.setdefault(above, {})
            names[name] = names.get(name, 0) + change
            if not names[name]:
                del names[name]
            if not names:
                del self.names[above]
            path = above

    def notify(self, path: str) -> None:
        with self.lock:
            callbacks = [callback for prefix, callback in self.watches.values() if below(prefix, path)]
        for callback in callbacks:
            callback(path)


class InMemoryStore:
    """`squall.cluster.store.Store` in a dictionary."""

    session_secs = math.inf

    def __init__(self, tree: _Tree | None = None) -> None:
        self._tree = _Tree() if tree is None else tree
        self._expired = False

    def session(self) -> InMemoryStore:
        """Another session over the same values."""
        return InMemoryStore(self._tree)

    def expire(self) -> None:
        """End this session: its ephemeral values go, and all its further calls raise `Unavailable`."""
        with self._tree.lock:
            self._expired = True
            mine = [path for path, owner in self._tree.owners.items() if owner is self]
            for path in mine:
                self._tree.remove(path)
        for path in mine:
            self._tree.notify(path)

    def get(self, path: str) -> tuple[bytes, int] | None:
        """The value and its version, or None where there is no value."""
        checked_path(path)
        with self._tree.lock:
            self._check_alive()
            return self._tree.values.get(path)

    def put(
        self, path: str, data: bytes, expected_version: int | None = None, guard: Guard | None = None
    ) -> int:
        """Write a value, over any earlier one or only over `expected_version`; return the new version."""
        checked_value(checked_path(path), data)
        with self._tree.lock:
            self._check_alive()
            self._tree.check(path, expected_version, guard)
            version = self._tree.write(path, data)
        self._tree.notify(path)
        return version

    def create(self, path: str, data: bytes, ephemeral: bool = False, guard: Guard | None = None) -> int:
        """Write a value where there is none; gives its version, or raises `Exists`."""
        checked_value(checked_path(path), data)
        with self._tree.lock:
            self._check_alive()
            self._tree.check(path, None, guard)
            if path in self._tree.values:
                raise Exists(path)
            version = self._tree.write(path, data)
            if ephemeral:
                self._tree.owners[path] = self
        self._tree.notify(path)
        return version

    def delete(self, path: str, expected_version: int | None = None, guard: Guard | None = None) -> None:
        """Remove a value (values below it stay). A missing one is an error only if a version is expected."""
        checked_path(path)
        with self._tree.lock:
            self._check_alive()
            self._tree.check(path, expected_version, guard)
            if path not in self._tree.values:
                return
            self._tree.remove(path)
        self._tree.notify(path)

    def owns(self, path: str) -> bool:
        """Whether there is an ephemeral value that belongs to this session."""
        checked_path(path)
        with self._tree.lock:
            self._check_alive()
            return self._tree.owners.get(path) is self

    def children(self, path: str) -> list[str]:
        """Names directly below `path` that hold a value or lead to one, sorted."""
        checked_path(path)
        with self._tree.lock:
            self._check_alive()
            return sorted(self._tree.names.get(path, ()))

    def watch(self, prefix: str, callback: Watch) -> Cancel:
        """Call `callback(path)` after each change at or below `prefix`; return the function that ends it."""
        checked_path(prefix)
        with self._tree.lock:
            number = next(self._tree.numbers)
            self._tree.watches[number] = (prefix, callback)

        def cancel() -> None:
            with self._tree.lock:
                self._tree.watches.pop(number, None)

        return cancel

    def _check_alive(self) -> None:
        if self._expired:
            raise Unavailable("this session has expired: open another one")
