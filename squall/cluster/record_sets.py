"""Typed records below one folder of a store, and a cache of the last reads.

All record sets of a `Registry` share one `KnownRecords`, which has two uses: a record that has not changed is not decoded
again, and a conditional write carries the version that was read, so that it fails with `Conflict` (or `Exists`) if another
process has written since. After any failed write, the known record of that path is forgotten.

For a value that cannot be read, `get` raises `BadRecord`, `readable` returns None, and `last_readable` returns the last record
that was read there. The log names such a value once.
Must not know: which sets there are, what records mean.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic

import msgspec

from squall.cluster import paths
from squall.cluster.records import FORMAT, BadRecord, R, Record, decode, encode
from squall.cluster.store import Conflict, Store, checked_path, write_over
from topology_api.wording import shown

_log = logging.getLogger(__name__)


class _Known(msgspec.Struct, frozen=True):
    data: bytes
    version: int
    #: The record in `data`; None if the bytes are not a record.
    record: Record | None
    #: The last record at this path that could be read: `record`, unless that is None.
    last: Record | None


@dataclass(eq=False, repr=False)
class KnownRecords:
    """The records that were last read from or written to a store, by path."""

    store: Store
    by_path: dict[str, _Known] = field(default_factory=dict)
    #: Paths of unreadable values that were already logged.
    logged: set[str] = field(default_factory=set)

    def forget(self, gone: Callable[[str], bool]) -> None:
        """Forget the paths for which `gone` is true."""
        for path in filter(gone, list(self.by_path)):  # a copy: another thread may be reading
            self.by_path.pop(path, None)

    def log(self, path: str, text: str) -> None:
        """Log an unreadable value, once."""
        if path not in self.logged:
            self.logged.add(path)
            _log.warning("%s", text)


@dataclass(eq=False, repr=False)
class RecordSet(Generic[R]):
    """The records of one type below one folder.

    `key` is the field with the key of a record: the name below the folder, before quoting. A record for which `is_empty` is
    true is not stored: instead, `write` removes the present value. A record that could not be read back is not stored either:
    each method that writes raises `BadRecord`, which names the field.
    """

    known: KnownRecords
    kind: type[R]
    folder: str
    key: str
    is_empty: Callable[[R], bool] = lambda _: False
    #: Returns the latest format that all readers know.
    format: Callable[[], int] = lambda: FORMAT

    def path(self, key: str) -> str:
        """Return the path of a record."""
        return paths.below(self.folder, key)

    def names(self) -> list[str]:
        """Return the keys for which there is a value, readable or not."""
        return list(map(paths.unquoted, self.known.store.children(self.folder)))

    def get(self, key: str) -> R | None:
        """Return a record, None if there is none; raise `BadRecord` if it cannot be read."""
        path, all_known = self.path(key), self.known.by_path
        if (found := self.known.store.get(path)) is None:
            all_known.pop(path, None)
            return None
        data, version = found
        known = all_known.get(path)
        # Compared by the bytes, not by the version: when a value is removed and created again, its version starts over.
        if known is not None and known.data == data and isinstance(known.record, self.kind):
            if known.version != version:
                all_known[path] = _Known(data, version, known.record, known.record)
            return known.record
        # Remembered without a record, so that any value can be overwritten.
        all_known[path] = _Known(data, version, record=None, last=None if known is None else known.last)
        try:
            record = decode(self.kind, data)
        except BadRecord as error:
            raise BadRecord(f"{path}: {error}") from error
        all_known[path] = _Known(data, version, record, record)
        return record

    def readable(self, key: str) -> R | None:
        """Return a record, None if there is none or it cannot be read."""
        return self.last_readable(key, or_before=False)

    def last_readable(self, key: str, or_before: bool = True) -> R | None:
        """Return a record. If it cannot be read, return the last readable one (with `or_before`), or None."""
        path = self.path(key)
        try:
            record = self.get(key)
        except BadRecord as error:
            known = self.known.by_path.get(path)
            if or_before and known is not None and isinstance(known.last, self.kind):
                self.known.log(
                    path,
                    f"a value in the store cannot be read, so its last readable version is used: {error}",
                )
                return known.last
            self.known.log(path, f"a value of the store is left out: {error}")
            return None
        self.known.logged.discard(path)
        return record

    def create(self, record: R) -> None:
        """Store a new record; raise `Exists` if its key is taken."""
        path, data = self.encoded(record)
        self.known.by_path.pop(path, None)
        self._write(path, data, record)

    def write(self, record: R) -> None:
        """Store a record over the record that was last read at its path, or as a new record; raise `Conflict` or `Exists` if
        the path has a different value.
        """
        path, data = self.encoded(record)
        if self.is_empty(record):
            self._delete(path)
        else:
            self._write(path, data, record)

    def update(self, was: R, now: R) -> None:
        """Change the record that was read as `was`; raise `Conflict` if it has changed since."""
        self._expect(was)
        self._write(*self.encoded(now), now)

    def remove(self, was: R) -> None:
        """Remove the record that was read as `was`; raise `Conflict` if it has changed since."""
        self._delete(self._expect(was))

    def delete(self, key: str) -> None:
        """Remove the record that was last read for this key; raise `Conflict` if the store has a different value."""
        self._delete(self.path(key))

    def put(self, record: R) -> None:
        """Store a record over any other value, readable or not."""
        path, data = self.encoded(record)
        self.known.by_path.pop(path, None)
        self.known.store.put(path, data)

    def drop(self, key: str) -> None:
        """Remove any value, readable or not."""
        self.known.by_path.pop(self.path(key), None)
        self.known.store.delete(self.path(key))

    def forget_others(self, keys: Iterable[str]) -> None:
        """Forget the records of all keys except these: another process has removed the rest."""
        kept = set(map(self.path, keys))
        self.known.forget(lambda path: path.startswith(f"{self.folder}/") and path not in kept)

    def encoded(self, record: R) -> tuple[str, bytes]:
        """Return the path and the bytes of a record that can be read back."""
        data = encode(record, self.format())
        key = getattr(record, self.key)
        try:
            return checked_path(self.path(key)), data
        except ValueError as error:  # it is empty, or UTF-8 cannot encode it
            place = f"{self.kind.__name__}.{self.key}"
            raise BadRecord(
                f"{place} cannot be {shown(key)}, it is the name of the record: {error}"
            ) from error

    def _write(self, path: str, data: bytes, record: R) -> None:
        known = self.known.by_path.pop(path, None)
        version = write_over(self.known.store, path, data, None if known is None else known.version)
        self.known.by_path[path] = _Known(data, version, record, record)

    def _delete(self, path: str) -> None:
        known = self.known.by_path.pop(path, None)
        self.known.store.delete(path, None if known is None else known.version)

    def _expect(self, was: R) -> str:
        """Return the path of a record. Raise `Conflict` unless this is the record that was read last."""
        path = self.path(getattr(was, self.key))
        if (known := self.known.by_path.get(path)) is None or known.record is not was:
            raise Conflict(path, None, None if known is None else known.version)
        return path
