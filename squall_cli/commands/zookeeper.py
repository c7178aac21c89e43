"""`squall zookeeper`: runs a ZooKeeper server in the foreground, for development, for tests and for trying a cluster.

The server is a separate Java process; signals to this process end both processes. Must not know: the server's data.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec import structs

from squall.cluster.zookeeper.server import NoServer, ServerPlan, find_jars, find_java
from squall.guarded_files import DamagedFile, open_to_change
from squall.http.host_names import EVERYWHERE, own_host
from squall.security.private_files import BadPrivateFolder, own_folder
from squall.security.tls import InsecureBind, is_loopback
from squall_cli.commands.daemon_options import keep_private, listen_option, state_option, state_place
from squall_cli.options.kinds import Whole, folders
from squall_cli.terminal.lines import echo

if TYPE_CHECKING:
    from squall.security.zookeeper_tls import ClientFiles

#: Seconds that the server has for an orderly end.
_END_SECS: Final = 5.0
_LOOK_SECS: Final = 0.2
_LOG_LINES: Final = 10
_PR_SET_PDEATHSIG: Final = 1


def ensemble_of(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Return the servers of --ensemble, each HOST:PORT:PORT. A callback of click."""
    members = tuple(value.split(",")) if value else ()
    for member in members:
        parts = member.rsplit(":", 2)
        if len(parts) != 3 or not parts[0] or not all(port.isdigit() for port in parts[1:]):
            raise click.BadParameter(
                f"{member!r} is not HOST:PORT:PORT (ports for data and for elections), such as 10.0.0.1:2888:3888"
            )
    return members


@click.command()
@listen_option("Where the server listens to clients", "127.0.0.1:2181")
@state_option("Where the server keeps its files.  [default: ~/.local/state/squall/zookeeper]")
@click.option(
    "--jars",
    metavar="DIR",
    shell_complete=folders,
    help="Where ZooKeeper's jars are.  [default: $SQUALL_ZOOKEEPER_JARS, else PySpark's]",
)
@click.option("--server", metavar="N", type=Whole(1), help="This server's position in --ensemble, from 1.")
@click.option(
    "--ensemble",
    callback=ensemble_of,
    metavar="HOST:PORT:PORT,...",
    help="All servers of an ensemble, in the order of their numbers (--server).",
)
@click.option(
    "--tls", is_flag=True, help="Listen by TLS only, to clients with a certificate that this server made."
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen to other hosts without TLS; what daemons send there is not encrypted.",
)
def zookeeper(
    listen: tuple[str, int],
    state: str | None,
    jars: str | None,
    server: int | None,
    ensemble: tuple[str, ...],
    tls: bool,
    insecure: bool,
) -> None:
    """Start a ZooKeeper server for development, until Ctrl-C or SIGTERM.

    The server needs Java and ZooKeeper's jars: PySpark has these jars, or --jars names the lib folder of a ZooKeeper release. A
    later start with the same --state has the same data. In production, run ZooKeeper as ZooKeeper's documentation says; Squall
    works with ZooKeeper 3.6 and later.

    \b
    Examples:
      squall zookeeper
      squall zookeeper --tls
      squall zookeeper --listen 127.0.0.1:2182 --state ~/zookeeper-2 --server 2 \\
          --ensemble 127.0.0.1:2881:3881,127.0.0.1:2882:3882,127.0.0.1:2883:3883
    """
    keep_private()
    if (server is None) != (not ensemble) or (server or 0) > len(ensemble):
        raise click.UsageError("--server N chooses a server of --ensemble: give both options, or neither.")
    host, port = listen
    hosts = [host, *(member.rsplit(":", 2)[0] for member in ensemble)]
    if not tls:
        check_hosts(hosts, insecure)
    folder = state_place("zookeeper", state)
    java, found = find_java(), find_jars(jars)
    with held(folder):
        port = free_port(host, port)
        plan = ServerPlan(folder, host, port, server or 1, ensemble, tls=folder / "tls" if tls else None)
        with usable(folder):
            publish(plan, hosts)
            plan.write()
        serve(plan, plan.command(java, found))


