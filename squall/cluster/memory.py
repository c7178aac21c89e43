"""A store in this process's memory: the cluster's state for the local cluster, `squall dev` and tests.

Several sessions may share the same values; each session ends separately, when it is closed. Any thread may call any method. The
thread that made a change calls the watches, after the change and outside the lock, so that a watch may read the store.
Must not know: what the values mean.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from squall.cluster import store
from squall.cluster.store import Guard


class Tree:
    """The values that all sessions share. A subclass may also keep them in a file."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.values: dict[str, tuple[bytes, int]] = {}
        #: For each path with something below it: the names below, and how many values each name leads to.
        self.names: dict[str, dict[str, int]] = {}
        #: The session to which an ephemeral value belongs.
        self.owners: dict[str, object] = {}
        self.watches = store.Watches()

    def version(self, path: str) -> int | None:
        return self.values.get(path, (b"", None))[1]

    def check(self, path: str, expected: int | None, guard: Guard | None) -> None:
        if guard is not None and self.version(guard.path) != guard.version:
            raise guard.broken(path)
        if expected is not None and (found := self.version(path)) != expected:
            raise store.Conflict(path, expected, found)

    def write(self, path: str, data: bytes, owner: object | None = None) -> int:
        """Write a value and return its version. An ephemeral value has an `owner`."""
        found = self.version(path)
        version = 0 if found is None else found + 1
        self.values[path] = (self.save(path, bytes(data), version, owner is not None), version)
        if found is None:
            self.count(path, 1)
        if owner is not None:
            self.owners[path] = owner
        return version

    def remove(self, *removed: str) -> None:
        self.erase(removed)
        for path in removed:
            del self.values[path]
            self.owners.pop(path, None)
            self.count(path, -1)

    def get(self, path: str) -> tuple[bytes, int] | None:
        """Return a value and its version, None if there is none; raise `Unavailable` if it cannot be read."""
        return self.values.get(path)

    def save(self, path: str, data: bytes, version: int, ephemeral: bool) -> bytes:
        """Save a value beyond the life of this process, or raise `Unavailable`; return the bytes to keep in `values`."""
        return data

    def erase(self, removed: Sequence[str]) -> None:
        """Undo `save` for these paths."""

    def count(self, path: str, change: int) -> None:
        """Add `change` (1 or -1) to the counts of all paths above `path`."""
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
        for callback, changed in self.watches.at(path):
            callback(changed)


class InMemoryStore:
    """`squall.cluster.store.Store` in a dictionary; an instance is one session, which ends with `close`."""

    session_secs = math.inf

    def __init__(self, tree: Tree | None = None) -> None:
        self._tree = Tree() if tree is None else tree
        self._closed = False

    def session(self) -> InMemoryStore:
        """Return a further session over the same values."""
        return InMemoryStore(self._tree)

    def close(self) -> None:
        """End this session: its ephemeral values are removed, and all its further calls raise `Unavailable`."""
        with self._tree.lock:
            self._closed = True
            mine = [path for path, owner in self._tree.owners.items() if owner is self]
            self._tree.remove(*mine)
        for path in mine:
            self._tree.notify(path)

    def get(self, path: str) -> tuple[bytes, int] | None:
        """Return the value and its version, or None if there is no value."""
        with self._step(path) as tree:
            return tree.get(path)

    def put(self, path: str, data: bytes, expected: int | None = None, guard: Guard | None = None) -> int:
        """Write a value, over any earlier one or only over version `expected`; return the new version."""
        store.check_value(path, data)
        with self._step(path) as tree:
            tree.check(path, expected, guard)
            version = tree.write(path, data)
        tree.notify(path)
        return version

    def create(self, path: str, data: bytes, ephemeral: bool = False, guard: Guard | None = None) -> int:
        """Create a value and return its version; raise `Exists` if there is one."""
        store.check_value(path, data)
        with self._step(path) as tree:
            tree.check(path, None, guard)
            if path in tree.values:
                raise store.Exists(path)
            version = tree.write(path, data, self if ephemeral else None)
        tree.notify(path)
        return version

    def delete(self, path: str, expected: int | None = None, guard: Guard | None = None) -> None:
        """Remove a value (values below it stay). A missing value is an error only if a version is expected."""
        with self._step(path) as tree:
            tree.check(path, expected, guard)
            if path not in tree.values:
                return
            tree.remove(path)
        tree.notify(path)

    def owns(self, path: str) -> bool:
        """Return whether there is an ephemeral value that belongs to this session."""
        with self._step(path) as tree:
            return tree.owners.get(path) is self

    def children(self, path: str) -> list[str]:
        """Return the names directly below `path` that hold a value or have values below them, sorted."""
        with self._step(path) as tree:
            return sorted(tree.names.get(path, ()))

    def watch(self, prefix: str, callback: store.Watch) -> store.Cancel:
        """Call `callback(path)` after each change at or below `prefix`; return a function that ends the watch."""
        return self._tree.watches.add(prefix, callback)

    @contextmanager
    def _step(self, path: str) -> Iterator[Tree]:
        """Yield the tree for one atomic step at a path."""
        store.checked_path(path)
        with self._tree.lock:
            self._check_open()
            yield self._tree

    def _check_open(self) -> None:
        if self._closed:
            raise store.Unavailable("this session is closed: open another one")
