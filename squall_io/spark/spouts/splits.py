"""Which files a path means, and which pieces of them the tasks of a spout read: splits.

A path is a file, a folder, or a pattern: `hdfs://host/logs/2026-*/*.log`. A folder means all files in it and in folders
below it, except what Hadoop hides everywhere: names that begin with "_" or ".".
Must not know: lines, positions, spouts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from squall_io.spark.manifest.files import AbsentFile, Files, FileStatus
from squall_io.spark.manifest.layout import is_hidden
from squall_io.spark.spouts.file_list import FoundFile
from squall_io.spark.stores import check_path
from squall_io.spark.stores.paths import InvalidPath
from topology_api import SquallError

#: Bytes of a split: half a block of HDFS.
SPLIT_BYTES: Final = 64 << 20
#: Endings of packed files, each of which one task reads completely.
PACKED: Final = (".gz", ".bz2")
#: Endings of files packed in an unsupported way.
_FOREIGN: Final = (".zst", ".snappy", ".lz4", ".lzo", ".lzo_deflate", ".deflate", ".xz", ".zip", ".7z", ".Z")

#: Ending of a file that `hdfs dfs -put` is still copying.
_COPYING: Final = "._COPYING_"
_PATTERN: Final = re.compile(r"[*?\[]")
_ABOVE: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)?(/.*)", re.DOTALL)


class UnreadableFile(SquallError):
    """A file that cannot be read properly: packed in an unsupported way, damaged, or changed."""


@dataclass(frozen=True)
class PathPattern:
    """The meaning of a path: names, or patterns of names, below a folder."""

    folder: str
    parts: tuple[str, ...]

    @property
    def is_pattern(self) -> bool:
        """Whether there is a pattern in it."""
        return any(_PATTERN.search(part) for part in self.parts)


def source_of(path: str) -> PathPattern:
    """Return the meaning of a path; `InvalidPath`."""
    found = _ABOVE.fullmatch(path)
    if found is None:
        check_path(path)  # says what is wrong with it
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
    """Whether files below a folder may match."""
    folder = check_path(path)
    if not f"{folder}/".startswith(f"{source.folder}/"):
        return False
    parts = [part for part in folder[len(source.folder) :].split("/") if part]
    named = zip(parts, source.parts)
    return not any(map(is_hidden, parts)) and all(fnmatchcase(part, pattern) for part, pattern in named)


@dataclass(frozen=True)
class Split:
    """A piece of a file: the lines that begin in it."""

    path: str
    start: int
    end: int
    size: int
    """Bytes of the whole file."""

    @property
    def packed(self) -> bool:
        """Whether the file is packed; then the split is all of it."""
        return self.path.endswith(PACKED)


def find_files(files: Files, source: PathPattern) -> list[FileStatus]:
    """Return the files that match, by path; `files` is opened at `source.folder`."""
    return sorted(_below(files, "", source.parts), key=lambda status: status.path)


def require_files(files: Files, source: PathPattern, found: Sequence[FileStatus]) -> None:
    """Check that there are files, and that all of them can be read: `AbsentFile`, `UnreadableFile`."""
    if not found:
        what = "fits" if source.is_pattern else "is at"
        raise AbsentFile(f"no file {what} {files.root}/{'/'.join(source.parts)}: there is nothing to read")
    foreign = [status.path for status in found if is_foreign(status.path)]
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UnreadableFile(
            f"{files.root}/{foreign[0]}{more}: lines are read from plain files and from {', '.join(PACKED)} only;"
            " unpack it, or give a pattern that leaves it out"
        )


def is_foreign(path: str) -> bool:
    """Whether a file is packed in an unsupported way."""
    return path.endswith(_FOREIGN)


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
    """Whether a file is incomplete or hidden, as everywhere in Hadoop, or still being copied by its `put`."""
    return path.endswith(_COPYING) or any(map(is_hidden, path.split("/")))


def splits_of(files: Iterable[FoundFile]) -> Iterator[Split]:
    """Yield the splits, in the order of files and places."""
    for file in files:
        step = max(file.size, 1) if file.path.endswith(PACKED) else file.split_bytes
        for start in range(0, file.size, step):
            yield Split(file.path, start, min(start + step, file.size), file.size)
