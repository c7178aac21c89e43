"""Stores that are used for months: all of a process share one small JVM; if the JVM dies, a new one is started. It ends with
its last store, and with its process.

Who uses such a store needs Hadoop's client, but no Spark. So it uses neither the session nor the settings of a sink in the same
worker.
Must not know: what files hold, who uses them.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Final, TypeVar

from squall.stores.files import FilesRefused, FileStatus, FilesUnavailable, OpenStore
from squall.stores.java.hadoop import HadoopFiles, Jvm
from squall.stores.java.java import NotInstalled
from squall.stores.paths import check_path

_Result = TypeVar("_Result")


@dataclass
class _SharedJvm:
    """A JVM of this process, and the number of stores that use it."""

    jvm: Jvm
    users: int = 0


_lock: Final = threading.Lock()
#: The JVMs, by the settings that they were started with.
_shared: Final[dict[tuple[tuple[str, str], ...], _SharedJvm]] = {}


def open_by_java(path: str) -> SteadyStore:
    """Open the folder of a topology's state by Hadoop's client, with the settings of HADOOP_CONF_DIR. Raises `FilesRefused` if
    Java, or what it needs, is not installed, and errors of `Files`.
    """
    try:
        return SteadyStore(path, {}, HadoopFiles)
    except NotInstalled as error:
        raise FilesRefused(
            f"cannot open {path}: set topology.state.webhdfs (--webhdfs) to the NameNode's web address, HOST:9870, so that"
            f" HDFS is reached by HTTP; or let it be reached by Java, which needs the extra spark: {error}"
        ) from None


def _borrow(conf: Mapping[str, str]) -> _SharedJvm:
    """Return the JVM for these settings; start one if none is alive."""
    key = tuple(sorted(conf.items()))
    with _lock:
        if (shared := _shared.get(key)) is None or _has_ended(shared.jvm):
            shared = _shared[key] = _SharedJvm(Jvm.own(conf))
        shared.users += 1
        return shared


def _give_back(shared: _SharedJvm) -> None:
    """Release one store's use of the JVM; end the JVM if no store uses it any more."""
    with _lock:
        shared.users -= 1
        if shared.users:
            return
        for key in [key for key, each in _shared.items() if each is shared]:
            del _shared[key]
        shared.jvm.close()


def _has_ended(jvm: Jvm) -> bool:
    return jvm.gateway.proc.poll() is not None


class SteadyStore(OpenStore):
    """`Files` through Hadoop's client in the shared JVM; if the JVM dies, the next call starts a new one."""

    def __init__(
        self, path: str, conf: Mapping[str, str], open_with: Callable[[str, Jvm], HadoopFiles]
    ) -> None:
        """`conf`: settings of Spark's form, with which the JVM is started. `open_with`: opens the path in a JVM that was
        lent."""
        self.root = check_path(path)
        self._conf = dict(conf)
        self._open_with = open_with
        self._lock = threading.Lock()
        self._shared: _SharedJvm | None = None
        self._store: HadoopFiles | None = None
        self._closed = False
        self._opened()

    def list(self, folder: str) -> builtins.list[FileStatus]:
        """Return the entries of a folder, by name."""
        return self._call(lambda files: files.list(folder))

    def walk(self, folder: str) -> builtins.list[FileStatus]:
        """Return everything below a folder, by path."""
        return self._call(lambda files: files.walk(folder))

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        return self._call(lambda files: files.exists(path))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes."""
        return self._call(lambda files: files.read(path, offset, length))

    def digest(self, path: str) -> str:
        """Return `sha256:<hex>` of a file's bytes."""
        return self._call(lambda files: files.digest(path))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create a file, unless it exists."""
        return self._call(lambda files: files.put_if_absent(path, data))

    def replace(self, path: str, data: bytes) -> None:
        """Create a file, or replace the existing one."""
        self._call(lambda files: files.replace(path, data))

    def upload(self, path: str, content: BinaryIO) -> None:
        """Create a file, or replace the existing one."""
        self._call(lambda files: files.upload(path, content))

    def move_if_absent(self, source: str, target: str) -> bool:
        """Rename a file, unless the new name exists."""
        return self._call(lambda files: files.move_if_absent(source, target))

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with everything in it."""
        self._call(lambda files: files.delete(path))

    def delete_if_empty(self, folder: str) -> None:
        """Delete a folder, unless something is in it."""
        self._call(lambda files: files.delete_if_empty(folder))

    def make_private(self) -> None:
        """Create the folder of this store for its user only. Raises `FilesRefused` if it is there and others may enter it."""
        self._call(lambda files: files.make_private())

    def close(self) -> None:
        """Release the JVM."""
        with self._lock:
            self._closed = True
            self._drop()

    def _call(self, call: Callable[[HadoopFiles], _Result]) -> _Result:
        try:
            return call(self._opened())
        except FilesUnavailable:
            with self._lock:
                if self._shared is not None and _has_ended(self._shared.jvm):
                    self._drop()
            raise

    def _opened(self) -> HadoopFiles:
        with self._lock:
            if self._closed:
                raise FilesUnavailable(f"cannot read or write {self.root}: its store was closed")
            if self._store is None:
                self._shared = _borrow(self._conf)
                try:
                    self._store = self._open_with(self.root, self._shared.jvm.lent())
                except BaseException:
                    self._drop()
                    raise
            return self._store

    def _drop(self) -> None:
        store, self._store = self._store, None
        shared, self._shared = self._shared, None
        if store is not None:
            with suppress(Exception):  # its JVM may have ended, or may be ending
                store.close()
        if shared is not None:
            _give_back(shared)
