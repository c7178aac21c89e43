"""The files of the log: a folder of this host, of HDFS or of S3 that holds the segments of all tasks of a spout.

Must not know: what comes next, requests.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Final

from squall.stores.files import FilesUnavailable, OpenStore
from squall.stores.opening import default_webhdfs, needs_java, open_store
from squall.stores.paths import LOCAL, S3_SCHEMES, TMP, check_path, scheme_of
from squall.stores.settled import put_once
from squall_io.http.segments import Segment, file_name, segment_named, writer_name
from topology_api import SquallError

#: The file with the digits of a folder. Two hosts that each have a folder of this path have two of them.
_DIGITS: Final = "_squall/directory"


class NoLog(SquallError):
    """A directory in which no log can be."""


def path_problem(directory: str, webhdfs: str | None) -> str | None:
    """Return why a path in normal form cannot be the directory of a log."""
    scheme = scheme_of(directory)
    if needs_java(scheme, webhdfs or default_webhdfs(directory)):
        return (
            f"directory is {directory!r}: give a folder of the workers' hosts, an hdfs:// path with the address of its NameNode"
            " (or webhdfs=), or an s3:// path"
        )
    return None


def is_host_local(directory: str) -> bool:
    """Return whether each host has a folder of its own at this path, for all that is known."""
    return scheme_of(directory) == LOCAL


class LogFiles:
    """The folder, for one task. Any thread may call it; each method may raise FilesError.

    directory: its path. webhdfs: the address of WebHDFS; None: the usual one. s3_endpoint: a server that speaks S3.
    """

    def __init__(self, directory: str, webhdfs: str | None, s3_endpoint: str | None) -> None:
        path = check_path(directory)
        local = scheme_of(path) not in ("hdfs", *S3_SCHEMES)
        where = None if local else webhdfs or default_webhdfs(path)
        self._store: OpenStore = open_store(path, webhdfs=where, s3_endpoint=s3_endpoint)
        self.root = self._store.root

    def begin(self, index: int, started: int) -> str:
        """Return a new name for the writer of a task. started: seconds since 1970. Creates the folder. Raises NoLog."""
        digits = put_once(self._store, _DIGITS, secrets.token_hex(4).encode()).decode("ascii", "replace")
        if not re.fullmatch("[0-9a-f]{8}", digits):
            raise NoLog(f"{self.root}/{_DIGITS} is none of a log of requests: give a directory of its own")
        return writer_name(index, digits, f"{started:010x}"[-10:] + secrets.token_hex(7))

    def put(self, writer: str, number: int, data: bytes) -> None:
        """Store a segment. After an error the same call, with the same data, may be made again: only then is it known."""
        name = file_name(writer, number)
        if put_once(self._store, name, data) != data:
            raise FilesUnavailable(f"{self.root}/{name} has another content than was stored")

    def list(self) -> list[tuple[str, int]]:
        """Return the names of all files, with their bytes."""
        return [(each.name, each.size) for each in self._store.list("") if not each.is_folder]

    def read(self, segment: Segment) -> bytes:
        """Return the bytes of a segment. Raises AbsentFile."""
        return self._store.read(file_name(segment.writer, segment.number))

    def delete(self, segment: Segment) -> None:
        """Delete a segment; do nothing if it is gone."""
        self._store.delete(file_name(segment.writer, segment.number))

    def sweep(self, is_mine: Callable[[str], bool], before: float) -> None:
        """Delete what writers have begun to store and never ended, if its last change was before a time, in seconds since 1970.

        is_mine: whether to do it for a writer. A writer that still stores it writes it again.
        """
        for each in self._store.list(TMP):
            segment = segment_named(each.name.rpartition(".")[0])
            if segment is not None and is_mine(segment.writer) and each.modified < before:
                self._store.delete(each.path)

    def close(self) -> None:
        """Close the connections."""
        self._store.close()
