"""`Files` through Hadoop's client in a JVM: HDFS, and everything else that Spark can reach. The JVM is that of a Spark session,
or, without a session, a small JVM that this module starts.

Renames use `FileContext`, with or without OVERWRITE; both are atomic on HDFS. (`FileSystem.rename` would move a file *into* an
existing folder of the target's name, and does not say why a rename failed.)
Must not know: what files hold.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, BinaryIO, Final

from squall.stores.files import AbsentFile, FilesRefused, FileStatus, FilesUnavailable, FileTaken
from squall.stores.java.java_calls import translated_errors
from squall.stores.java.java_settings import HADOOP_PREFIX
from squall.stores.java.jvm import JavaFailed, JavaProcess, start_jvm
from squall.stores.paths import authority_of, check_below, default_scheme, folder_of, scheme_of
from squall.stores.private import require_private
from squall.stores.renaming import RenamingFiles, pieces_of

#: Bytes that one call reads from the JVM. Py4J transfers them as text, so a large file is read in pieces.
_SLICE: Final = 1 << 20

# Numbers of the fields of FileStatusProto, which Hadoop never changes.
_TYPE: Final = 1
_PATH: Final = 2
_LENGTH: Final = 3
_MODIFIED: Final = 7
#: The value of the field `_TYPE` for a folder.
_FOLDER: Final = 1
# Wire types of protobuf.
_VARINT: Final = 0
_BYTES: Final = 2
#: Wire types of fixed-width numbers, and their sizes in bytes.
_FIXED: Final = {1: 8, 5: 4}


#: A small JVM that starts quickly: it only calls file systems.
_LAUNCH: Final = {
    "spark.driver.memory": "256m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

#: (setting, Hadoop's default, Squall's value): Squall's values suit a caller that retries. A setting that already differs from
#: Hadoop's default is not changed.
_SETTINGS: Final = (
    # The delay before the first check whether a closed file has reached its DataNodes: with 400 ms, writing a small file would
    # consist mostly of this delay.
    ("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", "400", "10"),
    # A NameNode that is down is reported after 2 seconds instead of 10.
    ("ipc.client.connect.max.retries", "10", "2"),
    # A NameNode that no packet reaches is reported after 20 seconds instead of 15 minutes.
    ("ipc.client.connect.max.retries.on.timeouts", "45", "0"),
    # How long a call waits for a frozen NameNode.
    ("ipc.client.rpc-timeout.ms", "120000", "30000"),
    # How long a call waits for a frozen DataNode.
    ("dfs.client.socket-timeout", "60000", "30000"),
)


class Jvm:
    """A usable JVM, and a Hadoop configuration in it. `close` ends the JVM if `own` started it."""

    def __init__(self, gateway: Any, configuration: Any, process: JavaProcess | None = None) -> None:
        self.gateway = gateway
        self.java = gateway.jvm
        self.configuration = configuration
        self._process = process

    @classmethod
    def of_session(cls, session: Any) -> Jvm:
        """Return the JVM of a classic `SparkSession`, with a copy of its Hadoop configuration. Raises `FilesUnavailable` if the
        session was stopped.
        """
        with translated_errors("cannot use the JVM of the Spark session"):
            context: Any = session.sparkContext
            if context._jsc is None:
                raise FilesUnavailable(
                    "the Spark session for access to the file system was stopped: give a running one"
                )
            gateway = context._gateway
            theirs = context._jsc.hadoopConfiguration()
            return cls(gateway, _suited(gateway.jvm.org.apache.hadoop.conf.Configuration(theirs)))

    @classmethod
    def own(cls, conf: Mapping[str, str]) -> Jvm:
        """Start a JVM, which takes a second or two, with the Hadoop settings in `conf`. Raises `NotInstalled` or
        `FilesUnavailable`."""
        try:
            process = start_jvm(_LAUNCH)
        except JavaFailed as error:
            raise FilesUnavailable(f"cannot start a JVM for access to file systems: {error}") from None
        try:
            with translated_errors("cannot use the JVM that was started for access to file systems"):
                configuration = process.gateway.jvm.org.apache.hadoop.conf.Configuration()
                for name, value in conf.items():
                    # These settings are not passed on the command line, which every user of the machine can read.
                    if name.startswith(HADOOP_PREFIX):
                        configuration.set(name.removeprefix(HADOOP_PREFIX), value)
                return cls(process.gateway, _suited(configuration), process)
        except BaseException:
            process.stop()
            raise

    @property
    def ended(self) -> bool:
        """Whether the JVM that `own` started has ended."""
        return self._process is not None and self._process.ended

    def lent(self) -> Jvm:
        """Return the same JVM for a caller that must not end it."""
        return Jvm(self.gateway, self.configuration)

    def close(self) -> None:
        """End the JVM if `own` started it."""
        if self._process is not None:
            self._process.stop()


def _suited(configuration: Any) -> Any:
    """Put `_SETTINGS` into a configuration, and return the configuration."""
    for name, theirs, ours in _SETTINGS:
        if configuration.get(name) in (None, theirs):
            configuration.set(name, ours)
    return configuration


class HadoopFiles(RenamingFiles):
    """Hadoop's file system at a table's path. `read_only`: why nothing may be written there; None: writing is allowed."""

    def __init__(self, path: str, jvm: Jvm, *, read_only: str | None = None) -> None:
        super().__init__(path)
        self._jvm = jvm
        self._read_only = read_only
        with self._translated_errors("open", ""):
            # Py4J calls the JVM for each part of a dotted Java name, so each name is looked up only once.
            java = jvm.java
            hadoop = java.org.apache.hadoop
            self._path = hadoop.fs.Path
            self._digests = java.org.apache.commons.codec.digest.DigestUtils
            self._writable = hadoop.io.Writable
            self._writables = hadoop.io.WritableUtils
            self._copy = java.java.lang.System.arraycopy
            self._require_host()
            uri = self._at("").toUri()
            self._context = hadoop.fs.FileContext.getFileContext(uri, jvm.configuration)
            option = hadoop.fs.Options.Rename
            self._plain = jvm.gateway.new_array(option, 0)
            self._over = jvm.gateway.new_array(option, 1)
            self._over[0] = option.OVERWRITE
            # This makes a new instance, since a cached instance has the settings of its first user. Hadoop keeps the new
            # instance until it is closed, so this must be the last step that can fail.
            self._system = hadoop.fs.FileSystem.newInstance(uri, jvm.configuration)

    def list(self, folder: str) -> builtins.list[FileStatus]:
        """Return the entries of a folder, by name."""
        try:
            with self._translated_errors("list", folder):
                statuses = self._statuses(folder, self._system.listStatus(self._at(folder)))
                # For a file, Hadoop lists the file itself as the only entry.
                alone = [status.name for status in statuses] == [(folder or self.root).rpartition("/")[2]]
                if alone and not self._system.getFileStatus(self._at(folder)).isDirectory():
                    raise FilesRefused(f"{self._what('list', folder)}: it is a file; give another path")
        except AbsentFile:
            return []
        return statuses

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        with self._translated_errors("look for", path):
            return bool(self._system.exists(self._at(path)))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes."""
        with self._translated_errors("read", path), self._opened(path) as stream:
            if offset and stream.skip(offset) < offset:  # a file system is free to skip fewer bytes
                if offset >= self._system.getFileStatus(self._at(path)).getLen():
                    return b""
                stream.seek(offset)
            data = bytearray()
            while length is None or len(data) < length:
                wanted = _SLICE if length is None else min(length - len(data), _SLICE)
                piece = stream.readNBytes(wanted)
                data += piece
                if len(piece) < wanted:
                    break
            return bytes(data)

    def digest(self, path: str) -> str:
        """Return `sha256:<hex>` of a file's bytes, which stay in the JVM."""
        with self._translated_errors("read", path), self._opened(path) as stream:
            return f"sha256:{self._digests.sha256Hex(stream)}"

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with everything in it."""
        with self._translated_errors("delete", path):
            self._require_writable()
            self._system.delete(self._at(path), True)

    def delete_if_empty(self, folder: str) -> None:
        """Delete a folder, unless something is in it."""
        with suppress(AbsentFile, FileTaken), self._translated_errors("delete", folder):
            self._require_writable()
            if self._system.getFileStatus(self._at(folder)).isDirectory():
                self._system.delete(self._at(folder), False)

    def make_private(self) -> None:
        """Create the folder of this store for its user only. Raises `FilesRefused` if it is there and others may enter it."""
        with self._translated_errors("make folder", ""):
            java, folder = self._jvm.java.org.apache.hadoop, self._at("")
            if not self._system.exists(folder):
                self._system.mkdirs(folder, java.fs.permission.FsPermission("700"))
            status = self._system.getFileStatus(folder)
            user = str(java.security.UserGroupInformation.getCurrentUser().getShortUserName())
            require_private(
                self.root,
                user,
                str(status.getOwner()),
                int(status.getPermission().toShort()),
                is_folder=bool(status.isDirectory()),
            )

    def close(self) -> None:
        """Close the connections, and end the JVM if `Jvm.own` started it."""
        with suppress(Exception):  # the JVM may have ended, or may be ending
            self._system.close()
        self._jvm.close()

    def _at(self, path: str) -> Any:
        return self._path(f"{self.root}/{path}" if check_below(path) else self.root)

    def _statuses(self, folder: str, found: Any) -> builtins.list[FileStatus]:
        """Convert Java's array of statuses to a Python list."""
        number = len(found)
        writables = self._jvm.gateway.new_array(self._writable, number)
        self._copy(found, 0, writables, 0, number)  # Py4J needs the exact type of a parameter
        return decode_statuses(folder, self._writables.toByteArray(writables), number)

    @contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        stream = self._system.open(self._at(path))
        try:
            yield stream
        finally:
            with suppress(Exception):  # the data has already been read
                stream.close()

    def _require_writable(self) -> None:
        if self._read_only is not None:
            raise FilesRefused(f"cannot write to {self.root}: {self._read_only}")

    def _require_host(self) -> None:
        """Check that the path names a host, or that Hadoop's configuration does."""
        default = str(self._jvm.configuration.get("fs.defaultFS"))
        scheme = scheme_of(self.root)
        if authority_of(self.root) == "" and scheme != default_scheme(default):
            raise FilesRefused(
                f"cannot open {self.root}: it names no host, and Hadoop's own file system here (fs.defaultFS) is"
                f" {default}; write {scheme}://host:port{folder_of(self.root)}, or set spark.hadoop.fs.defaultFS"
            )

    def _write(self, path: str, content: bytes | BinaryIO) -> None:
        with self._translated_errors("write", path):
            self._require_writable()
            stream = self._system.create(self._at(path), True)
            try:
                for data in pieces_of(content):
                    stream.write(bytearray(data))
            finally:
                stream.close()

    def _rename(self, source: str, target: str, over: bool) -> None:
        with self._translated_errors("rename", source, f" to {self.root}/{target}"):
            self._require_writable()
            self._context.rename(self._at(source), self._at(target), self._over if over else self._plain)

    def _make_folder(self, path: str) -> None:
        with self._translated_errors("make folder", path):
            self._system.mkdirs(self._at(path))

    def _translated_errors(self, call: str, path: str, rest: str = "") -> AbstractContextManager[None]:
        """Turn Java's errors into errors of `Files`."""
        return translated_errors(self._what(call, path) + rest)


