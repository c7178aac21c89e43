"""Files of a store, HDFS or S3, that become visible whole, as `staging` does it on a disk.

    <folder>/.staging/<name>.<random>       what was put, and may be moved
    <folder>/_squall/tmp/                   where a store writes a file before the file has a name
    <folder>/<name>                         what readers see

A move has one winner and never replaces a file: HDFS renames, S3 copies on condition that there is no such object. While the
store is away its calls wait, and are made again: a put or a move that was done although its answer was lost is found done.
Must not know: rows, epochs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Final, TypeVar

from squall.stores.files import AbsentFile, Files, FileStatus, FilesUnavailable, OpenStore
from squall.stores.paths import LOCAL, TMP, InvalidPath
from squall_io.files.staging import STAGING, gone, taken
from squall_io.kit.waiting import Waiting
from squall_io.spark.spouts.steady_stores import open_steady
from squall_io.spark.stores.opening import check_table_path, place_problems, settings_in

if TYPE_CHECKING:
    from topology_api import Context

T = TypeVar("T")
#: Seconds of a pause after which a task looks whether it was stopped.
STEP: Final = 0.2


def is_in_store(path: str) -> bool:
    """Return whether a path begins with the scheme of a store: hdfs://, s3://."""
    return "://" in path and not path.startswith(f"{LOCAL}:")


def store_problems(path: str, conf: object) -> Iterator[str]:
    """Yield what is wrong with the folder of a store, and with the settings for it."""
    problems: list[str] = []
    try:
        normal = check_table_path(path)
    except InvalidPath as error:
        problems.append(str(error))
    else:
        if not isinstance(conf, Mapping):
            problems.append(f"conf is {conf!r}: give a dict of settings")
        else:
            settings = settings_in(conf, problems)
            problems += place_problems(None, settings, writes=[normal])
    yield from problems


class StagedInStore:
    """The files of one folder of a store. Raises the errors of `Files`, but waits where waiting helps."""

    def __init__(self, path: str, conf: Mapping[str, str], context: Context) -> None:
        self.root = path
        self._conf = conf
        self._stopped: Callable[[], bool] = lambda: context.stopped
        self._waiting = Waiting(path, context.log, context.progress, context.now)
        self._files: OpenStore | None = None

    @staticmethod
    def place(component: str, index: int) -> str:
        """Return what the names of a task's files begin with: HDFS has no ":" in names."""
        return f"{component.replace('%', '%25').replace(':', '%3A')}-{index}"

    def make_folders(self) -> None:
        """Open the store, to find out whether what it needs is installed. A store makes folders with their first file."""
        with suppress(FilesUnavailable):  # each later call opens it, and waits for it
            self._opened()

    def write(self, name: str, data: bytes) -> str:
        """Put a staged file that will be visible as `name`; return its own name."""
        staged = f"{name}.{uuid.uuid4().hex}"
        self._again(lambda files: files.put_if_absent(f"{STAGING}/{staged}", data))
        return staged

    def show(self, staged: str, name: str) -> None:
        """Give a staged file its name, for good. Does nothing if that was done before."""
        self._again(lambda files: _show(files, f"{STAGING}/{staged}", name))

    def remove(self, staged: str) -> None:
        """Remove a staged file; nothing if it is gone."""
        self._again(partial(_delete, f"{STAGING}/{staged}"))

    def remove_old(self, is_old: Callable[[str], bool]) -> None:
        """Remove the staged files whose names say that they are old, and what was written to become one."""
        for folder in (STAGING, TMP):
            for each in self._again(partial(_list, folder)):
                if not each.is_folder and is_old(each.name):
                    self._again(partial(_delete, each.path))

    def close(self) -> None:
        """Close the connections, and end the JVM if no other task uses it."""
        if self._files is not None:
            self._files.close()

    def _opened(self) -> OpenStore:
        if self._files is None:
            self._files = open_steady(self.root, self._conf)
        return self._files

    def _again(self, call: Callable[[Files], T]) -> T:
        """Return the answer to a call, which is made until the store answers, or the task is stopped."""
        while True:
            try:
                answer = call(self._opened())
            except FilesUnavailable as error:
                left = self._waiting.failed(str(error))
                while left > 0 and not self._stopped():
                    sleep(min(left, STEP))
                    left -= STEP
                if self._stopped():
                    raise
            else:
                self._waiting.succeeded()
                return answer


def _list(folder: str, files: Files) -> list[FileStatus]:
    return files.list(folder)


def _delete(path: str, files: Files) -> None:
    files.delete(path)


def _show(files: Files, source: str, target: str) -> None:
    """Move a file, unless that was done before. After a crash, or at the same time by another process, both may be there."""
    try:
        if files.move_if_absent(source, target):
            return
        if files.digest(source) != files.digest(target):
            raise taken(f"{files.root}/{source}", f"{files.root}/{target}")
    except AbsentFile:
        if not files.exists(target):
            raise gone(f"{files.root}/{source}", f"{files.root}/{target}") from None
    else:
        files.delete(source)
