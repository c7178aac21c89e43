"""A supervisor's identity in its state directory: its id, key pair and cluster, and the lock on the directory.

```
<state>/lock       holds the pid of the process that uses the directory; that process locks this file and the directory
<state>/id         the supervisor's id, made from its host's name at its first start
<state>/key        its key pair, mode 0600
<state>/cluster    the id of its cluster: the first one that it saw
```

Must not know: what a supervisor does.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from squall.cluster import identity
from squall.cluster.store import Store
from squall.security.sealing import KeyPair
from supervisor.directories import make_directory
from topology_api.errors import SquallError

LOCK: Final = "lock"
ID: Final = "id"
KEY: Final = "key"
CLUSTER: Final = "cluster"
_LONGEST_ID: Final = 120
#: Seconds to wait for a lock that is held.
_PATIENCE: Final = 2.0


class BadSupervisorState(SquallError):
    """A state directory that cannot be used."""


class StateLock:
    """Locks a state directory; raises `BadSupervisorState` if another process holds it.

    It locks both the lock file, which names the holder, and the directory: if the file is deleted, another process could create
    and lock it while this one runs.
    """

    def __init__(self, state: Path) -> None:
        self._descriptors: list[int] = []
        try:
            make_directory(state)
            directory = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._descriptors.append(directory)
            file = os.open(state / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._descriptors.append(file)
            free = _taken(file)
        except OSError as error:
            self.release()
            raise BadSupervisorState(
                f"the state directory {state} cannot be used (--state): {error}"
            ) from error
        with suppress(OSError):  # a network file system may not lock directories: the file is enough
            free = free and _taken(directory)
        if not free:
            owner = os.pread(file, 32, 0).decode(errors="replace").strip()
            self.release()
            by = f"process {owner}" if owner else f"another process (its {state / LOCK} was removed)"
            raise BadSupervisorState(
                f"the state directory {state} is in use by {by}: give each supervisor its own with --state DIR"
            )
        with suppress(OSError):  # a full disk: the pid is for people, nothing depends on it
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Unlock the directory."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> StateLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def _taken(descriptor: int) -> bool:
    """Lock a descriptor. The children of a process that was just killed may hold the lock for a moment."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)


def own_id(state: Path, host: str) -> str:
    """Return the id in a state directory; create it if it is missing."""
    path = state / ID
    try:
        found = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", host).strip("-")[:_LONGEST_ID] or "supervisor"
        found = f"{name}-{secrets.token_hex(4)}"
        _write(path, found)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSupervisorState(f"{path} cannot be read: {error}") from error
    if not found or len(found) > _LONGEST_ID + 9 or not re.fullmatch(r"[\w.-]+", found):
        raise BadSupervisorState(
            f"{path} holds {found!r:.80} instead of an id: restore it, or remove it, which makes this another supervisor"
        )
    return found


def own_keys(state: Path) -> KeyPair:
    """Return the key pair in a state directory; create it if it is missing."""
    return KeyPair.load_or_make(state / KEY)


class KnownCluster:
    """The cluster of a supervisor: the first that it saw."""

    def __init__(self, state: Path, check: Callable[[Store, str | None], str] = identity.check) -> None:
        self._path = state / CLUSTER
        self._check = check
        try:
            self._id: str | None = self._path.read_text(encoding="utf-8").strip() or None
        except FileNotFoundError:
            self._id = None
        except (OSError, UnicodeDecodeError) as error:
            raise BadSupervisorState(f"{self._path} cannot be read: {error}") from error

    def forget(self) -> None:
        """Accept the next cluster that the store holds."""
        self._path.unlink(missing_ok=True)
        self._id = None

    def admit(self, store: Store) -> None:
        """Raise `OtherCluster` if the store holds another cluster, or holds none although this supervisor knows one."""
        found = self._check(store, self._id)
        if found and found != self._id:
            _write(self._path, found)
            self._id = found


def _write(path: Path, text: str) -> None:
    """Write a file atomically."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(f"{text}\n", encoding="utf-8")
    beside.rename(path)
