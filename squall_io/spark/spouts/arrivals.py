"""Which files of a path are read, and in which order: those that are there, and those that come.

A file is read as it was when it was found. One that comes later is taken when two looks in a row have found it of one size;
nobody can know that a writer has ended, so a file that has changed since is told of, and the way to write files is said.
Must not know: how tasks agree on files, lines, spouts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from squall_io.spark.manifest.files import Files, FileStatus
from squall_io.spark.spouts.file_list import FileList, FoundFile
from squall_io.spark.spouts.splits import Source, UnreadableFile, find_files, is_foreign, require_files


class Arrivals:
    """The files of a reader, as one of its tasks finds them."""

    def __init__(self, files: Files, source: Source, kept: Files, split_bytes: int) -> None:
        self._files = files
        self._source = source
        self._kept = kept
        self._split_bytes = split_bytes
        self._list = FileList(kept)
        #: How many files of the list were given out.
        self._given = 0
        #: The sizes of the files at the last look.
        self._before: dict[str, int] = {}
        #: What is to be said of files that are not read, or not as they are now; and of which it was.
        self.problems: deque[UnreadableFile] = deque()
        self._judged: set[str] = set()

    def snapshot(self) -> Mapping[str, Any]:
        """How far the list goes with the files that are there now; `FileMissing`, `UnreadableFile`."""
        files = FileList(self._kept)
        files.read()
        present = find_files(self._files, self._source)
        if present or not files.records:  # what was read before may have been taken away since
            require_files(self._files, self._source, present)
        files.add(map(self._found, filter(_is_some, present)))
        self._judge(present, files)
        return {"records": files.records}

    def begin(self, snapshot: Mapping[str, Any] | None) -> list[FoundFile]:
        """The files of a snapshot, or without one all that were ever found."""
        self._list, self._given = FileList(self._kept), 0
        self._list.read(None if snapshot is None else int(snapshot["records"]))
        return self._new()

    def look(self, tells: bool) -> list[FoundFile]:
        """The files that have come since. One task of the reader tells of what is not read."""
        present = find_files(self._files, self._source)
        before, self._before = self._before, {status.path: status.size for status in present}
        whole = (status for status in present if before.get(status.path) == status.size)
        self._list.add(map(self._found, filter(_is_some, whole)))
        if tells:
            self._judge(present, self._list)
        return self._new()

    def _found(self, status: FileStatus) -> FoundFile:
        return FoundFile(status.path, status.size, self._split_bytes)

    def _new(self) -> list[FoundFile]:
        """The files of the list that were not given out."""
        given, self._given = self._given, len(self._list.files)
        return self._list.files[given:]

    def _judge(self, present: Iterable[FileStatus], files: FileList) -> None:
        for status in present:
            size = files.sizes.get(status.path)
            if status.path in self._judged or (size == status.size and not is_foreign(status.path)):
                continue
            whole = f"{self._files.root}/{status.path}"
            if is_foreign(status.path):
                said = f"{whole} is not read: it is packed in a way that is not known here"
            elif size is not None:
                said = (
                    f"{whole} has {status.size} bytes, and had {size} when it was found: it is read as it was then. Write files"
                    ' under names that begin with "_" or ".", and rename them when they are whole; what comes later belongs'
                    " into another file"
                )
            else:
                continue
            self._judged.add(status.path)
            self.problems.append(UnreadableFile(said))


def _is_some(status: FileStatus) -> bool:
    """Whether there is anything in it to read."""
    return status.size > 0 and not is_foreign(status.path)
