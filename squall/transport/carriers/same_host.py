"""Where workers on one host meet: Unix sockets in a folder of their user's, beside the TCP endpoints that everybody knows.

A worker's address stays its TCP endpoints, and nothing else is told of it. The name of a socket follows from the endpoint, the
topology's key and the network namespace, so a peer works it out by itself, and one that knows the worker by another endpoint
(a proxy's) does not find it. The peer takes it only if it can reach it at this moment, by its own look:

- the folder, `/tmp/squall-<user id>`, is of mode 0700 and belongs to its user: nobody else can put anything there;
- a socket is there, and some process under this very kernel listens on it. Connecting a socket of another type (datagrams)
  tells that without the listener's noticing: "wrong type" if there is one, "refused" if its process is over, or if the folder
  is shared with another host.

Everything else (another container, another user, files removed or not to be made) means TCP, without a setting and without a
wait. A worker that is killed leaves its sockets behind; `sweep` removes all that nobody listens on.
The folder is not where TMPDIR says: peers may have different ones, and a Unix socket's path may have only 107 bytes.
Must not know: ZeroMQ, who speaks to whom.
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

from squall.worker_files import Keys

#: The path of a socket has at most 64 bytes by it: systems take 103 (macOS) and more.
_ROOT: Final = "/tmp"


def folder() -> str:
    """Where this user's workers meet."""
    return os.path.join(_ROOT, f"squall-{os.geteuid()}")


def listen(keys: Keys | None, endpoint: str, bind: Callable[[str], object]) -> None:
    """Bind the socket of the worker that is known by a TCP endpoint, by `bind`. `OSError`: the folder cannot be made, or is
    somebody else's; and what `bind` raises."""
    for last in (False, True):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder(), 0o700)
        if not _is_ours():
            raise PermissionError(f"{folder()} is not a folder of this user's alone")
        try:
            bind(f"ipc://{path_of(keys, endpoint)}")
            return
        except Exception:
            if last or os.path.exists(folder()):
                raise  # else somebody has removed the folder meanwhile, since it was empty


def path_of(keys: Keys | None, endpoint: str) -> str:
    """The socket of a worker of the topology with those keys, which is known by that TCP endpoint."""
    names = "\n".join(("" if keys is None else keys.public, _network(), endpoint))
    return os.path.join(folder(), f"{_host()}-{_digest(names, 32)}")


def nearest(keys: Keys | None, endpoint: str) -> str:
    """The endpoint to connect to for a worker: its socket here if it can be reached, else the one that was given."""
    path = path_of(keys, endpoint)
    return f"ipc://{path}" if _is_ours() and _state(path) == errno.EPROTOTYPE else endpoint


def sweep() -> None:
    """Remove the sockets of this host that no process listens on any more, and the folder if it is empty."""
    if not _is_ours():
        return
    with contextlib.suppress(OSError):
        for path in _sockets():
            # One that was made this very microsecond may look dead: its worker's peers come over TCP then.
            if _state(path) == errno.ECONNREFUSED:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        os.rmdir(folder())  # not empty: others live


def _sockets() -> list[str]:
    """Those of this host: of another one, with which the folder is shared, nobody can tell here who lives."""
    mine = f"{_host()}-"
    return [entry.path for entry in os.scandir(folder()) if entry.name.startswith(mine)]


def _is_ours() -> bool:
    try:
        found = os.lstat(folder())
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _state(path: str) -> int:
    """What the system says to somebody who asks for the wrong type of connection."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trial:
            trial.connect(path)
    except OSError as error:
        return error.errno or 0
    return 0  # it takes datagrams: none of ours


def _host() -> str:
    return _digest(platform.node(), 8)


def _network() -> str:
    """Which network namespace this is: the same endpoint is another worker in another one."""
    try:
        return str(os.stat("/proc/self/ns/net").st_ino)
    except OSError:  # only Linux has them
        return ""


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
