"""A store in a file, for one process: what `squall dev --state` keeps from one run to the next.

The values are a table of SQLite; which session an ephemeral value belongs to, and who watches, is this process's alone: such
values are gone when the file is opened again. A lock on a file beside it keeps a second process out.
Each write is one transaction, so that a process that is killed leaves what was written, and a machine that loses its power
may lose the last moments, but nothing half written.
Must not know: what the values mean.
"""

from __future__ import annotations

import fcntl
import logging
import math
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from squall.cluster.store import (
    Cancel,
    Conflict,
    Deposed,
    Exists,
    Guard,
    StoreError,
    Unavailable,
    Watch,
    below,
    checked_path,
    checked_value,
)

_log = logging.getLogger(__name__)

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS store (
    path TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, ephemeral INTEGER NOT NULL
) WITHOUT ROWID
"""


class InUse(StoreError):
    """Another process has the file."""


class _File:
    """The table that all sessions share."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.Lock()
        self.owners: dict[str, object] = {}
        self.watches: dict[int, tuple[str, Watch]] = {}
        self.numbers = count()
        self.open = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.held = path.with_name(path.name + ".lock").open("ab")
        except OSError as error:
            raise StoreError(f"{path} is no store that can be opened: {error}") from error
        try:
            fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.held.close()
            raise InUse(f"{path} is used by another process: end that one, or name another file") from error
        try:
            self.database = _opened(path)
        except sqlite3.Error as error:
            self.held.close()
            raise StoreError(f"{path} is no store that can be opened: {error}") from error

    def close(self) -> None:
        if self.open:
            self.open = False
            self.database.close()
            self.held.close()

    def find(self, path: str) -> tuple[bytes, int] | None:
        row = self.database.execute("SELECT value, version FROM store WHERE path = ?", (path,)).fetchone()
        return None if row is None else (bytes(row[0]), int(row[1]))

    def check(self, path: str, expected: int | None, guard: Guard | None) -> tuple[bytes, int] | None:
        if guard is not None:
            holds = self.find(guard.path)
            if holds is None or holds[1] != guard.version:
                raise Deposed(
                    f"{path} is not written: {guard.path} is not at version {guard.version} any more"
                )
        found = self.find(path)
        version = None if found is None else found[1]
        if expected is not None and version != expected:
            raise Conflict(path, expected, version)
        return found

    def write(self, path: str, data: bytes, version: int, ephemeral: bool) -> int:
        self.database.execute(
            "INSERT INTO store VALUES (?, ?, ?, ?) "
            "ON CONFLICT (path) DO UPDATE SET value = excluded.value, version = excluded.version",
            (path, data, version, ephemeral),
        )
        return version

    def remove(self, path: str) -> None:
        self.database.execute("DELETE FROM store WHERE path = ?", (path,))
        self.owners.pop(path, None)

    def names(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        # All paths below sort together: "0" is the character after "/".
        rows = self.database.execute(
            "SELECT path FROM store WHERE path >= ? AND path < ?", (prefix, prefix[:-1] + "0")
        )
        return sorted({row[0][len(prefix) :].partition("/")[0] for row in rows})

    def notify(self, path: str) -> None:
        with self.lock:
            callbacks = [callback for prefix, callback in self.watches.values() if below(prefix, path)]
        for callback in callbacks:
            callback(path)


def _opened(path: Path) -> sqlite3.Connection:
    """The database in a file, without what belonged to sessions that are over; `sqlite3.Error` when it is none."""
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(_TABLE)
        database.execute("DELETE FROM store WHERE ephemeral")
    except BaseException:
        database.close()
        raise
    return database


class SqliteStore:
    """`squall.cluster.store.Store` in a file. The one that opens the file closes it, and with it all its sessions."""

    session_secs = math.inf

    def __init__(self, path: Path | str, shared: _File | None = None) -> None:
        self._path = Path(path)
        self._file = _File(self._path) if shared is None else shared
        self._first = shared is None
        self._ended = False

    def session(self) -> SqliteStore:
        """Another session over the same values."""
        return SqliteStore(self._path, self._file)

    def close(self) -> None:
        """End this session: its ephemeral values go, and all its further calls raise `Unavailable`."""
        with self._file.lock:
            if self._ended or not self._file.open:
                return
            self._ended = True
            mine = [path for path, owner in self._file.owners.items() if owner is self]
            try:
                for path in mine:
                    self._file.remove(path)
            except sqlite3.Error as error:
                _log.warning(
                    "%s: what belonged to a session goes when it is opened next: %s", self._path, error
                )
            finally:
                if self._first:
                    self._file.close()
        for path in mine:
            self._file.notify(path)

    def get(self, path: str) -> tuple[bytes, int] | None:
        """The value and its version, or None where there is no value."""
        checked_path(path)
        with self._step() as file:
            return file.find(path)

    def put(
        self, path: str, data: bytes, expected_version: int | None = None, guard: Guard | None = None
    ) -> int:
        """Write a value, over any earlier one or only over `expected_version`; return the new version."""
        checked_value(checked_path(path), data)
        with self._step() as file:
            found = file.check(path, expected_version, guard)
            version = file.write(path, bytes(data), 0 if found is None else found[1] + 1, False)
        self._file.notify(path)
        return version

    def create(self, path: str, data: bytes, ephemeral: bool = False, guard: Guard | None = None) -> int:
        """Write a value where there is none; gives its version, or raises `Exists`."""
        checked_value(checked_path(path), data)
        with self._step() as file:
            if file.check(path, None, guard) is not None:
                raise Exists(path)
            version = file.write(path, bytes(data), 0, ephemeral)
            if ephemeral:
                file.owners[path] = self
        self._file.notify(path)
        return version

    def delete(self, path: str, expected_version: int | None = None, guard: Guard | None = None) -> None:
        """Remove a value (values below it stay). A missing one is an error only if a version is expected."""
        checked_path(path)
        with self._step() as file:
            if file.check(path, expected_version, guard) is None:
                return
            file.remove(path)
        self._file.notify(path)

    def owns(self, path: str) -> bool:
        """Whether there is an ephemeral value that belongs to this session."""
        checked_path(path)
        with self._step() as file:
            return file.owners.get(path) is self

    def children(self, path: str) -> list[str]:
        """Names directly below `path` that hold a value or lead to one, sorted."""
        checked_path(path)
        with self._step() as file:
            return file.names(path)

    def watch(self, prefix: str, callback: Watch) -> Cancel:
        """Call `callback(path)` after each change at or below `prefix`; return the function that ends it."""
        checked_path(prefix)
        with self._file.lock:
            number = next(self._file.numbers)
            self._file.watches[number] = (prefix, callback)

        def cancel() -> None:
            with self._file.lock:
                self._file.watches.pop(number, None)

        return cancel

    @contextmanager
    def _step(self) -> Iterator[_File]:
        """The file, for one step that no other process sees half done. Each step writes once, which SQLite does atomically."""
        with self._file.lock:
            if self._ended or not self._file.open:
                raise Unavailable(f"the store in {self._path} is closed")
            try:
                yield self._file
            except sqlite3.Error as error:
                raise Unavailable(f"the store in {self._path} fails: {error}") from error
