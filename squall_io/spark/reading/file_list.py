"""The files of a table that hold its committed rows, for programs that read files and not manifests: DuckDB, PyArrow, Polars.

The list is that of one moment, and all rows of its files are committed. So there is no `since` and no `until`: where a batch's
rows have been moved into a file with those of others, only a reader of the manifest can tell them apart.
Must not know: Spark, what the files hold.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from squall.stores.files import Files
from squall.stores.paths import from_here
from squall_io.spark.manifest.entries import DataFile
from squall_io.spark.manifest.state import read_state, require_readable
from squall_io.spark.manifest.tables import RESULTS, read_table
from squall_io.spark.results.versions import newest_version
from squall_io.spark.rows.partitions import partition_values
from squall_io.spark.stores import open_files

#: Begins the path of a table on this machine. Programs for local files know no schemes.
_HERE = "file://"


@dataclass(frozen=True)
class CommittedFile:
    """A file of committed rows."""

    #: The whole path: `/tables/counts/data/...` on this machine, elsewhere `hdfs://...` or `s3://...`.
    path: str
    size: int
    #: The partition columns' values as text, by name; None is null.
    partition: Mapping[str, str | None]


@dataclass(frozen=True)
class CommittedTogether:
    """Files whose rows became visible together."""

    #: `batch words-1.store.0.1.7` or `version 3`.
    of: str
    rows: int
    #: Seconds since 1970.
    committed: float
    files: tuple[CommittedFile, ...]


def committed_files(
    path: str | os.PathLike[str], conf: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the paths of the files that hold the committed rows of the table at `path`, in the order of their commits; for a
    table of results, those of its newest version. Nothing has been committed yet: an empty list.

        duckdb.read_parquet(committed_files("/tables/counts"), hive_partitioning=True)

    path: the table's folder; a relative path is on this machine, below the working directory. Paths on this machine are
        returned without `file://`. The values of partition columns are only in the paths, as Hive writes them.
    conf: Spark's and Hadoop's settings for HDFS, as for a sink; with `squall.webhdfs.address` no Java is needed. For S3,
        `squall.s3.endpoint`.
    Raises `NoTable`, `UnreadableManifest`, and `FilesError` if the file system does not answer.
    """
    with open_files(from_here(os.fspath(path)), conf=conf) as files:
        return [file.path for together in list_committed(files) for file in together.files]


def list_committed(files: Files) -> list[CommittedTogether]:
    """Return the files of all batches that count, or of the newest version. Raises `NoTable`, `UnreadableManifest`, and errors
    of `Files`."""
    table = read_table(files)
    root = files.root.removeprefix(_HERE)

    def whole(of: str, rows: int, committed: float, found: tuple[DataFile, ...]) -> CommittedTogether:
        paths = [
            CommittedFile(f"{root}/{file.path}", file.size, partition_values(file.path, table.partition_by))
            for file in found
        ]
        return CommittedTogether(of, rows, committed, tuple(paths))

    if table.holds == RESULTS:
        newest = newest_version(files)
        versions = () if newest is None else (newest,)
        return [whole(f"version {each.number}", each.rows, each.published, each.files) for each in versions]
    state = require_readable(files, read_state(files))
    return [whole(f"batch {each.batch}", each.rows, each.committed, each.files) for each in state.entries]
