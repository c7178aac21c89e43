"""A store in a file, for one process: it keeps the state of `squall dev --state` from one run to the next.

Small values are read into memory when the file is opened; large values (chunks of bundles) are read by each `get`. Each write
goes to a SQLite table first. Sessions and watches exist only in this process, so ephemeral values are gone when the file is
opened again. A lock on a file beside the store keeps a second process out. Each write is one transaction: all writes survive if
the process is killed; a power failure may lose the last writes, but never leaves half a write.
Must not know: what the values mean.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from squall.cluster.memory import InMemoryStore, Tree
from squall.cluster.read_cache import MOST_BYTES
from squall.cluster.store import StoreError, Unavailable
from squall.guarded_files import DamagedFile, open_to_change

_log = logging.getLogger(__name__)

#: Runs when the file is opened. Ephemeral values are deleted, because their sessions have ended.
_OPEN: Final = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS store (
    path TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, ephemeral INTEGER NOT NULL
) WITHOUT ROWID;
DELETE FROM store WHERE ephemeral;
"""


class InUse(StoreError):
    """Another process uses the file."""


class _SavedTree(Tree):
    """The values in the file. Values of at most `MOST_BYTES` are also in memory; in place of a larger value, `values` holds b""
    (no value is empty)."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.open = True
        try:
            with ExitStack() as opened:  # closes what was opened if the rest fails
                path.parent.mkdir(parents=True, exist_ok=True)
                held = open_to_change(path.with_name(path.name + ".lock"), 0o600)
                opened.callback(os.close, held)
                os.close(open_to_change(path, 0o600))  # SQLite would follow a link
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    raise InUse(
                        f"{path} is used by another process: end that process, or name another file"
                    ) from error
                self.database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
                opened.callback(self.database.close)
                self._load()
                self.opened = opened.pop_all()
        except DamagedFile as error:
            raise StoreError(str(error)) from None
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path} is not a store that can be opened: {error}") from error

    def _load(self) -> None:
        """Read the paths and the small values, except ephemeral values of ended sessions."""
        self.database.executescript(_OPEN)
        rows = self.database.execute(
            "SELECT path, CASE WHEN length(value) <= ? THEN value END, version FROM store", (MOST_BYTES,)
        )
        for path, value, version in rows:
            self.values[path] = (bytes(value or b""), int(version))
            self.count(path, 1)

    def close(self) -> None:
        self.open = False
        self.opened.close()

    def get(self, path: str) -> tuple[bytes, int] | None:
        found = self.values.get(path)
        if found is None or found[0]:
            return found
        with self._errors():
            [[value]] = self.database.execute("SELECT value FROM store WHERE path = ?", (path,))
        return bytes(value), found[1]

    def save(self, path: str, data: bytes, version: int, ephemeral: bool) -> bytes:
        with self._errors():
            self.database.execute(
                "INSERT INTO store VALUES (?, ?, ?, ?) "
                "ON CONFLICT (path) DO UPDATE SET value = excluded.value, version = excluded.version",
                (path, data, version, ephemeral),
            )
        return data if len(data) <= MOST_BYTES else b""

    def erase(self, removed: Sequence[str]) -> None:
        with self._errors():
            self.database.executemany("DELETE FROM store WHERE path = ?", [(path,) for path in removed])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise SQLite's errors as `Unavailable`."""
        try:
            yield
        except sqlite3.Error as error:
            raise Unavailable(f"the store in {self.path} fails: {error}") from error


class SqliteStore(InMemoryStore):
    """`squall.cluster.store.Store` in a file. When the session that opened the file is closed, the file and all other sessions
    are closed too."""

    def __init__(self, path: Path | str, shared: _SavedTree | None = None) -> None:
        self._saved = _SavedTree(Path(path)) if shared is None else shared
        self._first = shared is None
        super().__init__(self._saved)

    def session(self) -> SqliteStore:
        """Return a further session over the same values."""
        return SqliteStore(self._saved.path, self._saved)

    def close(self) -> None:
        """End this session, as `InMemoryStore.close` does; the first session also closes the file."""
        if self._closed or not self._saved.open:
            return
        try:
            super().close()
        except Unavailable as error:
            _log.warning("%s; ephemeral values are removed when the file is opened next", error)
        finally:  # also if a watch raises
            if self._first:
                with self._saved.lock:
                    self._saved.close()

    def _check_open(self) -> None:
        if self._closed or not self._saved.open:
            raise Unavailable(f"the store in {self._saved.path} is closed")
