"""Which files a path means, and which pieces of them the tasks of a spout read: splits.

A path is a file, a folder, or a pattern: `hdfs://host/logs/2026-*/*.log`. Of a folder all files are meant, those in folders
below it too, but for what is hidden as everywhere in Hadoop: names that begin with "_" or ".".
Must not know: lines, positions, spouts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from squall_io.spark.manifest.files import FileMissing, Files, FileStatus
from squall_io.spark.stores import check_path
from squall_io.spark.stores.paths import InvalidPath
from topology_api import SquallError

#: A file is split into pieces of this many bytes: half a block of HDFS.
SPLIT_BYTES: Final = 64 << 20
#: Files with these endings are packed, and so are read as a whole, by one task.
PACKED: Final = (".gz", ".bz2")
#: Packed in a way that is not read here.
_FOREIGN: Final = (".zst", ".snappy", ".lz4", ".lzo", ".lzo_deflate", ".deflate", ".xz", ".zip", ".7z", ".Z")

_PATTERN: Final = re.compile(r"[*?\[]")
_ABOVE: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)?(/.*)", re.DOTALL)


class UnreadableFile(SquallError):
    """A file that cannot be read as it should be: packed in another way, damaged, or changed."""


@dataclass(frozen=True)
class Source:
    """What a path means: names, or patterns of names, below a folder."""

    folder: str
    parts: tuple[str, ...]

    @property
    def is_pattern(self) -> bool:
        """Whether there is a pattern in it."""
        return any(_PATTERN.search(part) for part in self.parts)


def source_of(path: str) -> Source:
    """What a path means; `InvalidPath`."""
    found = _ABOVE.fullmatch(path)
    if found is None:
        check_path(path)  # says what is wrong with it
        raise InvalidPath(path, "write it from the root: '/...' or 'hdfs://host:port/...'")
    above, parts = found[1] or "", [part for part in found[2].split("/") if part not in ("", ".")]
    first = next((number for number, part in enumerate(parts) if _PATTERN.search(part)), len(parts))
    if first == len(parts):
        folder = check_path(path)
        if len(parts) == 1:
            return Source(folder, ())
        head, _, name = folder.rpartition("/")
        return Source(head, (name,))
    return Source(check_path(f"{above}/{'/'.join(parts[:first])}"), tuple(parts[first:]))


@dataclass(frozen=True)
class Split:
    """A piece of a file: the lines that begin in it."""

    path: str
    start: int
    end: int
    size: int
    """Of the whole file."""

    @property
    def packed(self) -> bool:
        """Whether the file is packed: then the split is all of it."""
        return self.path.endswith(PACKED)


def find_files(files: Files, source: Source) -> list[FileStatus]:
    """The files that a path means, by path; `files` is opened at `source.folder`. `FileMissing` when there is none."""
    found = sorted(_below(files, "", source.parts), key=lambda status: status.path)
    if not found:
        what = "fits" if source.is_pattern else "is at"
        raise FileMissing(f"no file {what} {files.root}/{'/'.join(source.parts)}: there is nothing to read")
    foreign = [status.path for status in found if status.name.endswith(_FOREIGN)]
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UnreadableFile(
            f"{files.root}/{foreign[0]}{more}: lines are read from plain files and from {', '.join(PACKED)} only;"
            " unpack it, or give a pattern that leaves it out"
        )
    return found


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
    return any(part[:1] in ("_", ".") for part in path.split("/"))


def snapshot_of(found: Iterable[FileStatus], split_bytes: int) -> dict[str, Any]:
    """What `splits_of` makes the same splits of, as JSON values, whenever and wherever."""
    return {"split_bytes": split_bytes, "files": [[status.path, status.size] for status in found]}


def splits_of(snapshot: Mapping[str, Any]) -> list[Split]:
    """The splits, in the order of files and places; their numbers are their places in the list."""
    size_of_split = int(snapshot["split_bytes"])
    splits = []
    for path, size in snapshot["files"]:
        if str(path).endswith(PACKED):
            splits.append(Split(path, 0, size, size))
            continue
        for start in range(0, size, size_of_split):
            splits.append(Split(path, start, min(start + size_of_split, size), size))
    return splits
