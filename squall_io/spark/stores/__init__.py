"""File systems that a table can lie on: the one that a path names, opened.

`/a/b` and `file:///a/b` are this machine's and need no Java; everything else goes through the Hadoop client of Spark's JVM, or
of a JVM of its own where there is no session; with Spark Connect, which gives no JVM, HDFS is reached by WebHDFS.
Must not know: what files hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from squall_io.spark.manifest.files import Files, FilesRefused
from squall_io.spark.stores.local import LocalFiles
from squall_io.spark.stores.paths import LOCAL, InvalidPath, check_path, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["InvalidPath", "Store", "check_path", "open_files"]

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Store(Files, Protocol):
    """`Files` that were opened, and are to be closed: they may hold connections, or a JVM of their own."""

    def close(self) -> None:
        """End what it holds; a session that it was given stays. May be called twice."""

    def __enter__(self) -> Store: ...

    def __exit__(self, *raised: object) -> None: ...


def open_files(
    path: str, *, session: SparkSession | None = None, conf: Mapping[str, str] = _NOTHING
) -> Store:
    """The file system at a table's path; `InvalidPath`, and what `Files` raises when nobody answers there.

    `conf` is Spark's configuration, and may have `squall.webhdfs.address` (for Spark Connect) and `squall.unsafe.store`.
    """
    path = check_path(path)
    if scheme_of(path) == LOCAL:
        return LocalFiles(path)
    raise FilesRefused(f"cannot open {path}: there is no store for this scheme")
