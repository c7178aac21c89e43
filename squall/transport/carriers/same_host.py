"""Unix sockets for workers on one host, in a folder of the workers' user, in addition to the published TCP endpoints.

A worker's published address has only its TCP endpoints. The name of its Unix socket follows from the TCP endpoint, the
topology's key and the network namespace, so a peer can compute it. A peer that knows the worker by a different endpoint (a
proxy's) does not find the socket. Before a peer uses the socket, it checks that

- the folder, `/tmp/squall-<user id>`, is of mode 0700 and belongs to this user: no other user can create files there;
- the socket exists, and a process under the same kernel listens on it. The peer tries to connect a socket of a different type
  (datagrams), which does not disturb the listener: the error is "wrong type" if a process listens, and "refused" if the
  listener has ended, or if the folder is shared with another host.

In every other case (a different container, a different user, files that were removed or cannot be created) peers use TCP; this
needs no setting and no waiting. A worker that is killed leaves its sockets behind; `sweep` removes sockets without a listener.
The folder does not depend on TMPDIR, since TMPDIR may differ between peers, and a Unix socket's path has at most 107 bytes.
Must not know: ZeroMQ, which worker connects to which.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import socket
import stat
from collections.abc import Callable
from typing import Final

from squall.values import Keys

#: Short, so that the path of a socket has at most 64 bytes; all systems accept at least 103 (macOS).
_ROOT: Final = "/tmp"


def folder() -> str:
    """Return the folder of this user's sockets."""
    return os.path.join(_ROOT, f"squall-{os.geteuid()}")


def listen(keys: Keys | None, endpoint: str, bind: Callable[[str], object]) -> None:
    """Bind the Unix socket of the worker with that TCP endpoint, by calling `bind`. Raises `OSError` if the folder cannot be
    created or belongs to another user, and any error of `bind`.
    """
    for last in (False, True):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder(), 0o700)
        if not _is_ours():
            raise PermissionError(f"{folder()} is not private to this user")
        try:
            bind(f"ipc://{path_of(keys, endpoint)}")
            return
        except Exception:
            if last or os.path.exists(folder()):
                raise  # if the folder is gone, another worker has removed it: try again


def path_of(keys: Keys | None, endpoint: str) -> str:
    """Return the socket path of the worker with that TCP endpoint, in the topology with those keys."""
    names = "\n".join(("" if keys is None else keys.public, _network(), endpoint))
    return os.path.join(folder(), f"{_host()}-{_digest(names, 32)}")


def nearest(keys: Keys | None, endpoint: str) -> str:
    """Return the endpoint to connect to: the worker's Unix socket if it can be reached, else the given endpoint."""
    path = path_of(keys, endpoint)
    return f"ipc://{path}" if _is_ours() and _state(path) == errno.EPROTOTYPE else endpoint


def sweep() -> None:
    """Remove the sockets of this host that have no listener, and the folder if it is empty."""
    if not _is_ours():
        return
    with contextlib.suppress(OSError):
        # If another host shares the folder, this host cannot know which of that host's sockets are in use.
        mine = [entry.path for entry in os.scandir(folder()) if entry.name.startswith(f"{_host()}-")]
        for path in mine:
            # A socket that is just being created may look dead and be removed: then the peers of its worker use TCP.
            if _state(path) == errno.ECONNREFUSED:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        os.rmdir(folder())  # fails if the folder is not empty, because other workers run


def _is_ours() -> bool:
    try:
        found = os.lstat(folder())
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _state(path: str) -> int:
    """Return the errno with which a connection of the wrong type fails at this path, or 0."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trial:
            trial.connect(path)
    except OSError as error:
        return error.errno or 0
    return 0  # the socket takes datagrams, so it is not a worker's


def _host() -> str:
    return _digest(platform.node(), 8)


def _network() -> str:
    """Return the id of this network namespace: in a different namespace, the same endpoint is a different worker."""
    try:
        return str(os.stat("/proc/self/ns/net").st_ino)
    except OSError:  # only Linux has network namespaces
        return ""


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
