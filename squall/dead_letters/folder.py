"""The dead letters of one topology on one host, as files of a folder: spout tasks add letters, their supervisor removes them.

```
<state>/letters/<topology>/
  <time>-<random>.letters   letters that were given up together
  <time>-<random>.acked     the same, if a dead-letter bolt acked each of them: they go first when the folder is full
  <time>-<random>.letters.damaged   a file with letters that cannot be read, as it was before letters were taken out of it
  resend/<task>-<id>.letters   a letter that a task emits again; removed when its tree is acked
  lock                      locked while letters are taken out of a file, or move to another one
```

A file is written and synced under a temporary name before it gets its name, with the folder, so that no name ever leads to half
a file. It is then only replaced as a whole, so there is no tail to be cut and no record of removals to be kept. Files have mode
0600, folders 0700. User code of the host can write here, so everything is read by `squall.guarded_files`, and no name leads out
of the folder. A letter may be in two files after a crash between two steps: both have its id, and readers take it once.
Must not know: spouts, supervisors, what values mean.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from squall import guarded_files
from squall.atomic_files import TEMPORARY, sync_folder, write_bytes
from squall.cluster.paths import quoted
from squall.dead_letters.contents import KeptLetter, decode, encode
from squall.guarded_files import DamagedFile, read_guarded
from squall.security.private_files import make_private_folder
from topology_api.errors import SquallError

KEPT: Final = ".letters"
ACKED: Final = ".acked"
DAMAGED: Final = ".damaged"
RESEND: Final = "resend"
LOCK: Final = "lock"
#: The most bytes of a file that is read.
MOST_BYTES: Final = 128 * 1024 * 1024
#: Seconds for which letters that cannot be read are kept.
DAMAGED_SECS: Final = 30 * 86_400.0
#: Disks give space to files in blocks of this size.
_BLOCK: Final = 4096
_NAME: Final = re.compile(r"[0-9]{1,16}-[0-9a-f]{8}(\.letters|\.acked)")
_RESEND_NAME: Final = re.compile(r"([0-9]{1,9})-([0-9a-f]{4,32})\.letters")
#: The ids of letters.
ID: Final = re.compile(r"[0-9a-f]{4,32}")
#: Seconds to wait for the lock, and between two tries.
_PATIENCE: Final = 2.0
_PAUSE: Final = 0.01
_LONGEST_NAME: Final = 180


class LettersBusy(SquallError):
    """Another process changes the files at the moment."""


class LetterFile(msgspec.Struct, frozen=True):
    """A file of letters. `stamp` changes with its content."""

    name: str
    size: int
    stamp: tuple[int, int]

    @property
    def acked(self) -> bool:
        """Whether a dead-letter bolt acked every letter in it."""
        return self.name.endswith(ACKED)


def folder_name(topology: str) -> str:
    """Return the name of the folder for the letters of a topology."""
    text = quoted(topology)
    if len(text) <= _LONGEST_NAME:
        return text
    import hashlib  # rare: a worker starts faster without it

    return f"{text[:_LONGEST_NAME]}-{hashlib.sha256(topology.encode()).hexdigest()[:32]}"


class LetterFolder:
    """The files of one topology's letters. Several processes use the folder at the same time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # Adding

    def add(self, letters: Collection[KeptLetter], now: float, acked: bool = False) -> str:
        """Write letters into a new file, and return its name when they are on the disk. Raises `OSError`."""
        make_private_folder(self.path)
        import secrets  # rare: a worker starts faster without it

        name = f"{int(now * 1000)}-{secrets.token_hex(4)}{ACKED if acked else KEPT}"
        write_bytes(self.path, name, encode(letters), 0o600, durable=True)
        # The first letter of a topology made its folder, and the first of a host the one above.
        sync_folder(self.path.parent)
        sync_folder(self.path.parent.parent)
        return name

    def add_resend(self, task: int, kept: KeptLetter) -> None:
        """Hand a letter over to a task, which emits it again. A letter that it has already is replaced. Raises `OSError`."""
        folder = self.path / RESEND
        make_private_folder(folder)
        write_bytes(folder, _resend_name(task, kept.letter.id), encode([kept]), 0o600, durable=True)
        sync_folder(self.path)

    # Reading

    def files(self) -> list[LetterFile]:
        """Return the files of letters, the oldest first."""
        return sorted(
            _files(self.path, _NAME), key=lambda file: (int(file.name.partition("-")[0]), file.name)
        )

    def resends(self) -> list[tuple[int, str, LetterFile]]:
        """Return (task, id, file) of the letters that tasks are emitting again."""
        found = []
        for file in _files(self.path / RESEND, _RESEND_NAME):
            match = _RESEND_NAME.fullmatch(file.name)
            assert match is not None
            found.append((int(match[1]), match[2], file))
        return found

    def read(self, name: str) -> tuple[list[KeptLetter], str]:
        """Return the letters of a file, and what is wrong with the file ("": nothing)."""
        return _read(self.path / name, name.endswith(ACKED))

    def read_resend(self, task: int, id: str) -> KeptLetter | None:
        """Return a letter that a task is emitting again; None if it is not there, or its file is damaged."""
        found, _ = _read(self.path / RESEND / _resend_name(task, id), acked=False)
        return found[0] if found and found[0].letter.id == id else None

    def used(self) -> int:
        """Return how many bytes of the disk the letters take."""
        sizes = [file.size for file in (*self.files(), *(file for *_, file in self.resends()))]
        return sum(map(on_disk, sizes))

    # Removing

    def remove_resend(self, task: int, id: str) -> None:
        """Remove a letter that a task need not emit again."""
        with suppress(FileNotFoundError):
            os.unlink(self.path / RESEND / _resend_name(task, id))

    def remove_acked(self, size: int) -> None:
        """Remove the oldest files whose letters a dead-letter bolt has acked, until `size` bytes are free."""
        for file in self.files():
            if size <= 0:
                return
            if file.acked:
                self.remove(file.name)
                size -= on_disk(file.size)

    def remove(self, name: str) -> None:
        """Remove a file."""
        with suppress(FileNotFoundError):
            os.unlink(self.path / name)

    def mark_acked(self, name: str, acked: Collection[str]) -> None:
        """Note that a dead-letter bolt has acked these letters of a file, and none of its others. Raises `SquallError` if the
        file is damaged, and `OSError`."""
        with self.locked():
            letters, damage = self.read(name)
            if damage:  # the files that are marked go first, and what is behind the damage is not acked
                raise SquallError(damage)
            done = [each for each in letters if each.letter.id in acked]
            left = [each for each in letters if each.letter.id not in acked]
            if not left:
                with suppress(FileNotFoundError):
                    os.rename(self.path / name, self.path / name.replace(KEPT, ACKED))
                return
            if done:
                began = int(name.partition("-")[0]) / 1000
                self.add(done, began, acked=True)
                self._replace(name, left)

    def take_letters(self, name: str, wanted: Callable[[KeptLetter], bool]) -> list[KeptLetter]:
        """Remove letters from a file, and return them. A damaged file is kept as it was, under another name. To be called with
        the folder locked. Raises `OSError`."""
        letters, damage = self.read(name)
        taken = [each for each in letters if wanted(each)]
        if taken and damage:
            with suppress(FileExistsError):  # the rest of an earlier damage is there already
                os.link(self.path / name, self.path / f"{name}{DAMAGED}", follow_symlinks=False)
        if taken and len(taken) == len(letters):
            self.remove(name)
        elif taken:
            self._replace(name, [each for each in letters if not wanted(each)])
        return taken

    def change_letters(self, name: str, changed: Callable[[KeptLetter], KeptLetter]) -> None:
        """Change letters of a file. To be called with the folder locked. Raises `SquallError` if the file is damaged, and
        `OSError`."""
        letters, damage = self.read(name)
        after = [changed(each) for each in letters]
        if after == letters:
            return
        if damage:
            raise SquallError(damage)
        self._replace(name, after)

    def _replace(self, name: str, letters: Iterable[KeptLetter]) -> None:
        write_bytes(self.path, name, encode(letters), 0o600, durable=True)

    def sweep(self) -> None:
        """Remove what killed processes have left, damaged files after their time, and folders that are empty."""
        for folder in (self.path / RESEND, self.path):
            for name in _names(folder):
                old = {TEMPORARY: 3600.0, DAMAGED: DAMAGED_SECS}.get(Path(name).suffix)
                if old is not None and _is_older(folder / name, old):
                    with suppress(OSError):
                        os.unlink(folder / name)
        if not self.files() and not self.resends():
            with suppress(OSError):  # not empty, or just used again
                os.unlink(self.path / LOCK)
            for folder in (self.path / RESEND, self.path):
                with suppress(OSError):
                    folder.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other changes of its files. Raises `LettersBusy` if another process holds the lock for long,
        and `OSError`."""
        make_private_folder(self.path)
        try:
            descriptor = guarded_files.open_to_change(self.path / LOCK, 0o600)
        except DamagedFile as error:
            raise LettersBusy(str(error)) from None
        try:
            end = time.monotonic() + _PATIENCE
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= end:
                        text = (
                            f"the dead letters in {self.path} are being changed by another process: try again"
                        )
                        raise LettersBusy(text) from None
                    time.sleep(_PAUSE)
            yield
        finally:
            os.close(descriptor)


def on_disk(size: int) -> int:
    """Return the space that a file of `size` bytes takes on the disk."""
    return -(-size // _BLOCK) * _BLOCK


def _resend_name(task: int, id: str) -> str:
    if not ID.fullmatch(id):
        raise SquallError(f"{id!r:.80} is no id of a dead letter")
    return f"{task}-{id}{KEPT}"


def _read(path: Path, acked: bool) -> tuple[list[KeptLetter], str]:
    try:
        data = read_guarded(path, MOST_BYTES)
    except DamagedFile as error:
        return [], str(error)
    if data is None:
        return [], ""
    letters, damage = decode(data)
    if acked:
        letters = [msgspec.structs.replace(each, letter=replace(each.letter, acked=True)) for each in letters]
    sound = [each for each in letters if ID.fullmatch(each.letter.id)]
    if len(sound) < len(letters):
        damage = damage or "a letter without an id"
    return sound, f"{path}: {damage}" if damage else ""


def _files(folder: Path, names: re.Pattern[str]) -> list[LetterFile]:
    found = []
    for name in _names(folder):
        if names.fullmatch(name):
            with suppress(OSError):
                state = os.lstat(folder / name)
                found.append(LetterFile(name, state.st_size, (state.st_mtime_ns, state.st_ino)))
    return found


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # missing; or user code has replaced it
        return []


def _is_older(path: Path, secs: float) -> bool:
    """Whether a file was changed so long ago: no process can still be writing it, or it is kept no longer."""
    return time.time() - path.lstat().st_mtime > secs
