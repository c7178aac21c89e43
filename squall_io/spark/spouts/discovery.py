"""Finds the files of a path, in the same order for all tasks of a spout, and cuts them into splits, which the tasks read.

A path is a file, a folder, or a pattern: `hdfs://host/logs/2026-*/*.log`. A folder means all files in it and in folders
below it, except what Hadoop hides everywhere: names that begin with "_" or ".".

A file is read up to the size that it had when it was discovered. A file that appears after the start is presumed complete when
two polls in a row have found the same size and modification time, or when it was last written a minute before. But nothing can
show that a writer is done, so a file that changes after its discovery is reported, together with the right way to write files.

```
POSITIONS/files/<number>.json      a record of files that a task discovered; numbered without gaps, each record put once
```
A task that discovers new files first reads the records that other tasks have put meanwhile. It then puts the files that are in
none of these records under the next number. If two tasks try, one wins, and the other reads the winner's record. So the list
grows only at its end: a place in the list means the same file to every task, for ever, without communication between tasks.
Every hundredth record has the whole list, so that a starting task reads few records.
Must not know: how lines are cut out of a split, which splits have been read.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import msgspec

from squall.stores.files import AbsentFile, Files, FileStatus
from squall.stores.paths import InvalidPath, check_path
from squall_io.lines.cutting import FOREIGN, PACKED
from squall_io.lines.errors import UnreadableFile
from squall_io.spark.manifest.envelopes import UnreadableRecord, build_type_info, decode, seal
from squall_io.spark.manifest.layout import is_hidden, number_of, numbered

# What a path means

#: Bytes of a split: half a block of HDFS.
SPLIT_BYTES: Final = 64 << 20
#: Ending of a file that `hdfs dfs -put` is still copying.
_COPYING: Final = "._COPYING_"
_PATTERN: Final = re.compile(r"[*?\[]")
_ABOVE: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)?(/.*)", re.DOTALL)


@dataclass(frozen=True)
class PathPattern:
    """The meaning of a path: names, or patterns of names, below a folder."""

    folder: str
    parts: tuple[str, ...]

    @property
    def is_pattern(self) -> bool:
        """Whether the path has a pattern."""
        return any(_PATTERN.search(part) for part in self.parts)


def source_of(path: str) -> PathPattern:
    """Return the meaning of a path. Raises `InvalidPath`."""
    if (found := _ABOVE.fullmatch(path)) is None:
        check_path(path)  # raises an error that says what is wrong
        raise InvalidPath(path, "write it from the root: '/...' or 'hdfs://host:port/...'")
    above, parts = found[1] or "", [part for part in found[2].split("/") if part not in ("", ".")]
    first = next((number for number, part in enumerate(parts) if _PATTERN.search(part)), len(parts))
    if first == len(parts):
        folder = check_path(path)
        if len(parts) == 1:
            return PathPattern(folder, ())
        head, _, name = folder.rpartition("/")
        return PathPattern(head, (name,))
    return PathPattern(check_path(f"{above}/{'/'.join(parts[:first])}"), tuple(parts[first:]))


def covers(source: PathPattern, path: str) -> bool:
    """Return whether files below the folder `path` may match the source."""
    folder = check_path(path)
    if not f"{folder}/".startswith(f"{source.folder}/"):
        return False
    parts = [part for part in folder[len(source.folder) :].split("/") if part]
    named = zip(parts, source.parts)
    return not any(map(is_hidden, parts)) and all(fnmatchcase(part, pattern) for part, pattern in named)


def find_files(files: Files, source: PathPattern) -> list[FileStatus]:
    """Return the files that match, by path; `files` is opened at `source.folder`."""
    return sorted(_below(files, "", source.parts), key=lambda status: status.path)


def require_files(files: Files, source: PathPattern, found: Sequence[FileStatus]) -> None:
    """Check that there are files, and that all of them can be read. Raises `AbsentFile` or `UnreadableFile`."""
    if not found:
        what = "fits" if source.is_pattern else "is at"
        raise AbsentFile(f"no file {what} {files.root}/{'/'.join(source.parts)}: there is nothing to read")
    if foreign := [status.path for status in found if is_foreign(status.path)]:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UnreadableFile(
            f"{files.root}/{foreign[0]}{more}: lines are read from plain files and from {', '.join(PACKED)} only;"
            " unpack it, or give a pattern that leaves it out"
        )


def is_foreign(path: str) -> bool:
    """Return whether a file is packed in an unsupported way."""
    return path.endswith(FOREIGN)


def _below(files: Files, folder: str, parts: Sequence[str]) -> Iterator[FileStatus]:
    if not parts:
        start = len(folder) + 1 if folder else 0
        for status in files.walk(folder):
            if not status.is_folder and not _hidden(status.path[start:]):
                yield status
        return
    for status in files.list(folder):
        if not (status.name == parts[0] or fnmatchcase(status.name, parts[0])):
            continue
        if _PATTERN.search(parts[0]) and _hidden(status.name):
            continue
        if status.is_folder:
            yield from _below(files, status.path, parts[1:])
        elif len(parts) == 1:
            yield status


def _hidden(path: str) -> bool:
    """Return whether a file is hidden, as everywhere in Hadoop, or is still being copied by `hdfs dfs -put`."""
    return path.endswith(_COPYING) or any(map(is_hidden, path.split("/")))


# The list of files

FOUND: Final = "files"
KIND: Final = "reader's files"
#: A record whose number is a multiple of this number has the whole list.
WHOLE: Final = 100


class FoundFile(NamedTuple):
    """The state of a file when it was discovered, and the size of its splits."""

    path: str
    size: int
    split_bytes: int
    #: Seconds since 1970, by the file system's clock.
    modified: float = 0.0


class _Found(msgspec.Struct):
    """A record: the files of the list from place `before` on."""

    before: int
    files: list[FoundFile]


class FileList:
    """The part of the list that one task has read."""

    def __init__(self, kept: Files) -> None:
        self._kept = kept
        self.files: list[FoundFile] = []
        #: The files in the list, by their paths.
        self.found: dict[str, FoundFile] = {}
        #: The number of the last record that was read.
        self.records = 0

    def read(self, last: int | None = None) -> None:
        """Read the records added since the last call: all of them, or up to record `last`. Raises `UnreadableRecord`."""
        if not self.records:
            newest = self._newest() if last is None else last
            if newest >= WHOLE:
                self._take(newest - newest % WHOLE)
        while last is None or self.records < last:
            try:
                self._take(self.records + 1)
            except AbsentFile:
                if last is not None:
                    raise
                return

    def add(self, found: Iterable[FoundFile]) -> None:
        """Read the records added since the last call, and record the files that are still not in the list."""
        files = list(found)
        while True:
            self.read()
            if not (new := [file for file in files if file.path not in self.found]):
                return
            number = self.records + 1
            before = 0 if number % WHOLE == 0 else len(self.files)
            record = _Found(before, [*self.files[before:], *new])
            # If another task won, its record is read next.
            self._kept.put_if_absent(numbered(FOUND, number), seal(KIND, record))

    def _newest(self) -> int:
        return max((number_of(status.name) or 0 for status in self._kept.list(FOUND)), default=0)

    def _take(self, number: int) -> None:
        """Read a record that follows the last record, or that has the whole list."""
        name = numbered(FOUND, number)
        path = f"{self._kept.root}/{name}"
        record = decode(KIND, _Found, self._kept.read(name), path)
        known = len(self.files) - record.before
        if not 0 <= known <= len(record.files):
            why = f"it begins at file {record.before}, and {len(self.files)} are known"
            raise UnreadableRecord(path, f"is not a valid record of a reader's files: {why}")
        self.files += record.files[known:]
        self.found.update((file.path, file) for file in record.files[known:])
        self.records = number


# New files

#: Seconds after its last writing when a file is presumed complete at the first look. Clocks may differ by almost as much.
OLD_SECONDS: Final = 60.0
#: Seconds from the first report about a file until a further change can be reported; the wait doubles with each report.
FIRST_WAIT: Final = 60.0
#: The most seconds of this wait.
LONGEST_WAIT: Final = 3600.0


class FileDiscovery:
    """How one task discovers the files of its reader."""

    def __init__(self, files: Files, source: PathPattern, kept: Files, split_bytes: int) -> None:
        self._files = files
        self._source = source
        self._kept = kept
        self._split_bytes = split_bytes
        self._list = FileList(kept)
        #: How many files of the list have been returned.
        self._given = 0
        #: Size and time of each file at the last poll.
        self._before: dict[str, tuple[int, float]] = {}
        #: Problems to raise, of files that are not read or have changed.
        self.problems: deque[UnreadableFile] = deque()
        #: The last report about each file, by its path.
        self._reported: dict[str, _Reported] = {}

    def snapshot(self, now: float) -> Mapping[str, Any]:
        """Record the existing files; return the number of records that the list then has. Raises `AbsentFile` or
        `UnreadableFile`.
        """
        files = FileList(self._kept)
        files.read()
        present = find_files(self._files, self._source)
        if present or not files.records:  # files that were read before may have been removed
            require_files(self._files, self._source, present)
        self._add(files, present)
        self._report(present, files, now)
        return {"records": files.records}

    def begin(self, snapshot: Mapping[str, Any] | None) -> list[FoundFile]:
        """Return the files of a snapshot; without a snapshot, all files that were ever discovered."""
        self._list, self._given = FileList(self._kept), 0
        self._list.read(None if snapshot is None else int(snapshot["records"]))
        return self._new()

    def poll(self, reports: bool, now: float, wall: float) -> list[FoundFile]:
        """Return new files. reports: whether to report files that are not read or have changed; only one task of the reader
        reports them. wall: seconds since 1970."""
        present = find_files(self._files, self._source)
        before, self._before = self._before, {status.path: _mark(status) for status in present}
        whole = (
            status
            for status in present
            if before.get(status.path) == _mark(status) or wall - status.modified >= OLD_SECONDS
        )
        self._add(self._list, whole)
        if reports:
            self._report(present, self._list, now)
        return self._new()

    def _add(self, files: FileList, found: Iterable[FileStatus]) -> None:
        """Add to the list those files that can be read and are not empty."""
        files.add(
            FoundFile(status.path, status.size, self._split_bytes, status.modified)
            for status in found
            if status.size > 0 and not is_foreign(status.path)
        )

    def _new(self) -> list[FoundFile]:
        """Return the files of the list that have not been returned yet."""
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
            again_at = float("inf") if is_foreign(status.path) else now + wait  # a foreign file stays foreign
            self._reported[status.path] = _Reported(_mark(status), again_at, wait)
            text = f"{self._files.root}/{status.path}{_what_is_wrong(status, known)}"
            self.problems.append(UnreadableFile(text))


@dataclass(frozen=True)
class _Reported:
    """The last report about a file."""

    #: Size and time of the file at the report.
    mark: tuple[int, float] | None
    #: The earliest time at which a further change of the file is reported.
    again_at: float
    #: Seconds from the report to `again_at`; the next wait is twice as long.
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
        f" {what}: a file is read once, up to the size that it had when it was found. Write files under names that begin with"
        ' "_" or ".", and rename them when they are complete; later lines belong in another file'
    )


def _mark(file: FileStatus | FoundFile) -> tuple[int, float]:
    """Return size and time of a file, which show whether it has changed."""
    return file.size, file.modified


# Splits of the files


@dataclass(frozen=True)
class Split:
    """A piece of a file: the lines that begin in it. A packed file is one split."""

    path: str
    start: int
    end: int
    #: Bytes of the whole file.
    size: int


def splits_of(files: Iterable[FoundFile]) -> Iterator[Split]:
    """Yield the splits, in the order of files and places."""
    for file in files:
        step = max(file.size, 1) if file.path.endswith(PACKED) else file.split_bytes
        for start in range(0, file.size, step):
            yield Split(file.path, start, min(start + step, file.size), file.size)


build_type_info(_Found)
