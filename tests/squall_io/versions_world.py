"""A store for tests of versions, and processes that share it: stopped, killed or frozen at a call that the test chooses.

Must not know: the published content.
"""

from __future__ import annotations

import builtins
import hashlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from squall.stores.files import AbsentFile, FileStatus


class Disk:
    """`Files` in memory, with a clock of its own."""

    root = "memory:///table"

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.times: dict[str, float] = {}
        self.clock = 1_000_000.0

    def _below(self, folder: str) -> builtins.list[str]:
        return [path for path in self.content if path.startswith(f"{folder}/")]

    def list(self, folder: str) -> builtins.list[FileStatus]:
        return [status for status in self.walk(folder) if status.path.rpartition("/")[0] == folder]

    def walk(self, folder: str) -> builtins.list[FileStatus]:
        found = {}
        for path in self._below(folder):
            found[path] = FileStatus(path, len(self.content[path]), False, self.times[path])
            while (path := path.rpartition("/")[0]) != folder:
                found[path] = FileStatus(path, 0, True, 0.0)
        return [found[path] for path in sorted(found)]

    def exists(self, path: str) -> bool:
        return path in self.content or bool(self._below(path))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        if path not in self.content:
            raise AbsentFile(path)
        return self.content[path]

    def digest(self, path: str) -> str:
        return "sha256:" + hashlib.sha256(self.read(path)).hexdigest()

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if path in self.content:
            return False
        self.replace(path, data)
        return True

    def replace(self, path: str, data: bytes) -> None:
        self.content[path] = data
        self.times[path] = self.clock

    def upload(self, path: str, content: BinaryIO) -> None:
        raise AssertionError("Spark writes the files of versions")

    def move_if_absent(self, source: str, target: str) -> bool:
        raise AssertionError("versions are published without a rename")

    def delete_if_empty(self, folder: str) -> None:
        raise AssertionError("versions are deleted as they are")

    def delete(self, path: str) -> None:
        for each in [path, *self._below(path)]:
            self.content.pop(each, None)


class Killed(BaseException):
    """The process has died."""


class Stepping:
    """The disk as one process sees it: an event happens at its call of this number."""

    def __init__(self, disk: Disk, at: int, happens: Callable[[], object], before: bool = True) -> None:
        self.disk = disk
        self.left = at
        self.happens = happens
        self.before = before
        self.root = disk.root
        self.lock = threading.Lock()  # hashes are computed by several threads

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.disk, name)

        def step(*arguments: Any) -> Any:
            with self.lock:
                self.left -= 1
                if self.left == 0 and self.before:
                    self.happens()
                try:
                    return call(*arguments)
                finally:
                    if self.left == 0 and not self.before:
                        self.happens()

        return step


class Actor:
    """Does something in a thread of its own, a number of disk calls at a time."""

    def __init__(self, disk: Disk, does: Callable[[Any], object]) -> None:
        self.disk = disk
        self.root = disk.root
        self.turn, self.back = threading.Semaphore(0), threading.Semaphore(0)
        self.lock = threading.Lock()
        self.left = 0
        self.done = False
        self.result: object = None
        self.thread = threading.Thread(target=self._run, args=(does,))
        self.thread.start()

    def _run(self, does: Callable[[Any], object]) -> None:
        self.turn.acquire()
        try:
            self.result = does(self)
        except Exception as error:
            self.result = error
        self.done = True
        self.back.release()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.disk, name)

        def step(*arguments: Any) -> Any:
            with self.lock:
                if self.left == 0:
                    self.back.release()
                    self.turn.acquire()
                self.left -= 1
                return call(*arguments)

        return step

    def go(self, steps: int = -1) -> None:
        """Take this many steps, or all that are left."""
        if not self.done:
            self.left = steps
            self.turn.release()
            assert self.back.acquire(timeout=60)
        if self.done:
            self.thread.join()


def interleaved(
    ready: Callable[[], tuple[Disk, Callable[[Any], object], Callable[[Any], object]]],
) -> Iterator[tuple[str, Disk, object, object]]:
    """Two actors that are each stopped once, at every call: the final disk, and the result of each."""
    disk, one, two = ready()
    first = steps_of(lambda: disk, one)
    disk, one, two = ready()
    second = steps_of(lambda: disk, two)
    for begins in range(1, first + 1):
        for goes_on in range(1, second + 1):
            disk, one, two = ready()
            a, b = Actor(disk, one), Actor(disk, two)
            a.go(begins)
            b.go(goes_on)
            a.go()
            b.go()
            yield f"stopped after {begins} and {goes_on} calls", disk, a.result, b.result


def steps_of(make: Callable[[], Disk], action: Callable[[Any], object]) -> int:
    """How many calls an action makes."""
    counting = Stepping(make(), -1, lambda: None)
    action(counting)
    return -1 - counting.left
