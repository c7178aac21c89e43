"""ZooKeeper's credentials: a user and a password, in a file of mode 0600 with one line USER:PASSWORD.

A site names the file by `squall.zookeeper.credentials.file`. The development server (`squall zookeeper`) makes credentials
itself, and keeps them in its state directory and, for the daemons of the same user, in a file that is named after its address:

    $XDG_STATE_HOME or ~/.local/state, then squall/zookeepers/<host>_<port>

ZooKeeper does not know the credentials of its clients: it only compares them with those of the client that made a node. So the
servers of one ensemble need the same credentials. Those that one user runs on one machine agree by a file that is named after
the ensemble, which the first of them makes.
Must not know: connections, the options of commands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from squall.security.private_files import BadPrivateFile, make_private, read_private, write_private
from squall.security.tokens import place_name, state_home

OPTION: Final = "squall.zookeeper.credentials.file"
#: The file in the state directory of `squall zookeeper`.
FILE: Final = "credentials"
USER: Final = "squall"

UserAndPassword = tuple[str, str]

_WHAT: Final = "ZooKeeper's credentials"


def read_credentials(path: Path) -> UserAndPassword | None:
    """Return the user and the password in a file; None if there is no file. Raises `BadPrivateFile`."""
    if (text := read_private(path, _WHAT)) is None:
        return None
    user, colon, password = text.partition(":")
    if not (colon and user and password) or "\n" in text:
        raise BadPrivateFile(f"{path} does not contain {_WHAT}: one line USER:PASSWORD")
    return user, password


def read_named_credentials(path: Path) -> UserAndPassword:
    """Return the user and the password in the file that the site names. Raises `BadPrivateFile`, also if there is no file."""
    if (found := read_credentials(path)) is None:
        raise BadPrivateFile(f"{OPTION} names {path}, and there is no such file: copy {_WHAT} there")
    return found


def find_credentials(servers: str, environ: Mapping[str, str]) -> UserAndPassword | None:
    """Return the credentials of development servers that this user started on this machine; None unless each of the `servers`
    (HOST:PORT,...) has credentials, and all have the same. Raises `BadPrivateFile`."""
    places = [user_place(server, environ) for server in addresses(servers)]
    found = {None if place is None else read_credentials(place) for place in places}
    return found.pop() if len(found) == 1 else None


def make_credentials(
    state: Path, address: str, ensemble: Sequence[str], environ: Mapping[str, str]
) -> tuple[Path, bool]:
    """Make the credentials of a development server, unless there are some from an earlier start, and put them where daemons of
    this user find them. Return the file in `state`, the server's state directory, and whether daemons of this user find them.

    address: HOST:PORT of the server. ensemble: the addresses of its ensemble, if it has one. Raises `BadPrivateFile` and
    `OSError`.
    """
    own = state / FILE
    if read_credentials(own) is None:
        shared = shared_place(ensemble, environ)
        if shared is not None:
            make_private(shared, _new())
        known = None if shared is None else read_credentials(shared)
        make_private(own, _new() if known is None else ":".join(known))
    text = ":".join(read_named_credentials(own))
    if (place := user_place(address, environ)) is None:
        return own, False
    try:
        write_private(place, text)
    except OSError:  # for example a home that is not writable
        return own, False
    return own, True


def addresses(servers: str) -> list[str]:
    """Return the servers in a list HOST:PORT,... which may end with a path in ZooKeeper."""
    return [server.strip() for server in servers.partition("/")[0].split(",")]


def _new() -> str:
    import secrets  # not at the top: commands that only read start faster

    return f"{USER}:{secrets.token_urlsafe(24)}"


def _home(environ: Mapping[str, str]) -> Path | None:
    home = state_home(environ)
    return None if home is None else home / "squall" / "zookeepers"


def shared_place(ensemble: Sequence[str], environ: Mapping[str, str]) -> Path | None:
    """Return the file by which the servers of an ensemble on this machine agree; None without an ensemble, and for a user
    without a home."""
    home = _home(environ)
    if home is None or not ensemble:
        return None
    return home / f"ensemble_{hashlib.sha256(','.join(ensemble).encode()).hexdigest()[:16]}"


def user_place(address: str, environ: Mapping[str, str]) -> Path | None:
    """Return the file in which this user keeps the credentials of the server at HOST:PORT; None for a user without a home."""
    name, home = place_name(f"zookeeper://{address}"), _home(environ)
    return None if name is None or home is None else home / name
