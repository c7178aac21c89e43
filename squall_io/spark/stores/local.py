"""`Files` on this machine's own file system, without Java.

A file gets its content under a name in `_squall/tmp` and is on the disk before it gets its name, by a hard link: a rename
would replace what is there. So a crash of the machine loses nothing that was promised, and the first of several has won.
Must not know: what files hold, Spark.
"""

from __future__ import annotations

import builtins
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, TypeVar

from squall_io.spark.manifest.files import FileMissing, FilesRefused, FileStatus, FilesUnavailable
from squall_io.spark.manifest.layout import TMP
from squall_io.spark.stores.paths import check_path, folder_of

#: What will be the same until somebody changes something, and what that is. All other errors may pass by themselves.
_REFUSED: Final = {
    errno.EACCES: "give the worker's user read and write permission on this folder, or another path",
    errno.EPERM: "the worker's user must own the files here, and the file system must have hard links",
    errno.EROFS: "the file system is mounted read-only; give another path",
    errno.ENOTDIR: "a file lies where a folder must be; give another path",
    errno.EISDIR: "a folder lies where a file must be; give another path",
    errno.EEXIST: "a file lies where a folder must be; give another path",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "its symbolic links lead in a circle",
    errno.EDQUOT: "the user's quota on this file system is used up",
    errno.EINVAL: "the file system does not take this name; give another path",
    errno.EXDEV: "a table must lie on one file system as a whole",
    errno.EMLINK: "the file system has no hard links, by which a commit is made; give a path on another one",
    errno.ENOTSUP: "the file system has no hard links, by which a commit is made; give a path on another one",
    errno.ENOSYS: "the file system has no hard links, by which a commit is made; give a path on another one",
}
_T = TypeVar("_T")
_SLICE: Final = 1 << 20
#: How often a folder that others are deleting too is tried.
_TRIES: Final = 20


