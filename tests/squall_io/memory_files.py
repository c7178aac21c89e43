"""`Files` in memory, over a store that several actors share. Each call consists of steps; before each one a gate may interfere.

    store = MemoryStore()
    files = MemoryFiles(store)                      # the plain one
    frozen = MemoryFiles(store, gate=my_gate)       # my_gate(step, effect) does the step, skips it, delays it, or raises

Operations of real stores that are not atomic have several steps here: a listing comes in two pages, a folder tree folder by
folder, and a file is written as a temporary one first; `manners` says whether a rename is one step (HDFS) or a link and an
unlink (local files), and whether a folder is deleted at once or file by file.
"""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import BinaryIO, Final, Protocol, TypeVar

from squall.stores.files import AbsentFile, FilesRefused, FileStatus, FilesUnavailable
from squall.stores.paths import TMP

T = TypeVar("T")

ROOT: Final = "memory://store/table"


@dataclass(frozen=True)
class Step:
    """The next step on the store."""

    call: str
    """The method of `Files`, and the part of it: "put_if_absent: rename"."""
    path: str
    writes: bool = False


class Gate(Protocol):
    """Called before each step with the function that does it; returns the step's result, or raises."""

    def __call__(self, step: Step, effect: Callable[[], T]) -> T: ...


def straight(step: Step, effect: Callable[[], T]) -> T:
    """The gate that lets everything through."""
    return effect()


@dataclass(frozen=True)
class Manners:
    """How a store does operations that may have one step or several."""

    rename_by_link: bool = False
    delete_by_piece: bool = False
    #: Keys and no folders: see `object_files`.
    objects: bool = False


#: A rename is a step, and so is the deletion of a folder.
HDFS: Final = Manners()
#: As in `squall.stores.local`.
LOCAL: Final = Manners(rename_by_link=True, delete_by_piece=True)
#: As in `squall.stores.s3`.
S3: Final = Manners(objects=True)


def any_manners(luck: Random) -> Manners:
    """The manners of one run of many: those of S3 in every third one."""
    return Manners(luck.random() < 0.3, luck.random() < 0.3, luck.random() < 0.34)


@dataclass
class MemoryStore:
    """Files and folders. Each method is atomic."""

    files: dict[str, bytes] = field(default_factory=dict)
    folders: set[str] = field(default_factory=lambda: {""})
    modified: dict[str, float] = field(default_factory=dict)
    clock: float = 1_000_000.0
    #: Every deleted file with its content: (path, data), in order.
    deleted: list[tuple[str, bytes]] = field(default_factory=list)
    _temporary: int = 0

    def temporary(self, path: str) -> str:
        """A name for an incomplete file."""
        self._temporary += 1
        return f"{TMP}/{path.rpartition('/')[2]}.{self._temporary:016x}"

    def make_folders(self, path: str) -> None:
        """Make the parent folders of a path."""
        while (path := path.rpartition("/")[0]) and path not in self.folders:
            if path in self.files:
                raise FilesRefused(f"make folder {ROOT}/{path}: a file lies where a folder must be")
            self.folders.add(path)

    def write(self, path: str, data: bytes) -> None:
        """Make a file, or replace it."""
        if path in self.folders:
            raise FilesRefused(f"write {ROOT}/{path}: a folder lies where a file must be")
        self.make_folders(path)
        self.files[path] = data
        self.clock += 1.0
        self.modified[path] = self.clock

    def remove(self, path: str) -> None:
        """Delete a file."""
        if path in self.files:
            self.deleted.append((path, self.files.pop(path)))

    def remove_below(self, path: str) -> None:
        """Delete a folder with its content, or a file."""
        for each in [each for each in self.files if each == path or each.startswith(f"{path}/")]:
            self.remove(each)
        self.folders -= {each for each in self.folders if each == path or each.startswith(f"{path}/")}

    def rename(self, source: str, target: str, path: str, keep_source: bool = False) -> bool:
        """Rename a file, unless the new name exists; `path` is the one that an error names."""
        if source not in self.files:
            raise AbsentFile(f"rename {ROOT}/{path}: there is no such file")
        self.make_folders(target)
        if target in self.files or target in self.folders:
            return False
        self.files[target] = self.files[source]
        self.modified[target] = self.modified[source]
        if not keep_source:
            del self.files[source]
        return True

    def status(self, path: str) -> FileStatus:
        """The listing of a file or folder."""
        if path in self.folders:
            return FileStatus(path, 0, is_folder=True)
        return FileStatus(path, len(self.files[path]), modified=self.modified[path])

    def children(self, folder: str) -> list[str]:
        """The paths in a folder, in order."""
        if folder in self.files:
            raise FilesRefused(f"list {ROOT}/{folder}: it is a file")
        start = f"{folder}/" if folder else ""
        begin = len(start)
        return sorted(
            path
            for found in (self.files, self.folders)
            for path in found
            if path.startswith(start) and path and path.find("/", begin) < 0
        )


