"""`Files` on this machine's own file system, without Java.

A file is written under a name in `_squall/tmp` and synced to disk. Only then does a hard link give the file its final name; a
rename would replace an existing file. So a crash of the machine loses nothing that was promised, and the first of several
callers wins.

Who may write into a table's folder could replace a folder in it by a symbolic link, so that what the table reads, writes or
sweeps would lie outside. So no call follows a link below the table: the link is refused by name, and `delete` removes the link
itself. Each call looks first and then acts, so this stops a link that lies there, not one that is put there in between. A link
that leads to the table itself is followed: the user has named it.
Must not know: what files hold, Spark.
"""

from __future__ import annotations

import builtins
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO, Final, TypeVar

from squall.stores.files import (
    SMALL_FOLDER,
    AbsentFile,
    FilesError,
    FilesFull,
    FilesRefused,
    FileStatus,
    FilesUnavailable,
    OpenStore,
)
from squall.stores.paths import TMP, check_below, check_path, folder_of

#: Errors that remain until someone changes something, and what to change. All other errors may be temporary.
_REFUSED: Final = {
    errno.EACCES: "give the worker's user read and write permission on this folder, or choose another path",
    errno.EPERM: "the worker's user must own the files here, and the file system must have hard links",
    errno.EROFS: "the file system is mounted read-only; give another path",
    errno.ENOTDIR: "a file lies where a folder must be; give another path",
    errno.EISDIR: "a folder lies where a file must be; give another path",
    errno.EEXIST: "a file lies where a folder must be; give another path",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "its symbolic links lead in a circle",
    errno.EINVAL: "the file system does not take this name; give another path",
    errno.EXDEV: "all files of a table must be on the same file system",
    errno.EMLINK: "the file system has no hard links, which a commit needs; give a path on a different file system",
    errno.ENOTSUP: "the file system has no hard links, which a commit needs; give a path on a different file system",
    errno.ENOSYS: "the file system has no hard links, which a commit needs; give a path on a different file system",
}
#: Errors of the removal of a folder that is not there, has something in it, or is a file or a link.
_NO_EMPTY_FOLDER: Final = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
_QUOTA: Final = "the user's quota on this file system is used up: delete files there, or raise it"
_FULL: Final = "delete files on this file system"
_T = TypeVar("_T")
_SLICE: Final = 1 << 20
#: How many times a call is tried in a folder that other processes delete at the same time.
_TRIES: Final = 20


