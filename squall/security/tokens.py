"""The operators' token, by which Nimbus recognizes the command: its files on disk, and where the command looks for it.

The first Nimbus that leads makes the token, and shares it with the other Nimbuses (`nimbus.security.keyring`). Each Nimbus
writes the token to `squall.token.file` (or to its state directory), and to a file of its user that is named after the Nimbus's
URL:

    $XDG_STATE_HOME or ~/.local/state, then squall/tokens/<host>_<port>

so that commands of the same user find the token without an option. Only the owner can read these files. A file that others
may read is refused. No message and no error contains a token.
Must not know: who leads, HTTP, the store, which token a command sends where.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from squall.security.private_files import BadPrivateFile, read_private, write_private

VARIABLE: Final = "SQUALL_TOKEN_FILE"
OPTION: Final = "squall.token.file"
#: The file in the state directory of a Nimbus.
FILE: Final = "token"

_WHAT: Final = "the operators' token"
_PORTS: Final = {"http": 80, "https": 443, "zookeeper": 2181}
_SCHEME: Final = "bearer"


def make_token() -> str:
    """Return a new token: 256 random bits."""
    import secrets  # not at the top: a command that only reads a token starts faster

    return secrets.token_urlsafe(32)


def is_token(given: str, expected: str) -> bool:
    """Return whether two tokens are equal, compared in constant time."""
    import hmac

    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())


def bearer(token: str) -> str:
    """Return the value of the Authorization header."""
    return f"Bearer {token}"


def read_bearer(header: str) -> str | None:
    """Return the token in the value of an Authorization header; None if there is no token."""
    scheme, _, token = header.partition(" ")
    return token.strip() or None if scheme.lower() == _SCHEME else None


def kept_token(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the token in the user's file for the Nimbus at `url`; None if there is no file. Raises `BadPrivateFile` if the
    file cannot be used."""
    place = user_place(url, environ)
    return None if place is None else read_token(place)


def read_token(path: Path) -> str | None:
    """Return the token in a file; None if there is no file. Raises `BadPrivateFile` if the file cannot be used."""
    token = read_private(path, _WHAT)
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise BadPrivateFile(
            f"{_WHAT} is not taken from {path}: a token is one word of letters, digits and signs"
        )
    return token


def write_token(
    token: str, state: Path, urls: Iterable[str], environ: Mapping[str, str], site: Mapping[str, object]
) -> Path:
    """Write the token to the files in which commands look for it, unless the files hold it already; return the file whose path
    operators are shown.

    Raises `OSError` if the returned file cannot be written. The files of the user are a convenience: if one cannot be written,
    it is skipped.
    """
    named = site.get(OPTION)
    file = Path(str(named)) if named else state / FILE
    _put(file, token)
    for url in urls:
        if (place := user_place(url, environ)) is not None:
            with suppress(
                OSError
            ):  # for example a home that is not writable: the user is shown the file above
                _put(place, token)
    return file


def user_place(url: str, environ: Mapping[str, str]) -> Path | None:
    """Return the file in which this user keeps the token of the Nimbus at `url`; None if the user has no home, or there is no
    URL."""
    name, home = place_name(url), state_home(environ)
    return None if name is None or home is None else home / "squall" / "tokens" / name


def state_home(environ: Mapping[str, str]) -> Path | None:
    """Return the folder for the state of this user's programs; None for a user without a home."""
    above, home = (Path(environ.get(name) or "") for name in ("XDG_STATE_HOME", "HOME"))
    if above.is_absolute():  # the XDG specification says to ignore relative paths
        return above
    return home / ".local" / "state" if home.is_absolute() else None


def place_name(url: str) -> str | None:
    """Return the name of a user's file for the server at `url`, <host>_<port>; None if there is no URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    if not host or port is None:
        return None
    return f"{'localhost' if is_this_host(host) else quote(host, safe='')}_{port}"


def is_this_host(host: str) -> bool:
    """Return whether a host is this machine: a loopback name or address, or "all addresses", which include the loopback
    address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


def _put(file: Path, token: str) -> None:
    with suppress(BadPrivateFile):  # readable by others, or not a token: write it again
        if read_token(file) == token:
            return
    write_private(file, token)
