"""Typed records below one folder of a store, and the memory of what was read there last.

All record sets of a `Registry` share one `KnownRecords`, which serves twice: a record that has not changed is not decoded
again, and a conditional write carries the version that was read, so that it fails with `Conflict` (or `Exists`) when another
process has written since. After a write that failed, for whatever reason, what was known of that path is forgotten.

What cannot be read: `get` raises `BadRecord`; `readable` returns None; `last_readable` returns the record that was read there
last. The log names such a value once.
Must not know: which sets there are, what records mean.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic

from squall.cluster import paths
from squall.cluster.records import BadRecord, R, Record, decode, encode
from squall.cluster.store import Conflict, Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Known:
    data: bytes
    version: int
    record: Record | None
    """None: the bytes are no record."""
    last: Record | None
    """The record, or the one that was read here last, while there are bytes that are none."""


class KnownRecords:
    """The records of a store that were read or written last, by path."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known: dict[str, _Known] = {}
        self._logged: set[str] = set()  # paths whose unreadable values the log has named

    def read(self, kind: type[R], path: str) -> R | None:
        """Return the record at a path, None where there is none; `BadRecord` names the path."""
        found = self.store.get(path)
        if found is None:
            self.known.pop(path, None)
            return None
        data, version = found
        known = self.known.get(path)
        # Compared by the bytes, not by the version: a value that was removed and created again starts over.
        if known is not None and known.data == data and isinstance(known.record, kind):
            if known.version != version:
                self.known[path] = _Known(data, version, known.record, known.record)
            return known.record
        last = None if known is None else known.last
        self.known[path] = _Known(data, version, None, last)  # so that it can be written over, whatever it is
        try:
            record = decode(kind, data)
        except BadRecord as error:
            raise BadRecord(f"{path}: {error}") from error
        self.known[path] = _Known(data, version, record, record)
        return record

    def last_readable(self, kind: type[R], path: str, or_before: bool = True) -> R | None:
        """Return the record at a path. If it cannot be read: the one that was read there last (`or_before`), or None."""
        try:
            record = self.read(kind, path)
        except BadRecord as error:
            known = self.known.get(path)
            if or_before and known is not None and isinstance(known.last, kind):
                self._log(path, f"a value of the store counts as what it was before: {error}")
                return known.last
            self._log(path, f"a value of the store is left out: {error}")
            return None
        self._logged.discard(path)
        return record

    def write(self, path: str, record: Record) -> None:
        """Write a record over what was read; `Conflict` or `Exists` when something else is there."""
        data = encode(record)
        known = self.known.pop(path, None)
        if known is None:
            version = self.store.create(path, data)
        else:
            version = self.store.put(path, data, known.version)
        self.known[path] = _Known(data, version, record, record)

    def delete(self, path: str) -> None:
        """Remove what was read; `Conflict` when something else is there."""
        known = self.known.pop(path, None)
        self.store.delete(path, None if known is None else known.version)

    def expect(self, path: str, record: Record) -> None:
        """Raise `Conflict` unless the record is the one that was read at the path last."""
        known = self.known.get(path)
        if known is None or known.record is not record:
            raise Conflict(path, None, None if known is None else known.version)

    def forget(self, gone: Callable[[str], bool]) -> None:
        """Forget the paths for which `gone` is true."""
        for path in filter(gone, list(self.known)):  # a copy: another thread may be reading
            self.known.pop(path, None)

    def forget_below(self, top: str) -> None:
        """Forget a path and everything below it."""
        self.forget(lambda path: path == top or path.startswith(top + "/"))

    def _log(self, path: str, text: str) -> None:
        if path not in self._logged:
            self._logged.add(path)
            _log.warning("%s", text)


@dataclass
class RecordSet(Generic[R]):
    """The records of one type below one folder.

    `key_of` gives the key of a record: the name below the folder, before quoting. A record that `is_empty` is not stored:
    `write` removes what is there instead.
    """

    known: KnownRecords
    kind: type[R]
    folder: str
    key_of: Callable[[R], str]
    is_empty: Callable[[R], bool] = lambda _: False

    def path(self, key: str) -> str:
        """Return the path of a record."""
        return paths.below(self.folder, key)

    def names(self) -> list[str]:
        """Return the keys for which there is a value, readable or not."""
        return list(map(paths.unquoted, self.known.store.children(self.folder)))

    def get(self, key: str) -> R | None:
        """Return a record, None where there is none; `BadRecord` where it cannot be read."""
        return self.known.read(self.kind, self.path(key))

    def readable(self, key: str) -> R | None:
        """Return a record, None also where it cannot be read."""
        return self.known.last_readable(self.kind, self.path(key), or_before=False)

    def last_readable(self, key: str) -> R | None:
        """Return a record; where it cannot be read, the one that was read there last."""
        return self.known.last_readable(self.kind, self.path(key))

    def create(self, record: R) -> None:
        """Store a new record; `Exists` when its key is taken."""
        path = self.path(self.key_of(record))
        self.known.known.pop(path, None)
        self.known.write(path, record)

    def write(self, record: R) -> None:
        """Store a record over what was read there, or as a new one; `Conflict` or `Exists` when something else is there."""
        path = self.path(self.key_of(record))
        if self.is_empty(record):
            self.known.delete(path)
        else:
            self.known.write(path, record)

    def update(self, was: R, now: R) -> None:
        """Change the record that was read as `was`; `Conflict` when it is another by now."""
        path = self.path(self.key_of(was))
        self.known.expect(path, was)
        self.known.write(path, now)

    def remove(self, was: R) -> None:
        """Remove the record that was read as `was`; `Conflict` when it is another by now."""
        path = self.path(self.key_of(was))
        self.known.expect(path, was)
        self.known.delete(path)

    def put(self, record: R) -> None:
        """Store a record over whatever is there, readable or not."""
        path = self.path(self.key_of(record))
        self.known.known.pop(path, None)
        self.known.store.put(path, encode(record))

    def drop(self, key: str) -> None:
        """Remove whatever is there, readable or not."""
        self.known.known.pop(self.path(key), None)
        self.known.store.delete(self.path(key))

    def forget_others(self, keys: Iterable[str]) -> None:
        """Forget what was read of other keys than these: another process has removed it."""
        kept = set(map(self.path, keys))
        self.known.forget(lambda path: path.startswith(f"{self.folder}/") and path not in kept)
