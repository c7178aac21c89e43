"""Files that a compaction wrote, for readers of single batches, whose rows are a small part of such a file.

A file is compared with its digest once. After that, only the row groups that have wanted rows are read; the last few stay
decoded, since the next batch has its rows right after those of this one.
Must not know: batches, columns that a file does not have.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from squall.stores.files import Files
from squall.stores.ranged_file import RangedFile
from squall_io.lines.errors import UnreadableFile
from squall_io.spark.compaction.parquet_merges import groups_of
from squall_io.spark.manifest.entries import DataFile

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: How many row groups stay decoded, and how many files open.
_GROUPS: Final = 4
_FILES: Final = 64


class MergedFile:
    """An open file."""

    def __init__(
        self, path: str, opened: pq.ParquetFile, groups: OrderedDict[tuple[object, ...], pa.Table]
    ) -> None:
        self._path = path
        self._opened = opened
        self._groups = groups
        self.names: Sequence[str] = opened.schema_arrow.names

    def rows(self, first: int, rows: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield `rows` rows from `first` on, in their order."""
        for group, begin, wanted in groups_of(self._opened.metadata, first, rows):
            yield self._group(group, columns).slice(begin, wanted)

    def _group(self, group: int, columns: Sequence[str]) -> pa.Table:
        key = (self._path, group)
        if key not in self._groups:
            self._groups[key] = self._opened.read_row_group(group, columns=list(columns))
        self._groups.move_to_end(key)
        while len(self._groups) > _GROUPS:
            self._groups.popitem(last=False)
        return self._groups[key]


class MergedFiles:
    """The files that one task has open. It wants the same columns of all."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, MergedFile] = OrderedDict()
        self._groups: OrderedDict[tuple[object, ...], pa.Table] = OrderedDict()

    def open(self, files: Files, file: DataFile) -> MergedFile:
        """Open a file. Raises `UnreadableFile` if it is not as it was committed, and `AbsentFile`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if file.path not in self._open:
            if files.digest(file.path) != file.digest:
                raise UnreadableFile(
                    f"{files.root}/{file.path} is damaged: its bytes are not those that were committed. Read it from a backup"
                )
            source = pa.PythonFile(RangedFile(files, file.path, file.size), mode="r")
            opened = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            self._open[file.path] = MergedFile(file.path, opened, self._groups)
        self._open.move_to_end(file.path)
        while len(self._open) > _FILES:
            self._open.popitem(last=False)
        return self._open[file.path]