class LocalFiles:
    """The file system of this machine below one table."""

    def __init__(self, path: str) -> None:
        self._folder = folder_of(check_path(path))

    @property
    def root(self) -> str:
        """The table's whole path, `file:///...`: what Spark takes for this machine's, whatever its default is."""
        return f"file://{self._folder}"

    def list(self, folder: str) -> builtins.list[FileStatus]:
        """What lies in a folder, by name."""
        with self._told("list", folder):
            return sorted(self._entries(folder), key=lambda status: status.path)

    def walk(self, folder: str) -> builtins.list[FileStatus]:
        """What lies in a folder and below it, by path."""
        found: builtins.list[FileStatus] = []
        left = [folder]
        with self._told("list", folder):
            while left:
                entries = self._entries(left.pop())
                found += entries
                # a link to a folder may lead in a circle
                left += [
                    each.path
                    for each in entries
                    if each.is_folder and not os.path.islink(self._at(each.path))
                ]
        return sorted(found, key=lambda status: status.path)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        with self._told("look for", path):
            try:
                os.stat(self._at(path))
            except FileNotFoundError:
                return False
            return True

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """A file's bytes."""
        with self._told("read", path), open(self._at(path), "rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)

    def digest(self, path: str) -> str:
        """`sha256:<hex>` of a file's bytes."""
        found = hashlib.sha256()
        with self._told("read", path), open(self._at(path), "rb") as file:
            while data := file.read(_SLICE):
                found.update(data)
        return f"sha256:{found.hexdigest()}"

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Make a file, unless there is one."""
        with self._told("write", path):
            return self._finish(path, data, lambda written: _name(written, self._at(path)))

    def replace(self, path: str, data: bytes) -> None:
        """Make a file, or replace the one that is there."""
        target = self._at(path)
        folder = os.path.dirname(target)
        with self._told("write", path):
            self._finish(path, data, lambda written: _into(folder, lambda: os.replace(written, target)))
            _sync_names(folder)

    def move_if_absent(self, source: str, target: str) -> bool:
        """Rename a file, unless there is one of the new name. A crash in the middle leaves both names."""
        old, new = self._at(source), self._at(target)
        with self._told("rename", source, f" to {self.root}/{target}"):
            if os.path.isdir(old):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            # Spark does not; and what is committed must survive a crash of the machine.
            _sync(old, os.O_RDONLY)
            if not _name(old, new):
                return False
            # It has its new name: should another one of us delete the old one first, that is as well.
            with suppress(FileNotFoundError):
                os.unlink(old)
        return True

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that it holds."""
        target = self._at(path)
        with self._told("delete", path):
            for _ in range(_TRIES):
                try:
                    if os.path.isdir(target) and not os.path.islink(target):
                        shutil.rmtree(target)
                    else:
                        os.unlink(target)
                except FileNotFoundError:
                    if not os.path.lexists(target):
                        return
                    # somebody deletes in there too, and was faster with some file
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:
                        raise
                    # somebody writes in there, and was faster
                else:
                    return
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    def close(self) -> None:
        """There is nothing to close."""

    def __enter__(self) -> LocalFiles:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _at(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder

    def _entries(self, folder: str) -> builtins.list[FileStatus]:
        found = []
        try:
            with os.scandir(self._at(folder)) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # deleted since
                        found.append(_status(f"{folder}/{entry.name}" if folder else entry.name, entry))
        except FileNotFoundError:
            return []
        return found

    def _finish(self, path: str, data: bytes, act: Callable[[str], _T]) -> _T:
        """Do with a file what gives it its name; it has the content, and another name, which is gone in the end.

        Who sweeps may delete it, with its folder or alone: then it is written again.
        """
        folder = self._at(TMP)
        for _ in range(_TRIES):
            name = f"{folder}/{os.path.basename(path)}.{secrets.token_hex(8)}"
            try:
                _into(folder, partial(_write, name, data))
                return act(name)
            except FileNotFoundError:
                continue
            finally:
                with suppress(OSError):
                    os.unlink(name)
        raise OSError(errno.EBUSY, "files are deleted while they are written")

    @contextmanager
    def _told(self, call: str, path: str, rest: str = "") -> Iterator[None]:
        """Turn the system's errors into those of `Files`."""
        try:
            yield
        except OSError as error:
            place = f"{self.root}/{path}" if path else self.root
            what = f"cannot {call} {place}{rest}: {error.strerror or error}".replace("\n", " ")
            if error.errno == errno.ENOENT:
                raise FileMissing(what) from None
            if error.errno in _REFUSED:
                raise FilesRefused(f"{what}; {_REFUSED[error.errno]}") from None
            raise FilesUnavailable(what) from None


def _status(path: str, entry: os.DirEntry[str]) -> FileStatus:
    is_folder, found = entry.is_dir(), entry.stat()  # of a link, what is behind it
    return FileStatus(path, 0 if is_folder else found.st_size, is_folder, found.st_mtime)


def _write(name: str, data: bytes) -> None:
    """Write a new file, to the disk."""
    with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _name(file: str, name: str) -> bool:
    """Give a file one more name; whether that was absent. The name is on the disk when this returns."""
    folder = os.path.dirname(name)
    absent = _into(folder, lambda: _link(file, name))
    if absent:
        _sync_names(folder)
    return absent


def _into(folder: str, act: Callable[[], _T]) -> _T:
    """Do what makes a file in a folder, which is made when it is not there: more than once, if others delete it meanwhile."""
    for _ in range(_TRIES):
        try:
            return act()
        except FileNotFoundError:
            with suppress(FileNotFoundError):
                _make_folder(folder)
    return act()


def _link(file: str, name: str) -> bool:
    try:
        os.link(file, name)
    except FileExistsError:
        return False
    return True


def _make_folder(folder: str) -> None:
    """Make a folder and those above it, on the disk."""
    made = []
    each = folder
    while not os.path.lexists(each):
        made.append(each)
        each = os.path.dirname(each)
    os.makedirs(folder, exist_ok=True)
    for each in made:
        _sync_folder(os.path.dirname(each))


def _sync_names(folder: str) -> None:
    """See to it that what has got its name in a folder keeps it, unless somebody has deleted it with the folder since."""
    with suppress(FileNotFoundError):
        _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str, flags: int) -> None:
    """See to it that a file's content, or a folder's names, are on the disk."""
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
