"""The store: the small tree of versioned values that holds the whole state of a cluster.

Every implementation (memory, SQLite, ZooKeeper) promises:

- A path is `/` and names joined by `/`; a value is one byte or more. Paths above a value need not be created first and hold no
  values: `get` returns None for them.
- A value has a version. Each `put` changes the version, and a write that names the version that was read fails with `Conflict`
  if another process has written since. So no change is overwritten unseen.
- `create` has one winner, even if several processes try at once; the others get `Exists`.
- `children` lists the names with a value at or below them, sorted.
- A watch is called with the path of every change at or below its prefix, as soon as the change can be read. The call is a hint
  ("look again"), possibly from another thread: the watch must return at once, only note the change, and not raise. After an
  interruption it is called with its own prefix: anything below may have changed.
- An ephemeral value belongs to the session of its creator, and is removed when that session ends.
- A write may carry a guard: the path of a value and the version that this value must still have. The check and the write are
  one step. So the writes of a superseded leader are refused, however late they arrive.
- Calls of a store that cannot be reached raise `Unavailable` within a few seconds. A write that ended with this error may or
  may not have been done: read again before deciding.

Must not know: what the values mean (`squall.cluster.records`), where they live (`squall.cluster.paths`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Final, Protocol, runtime_checkable

import msgspec

from topology_api.errors import SquallError

Watch = Callable[[str], None]
Cancel = Callable[[], object]

#: The maximum size of a value: a little less than ZooKeeper's default limit for one message, which includes path and framing.
MOST_BYTES: Final = 1_000_000


class StoreError(SquallError):
    """A store refused a write; nothing was changed."""


class Conflict(StoreError):
    """The value is not at the version that the writer read."""

    def __init__(self, path: str, expected: int | None, found: int | None) -> None:
        super().__init__(path, expected, found)
        self.path = path
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        was = "earlier" if self.expected is None else f"at version {self.expected}"
        now = "gone" if self.found is None else f"at version {self.found}"
        return f"{self.path} was read {was}, but it is {now}: read it again and decide again"


class Exists(StoreError):
    """`create` found a value where there should be none."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path} exists already: it belongs to its first creator"


class Unavailable(StoreError):
    """The store was not reached in time. It is not known whether a write was done."""


class Deposed(StoreError):
    """The guard of a write does not hold any more: another process leads. Nothing was changed."""


class OpenToStrangers(StoreError):
    """A value to which others than the daemons of this cluster have access."""


class TooBig(StoreError):
    """A value that is too large for the store."""


class Guard(msgspec.Struct, frozen=True):
    """A value and the version that it must still have for a write to be done."""

    path: str
    version: int

    def broken(self, path: str) -> Deposed:
        """Return the error of a write to `path` when this guard does not hold."""
        return Deposed(f"{path} is not written: {self.path} is not at version {self.version} any more")


class Watches:
    """The watches by prefix. Any thread may call any method."""

    def __init__(self) -> None:
        self._entries: dict[object, tuple[str, Watch]] = {}

    def add(self, prefix: str, callback: Watch) -> Cancel:
        """Call `callback(path)` after each change at or below `prefix`; return a function that ends the watch."""
        key = object()
        self._entries[key] = checked_path(prefix), callback
        return partial(self._entries.pop, key, None)

    def at(self, path: str | None) -> list[tuple[Watch, str]]:
        """Return the functions to call after a change at a path, each with its argument. A path of None means that anything may
        have changed."""
        return [
            (callback, prefix if path is None else path)
            for prefix, callback in list(self._entries.values())  # a copy: another thread may add one
            if path is None or below(prefix, path)
        ]


class Store(Protocol):
    """A tree of versioned values, as one session sees it. Any thread may call any method."""

    @property
    def session_secs(self) -> float:
        """Seconds without contact after which this session may expire; infinite if it never expires."""

    def get(self, path: str) -> tuple[bytes, int] | None:
        """Return the value and its version, or None if there is no value."""

    def put(self, path: str, data: bytes, expected: int | None = None, guard: Guard | None = None) -> int:
        """Write a value, over any earlier one or only over version `expected`; return the new version."""

    def create(self, path: str, data: bytes, ephemeral: bool = False, guard: Guard | None = None) -> int:
        """Create a value and return its version; raise `Exists` if there is one."""

    def delete(self, path: str, expected: int | None = None, guard: Guard | None = None) -> None:
        """Remove a value (values below it stay). A missing value is an error only if a version is expected."""

    def owns(self, path: str) -> bool:
        """Return whether there is an ephemeral value that belongs to this session. The call always asks the store itself, so
        that an answer proves that the session was alive when the call began.
        """

    def children(self, path: str) -> list[str]:
        """Return the names directly below `path` that hold a value or have values below them, sorted."""

    def watch(self, prefix: str, callback: Watch) -> Cancel:
        """Call `callback(path)` after each change at or below `prefix`; return a function that ends the watch."""


@runtime_checkable
class Cached(Protocol):
    """A store whose reads may be some seconds old."""

    def fresh(self) -> None:
        """Make later reads at least as new as this call."""


@runtime_checkable
class Shared(Protocol):
    """A store in a service that others use too, so that each value needs rights of its own."""

    def walk_access(self) -> Iterator[int]:
        """Check who has access to each value, page by page; yield the number of values of each page. Raises
        `OpenToStrangers`.
        """


@lru_cache(8192)
def checked_path(path: str) -> str:
    """Return a valid path unchanged; raise `ValueError` for any other. A path is valid if it is `/`, or names joined by `/`,
    none of which is empty, `.` or `..`."""
    if path == "/":
        return path
    if not path.startswith("/") or any(name in ("", ".", "..") for name in path[1:].split("/")):
        raise ValueError(f"not a path of the store: {path!r}; a path looks like /topologies/word-count")
    return path


def check_value(path: str, data: bytes) -> None:
    """Raise `ValueError` for a path that `checked_path` refuses, for a value at the root and for an empty value, which would
    look like a missing value. Raise `TooBig` for a value that is too large for ZooKeeper, so that a topology that works on one
    machine also works on a cluster.
    """
    if checked_path(path) == "/" or not data:
        raise ValueError(f"a value is one byte or more, and not at the root: {path!r} got {data!r}")
    if len(data) > MOST_BYTES:
        raise TooBig(f"{path} is not written: it has {len(data):,} bytes, a store takes {MOST_BYTES:,}")


def below(prefix: str, path: str) -> bool:
    """Return whether `path` is `prefix` or below it (`/a` is not above `/ab`)."""
    return prefix == "/" or path == prefix or path.startswith(prefix + "/")


def above(path: str) -> str:
    """Return the path directly above `path`."""
    return path.rpartition("/")[0] or "/"


def write_over(store: Store, path: str, data: bytes, read: int | None) -> int:
    """Write over the version that was read, or where nothing was read (None); return the new version. Raises `Conflict` or
    `Exists` if there is another value."""
    return store.create(path, data) if read is None else store.put(path, data, read)


def remove_tree(store: Store, path: str) -> None:
    """Delete every value at or below `path`, the deepest first."""
    for name in store.children(path):
        remove_tree(store, f"{path.rstrip('/')}/{name}")
    if path != "/":
        store.delete(path)
