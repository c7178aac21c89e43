"""The shared parts of commands that start daemons: store, listening address, state directory, log.

Must not know: the work of the daemons.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from squall.reports.log_lines import EntryFormatter
from squall_cli.cluster.cluster_client import Command, site_settings
from squall_cli.options.kinds import Whole, folders
from topology_api.errors import SquallError
from topology_api.options import defaults

if TYPE_CHECKING:
    from squall.cluster.zookeeper import ZooKeeperStore

SERVERS = "squall.zookeeper.servers"
#: A host name or an IPv4 address, as in URLs.
HOST: Final = re.compile(r"(?=.{1,253}$)(?!-)[\w-]{1,63}(\.[\w-]{1,63})*", re.ASCII)
#: A wildcard address: a daemon can listen on it, but clients cannot connect to it.
EVERYWHERE: Final = "0.0.0.0"

#: Seconds that a daemon waits for ZooKeeper before it logs a warning and starts.
FIRST_SECS: Final = 3.0
#: Seconds between two such warnings.
AGAIN_SECS: Final = 60.0
#: Seconds that a daemon waits for a development server on its machine to make credentials.
SERVER_SECS: Final = 10.0

_log = logging.getLogger(__name__)

zookeeper_option = click.option(
    "--zookeeper", metavar="HOST:PORT,...", help="The ZooKeeper servers.  [default: the site's file]"
)
insecure_option = click.option(
    "--insecure", is_flag=True, help="Listen to other machines without a TLS certificate."
)
insecure_zookeeper_option = click.option(
    "--insecure-zookeeper",
    is_flag=True,
    help="Use ZooKeeper without credentials: everyone who can reach it can get the operators' token.",
)


slots_option = click.option(
    "--slots",
    metavar="N",
    type=Whole(1, 10_000),
    default=4,
    show_default=True,
    help="How many workers may run.",
)


def listen_option(text: str, default: str | None = None, note: str = "") -> Callable[[Command], Command]:
    """Return the option --listen HOST:PORT. `note`: the end of its help text."""
    return click.option(
        "--listen",
        callback=host_port,
        metavar="HOST:PORT",
        default=default,
        show_default=True,
        help=f"{text}; port 0: any free port.{note}",
    )


def state_option(text: str) -> Callable[[Command], Command]:
    """Return the option --state DIR."""
    return click.option("--state", metavar="DIR", callback=directory, shell_complete=folders, help=text)


def directory(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Check --state: its value must be a directory, or a path that does not exist yet. A callback of click."""
    if value == "":  # from an unset shell variable; it does not mean the working directory
        raise click.BadParameter("it is empty: give a directory, or leave the option out")
    if value is not None and os.path.exists(value) and not os.path.isdir(value):
        raise click.BadParameter(f"{value!r} is not a directory")
    return value


