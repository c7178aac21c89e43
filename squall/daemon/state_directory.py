"""A daemon's state directory: the daemon's identity, which outlives its process, and the lock on the directory.

```
<state>/lock       holds the pid of the process that uses the directory; that process locks this file and the directory
<state>/id         the daemon's id, made at its first start
<state>/key        its key pair, mode 0600
<state>/cluster    the id of its cluster: the first cluster that it saw
```

A daemon may keep more in the directory. Must not know: what daemons do, what else they keep.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Literal

from squall.atomic_files import write_bytes
from squall.cluster import identity
from squall.cluster.store import Store
from squall.guarded_files import DamagedFile, open_to_change, read_guarded
from squall.security.private_files import BadPrivateFolder, own_folder
from squall.security.sealing import KeyPair
from topology_api.errors import SquallError

LOCK: Final = "lock"
ID: Final = "id"
KEY: Final = "key"
CLUSTER: Final = "cluster"
#: The most characters of an id.
_LONGEST_ID: Final = {"Nimbus": 100, "supervisor": 129}
#: The most bytes of a file with an id.
_MOST_TEXT: Final = 4096
#: Seconds to wait for a lock that is held.
_PATIENCE: Final = 2.0


class BadStateDirectory(SquallError):
    """A state directory that cannot be used."""


class StateDirectory:
    """A state directory that belongs to this process until `close`.

    It locks both the lock file, which names the holder, and the directory: if only the lock file were locked, it could be
    deleted, and a second process could create and lock a new one.
    """

    def __init__(self, directory: Path, daemon: Literal["Nimbus", "supervisor"], name: str) -> None:
        """`name`: the beginning of a new id. Raises `BadStateDirectory`, for example if another process holds the directory,
        and the errors of `KeyPair.load_or_make`."""
        self.directory = directory
        self._daemon = daemon
        with ExitStack() as held:
            try:
                own_folder(directory)
                self._lock(held)
                self.id = self._own_id(name)
                self.pair = KeyPair.load_or_make(directory / KEY)
                self.cluster = KnownCluster(directory)
            except (BadPrivateFolder, DamagedFile) as error:
                raise BadStateDirectory(f"the state directory cannot be used (--state): {error}") from None
            except OSError as error:
                raise BadStateDirectory(
                    f"the state directory {directory} cannot be used (--state): {error}"
                ) from error
            self._held = held.pop_all()

    def close(self) -> None:
        """Unlock the directory."""
        self._held.close()

    def _lock(self, held: ExitStack) -> None:
        file = open_to_change(self.directory / LOCK, 0o600)
        held.callback(os.close, file)
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held.callback(os.close, directory)
        free = _taken(file)
        with suppress(OSError):  # a network file system may not lock directories: the file is enough
            free = free and _taken(directory)
        if not free:
            owner = os.pread(file, 32, 0).decode(errors="replace").strip()
            by = f"process {owner}" if owner else "another process"
            raise BadStateDirectory(
                f"the state directory {self.directory} is in use by {by}: give this {self._daemon} its own with --state DIR"
            )
        with suppress(OSError):  # a full disk: the pid is for people, nothing depends on it
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)

    def _own_id(self, name: str) -> str:
        """Return the id in the directory; create it if it is missing."""
        found, longest = _text_in(self.directory / ID), _LONGEST_ID[self._daemon]
        if found is None:
            end = f"-{secrets.token_hex(4)}"
            start = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[: longest - len(end)]
            found = f"{start or self._daemon}{end}"
            write_bytes(self.directory, ID, f"{found}\n".encode(), durable=True)
        if len(found) > longest or not re.fullmatch(r"[\w.-]+", found):
            raise BadStateDirectory(
                f"{self.directory / ID} holds {found!r:.80} instead of an id: restore the file, or remove it,"
                f" which makes this a new {self._daemon}"
            )
        return found


class KnownCluster:
    """The cluster to which a daemon belongs: the first cluster that it saw."""

    def __init__(self, directory: Path) -> None:
        """`directory`: the state directory. Raises `OSError`."""
        self._directory = directory
        #: None: the daemon has not belonged to any cluster yet.
        self.id = _text_in(directory / CLUSTER) or None

    def admit(self, store: Store) -> None:
        """Raise `OtherCluster` if the store holds a different cluster, or none although the daemon belongs to a cluster."""
        self.remember(identity.check(store, self.id))

    def remember(self, cluster_id: str) -> None:
        """Store the id of the cluster. "" means that the cluster has no id yet; then this does nothing."""
        if cluster_id and cluster_id != self.id:
            write_bytes(self._directory, CLUSTER, f"{cluster_id}\n".encode(), durable=True)
            self.id = cluster_id

    def forget(self) -> None:
        """Forget the cluster, so that the daemon accepts the next one that the store holds."""
        (self._directory / CLUSTER).unlink(missing_ok=True)
        self.id = None


def _text_in(path: Path) -> str | None:
    """Return the text of a file without the line end; None if there is no such file. Raises `BadStateDirectory`."""
    try:
        data = read_guarded(path, _MOST_TEXT)
    except DamagedFile as error:
        raise BadStateDirectory(
            f"the state directory {path.parent} cannot be used (--state): {error}"
        ) from error
    return None if data is None else data.decode("utf-8", errors="replace").strip()


def _taken(descriptor: int) -> bool:
    """Lock a descriptor; return whether that succeeded. Wait for a moment if the lock is held: children of a process that was
    just killed may still hold it."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
