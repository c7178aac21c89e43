"""Makes, checks and unpacks archives of a topology's files (modules, data files, wheels).

An archive is a gzipped tar of regular files. The same files give the same bytes, so an archive's SHA-256 is its name
everywhere, and an archive that the receiver already has is not sent again. A receiver trusts nothing in an archive: `check`
reads all of the archive, within limits, before the receiver keeps it; `unpack` checks it again, and writes only new regular
files (mode 0644 or 0755) into a folder that was empty.

    sha256 = pack({"my_topology.py": Path("my_topology.py"), "data/words.txt": b"..."}, target)
    contents = check(target, limit, unpacked_limit)          # raises BadArchive, which names the faulty member
    unpack(target, folder, limit, unpacked_limit)

This module never imports or runs the contents of an archive.
Must not know: what the files are, where archives are kept.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from squall.packages.tar_members import MOST_MEMBERS, BadArchive, Member, Members, Names, name_problem

__all__ = ["BadArchive", "Contents", "Member", "check", "digest_of", "pack", "unpack"]

READ: Final = 1024 * 1024
FILE_MODE, PROGRAM_MODE = 0o644, 0o755


class Contents(msgspec.Struct, frozen=True):
    """The contents of an archive: its files in order, and their total size in bytes."""

    members: tuple[Member, ...]
    size: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)


def pack(files: Mapping[str, Path | bytes], target: Path) -> str:
    """Write an archive and return its SHA-256. `files`: name in the archive -> the data, or the path of a file with the data.

    Links are followed: their targets are packed. Raises BadArchive for a name that `check` would refuse, and for a source that
    is not a regular file.
    """
    if len(files) > MOST_MEMBERS:
        raise BadArchive(f"it would have {len(files):,} members: more than {MOST_MEMBERS:,}, the limit")
    names = Names()
    with (
        open(target, "wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(files):
            if (problem := name_problem(name)) is not None:
                raise BadArchive(problem, name)
            names.add_file(name)
            _add(tar, name, files[name])
    return digest_of(target)


def _add(tar: tarfile.TarFile, name: str, source: Path | bytes) -> None:
    member = tarfile.TarInfo(name)  # time 0, owner 0
    if isinstance(source, bytes):
        member.size, member.mode = len(source), FILE_MODE
        tar.addfile(member, io.BytesIO(source))
        return
    with _regular(source, name) as file:
        status = os.fstat(file.fileno())
        member.size = status.st_size
        member.mode = PROGRAM_MODE if status.st_mode & stat.S_IXUSR else FILE_MODE
        try:
            tar.addfile(member, file)
        except OSError as error:
            if error.errno is None:  # tarfile's own error: the file ended before the announced size
                raise BadArchive(f"{source} became shorter while it was read", name) from None
            raise


def _regular(path: Path, name: str) -> BinaryIO:
    """Return a regular file opened for reading. It is opened in non-blocking mode: opening a named pipe would otherwise wait
    for a writer."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise BadArchive(f"{path} is not a regular file", name)
    return os.fdopen(number, "rb")


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, as hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(READ):
            digest.update(piece)
    return digest.hexdigest()


def check(path: Path, limit: int, unpacked_limit: int) -> Contents:
    """Return the contents of an archive; raise BadArchive if it is invalid, larger than `limit`, or larger than
    `unpacked_limit` when unpacked.
    """
    with _opened(path, limit) as file:
        members = tuple(Members(file, unpacked_limit))
    return Contents(members, sum(member.size for member in members))


def unpack(path: Path, directory: Path, limit: int, unpacked_limit: int) -> Contents:
    """Write an archive's files into a directory, which must be empty or missing; raise BadArchive in the same cases as `check`,
    before anything is written. After an OSError (a full disk), or if the file system treats two names as one (BadArchive), the
    directory has only a part of the files: unpack into a temporary directory and rename it."""
    contents = check(path, limit, unpacked_limit)
    directory.mkdir(exist_ok=True)
    if any(directory.iterdir()):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(directory))
    with _opened(path, limit) as file:
        members = Members(file, unpacked_limit)
        for member in members:
            target = directory / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            _write(target, member, members)
    return contents


def _write(target: Path, member: Member, members: Members) -> None:
    mode = PROGRAM_MODE if member.executable else FILE_MODE
    try:
        number = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except FileExistsError:  # a file system may treat two names as one
        raise BadArchive("its name is another member's on this file system", member.name) from None
    with os.fdopen(number, "wb") as file:
        os.fchmod(number, mode)  # regardless of the umask
        for piece in members.data():
            file.write(piece)


def _opened(path: Path, limit: int) -> BinaryIO:
    file = open(path, "rb")  # noqa: SIM115 - the caller closes it
    if (size := os.fstat(file.fileno()).st_size) > limit:
        file.close()
        raise BadArchive(f"it has {size:,} bytes, but at most {limit:,} are allowed")
    return file