class LocalFiles(OpenStore):
    """This machine's file system below one table."""

    def __init__(self, path: str, follow_links: bool = False) -> None:
        """`follow_links`: for folders with input of others, which are only read."""
        self._folder = folder_of(check_path(path))
        self._follow = follow_links
        # With the scheme, so that Spark looks on this machine, whatever Spark's default file system is.
        self.root = f"file://{self._folder}"

    def list(self, folder: str) -> builtins.list[FileStatus]:
        """Return the entries of a folder, by name."""
        with self._translated_errors("list", folder):
            return sorted(self._entries(folder))

    def walk(self, folder: str) -> builtins.list[FileStatus]:
        """Return everything below a folder, by path."""
        below: builtins.list[FileStatus] = []
        left = [folder]
        with self._translated_errors("list", folder):
            while left:
                entries = self._entries(left.pop())
                below += entries
                folders = [status.path for status in entries if status.is_folder]
                # Links to folders are not followed: a link may lead in a circle.
                left += [path for path in folders if not os.path.islink(self._at(path))]
        return sorted(below)

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        with self._translated_errors("look for", path), suppress(FileNotFoundError):
            os.stat(self._at(path))
            return True
        return False

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes."""
        with self._translated_errors("read", path), open(self._at(path), "rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)

    def digest(self, path: str) -> str:
        """Return `sha256:<hex>` of a file's bytes."""
        found = hashlib.sha256()
        with self._translated_errors("read", path), open(self._at(path), "rb") as file:
            while data := file.read(_SLICE):
                found.update(data)
        return f"sha256:{found.hexdigest()}"

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file, unless there is one."""
        with self._translated_errors("write", path):
            target = self._name(path)
            return self._finish(path, data, lambda written: _name(written, target))

    def upload(self, path: str, content: BinaryIO) -> None:
        """Create a file, or replace the existing one, piece by piece."""
        self._replace(path, content)

    def replace(self, path: str, data: bytes) -> None:
        """Create a file, or replace the existing one."""
        self._replace(path, data)

    def _replace(self, path: str, content: bytes | BinaryIO) -> None:
        with self._translated_errors("write", path):
            target = self._name(path)
            folder = os.path.dirname(target)
            self._finish(path, content, lambda written: _into(folder, lambda: os.replace(written, target)))
            _sync_names(folder)

    def move_if_absent(self, source: str, target: str) -> bool:
        """Rename a file, unless the new name is taken. A crash during the call may leave the file with both names."""
        with self._translated_errors("rename", source, f" to {self.root}/{target}"):
            old, new = self._at(source), self._name(target)
            if os.path.isdir(old):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            # Spark does not sync, but a committed file must survive a crash of the machine.
            _sync(old)
            if not _name(old, new):
                return False
            # The file has its new name; another process may have deleted the old name.
            with suppress(FileNotFoundError):
                os.unlink(old)
        return True

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with everything in it."""
        with self._translated_errors("delete", path):
            target = self._name(path)
            for _ in range(_TRIES):
                try:
                    if os.path.isdir(target) and not os.path.islink(target):
                        shutil.rmtree(target)
                    else:
                        os.unlink(target)
                    return
                except FileNotFoundError:
                    if not os.path.lexists(target):
                        return
                    # another process deletes in this folder too, and was faster
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:
                        raise
                    # another process wrote into this folder meanwhile
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    def delete_if_empty(self, folder: str) -> None:
        """Delete a folder, unless something is in it."""
        with self._translated_errors("delete", folder):
            try:
                os.rmdir(self._name(folder))
            except OSError as error:
                if error.errno not in _NO_EMPTY_FOLDER:
                    raise

    def close(self) -> None:
        """Do nothing."""

    def _at(self, path: str) -> str:
        """Return where a path of the table is. Raises `FilesRefused` if it leads through a symbolic link, or to one."""
        return self._checked(path, check_below(path).split("/"))

    def _name(self, path: str) -> str:
        """Like `_at`, for calls that change the name itself, and so follow no link that has this name."""
        return self._checked(path, check_below(path).split("/")[:-1])

    def _checked(self, path: str, parts: Sequence[str]) -> str:
        at = self._folder
        for part in parts if path and not self._follow else ():
            at = f"{at}/{part}"
            if os.path.islink(at):
                raise FilesRefused(
                    f"{at} is a symbolic link, which is not followed below a table, so nothing was done; see who put it"
                    " there, and remove it"
                )
        return f"{self._folder}/{path}" if path else self._folder

    def _entries(self, folder: str) -> builtins.list[FileStatus]:
        """Return the entries of a folder. What is deleted meanwhile is left out; in a small folder, others may have come before
        that, so it is looked at again."""
        while True:
            found, gone = [], False
            try:
                with os.scandir(self._at(folder)) as entries:
                    for entry in builtins.list(entries):  # the system returns a small folder in one piece
                        try:
                            status = entry.stat(follow_symlinks=self._follow)
                        except FileNotFoundError:
                            gone = True
                            continue
                        is_folder = entry.is_dir(follow_symlinks=self._follow)
                        size, modified = status.st_size, status.st_mtime
                        found.append(FileStatus.of_entry(folder, entry.name, size, is_folder, modified))
            except FileNotFoundError:
                return []
            # A link that is followed may lead to nothing, for ever.
            if not gone or self._follow or len(found) > SMALL_FOLDER:
                return found

    def _finish(self, path: str, content: bytes | BinaryIO, act: Callable[[str], _T]) -> _T:
        """Write a file under a temporary name, let `act` give the file its final name, and remove the temporary name.

        If a sweeper deletes the temporary file, or its folder, the file is written again.
        """
        folder = self._at(TMP)
        for _ in range(_TRIES):
            name = f"{folder}/{os.path.basename(path)}.{secrets.token_hex(8)}"
            try:
                _into(folder, partial(_write, name, content))
                return act(name)
            except FileNotFoundError:
                continue
            finally:
                with suppress(OSError):
                    os.unlink(name)
        raise OSError(errno.EBUSY, "files are deleted while they are written")

    @contextmanager
    def _translated_errors(self, call: str, path: str, rest: str = "") -> Iterator[None]:
        """Turn the system's errors into errors of `Files`."""
        try:
            yield
        except OSError as error:
            what = f"{self._what(call, path)}{rest}: {error.strerror or error}".replace("\n", " ")
            raise translated(error, what) from None


def translated(error: OSError, what: str) -> FilesError:
    """Return the error of `Files` for one of the system's. `what`: what failed, and what the system says."""
    if error.errno == errno.ENOENT:
        return AbsentFile(what)
    if error.errno in _REFUSED:
        return FilesRefused(f"{what}; {_REFUSED[error.errno]}")
    if error.errno == errno.EDQUOT:
        return FilesFull(f"{what}; {_QUOTA}")
    return FilesUnavailable(f"{what}; {_FULL}" if error.errno == errno.ENOSPC else what)


def _write(name: str, content: bytes | BinaryIO) -> None:
    """Write a new file to disk."""
    with open(name, "xb") as file:
        if isinstance(content, (bytes, bytearray, memoryview)):
            file.write(content)
        else:
            content.seek(0)
            shutil.copyfileobj(content, file, _SLICE)
        file.flush()
        os.fsync(file.fileno())


def _name(file: str, name: str) -> bool:
    """Give a file a second name; return whether that name was absent. The name is on disk when the function returns."""
    folder = os.path.dirname(name)
    try:
        _into(folder, lambda: os.link(file, name))
    except FileExistsError:
        return False
    _sync_names(folder)
    return True


def _into(folder: str, act: Callable[[], _T]) -> _T:
    """Let `act` create a file in a folder; create the folder if it is missing. Try again if other processes delete the folder
    meanwhile.
    """
    for _ in range(_TRIES):
        try:
            return act()
        except FileNotFoundError:
            with suppress(FileNotFoundError):
                _make_folder(folder)
    return act()


def _make_folder(folder: str) -> None:
    """Create a folder and its parents, synced to disk."""
    made = []
    missing = folder
    while not os.path.lexists(missing):
        made.append(missing)
        missing = os.path.dirname(missing)
    os.makedirs(folder, exist_ok=True)
    for path in made:
        _sync(os.path.dirname(path))


def _sync_names(folder: str) -> None:
    """Sync the names in a folder to disk, unless the folder was deleted meanwhile."""
    with suppress(FileNotFoundError):
        _sync(folder)


def _sync(path: str) -> None:
    """Sync a file's content, or a folder's names, to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
