"""Prepares a ZooKeeper server on this machine, for development and tests: its jars, its configuration, its command line.
PySpark contains a complete ZooKeeper; the `lib` folder of any ZooKeeper release works too. The module keeps no state. Its
functions search the disk for jars and `java`, write the configuration, or ask a running server.
Must not know: who waits for the server, how it is ended.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from squall.atomic_files import write_bytes
from squall.security.private_files import make_private_folder
from squall.security.zookeeper_tls import ClientFiles
from topology_api.errors import SquallError

#: The file for TLS with the server's certificate and its key; the others are those of `ClientFiles`.
SERVER_FILE: Final = "server.pem"
JARS_VARIABLE: Final = "SQUALL_ZOOKEEPER_JARS"
#: The jars of PySpark that belong to ZooKeeper; loading all jars would take a second longer.
_FROM_PYSPARK: Final = (
    "zookeeper-3*", "zookeeper-jute*", "slf4j-api*", "log4j-slf4j2-impl*", "log4j-api*", "log4j-core*", "netty-*",
    "metrics-core*", "snappy-java*",
)  # fmt: skip
_ALONE: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
_ONE_OF_MANY: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_HELP: Final = (
    f"`pip install pyspark` brings the jars to this Python, or give the `lib` folder of a ZooKeeper release with --jars or "
    f"{JARS_VARIABLE}"
)


class NoServer(SquallError):
    """Something that a ZooKeeper server needs is not on this machine."""


class ServerPlan(msgspec.Struct, frozen=True):
    """How to start a server. It writes only into `folder`."""

    folder: Path
    host: str
    port: int
    number: int = 1
    #: HOST:PORT:PORT of each server of an ensemble, the first is number 1; empty for a single server.
    ensemble: Sequence[str] = ()
    tick_millis: int = 2000
    #: The folder with the files for TLS (`certificates`), which clients then must use; None: the server encrypts nothing.
    tls: Path | None = None
    #: Further lines of the configuration.
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def address(self) -> str:
        """The address at which clients reach the server."""
        return f"{self.host}:{self.port}"

    def write(self) -> Path:
        """Create the server's folder and its configuration file; return the file."""
        data, file = self.folder / "data", self.folder / "zookeeper.cfg"
        make_private_folder(data)
        lines = {
            "dataDir": str(data),
            **self._port_lines(),
            "tickTime": str(self.tick_millis),
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,stat,mntr",
            "autopurge.purgeInterval": "1",
            "maxClientCnxns": "0",
        }
        if self.ensemble:
            write_bytes(data, "myid", f"{self.number}\n".encode(), 0o600)
            lines |= {"initLimit": "10", "syncLimit": "4", "standaloneEnabled": "false"}
            lines |= {f"server.{number}": where for number, where in enumerate(self.ensemble, 1)}
        text = "".join(f"{name}={value}\n" for name, value in {**lines, **self.settings}.items())
        write_bytes(self.folder, file.name, text.encode(), 0o600)
        return file

    def mode(self, timeout: float = 5.0) -> str | None:
        """Return the current mode of the server, like the function `mode`."""
        return mode(self.host, self.port, timeout, None if self.tls is None else ClientFiles.within(self.tls))

    def _port_lines(self) -> dict[str, str]:
        host = self.host.strip("[]")
        if self.tls is None:
            return {"clientPort": str(self.port), "clientPortAddress": host}
        lines = {
            "secureClientPort": str(self.port),
            "secureClientPortAddress": host,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.clientAuth": "need",
        }
        if self.ensemble:
            lines["sslQuorum"] = "true"
        for kind in ("ssl", "ssl.quorum"):
            lines |= {
                f"{kind}.keyStore.location": str(self.tls / SERVER_FILE),
                f"{kind}.keyStore.type": "PEM",
                f"{kind}.trustStore.location": ClientFiles.within(self.tls).ca,
                f"{kind}.trustStore.type": "PEM",
            }
        return lines

    def command(self, java: str, jars: Sequence[Path], memory: str = "256m") -> list[str]:
        """Return the command that starts the server; its log (warnings and errors) goes to the standard output."""
        return [
            java,
            f"-Xmx{memory}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # the server starts in half the time
            "-Dorg.apache.logging.log4j.level=WARN",
            "-Dzookeeper.preAllocSize=1024",  # kilobytes; by default each log begins with 64 MB of zeros
            "-cp",
            os.pathsep.join(map(str, jars)),
            _ONE_OF_MANY if self.ensemble else _ALONE,
            str(self.folder / "zookeeper.cfg"),
        ]


def find_jars(folder: str | None, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return ZooKeeper's jars: from `folder`, or the folder that the environment names, or PySpark. Raises `NoServer`."""
    where = folder or environ.get(JARS_VARIABLE)
    names: Sequence[str] = ("*",)
    if where is None:
        spec = importlib.util.find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise NoServer(f"there are no jars of a ZooKeeper server: {_HELP}")
        where, names = str(Path(spec.origin).parent / "jars"), _FROM_PYSPARK
    found = sorted(jar for name in names for jar in Path(where).glob(f"{name}.jar"))
    if not any(jar.name.startswith("zookeeper-3") for jar in found):
        raise NoServer(f"{where} holds no ZooKeeper (zookeeper-3*.jar): {_HELP}")
    return found


def find_java(environ: Mapping[str, str] = os.environ) -> str:
    """Return the `java` to use: from JAVA_HOME, or the first on the path. Raises `NoServer` if there is none."""
    home = environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else environ.get("PATH"))
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on the path"
        raise NoServer(f"there is no `java` {where}: ZooKeeper needs Java 11 or newer")
    return found


def ask(host: str, port: int, word: str, timeout: float = 5.0, files: ClientFiles | None = None) -> str:
    """Return a server's answer to one of ZooKeeper's four-letter words; "" while no server answers. files: for TLS."""
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host.strip("[]"), port), timeout))
            if files is not None:  # each server of this module has a certificate for this name
                encrypted = files.context().wrap_socket(connection, server_hostname="localhost")
                connection = stack.enter_context(encrypted)
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")
    except OSError:
        return ""


def mode(host: str, port: int, timeout: float = 5.0, files: ClientFiles | None = None) -> str | None:
    """Return the current mode of a server: "standalone", "leader" or "follower"; None while the server accepts no clients."""
    answer = ask(host, port, "srvr", timeout, files)
    lines = [line for line in answer.splitlines() if line.startswith("Mode: ")]
    return lines[0].removeprefix("Mode: ") if lines else None
