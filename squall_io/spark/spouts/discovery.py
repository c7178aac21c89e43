"""Which files of a path are read, and in which order: those that are there, and those that come.

A file is read as it was when it was found. One that comes later is taken when two looks in a row have found it the same, by its
size and the time it was written at; nobody can know that a writer has ended, so a file that has changed since is told of, and
the way to write files is said.
Must not know: how tasks agree on files, lines, spouts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

from squall_io.spark.manifest.files import Files, FileStatus
from squall_io.spark.spouts.file_list import FileList, FoundFile
from squall_io.spark.spouts.splits import Source, UnreadableFile, find_files, is_foreign, require_files

#: Seconds until a file that has changed once more is told of again: at first, and at the most.
FIRST_WAIT: Final = 60.0
LONGEST_WAIT: Final = 3600.0


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
        #: What the files were like at the last look.
        self._before: dict[str, tuple[int, float]] = {}
        #: What is to be said of files that are not read, or not as they are now; and of which it was.
        self.problems: deque[UnreadableFile] = deque()
        self._told: dict[str, _Told] = {}

    def snapshot(self, now: float) -> Mapping[str, Any]:
        """How far the list goes with the files that are there now; `FileMissing`, `UnreadableFile`."""
        files = FileList(self._kept)
        files.read()
        present = find_files(self._files, self._source)
        if present or not files.records:  # what was read before may have been taken away since
            require_files(self._files, self._source, present)
        files.add(map(self._found, filter(_is_some, present)))
        self._judge(present, files, now)
        return {"records": files.records}

    def begin(self, snapshot: Mapping[str, Any] | None) -> list[FoundFile]:
        """The files of a snapshot, or without one all that were ever found."""
        self._list, self._given = FileList(self._kept), 0
        self._list.read(None if snapshot is None else int(snapshot["records"]))
        return self._new()

    def look(self, tells: bool, now: float) -> list[FoundFile]:
        """The files that have come since. One task of the reader tells of what is not read."""
        present = find_files(self._files, self._source)
        before, self._before = self._before, {status.path: _mark(status) for status in present}
        whole = (status for status in present if before.get(status.path) == _mark(status))
        self._list.add(map(self._found, filter(_is_some, whole)))
        if tells:
            self._judge(present, self._list, now)
        return self._new()

    def _found(self, status: FileStatus) -> FoundFile:
        return FoundFile(status.path, status.size, self._split_bytes, status.modified)

    def _new(self) -> list[FoundFile]:
        """The files of the list that were not given out."""
        given, self._given = self._given, len(self._list.files)
        return self._list.files[given:]

    def _judge(self, present: Iterable[FileStatus], files: FileList, now: float) -> None:
        for status in present:
            found = files.found.get(status.path)
            if not is_foreign(status.path) and (found is None or _mark(found) == _mark(status)):
                continue
            told = self._told.get(status.path, _NEVER)
            if told.mark == _mark(status) or now < told.again_at:
                continue
            if is_foreign(status.path):  # it stays so, whatever comes
                told = _Told(_mark(status), float("inf"))
            else:
                wait = min(2 * told.wait, LONGEST_WAIT)
                told = _Told(_mark(status), now + wait, wait)
            self._told[status.path] = told
            self.problems.append(
                UnreadableFile(f"{self._files.root}/{status.path}{_what_is_wrong(status, found)}")
            )


@dataclass(frozen=True)
class _Told:
    """What was said last of a file that is not as it should be."""

    mark: tuple[int, float] | None
    again_at: float
    """When it is said again, should the file have changed again; twice as long after each time."""
    wait: float = FIRST_WAIT / 2


_NEVER: Final = _Told(None, float("-inf"))


def _what_is_wrong(status: FileStatus, found: FoundFile | None) -> str:
    if found is None or is_foreign(status.path):
        return " is not read: it is packed in a way that is not known here"
    if status.size == found.size:
        at = datetime.fromtimestamp(status.modified, timezone.utc).isoformat(" ", "seconds")
        what = f"was written again at {at}, and has {found.size} bytes as before"
    else:
        what = f"has {status.size} bytes, and had {found.size}"
    return (
        f" {what}: it is read once, as far as it went when it was found. Write files under names that begin with"
        ' "_" or ".", and rename them when they are whole; what comes later belongs into another file'
    )


def _mark(file: FileStatus | FoundFile) -> tuple[int, float]:
    """By what it is seen that a file has changed."""
    return file.size, file.modified


def _is_some(status: FileStatus) -> bool:
    """Whether there is anything in it to read."""
    return status.size > 0 and not is_foreign(status.path)