def publish(plan: ServerPlan, hosts: list[str]) -> None:
    """Make the credentials with which daemons close their nodes to others, and the files for TLS, and print where they are."""
    from squall.security import zookeeper_credentials as credentials
    from squall.security import zookeeper_tls

    made = None if plan.tls is None else make_tls_files(plan.tls, plan.ensemble, hosts)
    # Before the credentials, for which daemons wait.
    found_tls = zookeeper_tls.publish(made, plan.address, os.environ)
    file, found = credentials.make_credentials(plan.folder, plan.address, plan.ensemble, os.environ)
    what, needed = "its credentials", [f"{credentials.OPTION}: {file.absolute()}"]
    if made is not None:
        found, what = found and found_tls, "its credentials and certificates"
        names = (zookeeper_tls.CA, zookeeper_tls.CERTIFICATE, zookeeper_tls.KEY)
        needed += [f"{name}: {path}" for name, path in zip(names, structs.astuple(made))]
    finds = f"Daemons of this user on this machine find {what}. Other daemons" if found else "Daemons"
    copies = "a copy of it" if len(needed) == 1 else "copies of them"
    echo(f"{finds} need {', '.join(needed)} ({copies} on other hosts).")


def make_tls_files(folder: Path, ensemble: Sequence[str], hosts: list[str]) -> ClientFiles:
    """Make the files for TLS in a folder. hosts: where the server, and those of its ensemble, listen."""
    from squall.cluster.zookeeper.certificates import make_certificates
    from squall.security.zookeeper_credentials import shared_place
    from squall.security.zookeeper_tls import SUFFIX

    shared = shared_place(ensemble, os.environ)
    names = [host for host in hosts if host not in EVERYWHERE]
    if len(names) < len(hosts):
        names.append(own_host())
    return make_certificates(
        folder, names, None if shared is None else shared.with_name(shared.name + SUFFIX)
    )


def check_hosts(hosts: list[str], insecure: bool) -> None:
    """Raise `InsecureBind` if other machines could connect and --insecure was not given."""
    outside = [host for host in hosts if not is_loopback(host)]
    if not outside:
        return
    danger = (
        f"{outside[0]} can be reached from other machines, and what daemons send to ZooKeeper, the password included, is not"
        " encrypted"
    )
    if not insecure:
        raise InsecureBind(
            f"{danger}: give --tls, listen on 127.0.0.1, or give --insecure if you trust all of that network"
        )
    echo(f"--insecure: {danger}.", err=True)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock the folder against a second server."""
    with usable(folder):
        own_folder(folder)
        file = open_to_change(folder / "lock", 0o600)
    with open(file, "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise NoServer(
                f"{folder} belongs to a running server: end it, or choose another --state"
            ) from error
        yield


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Turn an OSError into an error that names the folder and the option --state."""
    try:
        yield
    except (BadPrivateFolder, DamagedFile) as error:
        raise NoServer(f"the state directory cannot be used (--state): {error}") from None
    except OSError as error:
        name = error.filename2 or error.filename
        where = "" if name in (None, str(folder)) else f" ({name})"
        raise NoServer(
            f"the state directory {folder} cannot be used: {error.strerror or error}{where}; choose another --state"
        ) from None


def free_port(host: str, port: int) -> int:
    """Return the port if it is free, or raise `NoServer`. For port 0, return a free port."""
    bare = host.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in bare else socket.AF_INET) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            trial.bind((bare, port))
        except OSError as error:
            raise NoServer(
                f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --listen"
            ) from error
        return int(trial.getsockname()[1])


def serve(plan: ServerPlan, command: list[str]) -> None:
    """Run the server until a signal arrives. Raise `NoServer` if the server ends on its own."""
    enough = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: enough.set())
    log = plan.folder / "server.log"
    with usable(plan.folder):
        opened = open_to_change(log, 0o600)
        os.ftruncate(opened, 0)
    with open(opened, "wb") as output:
        # In a new session, so that only this process receives Ctrl-C, and decides how the server ends.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    try:
        watch(plan, process, enough)
    finally:
        process.terminate()
        try:
            process.wait(_END_SECS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if not enough.is_set():
        last = "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
        raise NoServer(f"the server ended with status {process.returncode}. The end of {log}:\n{last}")


def _end_with_parent() -> None:
    """Called in the child process: make the kernel end this process if the parent is killed. Only Linux supports this."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def watch(plan: ServerPlan, process: subprocess.Popen[bytes], enough: threading.Event) -> None:
    """Print the state of the server each time it changes."""
    number = f"server {plan.number} of {len(plan.ensemble)}, " if plan.ensemble else ""
    server = f"ZooKeeper ({number}{plan.address})"
    said: str | None = None
    if plan.ensemble:
        echo(f"{server} is started; it serves when more than half of the servers run.")
    while process.poll() is None and not enough.wait(_LOOK_SECS):
        now = plan.mode(timeout=1.0)
        if now == said:
            continue
        if now is None:
            echo(f"{server} does not serve.", err=True)
        elif said is None:
            as_what = f" as {now}" if plan.ensemble else ""
            echo(f"{server} serves{as_what}. Its files: {plan.folder}. Ctrl-C ends it.")
        else:
            echo(f"{server} is now {now}.")
        said = now
