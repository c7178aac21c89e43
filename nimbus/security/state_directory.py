"""The state directory of a Nimbus: its identity, and what it keeps over a restart.

```
<state>/lock        held while a Nimbus runs with this directory: two would have one identity
<state>/id          its id
<state>/key         its key pair (mode 0600)
<state>/cluster     the id of the cluster that it belongs to
<state>/token       the operators' token (mode 0600), unless squall.token.file names a different place
<state>/files/      the files of topologies, by their SHA-256
<state>/counters/   what topologies have counted
```
Must not know: what the parts are used for.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import socket
from pathlib import Path

from squall.atomic_files import write_bytes
from squall.security.sealing import KeyPair
from topology_api.errors import SquallError

_ID = re.compile(r"[\w.-]{1,100}")


class BadStateDirectory(SquallError):
    """A state directory that cannot be used."""


class StateDirectory:
    """A state directory that belongs to this process until `close`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BadStateDirectory(
                f"the state directory {directory} cannot be used: {error.strerror}"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise BadStateDirectory(
                f"another Nimbus uses the state directory {directory}: give this Nimbus its own with --state"
            ) from None
        try:
            self.id = self._own_id()
            self.pair = KeyPair.load_or_make(directory / "key")
        except OSError as error:
            self.close()
            raise BadStateDirectory(f"the state directory {directory} cannot be used: {error}") from error
        except BaseException:
            self.close()
            raise

    @property
    def cluster(self) -> str | None:
        """The id of the cluster that this Nimbus belongs to; None if it never belonged to one."""
        try:
            return (self.directory / "cluster").read_text(encoding="utf-8", errors="replace").strip() or None
        except FileNotFoundError:
            return None

    def remember_cluster(self, cluster_id: str | None) -> None:
        """Store the id of the cluster that this Nimbus belongs to; None: it belongs to none."""
        path = self.directory / "cluster"
        if cluster_id is None:
            path.unlink(missing_ok=True)
        elif cluster_id != self.cluster:
            write_bytes(self.directory, "cluster", f"{cluster_id}\n".encode())

    def close(self) -> None:
        """Release the directory."""
        os.close(self._lock)

    def _own_id(self) -> str:
        path = self.directory / "id"
        try:
            text = path.read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            host = re.sub(r"[^\w.-]", "-", socket.gethostname())[:60] or "host"
            text = f"nimbus-{host}-{secrets.token_hex(4)}"
            write_bytes(self.directory, "id", f"{text}\n".encode())
        if _ID.fullmatch(text) is None:
            raise BadStateDirectory(
                f"{path} does not hold the id of a Nimbus: remove it, and this Nimbus gets a new id"
            )
        return text
