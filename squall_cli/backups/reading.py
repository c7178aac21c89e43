"""Reads a backup, and checks every byte of it before anything of it is used.

For any bytes, `read_backup` returns the backup or raises `BadBackup`, with a sentence. It reads the whole file once, and keeps
only what is not a file of a topology.
Must not know: where the contents go.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec
from msgspec import Struct

from squall.cluster.records import FORMAT as RECORDS
from squall.cluster.records import REPEATING
from squall.exact_structs import WrongValue, read_exactly
from squall_cli.backups.layout import (
    BLOCK,
    FORMAT,
    HEAD,
    LAST,
    MOST_JSON,
    MOST_ZEROS,
    TOPOLOGIES,
    BackedUp,
    BackupMember,
    Head,
    last_member,
    padding,
    parsed_header,
    sha256_in,
)
from topology_api.errors import SquallError

_PIECE: Final = 1024 * 1024

S = TypeVar("S", bound=Struct)


class BadBackup(SquallError):
    """A file that is no backup, or a damaged one, or one that this release cannot read."""


class Backup(msgspec.Struct, frozen=True):
    """The content of a backup. `files`: SHA-256 -> the member with the file."""

    path: Path
    head: Head
    topologies: Sequence[BackedUp]
    files: Mapping[str, BackupMember]

    def files_of(self, topology: BackedUp) -> list[BackupMember]:
        """Return the files that a topology needs. Raises `BadBackup` if one is missing."""
        needed = set(topology.bundles.values())
        for files in topology.backup.files_by_version().values():
            needed.update(files.values())
        if missing := sorted(needed - self.files.keys()):
            name = topology.backup.name
            raise BadBackup(f"{self.path} is damaged: it lacks the file {missing[0]} of topology {name!r}")
        return [self.files[sha256] for sha256 in sorted(needed)]


def read_backup(path: Path, progress: Callable[[int], object] = lambda done: None) -> Backup:
    """Return the content of a backup. `progress`: called with the number of bytes read. Raises `BadBackup` or `OSError`."""
    with path.open("rb") as file:
        return _Reader(path, file, progress).read()


class _Reader:
    """One pass through a file."""

    def __init__(self, path: Path, file: BinaryIO, progress: Callable[[int], object]) -> None:
        self._path, self._file, self._progress = path, file, progress
        self._members: list[BackupMember] = []
        self._names: set[str] = set()

    def read(self) -> Backup:
        head = self._head()
        topologies: list[BackedUp] = []
        while True:
            name, size = self._next()
            if name == LAST:
                self._end(self._content(name, size))
                break
            if name in self._names or name == HEAD:
                raise self._damaged(f"it has {name} twice")
            self._names.add(name)
            if name.startswith(TOPOLOGIES):
                topologies.append(self._struct(BackedUp, name, self._content(name, size)))
            else:
                self._content(name, size, keep=False)
        files = {sha256: each for each in self._members if (sha256 := sha256_in(each.name))}
        return Backup(self._path, head, topologies, files)

    def _head(self) -> Head:
        data = self._file.read(BLOCK)
        found = parsed_header(data)
        if found is None or found[0] != HEAD:
            what = "is empty" if not data else "is not a backup that `squall backup` wrote"
            raise BadBackup(f"{self._path} {what}")
        content = self._content(HEAD, found[1])
        format = _json(content).get("squall_backup")
        if isinstance(format, int) and format > FORMAT:
            raise BadBackup(
                f"{self._path} was written by a newer Squall (its format is {format}, this Squall reads {FORMAT}):"
                " restore it with that release"
            )
        head = self._struct(Head, HEAD, content)
        if head.records not in (REPEATING, RECORDS):
            raise BadBackup(
                f"{self._path} was written by Squall {head.squall}, with records of format {head.records}; this Squall reads"
                f" formats {REPEATING} and {RECORDS}: restore it with that release"
            )
        return head

    def _next(self) -> tuple[str, int]:
        data = self._exactly(BLOCK)
        if (found := parsed_header(data)) is None:
            before = self._members[-1].name
            raise self._damaged(f"what follows {before} is not a member that `squall backup` writes")
        return found

    def _content(self, name: str, size: int, keep: bool = True) -> bytes:
        """Read the content of a member; return it if it is to be kept."""
        if keep and size > MOST_JSON:
            raise self._damaged(f"{name} has {size:,} bytes, at most {MOST_JSON:,} are written")
        start, digest, kept = self._file.tell(), hashlib.sha256(), bytearray()
        left = size
        while left:
            piece = self._exactly(min(left, _PIECE))
            digest.update(piece)
            if keep:
                kept += piece
            left -= len(piece)
            self._progress(self._file.tell())
        if any(self._exactly(padding(size))):
            raise self._damaged(f"there is something between {name} and the next member")
        sha256 = digest.hexdigest()
        if sha256_in(name) not in (None, sha256):
            raise self._damaged(f"{name} has the SHA-256 {sha256}")
        self._members.append(BackupMember(name, size, sha256, start))
        return bytes(kept)

    def _end(self, content: bytes) -> None:
        """Check the last member, and that nothing but zeros follows."""
        if content != last_member(self._members[:-1]):
            raise self._damaged(f"{LAST} lists other members, or other contents")
        if self._exactly(MOST_ZEROS).strip(b"\0") or self._file.read(1):
            raise self._damaged("something follows its last member")

    def _exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            last = self._members[-1].name if self._members else "its first member"
            raise BadBackup(
                f"{self._path} is cut off: it ends after {self._file.tell():,} bytes, soon after {last}"
            )
        return data

    def _struct(self, kind: type[S], name: str, content: bytes) -> S:
        try:
            return read_exactly(kind, _json(content), _OPTIONAL)
        except (WrongValue, msgspec.ValidationError) as error:
            raise self._damaged(f"{name}: {error}") from error

    def _damaged(self, why: str) -> BadBackup:
        return BadBackup(f"{self._path} is damaged: {why}")


#: Fields that newer releases may add.
_OPTIONAL: Final = ("drained",)


def _json(content: bytes) -> dict[str, object]:
    """Return the object in a content; an empty one, which lacks all fields, for anything else."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