class MemoryFiles:
    """`Files` over a store in memory, as one actor sees it."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        gate: Gate = straight,
        manners: Manners = HDFS,
    ) -> None:
        self.store = MemoryStore() if store is None else store
        self._gate = gate
        self._manners = manners
        self.root = ROOT

    def list(self, folder: str) -> builtins.list[FileStatus]:
        """The content of a folder, in two pages."""

        def first() -> tuple[builtins.list[FileStatus], str]:
            paths = self.store.children(folder)
            half = paths[: (len(paths) + 1) // 2]
            return [self.store.status(path) for path in half], half[-1] if half else ""

        def second(last: str) -> builtins.list[FileStatus]:
            return [self.store.status(path) for path in self.store.children(folder) if path > last]

        page, last = self._do("list: first page", folder, first)
        if not page:
            return []
        return page + self._do("list: second page", folder, lambda: second(last))

    def walk(self, folder: str) -> builtins.list[FileStatus]:
        """The content of a folder and of those below it, folder by folder."""
        found: builtins.list[FileStatus] = []
        left = [folder]
        while left:
            here = left.pop()
            page = self._do("walk", here, partial(self._page, here))
            found += page
            left += [status.path for status in page if status.is_folder]
        return sorted(found, key=lambda status: status.path)

    def _page(self, folder: str) -> builtins.list[FileStatus]:
        return [self.store.status(path) for path in self.store.children(folder)]

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return self._do("exists", path, lambda: path in self.store.files or path in self.store.folders)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """A file's bytes."""
        data = self._do("read", path, lambda: self._data(path))
        return data[offset : None if length is None else offset + length]

    def digest(self, path: str) -> str:
        """The hash of a file's bytes."""
        data = self._do("digest", path, lambda: self._data(path))
        return f"sha256:{hashlib.sha256(data).hexdigest()}"

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Make a file: write a temporary one, then rename it."""
        written = self.store.temporary(path)
        self._do("put_if_absent: write", written, lambda: self.store.write(written, data), writes=True)
        put = self._do(
            "put_if_absent: rename", path, lambda: self._rename_temporary(written, path), writes=True
        )
        if not put:
            self._do("put_if_absent: clean", written, lambda: self.store.remove(written), writes=True)
        return put

    def replace(self, path: str, data: bytes) -> None:
        """Make a file or replace it."""
        self._do("replace", path, lambda: self.store.write(path, data), writes=True)

    def upload(self, path: str, content: BinaryIO) -> None:
        """Make a file or replace it, with the content of an open file."""
        content.seek(0)
        self.replace(path, content.read())

    def move_if_absent(self, source: str, target: str) -> bool:
        """Rename a file."""
        if source in self.store.folders:
            raise FilesRefused(f"rename {ROOT}/{source}: it is a folder")
        by_link = self._manners.rename_by_link

        def rename() -> bool:
            return self.store.rename(source, target, source, keep_source=by_link)

        moved = self._do("move_if_absent", target, rename, writes=True)
        if moved and by_link:
            self._do("move_if_absent: unlink", source, lambda: self.store.remove(source), writes=True)
        return moved

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content."""
        if self._manners.delete_by_piece:
            for each in sorted(each for each in self.store.files if each.startswith(f"{path}/")):
                self._do("delete: file", each, partial(self.store.remove, each), writes=True)
        self._do("delete", path, lambda: self.store.remove_below(path), writes=True)

    def delete_if_empty(self, folder: str) -> None:
        """Delete a folder, unless something is in it."""

        def remove() -> None:
            if folder in self.store.folders and not self.store.children(folder):
                self.store.folders.discard(folder)

        self._do("delete_if_empty", folder, remove, writes=True)

    def _data(self, path: str) -> bytes:
        try:
            return self.store.files[path]
        except KeyError:
            raise AbsentFile(f"read {ROOT}/{path}: there is no such file") from None

    def _rename_temporary(self, written: str, path: str) -> bool:
        try:
            return self.store.rename(written, path, path)
        except AbsentFile:
            raise FilesUnavailable(f"write {ROOT}/{path}: its temporary file is gone") from None

    def _do(self, call: str, path: str, effect: Callable[[], T], writes: bool = False) -> T:
        return self._gate(Step(call, path, writes), effect)
