"""`Files` in memory as S3 has them (`squall.stores.s3`): keys and no folders, and a move that is a copy and a deletion.

A gate may interfere between any two calls of the server: an actor dies, or loses an answer, between the copy and the deletion
of the source, between the marker and the copy, or when a half of a folder's keys is deleted.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from functools import partial

from squall.stores.files import AbsentFile, FilesRefused, FileStatus
from tests.squall_io.memory_files import ROOT, Gate, MemoryFiles, MemoryStore, straight


class ObjectStore(MemoryStore):
    """Objects. A folder is there while a key below it is. Each method is atomic."""

    def __init__(self) -> None:
        #: The folders that have a marker, an object whose key ends with "/".
        self.markers: set[str] = set()
        super().__init__()

    @property
    def folders(self) -> set[str]:
        """The folders that keys show."""
        return {"", *(above for key in self.all_keys() for above in _above(key))}

    @folders.setter
    def folders(self, ignored: set[str]) -> None:
        """The constructor sets it."""

    def all_keys(self) -> list[str]:
        """The keys of all objects, in their order."""
        return sorted([*self.files, *(f"{marker}/" for marker in self.markers)])

    def make_folders(self, path: str) -> None:
        """Refuse a file where a folder must be."""
        if file := next((above for above in _above(path) if above in self.files), None):
            raise FilesRefused(f"make folder {ROOT}/{file}: a file lies where a folder must be")

    def put(self, key: str, data: bytes) -> bool:
        """Put an object if there is none."""
        if key in self.files:
            return False
        self.write(key, data)
        return True

    def copy(self, source: str, target: str) -> bool:
        """Copy an object if there is no target."""
        if source not in self.files:
            raise AbsentFile(f"rename {ROOT}/{source}: there is no such file")
        return self.put(target, self.files[source])

    def delete_key(self, key: str) -> None:
        """Delete an object."""
        if key.endswith("/"):
            self.markers.discard(key[:-1])
        else:
            self.remove(key)


class ObjectFiles(MemoryFiles):
    """`Files` over objects, as one actor sees it."""

    store: ObjectStore

    def __init__(self, store: ObjectStore, gate: Gate = straight) -> None:
        super().__init__(store, gate)

    def walk(self, folder: str) -> builtins.list[FileStatus]:
        """A flat listing, in two pages."""

        def page(after: str) -> builtins.list[str]:
            start = f"{folder}/" if folder else ""
            return [key for key in self.store.all_keys() if key.startswith(start) and key > after]

        def first() -> tuple[builtins.list[str], builtins.list[FileStatus]]:
            keys = page("")
            half = keys[: (len(keys) + 1) // 2]
            return half, statuses(half)

        def statuses(keys: builtins.list[str]) -> builtins.list[FileStatus]:
            return [self.store.status(key) for key in keys if not key.endswith("/")]

        keys, found = self._do("walk: first page", folder, first)
        if not keys:
            return []
        last = keys[-1]
        second = self._do("walk: second page", folder, lambda: (page(last), statuses(page(last))))
        folders = {above for key in (*keys, *second[0]) for above in _above(key)}
        below = {above for above in folders if above.startswith(f"{folder}/") or not folder}
        found += [*second[1], *(FileStatus(each, 0, is_folder=True) for each in below - {""})]
        return sorted(found)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """A conditional put."""
        return self._do("put_if_absent", path, lambda: self.store.put(path, data), writes=True)

    def move_if_absent(self, source: str, target: str) -> bool:
        """Look for the source, put a marker for its folder, copy, and delete the source."""

        def look() -> None:
            self.store.make_folders(target)
            if source not in self.store.files:
                raise AbsentFile(f"rename {ROOT}/{source}: there is no such file")

        self._do("move_if_absent: look", source, look)
        if folder := source.rpartition("/")[0]:
            self._do("move_if_absent: mark", folder, lambda: self.store.markers.add(folder), writes=True)
        moved = self._do("move_if_absent: copy", target, lambda: self.store.copy(source, target), writes=True)
        if moved:
            self._do("move_if_absent: delete", source, lambda: self.store.remove(source), writes=True)
        return moved

    def delete(self, path: str) -> None:
        """Delete the keys of a listing, one after the other, until there are none."""

        def below() -> builtins.list[str]:
            return [key for key in self.store.all_keys() if key.startswith(f"{path}/")]

        while keys := self._do("delete: list", path, below):
            for key in keys:
                self._do("delete: key", key, partial(self.store.delete_key, key), writes=True)
        self._do("delete", path, lambda: self.store.remove(path), writes=True)


def _above(key: str) -> Iterator[str]:
    while key := key.rpartition("/")[0]:
        yield key
