"""Makes the certificates of a development server, with the `openssl` command: an authority, which signs one certificate for the
daemons, and one for the server at each of its starts.

`openssl` comes with the Java packages of Debian and Ubuntu, so hardly anyone must install it; keytool, which is part of Java,
cannot write a key that Python reads. Servers of one ensemble need one authority. Those that one user runs on one machine agree
by a folder that the first of them makes. Must not know: the server's configuration, where daemons find the files.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import structs

from squall.cluster.zookeeper.server import SERVER_FILE, NoServer
from squall.security.private_files import make_private_folder
from squall.security.zookeeper_tls import ClientFiles

_CA_KEY: Final = "ca.key"
_DAYS: Final = "3650"
_OPENSSL_SECS: Final = 60.0
_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_LEAF: Final = (
    "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
    "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
)
#: Extensions that suit the strict checks of Python 3.13 and newer.
_CONFIG: Final = f"""
[req]
distinguished_name=name
[name]
[authority]
basicConstraints=critical,CA:TRUE,pathlen:0
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash
[client]
{_LEAF}extendedKeyUsage=clientAuth
[server]
{_LEAF}extendedKeyUsage=serverAuth,clientAuth
subjectAltName="""


def make_certificates(folder: Path, hosts: Iterable[str], shared: Path | None = None) -> ClientFiles:
    """Make what is missing in a server's folder, and a new certificate for these names and addresses; return the files of
    daemons. shared: the folder by which the servers of an ensemble agree. Raises `NoServer` and `OSError`."""
    folder = folder.absolute()
    if not _is_made(folder):
        if shared is None:
            _make_authority(folder)
        else:
            _make_authority(shared)
            _copy(shared, folder)
    names = {"localhost", "127.0.0.1", "::1", *(host.strip("[]") for host in hosts)}
    files = ClientFiles.within(folder)
    with _Workshop(folder.parent, names) as workshop:
        workshop.sign("server", "server", folder)
        whole = workshop.place / "whole"
        parts = (workshop.place / "server.key", workshop.place / "server.pem", Path(files.ca))
        whole.write_text("".join(part.read_text() for part in parts))
        whole.chmod(0o600)
        os.replace(whole, folder / SERVER_FILE)
    return files


def _is_made(folder: Path) -> bool:
    return Path(ClientFiles.within(folder).ca).exists()


def _make_authority(folder: Path) -> None:
    """Make an authority and the daemons' certificate in a folder, unless it has them. If several servers try at once, one of
    them makes both."""
    if _is_made(folder):
        return
    make_private_folder(folder.parent)
    with _Workshop(folder.parent, ()) as workshop:
        place, made = workshop.place, workshop.place / "made"
        authority = (
            "req",
            "-x509",
            "-extensions",
            "authority",
            "-days",
            _DAYS,
            "-out",
            "ca.pem",
            "-keyout",
            _CA_KEY,
        )
        workshop.run(*authority, *_NEW_KEY, "-subj", f"/CN=development ZooKeeper {secrets.token_hex(8)}")
        workshop.sign("client", "squall", place)
        made.mkdir(0o700)
        for path in (*structs.astuple(ClientFiles.within(place)), str(place / _CA_KEY)):
            os.chmod(path, 0o600)
            shutil.move(path, made)
        try:
            os.rename(made, folder)
        except OSError:
            if not _is_made(folder):  # otherwise another server was faster
                raise


def _copy(source: Path, target: Path) -> None:
    beside = Path(tempfile.mkdtemp(dir=target.parent))
    shutil.copytree(source, beside, dirs_exist_ok=True)
    os.rename(beside, target)


class _Workshop:
    """A folder for one use of `openssl`, which is removed at the end."""

    def __init__(self, above: Path, names: Iterable[str]) -> None:
        self.place = Path(tempfile.mkdtemp(dir=above))  # of mode 0700
        kinds = {name: "IP" if _is_address(name) else "DNS" for name in names}
        text = ",".join(f"{kind}:{name}" for name, kind in sorted(kinds.items()))
        (self.place / "config").write_text(f"{_CONFIG}{text or 'DNS:localhost'}\n")

    def __enter__(self) -> _Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.place, ignore_errors=True)

    def sign(self, kind: str, subject: str, authority: Path) -> None:
        """Make a key and its certificate, <kind>.key and <kind>.pem, signed by the authority in a folder."""
        self.run("req", *_NEW_KEY, "-keyout", f"{kind}.key", "-out", "request", "-subj", f"/CN={subject}")
        self.run(
            "x509", "-req", "-in", "request", "-CA", str(authority / "ca.pem"), "-CAkey", str(authority / _CA_KEY),
            "-set_serial", f"0x{secrets.token_hex(16)}", "-days", _DAYS, "-extfile", "config", "-extensions", kind,
            "-out", f"{kind}.pem",
        )  # fmt: skip

    def run(self, action: str, *arguments: str) -> None:
        config = ("-config", "config") if action == "req" else ()
        try:
            done = subprocess.run(
                ["openssl", action, *config, *arguments],
                cwd=self.place,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_OPENSSL_SECS,
            )
        except FileNotFoundError:
            raise NoServer("--tls needs the `openssl` command to make certificates: install it") from None
        except subprocess.TimeoutExpired:
            raise NoServer(f"`openssl {action}` has not ended within {_OPENSSL_SECS:g} seconds") from None
        if done.returncode:
            raise NoServer(f"`openssl {action}` cannot make a certificate: {done.stderr.strip()[-500:]}")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
