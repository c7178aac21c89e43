"""Discovers the files of a path, and their order: those that exist, and those that come.

A file is read as it was when it was discovered. A later one is taken when two polls in a row have found it unchanged, by
its
size and modification time. Whether a writer is done cannot be known, so a file that has changed since is reported, together
with
the right way to write files.
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
from squall_io.spark.spouts.splits import PathPattern, UnreadableFile, find_files, is_foreign, require_files

#: Seconds until a file that has changed once more is reported again: at first, and at most.
FIRST_WAIT: Final = 60.0
LONGEST_WAIT: Final = 3600.0


class FileDiscovery:
    """The files of a reader, as one of its tasks discovers them."""

    def __init__(self, files: Files, source: PathPattern, kept: Files, split_bytes: int) -> None:
        self._files = files
        self._source = source
        self._kept = kept
        self._split_bytes = split_bytes
        self._list = FileList(kept)
        #: How many files of the list were returned.
        self._given = 0
        #: The files at the last poll.
        self._before: dict[str, tuple[int, float]] = {}
        #: Problems to raise, of files that are not read or have changed; and what was reported last of each.
        self.problems: deque[UnreadableFile] = deque()
        self._reported: dict[str, _Reported] = {}

    def snapshot(self, now: float) -> Mapping[str, Any]:
        """Return how far the list goes once it has the existing files; `AbsentFile`, `UnreadableFile`."""
        files = FileList(self._kept)
        files.read()
        present = find_files(self._files, self._source)
        if present or not files.records:  # what was read before may have been taken away since
            require_files(self._files, self._source, present)
        files.add(map(self._found, filter(_is_readable, present)))
        self._report(present, files, now)
        return {"records": files.records}

    def begin(self, snapshot: Mapping[str, Any] | None) -> list[FoundFile]:
        """Return the files of a snapshot, or without one all that were ever discovered."""
        self._list, self._given = FileList(self._kept), 0
        self._list.read(None if snapshot is None else int(snapshot["records"]))
        return self._new()

    def poll(self, reports: bool, now: float) -> list[FoundFile]:
        """Return new files. reports: whether this task reports files that are not read; one task of the reader does."""
        present = find_files(self._files, self._source)
        before, self._before = self._before, {status.path: _mark(status) for status in present}
        whole = (status for status in present if before.get(status.path) == _mark(status))
        self._list.add(map(self._found, filter(_is_readable, whole)))
        if reports:
            self._report(present, self._list, now)
        return self._new()

    def _found(self, status: FileStatus) -> FoundFile:
        return FoundFile(status.path, status.size, self._split_bytes, status.modified)

    def _new(self) -> list[FoundFile]:
        """Return the files of the list that were not returned before."""
        given, self._given = self._given, len(self._list.files)
        return self._list.files[given:]

    def _report(self, present: Iterable[FileStatus], files: FileList, now: float) -> None:
        """Add a problem for each file that is not read, or has changed since it was discovered."""
        for status in present:
            known = files.found.get(status.path)
            if not is_foreign(status.path) and (known is None or _mark(known) == _mark(status)):
                continue
            last = self._reported.get(status.path, _NEVER)
            if last.mark == _mark(status) or now < last.again_at:
                continue
            wait = min(2 * last.wait, LONGEST_WAIT)
            again_at = float("inf") if is_foreign(status.path) else now + wait  # a foreign file stays one
            self._reported[status.path] = _Reported(_mark(status), again_at, wait)
            self.problems.append(
                UnreadableFile(f"{self._files.root}/{status.path}{_what_is_wrong(status, known)}")
            )


@dataclass(frozen=True)
class _Reported:
    """The last report about a file."""

    mark: tuple[int, float] | None
    again_at: float
    """When it is reported again if it has changed again; the wait doubles each time."""
    wait: float = FIRST_WAIT / 2


_NEVER: Final = _Reported(None, float("-inf"))


def _what_is_wrong(status: FileStatus, found: FoundFile | None) -> str:
    if found is None or is_foreign(status.path):
        return " is not read: its compression is not supported"
    if status.size == found.size:
        at = datetime.fromtimestamp(status.modified, timezone.utc).isoformat(" ", "seconds")
        what = f"was written again at {at}, and has {found.size} bytes as before"
    else:
        what = f"has {status.size} bytes, and had {found.size}"
    return (
        f" {what}: it is read once, up to the size at its discovery. Write files under names that begin with"
        ' "_" or ".", and rename them when they are complete; later lines belong in another file'
    )


def _mark(file: FileStatus | FoundFile) -> tuple[int, float]:
    """Return what shows that a file has changed."""
    return file.size, file.modified


def _is_readable(status: FileStatus) -> bool:
    """Whether a file has anything to read."""
    return status.size > 0 and not is_foreign(status.path)
