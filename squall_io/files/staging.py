"""Files that become visible whole: written and synced beside their folder's readers, then renamed.

    <folder>/.staging/<name>.<random>       what is written, and may be renamed
    <folder>/<name>                         what readers see

Names that begin with "." are hidden from `FileSpout` and from patterns. Each staged file has a random part in its name, so no
two attempts share one. Errors are `SquallError`s that name the file.
Must not know: rows, epochs.
"""

from __future__ import annotations

import errno
import filecmp
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from topology_api import SquallError

STAGING: Final = ".staging"
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class StagedFiles:
    """The files of one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.staging = self.folder / STAGING

    @staticmethod
    def place(component: str, index: int) -> str:
        """Return what the names of a task's files begin with."""
        return f"{component}-{index}"

    def make_folders(self) -> None:
        """Make the folder and its `.staging`, if they are missing."""
        with named(f"make the folder {self.staging}"):
            self.staging.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, data: bytes) -> str:
        """Write a staged file that will be visible as `name`; return its own name once it is on the disk."""
        self.make_folders()
        staged = f"{name}.{uuid.uuid4().hex}"
        path = self.staging / staged
        with named(f"write {path}"):
            try:
                with open(os.open(path, _NEW, 0o666), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                sync_folder(self.staging)
            except BaseException:
                with suppress(OSError):
                    path.unlink()
                raise
        return staged

    def show(self, staged: str, name: str) -> None:
        """Give a staged file its name, for good. Does nothing if that was done before."""
        source, target = self.staging / staged, self.folder / name
        with named(f"rename {source} to {target}"):
            if not source.exists():
                if not target.exists():
                    raise gone(source, target)
            elif not target.exists():
                os.rename(source, target)
            elif filecmp.cmp(source, target, shallow=False):
                source.unlink()
            else:
                raise taken(source, target)
            sync_folder(self.folder)
            sync_folder(self.staging)

    def remove(self, staged: str) -> None:
        """Remove a staged file; nothing if it is gone."""
        path = self.staging / staged
        with named(f"remove {path}"), suppress(FileNotFoundError):
            path.unlink()

    def remove_old(self, is_old: Callable[[str], bool]) -> None:
        """Remove the staged files whose names say that they are old."""
        with named(f"list {self.staging}"):
            names = sorted(os.listdir(self.staging)) if self.staging.is_dir() else []
        for name in filter(is_old, names):
            self.remove(name)

    def close(self) -> None:
        """Do nothing: no file stays open."""


def gone(source: object, target: object) -> SquallError:
    """Return the error for a staged file that is nowhere."""
    return SquallError(
        f"{source} is gone, and there is no {target}: committed rows were removed. Put one of the two files back, or an empty"
        " one instead, which gives up the rows"
    )


def taken(source: object, target: object) -> SquallError:
    """Return the error for a name that a file with other rows has."""
    return SquallError(
        f"{target} is there already, with other rows than {source}: it is of an epoch that the state has forgotten, since its"
        " folder is an older copy. Remove the files of later epochs, which this copy does not know"
    )


@contextmanager
def named(what: str) -> Iterator[None]:
    """Let an OSError say what could not be done."""
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise SquallError(f"cannot {what}: {reason}") from error


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where the file system can do that for folders."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