def host_name(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Check --host: its value must be a name or an IPv4 address to which other hosts can connect. A callback of click."""
    if value is not None and (HOST.fullmatch(value) is None or value == EVERYWHERE):
        raise click.BadParameter(
            f"other hosts cannot reach this host by {value!r}: give its name or its IPv4 address, without a port"
        )
    return value


def host_port(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Parse an option HOST:PORT; an IPv6 address needs brackets. Return None if the option is missing and has no default."""
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    named = not host or host.startswith("[") or HOST.fullmatch(host) is not None
    if not colon or not named or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise click.BadParameter(f"{value!r} is not HOST:PORT, such as 127.0.0.1:6627 or [::1]:6627")
    return host, int(port)


def daemon_settings(config: str | None) -> dict[str, Any]:
    """Return the settings of the defaults, the site's file and the environment; each of these overrides the previous ones."""
    return {**defaults("daemon"), **site_settings(config)}


def state_place(kind: str, given: str | None) -> Path:
    """Return a daemon's state directory: the value of the option, else a directory below ~/.local/state/squall."""
    if given is not None:
        return Path(given)
    from squall.security.tokens import state_home

    return (state_home(os.environ) or Path.home() / ".local/state") / "squall" / kind


def keep_private() -> int:
    """Let this command make files for its own user only; return the umask that it had before. Workers get that one: what user
    code writes is not the daemon's business. When the command has ended, the umask is as before."""
    before = os.umask(0o077)
    if context := click.get_current_context(silent=True):
        context.call_on_close(lambda: os.umask(before))
    return before


def make_store(zookeeper: str | None, settings: Mapping[str, Any], insecure: bool) -> ZooKeeperStore:
    """Return the store that the option or the settings name. It is not connected yet. `insecure`: --insecure-zookeeper."""
    from squall.cluster.zookeeper import ZooKeeperStore
    from squall.security.zookeeper_credentials import OPTION
    from squall.security.zookeeper_tls import find_files, named_files

    servers = zookeeper or settings[SERVERS]
    if not servers:
        raise SquallError(
            f"where is ZooKeeper? Give --zookeeper HOST:PORT,... or set {SERVERS} (`squall zookeeper` starts one)"
        )
    check_servers(str(servers))
    files = named_files(settings)
    credentials = credentials_for(str(servers), settings, insecure)
    if files is None and credentials is not None and settings[OPTION] is None:
        files = find_files(str(servers), os.environ)  # the server that made the credentials made these too
    return ZooKeeperStore(
        str(servers),
        root=str(settings["squall.zookeeper.root"]),
        session_secs=float(settings["squall.zookeeper.session.timeout.secs"]),
        credentials=credentials,
        tls=files,
    )


def credentials_for(servers: str, settings: Mapping[str, Any], insecure: bool) -> tuple[str, str] | None:
    """Return ZooKeeper's credentials: those of the site's file, else those of a development server on this machine. Return
    None, with a warning, if ZooKeeper may be open to everyone (`insecure`); otherwise raise an error if there are none."""
    from squall.security import zookeeper_credentials as known

    danger = f"everyone who can reach ZooKeeper at {servers} can get the operators' token, and run code on every host"
    named = settings[known.OPTION]
    if named is not None:
        if insecure:
            raise SquallError(f"{known.OPTION} and --insecure-zookeeper contradict each other: leave one out")
        return known.read_named_credentials(Path(str(named)))
    if insecure:
        _log.warning("--insecure-zookeeper: %s", danger)
        return None
    if (found := wait_for_credentials(servers)) is None:
        raise SquallError(
            f"there are no credentials for ZooKeeper. Without them {danger}. Set {known.OPTION} to a file of mode 0600 with one"
            " line USER:PASSWORD, the same for all daemons of the cluster, or give --insecure-zookeeper"
            " (`squall zookeeper` makes credentials, which daemons of the same user on the same machine find)"
        )
    _log.info("ZooKeeper's credentials are those that `squall zookeeper` made")
    return found


def wait_for_credentials(servers: str) -> tuple[str, str] | None:
    """Return the credentials that `squall zookeeper` made, None if there are none. If the servers are on this machine, wait a
    moment for them: a script may start the server and the daemons at the same time."""
    from squall.http.host_names import is_local_name
    from squall.security.zookeeper_credentials import addresses, find_credentials

    end = time.monotonic() + SERVER_SECS
    waits = all(is_local_name(urlsplit(f"//{server}").hostname or "") for server in addresses(servers))
    said = False
    while (found := find_credentials(servers, os.environ)) is None and waits and time.monotonic() < end:
        if not said:
            _log.info(
                "waiting up to %g s for `squall zookeeper` to make credentials for %s", SERVER_SECS, servers
            )
            said = True
        time.sleep(0.05)
    return found


def run_daemon(
    store: ZooKeeperStore,
    run: Callable[[], object],
    stop: Callable[[], object],
    release: Callable[[], object],
    needed: Callable[[], bool] = lambda: False,
) -> None:
    """Connect the store, and run a daemon until it ends. Then call `release`, which frees the daemon's resources.

    If ZooKeeper refuses access, call `stop`, which makes the daemon end, and raise the error when the daemon has ended.
    But if the daemon is still `needed`, only log the error."""
    refusals: list[SquallError] = []

    def refused(error: SquallError) -> None:
        if needed():
            _log.error("%s", error)
        else:
            refusals.append(error)
            stop()

    try:
        connect(store, refused)
        run()
    finally:
        release()
        store.close()
    for error in refusals:
        raise error


def connect(store: ZooKeeperStore, refused: Callable[[SquallError], None]) -> None:
    """Connect to ZooKeeper. A daemon may start before ZooKeeper; until the daemon is connected, it behaves as it does while
    ZooKeeper is down. Raises an error if ZooKeeper refuses access. If ZooKeeper refuses access later, another thread calls
    `refused`."""
    from squall.cluster.store import Unavailable

    def connect_later() -> None:
        while True:
            try:
                return store.start(AGAIN_SECS)
            except Unavailable as error:
                _log.warning("%s Waiting for it", error)
            except SquallError as error:
                return refused(error)

    try:
        store.start(FIRST_SECS)
    except Unavailable as error:
        _log.warning("%s Waiting for it", error)
        threading.Thread(target=connect_later, name="squall-connect", daemon=True).start()


def check_servers(servers: str) -> None:
    """Check a list of ZooKeeper servers: HOST or HOST:PORT, separated by commas."""
    for server in servers.partition("/")[0].split(","):
        try:
            parts = urlsplit(f"//{server.strip()}")
            fits = bool(parts.hostname) and parts.port != 0 and not any(map(str.isspace, parts.netloc))
        except ValueError:  # the port is not a number
            fits = False
        if not fits:
            raise SquallError(
                f"{server!r:.200} is not a ZooKeeper server: give HOST:PORT,... by --zookeeper or {SERVERS}"
            )


def warn_of_root(danger: str) -> None:
    """Log a warning if this daemon runs as root. `danger`: what that means for this daemon."""
    if os.geteuid() == 0:
        _log.warning(
            "this daemon runs as root: %s. Start it as a user of its own (see docs/cluster.md)", danger
        )


def log_to(*handlers: logging.Handler) -> None:
    """Log to these handlers. Log only warnings and errors of libraries."""
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    for handler in handlers:
        handler.setFormatter(EntryFormatter("%(asctime)s %(levelname)s %(message)s"))
        root.addHandler(handler)
    for name in ("kazoo", "uvicorn", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
