"""`Files` by Hadoop's client in a JVM: HDFS, and whatever else Spark can reach.

A file gets its content under a name in `_squall/tmp`, then its own name by `FileContext.rename` without and with OVERWRITE,
which HDFS does in one step. (`FileSystem.rename` would move a file *into* a folder of the target's name, and says why it did
nothing to nobody.)
Must not know: what files hold, how the JVM was started.
"""

from __future__ import annotations

import builtins
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from squall_io.spark.manifest.files import (
    FileMissing,
    FilesError,
    FilesRefused,
    FileStatus,
    FilesUnavailable,
    each,
)
from squall_io.spark.manifest.layout import TMP
from squall_io.spark.stores.gateway import Jvm
from squall_io.spark.stores.hadoop_errors import FileTaken, Thrown, error_of
from squall_io.spark.stores.paths import authority_of, folder_of, scheme_of
from squall_io.spark.stores.statuses import decode_statuses

#: Bytes cross to Python as text: so many at once, whatever a file's size.
_SLICE: Final = 1 << 20
#: The causes of an exception that are looked at.
_CAUSES: Final = 8


class HadoopFiles:
    """The file system that Hadoop has at a table's path. `read_only`: why nothing may be written to it."""

    def __init__(self, path: str, jvm: Jvm, *, read_only: str | None = None) -> None:
        self._root = path
        self._jvm = jvm
        self._read_only = read_only
        fs = jvm.java.org.apache.hadoop.fs
        with self._told("open", ""):
            uri = self._at("").toUri()
            default = str(jvm.configuration.get("fs.defaultFS"))
            if authority_of(path) == "" and scheme_of(path) != scheme_of(default):
                raise FilesRefused(
                    f"cannot open {path}: it names no host, and Hadoop's own file system here (fs.defaultFS) is {default};"
                    f" write {scheme_of(path)}://host:port{folder_of(path)}, or set spark.hadoop.fs.defaultFS"
                )
            # An instance of our own: those that Hadoop shares have the settings of whoever came first.
            self._system = fs.FileSystem.newInstance(uri, jvm.configuration)
            self._context = fs.FileContext.getFileContext(uri, jvm.configuration)
            rename: Any = getattr(fs, "Options$Rename")
            self._plain = jvm.gateway.new_array(rename, 0)
            self._over = jvm.gateway.new_array(rename, 1)
            self._over[0] = rename.OVERWRITE

    @property
    def root(self) -> str:
        """The table's whole path."""
        return self._root

    def list(self, folder: str) -> builtins.list[FileStatus]:
        """What lies in a folder, by name."""
        with self._told("list", folder):
            try:
                with self._told("list", folder):
                    found = self._system.listStatus(self._at(folder))
            except FileMissing:
                return []
            statuses = self._statuses(folder, found)
            if len(statuses) == 1 and statuses[0].name == folder.rpartition("/")[2]:
                self._require_folder(folder)  # it may be a file, which Hadoop lists as being in itself
            return statuses

    def walk(self, folder: str) -> builtins.list[FileStatus]:
        """What lies in a folder and below it, by path."""
        found: builtins.list[FileStatus] = []
        level = [folder]
        while level:
            entries = [status for statuses in each(self.list, level) for status in statuses]
            found += entries
            level = [status.path for status in entries if status.is_folder]
        return sorted(found, key=lambda status: status.path)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        with self._told("look for", path):
            return bool(self._system.exists(self._at(path)))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """A file's bytes."""
        with self._told("read", path), self._opened(path) as stream:
            if offset and stream.skip(offset) < offset:  # a file system may skip less for no reason
                if offset >= self._system.getFileStatus(self._at(path)).getLen():
                    return b""
                stream.seek(offset)
            slices = []
            left = length
            while left is None or left > 0:
                wanted = _SLICE if left is None else min(left, _SLICE)
                slices.append(bytes(stream.readNBytes(wanted)))
                if len(slices[-1]) < wanted:
                    break
                left = None if left is None else left - wanted
            return b"".join(slices)

    def digest(self, path: str) -> str:
        """`sha256:<hex>` of a file's bytes, which stay in the JVM."""
        with self._told("read", path), self._opened(path) as stream:
            digests = self._jvm.java.org.apache.commons.codec.digest.DigestUtils
            return f"sha256:{digests.sha256Hex(stream)}"

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Make a file, unless there is one."""
        return self._put(path, data, self._plain)

    def replace(self, path: str, data: bytes) -> None:
        """Make a file, or replace the one that is there."""
        self._put(path, data, self._over)

    def move_if_absent(self, source: str, target: str) -> bool:
        """Rename a file, unless there is something of the new name."""
        with self._told("rename", source, f" to {self._root}/{target}"):
            self._require_writable()
            return self._rename(source, target, self._plain)

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that it holds."""
        with self._told("delete", path):
            self._require_writable()
            self._system.delete(self._at(path), True)

    def close(self) -> None:
        """End the connections, and the JVM if it is our own."""
        with suppress(Exception):  # the JVM may be gone already, in any state
            self._system.close()
        self._jvm.close()

    def __enter__(self) -> HadoopFiles:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _at(self, path: str) -> Any:
        return self._jvm.java.org.apache.hadoop.fs.Path(f"{self._root}/{path}" if path else self._root)

    def _statuses(self, folder: str, found: Any) -> builtins.list[FileStatus]:
        """Java's array of statuses, in Python."""
        java = self._jvm.java
        number = len(found)
        writables = self._jvm.gateway.new_array(java.org.apache.hadoop.io.Writable, number)
        java.java.lang.System.arraycopy(
            found, 0, writables, 0, number
        )  # py4j wants the very type of a parameter
        return decode_statuses(folder, java.org.apache.hadoop.io.WritableUtils.toByteArray(writables), number)

    @contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        stream = self._system.open(self._at(path))
        try:
            yield stream
        finally:
            with suppress(Exception):  # what was read was read
                stream.close()

    def _require_writable(self) -> None:
        if self._read_only is not None:
            raise FilesRefused(f"cannot write to {self._root}: {self._read_only}")

    def _require_folder(self, folder: str) -> None:
        if not self._system.getFileStatus(self._at(folder)).isDirectory():
            raise FilesRefused(f"cannot list {self._root}/{folder}: it is a file; give another path")

    def _put(self, path: str, data: bytes, options: Any) -> bool:
        """Write a file under another name, and rename it; whether that was done."""
        written = f"{TMP}/{path.rpartition('/')[2]}.{secrets.token_hex(8)}"
        with self._told("write", path):
            self._require_writable()
            try:
                with self._told("write", path):
                    self._write(written, data)
                    done = self._rename(written, path, options)
            except FileMissing as error:
                raise FilesUnavailable(f"{error}: folders are deleted while they are written to") from None
            except FilesRefused:
                with suppress(Exception):  # whatever happens now, that is the error
                    self._system.delete(self._at(written), False)
                raise
            if not done:
                self._system.delete(self._at(written), False)
            return done

    def _write(self, path: str, data: bytes) -> None:
        stream = self._system.create(self._at(path), True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()

    def _rename(self, source: str, target: str, options: Any) -> bool:
        """Rename, and make the folder if it was that which was missing; `FileMissing`: there is no source."""
        old, new = self._at(source), self._at(target)
        rest = f" to {self._root}/{target}"
        try:
            try:
                with self._told("rename", source, rest):
                    self._context.rename(old, new, options)
            except FileMissing:
                self._system.mkdirs(new.getParent())
                with self._told("rename", source, rest):
                    self._context.rename(old, new, options)
        except FileTaken:
            return False
        return True

    @contextmanager
    def _told(self, call: str, path: str, rest: str = "") -> Iterator[None]:
        """Turn what Java says into the errors of `Files`."""
        try:
            yield
        except FilesError:
            raise
        except Exception as error:
            what = f"cannot {call} {self._root}{'/' if path else ''}{path}{rest}"
            raise _meaning(what, error) from None


def _meaning(what: str, error: Exception) -> Exception:
    """The error of `Files` that an exception of py4j or PySpark stands for; itself, if it is neither's."""
    thrown = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    try:
        if thrown is not None:
            return error_of(what, _chain(thrown))
        if not isinstance(error, (Py4JError, OSError)):
            return error
    except (Py4JError, OSError):
        pass  # the JVM has ended while it was asked about its exception
    said = (str(error).splitlines() or [type(error).__name__])[0]
    return FilesUnavailable(f"{what}: the JVM of Spark does not answer, it may have ended ({said})")


def _chain(thrown: Any) -> builtins.list[Thrown]:
    """An exception and its causes."""
    chain: builtins.list[Thrown] = []
    while thrown is not None and len(chain) < _CAUSES:
        classes = []
        above = thrown.getClass()
        while above is not None:
            classes.append(str(above.getName()))
            above = above.getSuperclass()
        if classes[0] == "org.apache.hadoop.ipc.RemoteException":
            classes.insert(0, str(thrown.getClassName()))
        chain.append(Thrown(classes, str(thrown.getMessage() or "")))
        thrown = thrown.getCause()
    return chain
