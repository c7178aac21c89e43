"""The files that are submitted with topologies (archives of modules and data, wheels, requirements), by their SHA-256.

Every Nimbus keeps the files of all topologies in one directory: `<directory>/<sha256>`. A file is received under a temporary
name and hashed as it arrives. It is renamed to its SHA-256 only when it is complete and the digest matches, so every file
with such a name is correct. A file that no topology needs is deleted after a time without requests for it.
Must not know: HTTP, which topologies need a file, the content of a file (`squall.packages` checks it).
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from squall.atomic_files import sync_folder
from squall.packages import archives
from squall.packages.travel_rules import MOST_REQUIREMENTS_BYTES, problem_of_requirements, problems_of_code
from topology_api.errors import SquallError

#: Each kind of file that may be submitted with a topology -> whether such a file is an archive.
KINDS: Final = {"code": True, "wheels": True, "requirements": False}
_INCOMING: Final = "incoming-"
_NAME: Final = re.compile(r"[0-9a-f]{64}")


class UnsoundFile(SquallError):
    """A file whose content does not match its name, or a name that is not a SHA-256."""


class FileTooLarge(SquallError):
    """A file over the site's limit."""


class NoSuchFile(SquallError):
    """A file that is not here."""


def checked_name(sha256: str) -> str:
    """Return the argument if it is a valid SHA-256, and so cannot be a path; raise `UnsoundFile` for anything else."""
    if _NAME.fullmatch(sha256) is None:
        raise UnsoundFile(f"{sha256!r:.80} is not a SHA-256: 64 digits of 0-9 and a-f")
    return sha256


class FileStore:
    """The files of one Nimbus. Every call may come from any thread."""

    def __init__(
        self, directory: Path, limit: int, unpacked_limit: int, clock: Callable[[], float] = time.time
    ) -> None:
        self.directory = directory
        self.limit = limit
        self.unpacked_limit = unpacked_limit
        self._now = clock
        self._lock = threading.Lock()
        self._sound: set[tuple[str, str]] = set()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in directory.glob(f"{_INCOMING}*"):
            left.unlink(missing_ok=True)  # a process that has ended left the file behind

    def path(self, sha256: str) -> Path:
        """Return the path of a file, which `collect` then keeps for a while; raise `NoSuchFile` if the file is missing."""
        path = self.directory / checked_name(sha256)
        # Without the lock, this touch could happen between `collect`'s check of the file's age and the deletion of the file.
        with self._lock:
            try:
                os.utime(path)
            except FileNotFoundError:
                raise NoSuchFile(f"there is no file {sha256} here") from None
        return path

    def has(self, sha256: str) -> bool:
        """Return whether a file is here."""
        return (self.directory / checked_name(sha256)).exists()

    def names(self) -> set[str]:
        """Return the SHA-256 of all files that are here."""
        return {path.name for path in self.directory.glob("*") if _NAME.fullmatch(path.name)}

    def receive(self, sha256: str) -> Incoming:
        """Start to receive a file with this SHA-256."""
        name = checked_name(sha256)
        # The directory may have been deleted meanwhile.
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Incoming(self.directory, name, self.limit)

    def check(self, kind: str, sha256: str) -> None:
        """Check that a file is valid for its kind. Raises `NoSuchFile`, `UnsoundFile` or `BadArchive` if it is not."""
        if kind not in KINDS:
            raise UnsoundFile(
                f"a topology can be submitted with files of the kinds {', '.join(KINDS)}, not {kind!r:.80}"
            )
        try:
            path = self.path(sha256)
        except NoSuchFile:
            raise NoSuchFile(f"this Nimbus lacks the {kind!r} file ({sha256}): send it first") from None
        with self._lock:
            if (kind, sha256) in self._sound:
                return
        check_content(kind, path, self.limit, self.unpacked_limit)
        with self._lock:
            self._sound.add((kind, sha256))

    def collect(self, in_use: Collection[str], older_than_secs: float) -> list[str]:
        """Remove files that are not in use and were not requested within the last `older_than_secs` seconds; return their
        names."""
        before = self._now() - older_than_secs
        removed = []
        for name in sorted(self.names() - set(in_use)):
            path = self.directory / name
            with self._lock, suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    path.unlink()
                    removed.append(name)
        with self._lock:
            self._sound = {each for each in self._sound if each[1] not in removed}
        return removed


class Incoming:
    """A file that is being received. Call `write` with its bytes, then `finish`; `close` deletes an unfinished file.

    It can be passed to `Client.get_file` as the target file; unlike an ordinary file, it cannot be rewound.
    """

    def __init__(self, directory: Path, sha256: str, limit: int) -> None:
        self._sha256 = sha256
        self._limit = limit
        self._digest = hashlib.sha256()
        self._size = 0
        self._target = directory / sha256
        self._path = directory / f"{_INCOMING}{secrets.token_hex(8)}"
        self._file: BinaryIO = open(self._path, "xb")  # noqa: SIM115 - open until the file is finished or abandoned

    def write(self, data: bytes) -> int:
        """Write the next bytes; raise `FileTooLarge` above the limit."""
        self._size += len(data)
        if self._size > self._limit:
            raise FileTooLarge(too_large(self._limit))
        self._digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        """Return the number of bytes received."""
        return self._size

    def seek(self, position: int) -> int:
        """Accept only the present position; raise OSError for any other."""
        if position != self._size:
            raise OSError("the connection broke off within the file")
        return position

    def truncate(self) -> int:
        """Do nothing, since there is never anything to cut off; return the number of bytes received."""
        return self._size

    def finish(self) -> int:
        """Put the complete file under its name, and return its size. Raises `UnsoundFile` if its digest is wrong."""
        if self._digest.hexdigest() != self._sha256:
            raise UnsoundFile(
                f"the {self._size} bytes received have the SHA-256 {self._digest.hexdigest()}, not {self._sha256}:"
                " the file was changed or cut off on the way"
            )
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._path, self._target)
        sync_folder(self._target.parent)
        return self._size

    def close(self) -> None:
        """Delete the received bytes. Does nothing after `finish`."""
        self._file.close()
        self._path.unlink(missing_ok=True)


def check_content(kind: str, path: Path, limit: int, unpacked_limit: int) -> None:
    """Check that a file is valid for its kind. `limit`, `unpacked_limit`: its most bytes, as it is and unpacked. Raises
    `UnsoundFile`, `FileTooLarge` or `BadArchive`."""
    if path.stat().st_size > limit:
        raise FileTooLarge(too_large(limit))
    if not KINDS[kind]:
        _check_requirements(path)
        return
    contents = archives.check(path, limit, unpacked_limit)
    if kind == "code":
        _check_code(contents.names)


def too_large(limit: int) -> str:
    """Return the message for a file over the limit."""
    return f"the file is larger than the {limit:,} bytes that Nimbus accepts (nimbus.package.limit.bytes)"


def _check_code(places: Collection[str]) -> None:
    problems = problems_of_code(places)
    if problems:
        first, *others = problems
        more = (f"; {place}: {problems[place]}" for place in others)
        raise archives.BadArchive("".join([problems[first], *more]), first)


def _check_requirements(path: Path) -> None:
    with open(path, "rb") as file:
        problem = problem_of_requirements(file.read(MOST_REQUIREMENTS_BYTES + 1))
    if problem is not None:
        raise UnsoundFile(f"the requirements are refused: {problem}")
