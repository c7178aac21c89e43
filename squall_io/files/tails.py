"""How far a file is read, and which file follows it under its path. Values in, values out.

A file is identified by its device and inode, since its name may change: rotation renames a log and creates another under its
path. So a path is read through *generations*: the files that have had it, one after the other.
Must not know: the machine's files, spouts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from squall_io.lines.cutting import Line, LineCutter

#: What rotation appends to a name: `.1`, `-20261121`, `.2026-11-21_03`.
_ROTATED: Final = re.compile(r"[.-]([0-9]+)([0-9T_.-]*)", re.ASCII)
#: A number with as many digits is a date.
_DATE: Final = 6


class FileId(NamedTuple):
    """What identifies a file under any name, as long as it exists."""

    device: int
    inode: int


class FileState(NamedTuple):
    """A file as it was found."""

    path: str
    id: FileId
    size: int
    #: When it was last written, in nanoseconds.
    modified: int = 0
    is_link: bool = False


class KnownFile(NamedTuple):
    """A file, and the path under which it was first found: it is read as this path, whatever its name is now."""

    origin: str
    state: FileState


class FileTail:
    """How far one generation of a path is read."""

    def __init__(self, path: str, state: FileState, offset: int = 0) -> None:
        #: The path whose generation this is.
        self.path = path
        self.id = state.id
        #: The name under which it was last found.
        self.name = state.path
        self.modified = state.modified
        #: The position after the last line that was emitted.
        self.offset = offset
        #: Whether the file is complete: its last line counts without a newline, too.
        self.ends = False
        #: Whether the whole file was emitted, and no generation follows.
        self.done = False
        #: Whether the last poll did not find the file under any name.
        self.missed = False
        #: Whether a line that was left out has been reported.
        self.reported = False
        self._cutter = LineCutter(offset)

    @property
    def read_to(self) -> int:
        """The position up to which the file's bytes were read; an unfinished line may be before it."""
        return self._cutter.fed

    def feed(self, data: bytes) -> Iterator[Line]:
        """Yield the lines that end in the file's next bytes."""
        return self._cutter.feed(data)

    def end(self) -> Line | None:
        """Return the last line, if it has no newline."""
        return self._cutter.end()

    def restart(self) -> None:
        """Read the file from its beginning: it was truncated."""
        self.offset = 0
        self._cutter = LineCutter(0)


def follow_names(
    before: Mapping[FileId, KnownFile], found: Iterable[FileState], paths: Collection[str]
) -> dict[FileId, KnownFile]:
    """Return what is known after a search. A renamed file keeps its origin; a file with several names is known by one.

    A new file whose name rotation made from one of the `paths` is an earlier generation of that path. If the search before
    found a file under another name, and larger, that file was removed, and its inode is used again.
    """
    known: dict[FileId, KnownFile] = {}
    for state in sorted(found, key=lambda state: (state.is_link, state.path)):
        if state.id in known:
            continue
        last = before.get(state.id)
        if last is not None and (state.path == last.origin or state.size >= last.state.size):
            known[state.id] = KnownFile(last.origin, state)
        else:
            known[state.id] = KnownFile(_unrotated(state.path, paths), state)
    return known


def is_generation(path: str, name: str) -> bool:
    """Return whether a name is that of an earlier generation of a path, by the way it was rotated."""
    return name.startswith(path) and _ROTATED.fullmatch(name, len(path)) is not None


def _unrotated(name: str, paths: Collection[str]) -> str:
    """Return the one of the paths of which the name is an earlier generation; the name itself if there is none."""
    for place in range(name.rfind("/") + 2, len(name)):
        if name[:place] in paths and is_generation(name[:place], name):
            return name[:place]
    return name


def oldest(path: str, files: Iterable[FileState]) -> FileState:
    """Return the oldest of some generations of a path."""
    return min(files, key=lambda state: _age(path, state))


def files_after(tail: FileTail, files: Iterable[FileState]) -> list[FileState]:
    """Return the generations after a tail, oldest first. `files`: all generations of its path that exist.

    If the tail's file is none of them, it was moved elsewhere: then later ones are those that were written after it.
    """
    ordered = sorted(files, key=lambda state: _age(tail.path, state))
    for place, state in enumerate(ordered):
        if state.id == tail.id:
            return ordered[place + 1 :]
    return [state for state in ordered if state.path == tail.path or state.modified > tail.modified]


def _age(path: str, state: FileState) -> tuple[bool, int, bool, int, str]:
    """Return what sorts the generations of a path, oldest first: by the last write, since some programs give the newest file
    the smallest number and others the greatest. Of files that were written at the same moment, number 1 is the newest.
    """
    found = _ROTATED.fullmatch(state.path, len(path))
    count = int(found[1]) if found is not None and not found[2] and len(found[1]) < _DATE else 0
    return state.path == path, state.modified, count > 0, -count, state.path