def decode_statuses(folder: str, data: bytes, number: int) -> list[FileStatus]:
    """Decode `number` statuses that Hadoop's client wrote (`FileStatus.write`), and return them by path. Each status is a
    length in 4 bytes, and a protobuf message `FileStatusProto` of that length; padding follows the last status.

    A whole listing reaches Python in one call. Asking Java for the four fields would take four calls per entry.
    """
    found = []
    at = 0
    for _ in range(number):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append(_decode(folder, data[at + 4 : at + 4 + size]))
        at += 4 + size
    return sorted(found)


def _decode(folder: str, message: bytes) -> FileStatus:
    numbers = {_TYPE: 0, _LENGTH: 0, _MODIFIED: 0}
    name = ""
    for field, value in _fields(message):
        if isinstance(value, int):
            numbers[field] = value
        elif field == _PATH:
            name = value.decode().rstrip("/").rpartition("/")[2]
    is_folder, modified = numbers[_TYPE] == _FOLDER, numbers[_MODIFIED] / 1000
    return FileStatus.of_entry(folder, name, numbers[_LENGTH], is_folder, modified)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: number, and the integer or the bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
        elif kind == _BYTES:
            size, at = _varint(message, at)
            yield tag >> 3, message[at : at + size]
            at += size
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise ValueError(f"a file status of Hadoop has a field of wire type {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
