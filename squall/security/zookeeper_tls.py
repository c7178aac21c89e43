"""TLS to ZooKeeper: the files by which a daemon proves to the servers who it is, and they to the daemon.

Without TLS, everyone who reaches ZooKeeper's port may connect. Credentials protect its nodes, but not the sessions of daemons,
whose passwords a stranger can compute. A site names the files by three options. The development server (`squall zookeeper
--tls`) makes them itself, and keeps them in its state directory and, for the daemons of the same user on the same machine, in a
folder beside the file with the credentials:

    $XDG_STATE_HOME or ~/.local/state, then squall/zookeepers/<host>_<port>.tls

Must not know: connections, how certificates are made, the options of commands.
"""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from squall.security.private_files import write_private
from squall.security.tls import BadCertificate, client_context, load_pair
from squall.security.zookeeper_credentials import addresses, user_place

CA: Final = "squall.zookeeper.tls.ca"
CERTIFICATE: Final = "squall.zookeeper.tls.certificate"
KEY: Final = "squall.zookeeper.tls.key"
#: What the name of a folder with a development server's files ends with.
SUFFIX: Final = ".tls"


class ClientFiles(msgspec.Struct, frozen=True):
    """The paths of a daemon's files: the certificates that it trusts, its own certificate, and the key of that."""

    ca: str
    certificate: str
    key: str

    @classmethod
    def within(cls, folder: Path) -> ClientFiles:
        """Return the paths of a development server's files in a folder."""
        return cls(*(str(folder.absolute() / name) for name in ("ca.pem", "client.pem", "client.key")))

    def context(self) -> ssl.SSLContext:
        """Read the files. The context trusts no certificates but theirs, and checks the names of servers. Raises
        `BadCertificate`."""
        context = client_context(self.ca, CA)
        load_pair(context, self.certificate, self.key, (CERTIFICATE, KEY))
        return context


def named_files(conf: Mapping[str, object]) -> ClientFiles | None:
    """Return the files that the settings name, None if they name none. All are read once, to check that they are valid. Raises
    `BadCertificate`."""
    given = {name: conf.get(name) for name in (CA, CERTIFICATE, KEY)}
    missing = [name for name, path in given.items() if not path]
    if len(missing) == len(given):
        return None
    if missing:
        there = " and ".join(name for name, path in given.items() if path)
        raise BadCertificate(f"{there} without {' and '.join(missing)}: TLS to ZooKeeper needs all three")
    files = ClientFiles(*map(str, given.values()))
    files.context()
    return files


def find_files(servers: str, environ: Mapping[str, str]) -> ClientFiles | None:
    """Return the files of development servers that this user started on this machine with TLS; None unless each of the
    `servers` (HOST:PORT,...) has such files, and all have the same."""
    folders = [_place(server, environ) for server in addresses(servers)]
    contents = {None if folder is None else _contents(ClientFiles.within(folder)) for folder in folders}
    if len(contents) != 1 or None in contents or (first := folders[0]) is None:
        return None
    return ClientFiles.within(first)


def publish(made: ClientFiles | None, address: str, environ: Mapping[str, str]) -> bool:
    """Put the files of a development server where daemons of this user find them, or remove earlier ones if the server has
    none; return whether daemons of this user find them. address: HOST:PORT of the server."""
    if (place := _place(address, environ)) is None:
        return False
    if made is None:
        shutil.rmtree(place, ignore_errors=True)
        return False
    target = ClientFiles.within(place)
    try:
        for source, file in zip(msgspec.structs.astuple(made), msgspec.structs.astuple(target)):
            write_private(file, Path(source).read_text().strip())
    except OSError:  # for example a home that is not writable
        return False
    return True


def _contents(files: ClientFiles) -> tuple[bytes, ...] | None:
    try:
        return tuple(Path(path).read_bytes() for path in msgspec.structs.astuple(files))
    except OSError:
        return None


def _place(address: str, environ: Mapping[str, str]) -> Path | None:
    place = user_place(address, environ)
    return None if place is None else place.with_name(f"{place.name}{SUFFIX}")
