"""`squall dev`: a small cluster on this machine. Nimbus and a supervisor run in this process; the supervisor starts workers as
processes.

The store is embedded, so neither ZooKeeper nor Java is needed. With --state, the next start restores the topologies; without
--state, all files are in a temporary directory, which is removed at the end. Ctrl-C also ends the workers.
Must not know: how Nimbus and the supervisor work.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from squall import __version__
from squall.security.private_files import BadPrivateFolder, own_folder
from squall_cli.cluster.cluster_client import DEFAULT_URL, config_option
from squall_cli.commands import daemon_options
from squall_cli.terminal.formats import plural
from squall_cli.terminal.interrupts import Interrupts
from squall_cli.terminal.lines import echo
from topology_api.errors import SquallError

if TYPE_CHECKING:
    from nimbus.daemon import NimbusSettings
    from squall.cluster.memory import InMemoryStore
    from supervisor.daemon import SupervisorSettings

#: Seconds within which this Nimbus must become the leader. It has no rival.
START_SECS: Final = 20.0
#: Seconds between two checks for a signal.
PAUSE: Final = 0.1
LOG: Final = "squall-dev.log"
STORE: Final = "store.sqlite"
AS_ROOT: Final = "squall: warning: this cluster runs as root, and so does the code of all its topologies"


@click.command()
@daemon_options.listen_option("Where Nimbus listens", DEFAULT_URL.partition("//")[2])
@daemon_options.slots_option
@daemon_options.state_option(
    "Keep all files in this directory.  [default: a temporary directory, removed at the end]"
)
@daemon_options.insecure_option
@config_option
def dev(listen: tuple[str, int], slots: int, state: str | None, insecure: bool, config: str | None) -> None:
    """Start a small cluster on this machine, for trying things: Nimbus and a supervisor in one process, without ZooKeeper.

    Ctrl-C ends the cluster with all its workers. With --state, the next start continues the topologies; without --state,
    nothing is kept.

    \b
    Examples:
      squall dev
      squall dev --slots 8 --state ~/squall-dev
      squall dev --listen 127.0.0.1:0    # a free port; the first line says which
    """
    umask = daemon_options.keep_private()
    conf, (host, port) = daemon_options.daemon_settings(config), listen
    if config is None:  # the site's file names the token of another cluster: it is neither taken nor replaced
        conf = {**conf, "squall.token.file": None}
    with Interrupts() as interrupts, ExitStack() as stack:
        interrupts.hold()  # the end is orderly in any case; a second signal only makes the workers end faster
        from nimbus.daemon import NimbusSettings  # takes a while: a signal may arrive meanwhile
        from squall_cli.commands.daemons import configured

        directory = stack.enter_context(state_directory(state))
        stack.enter_context(log_to(directory / LOG))
        nimbus = NimbusSettings(directory / "nimbus", host, port, insecure=insecure, conf=conf)
        supervisor = configured(conf, slots)(state=directory / "supervisor", worker_umask=umask)
        cluster = DevCluster(make_store(None if state is None else directory), nimbus, supervisor)
        stack.callback(cluster.end, interrupts)
        cluster.start(lambda: interrupts.count > 0)
        if os.geteuid() == 0:
            echo(AS_ROOT, err=True)
        if not interrupts.count:
            echo(opening(cluster.url, slots, directory, state, conf))
        while not interrupts.count:
            time.sleep(PAUSE)
        echo(f"{interrupts.name}: ending, with all workers (Ctrl-C again: at once)")


class DevCluster:
    """A Nimbus and a supervisor in this process, with a store that only they use."""

    def __init__(self, store: InMemoryStore, nimbus: NimbusSettings, supervisor: SupervisorSettings) -> None:
        from nimbus.daemon import NimbusDaemon
        from supervisor.daemon import SupervisorDaemon

        self.store = store
        try:
            self.nimbus = NimbusDaemon(store.session(), nimbus)
            self.url = self.nimbus.url
            self.supervisor = SupervisorDaemon(store.session(), supervisor)
        except BaseException:
            store.close()
            raise

    def start(self, cancelled: Callable[[], bool]) -> None:
        """Wait until topologies can be submitted, or until a signal ends the command."""
        self.nimbus.start()
        self.supervisor.start()
        end = time.monotonic() + START_SECS
        while not self.ready() and not cancelled():
            if time.monotonic() > end:
                raise SquallError(f"Nimbus did not become the leader within {START_SECS:g} s: see the log")
            time.sleep(0.01)

    def ready(self) -> bool:
        """Return whether Nimbus leads and has a supervisor."""
        return self.nimbus.leading and self.nimbus.token is not None and bool(self.nimbus.views.supervisors())

    def end(self, interrupts: Interrupts) -> None:
        """End the workers, then the daemons. After a second signal, end them at once."""
        stop = partial(self.supervisor.stop, end_workers=True)
        ending = threading.Thread(target=stop, name="squall-dev-end", daemon=True)
        ending.start()
        while ending.is_alive():
            if interrupts.count > 1:
                self.supervisor.hurry()
            ending.join(PAUSE)
        token = self.nimbus.token
        self.nimbus.stop()
        forget_token(self.url, token)
        self.store.close()


def make_store(directory: Path | None) -> InMemoryStore:
    """Return a store in a file of the directory, or in memory if the directory is None."""
    if directory is None:
        from squall.cluster.memory import InMemoryStore

        return InMemoryStore()
    from squall.cluster.sqlite import InUse, SqliteStore

    try:
        return SqliteStore(directory / STORE)
    except InUse as error:
        raise SquallError(
            f"another `squall dev` uses the state directory {directory}: end it, or choose another directory (--state)"
        ) from error


@contextmanager
def state_directory(given: str | None) -> Iterator[Path]:
    """Yield the given directory, or a temporary directory that is removed at the end."""
    if given is not None:
        directory = Path(given).absolute()
        try:
            own_folder(directory)
        except BadPrivateFolder as error:
            raise SquallError(f"the state directory cannot be used (--state): {error}") from None
        except OSError as error:
            raise SquallError(f"the state directory {given} cannot be used: {error.strerror}") from None
        yield directory
        return
    # TemporaryDirectory also removes protected folders, but it may fail, or change the modes of files that links in these
    # folders point to.
    from supervisor.removals import delete

    directory = Path(tempfile.mkdtemp(prefix="squall-dev-"))
    try:
        yield directory
    finally:
        delete(directory)


@contextmanager
def log_to(file: Path) -> Iterator[None]:
    """Log everything to a file, and also log warnings to stderr."""
    everything, warnings = logging.FileHandler(file, delay=True), logging.StreamHandler(sys.stderr)
    warnings.setLevel(logging.WARNING)
    daemon_options.log_to(everything, warnings)
    try:
        yield
    finally:
        for handler in (everything, warnings):
            logging.getLogger().removeHandler(handler)
            handler.close()


def forget_token(url: str, token: str | None) -> None:
    """Remove the token from the user's folder of tokens: it is no longer valid."""
    from squall.security.tokens import read_token, user_place

    place = user_place(url, os.environ)
    with suppress(SquallError, OSError):
        if place is not None and read_token(place) == token:
            place.unlink()


def finds_token(url: str) -> bool:
    """Return whether commands of this user find the token without configuration. They do not if the home directory is not
    writable."""
    from squall.security.tokens import user_place

    place = user_place(url, os.environ)
    return place is not None and os.path.isfile(place)


def opening(url: str, slots: int, directory: Path, state: str | None, conf: Mapping[str, Any]) -> str:
    """Return the text that is printed when the cluster is ready. It fits on one screen."""
    from squall_cli.cluster.credentials import goes_open

    is_asked = url == DEFAULT_URL and not conf.get("nimbus.url") and not os.environ.get("SQUALL_NIMBUS")
    where = "" if is_asked else f"  export SQUALL_NIMBUS={url}\n"
    if state is None:
        kept = f"Files, gone at the end:  {directory}   (--state DIR keeps them)"
    else:
        kept = f"Files, kept:             {directory}   (the next start continues the topologies)"
    token = conf.get("squall.token.file") or directory / "nimbus" / "token"
    if not finds_token(url):
        where += f"  export SQUALL_TOKEN_FILE={quote(str(token))}\n"
    plain = " --insecure" if goes_open(url) else ""
    return f"""\
Squall {__version__}: Nimbus at {url}, {plural(slots, "worker slot")} on this machine.

In another terminal:
{where}  squall submit examples/word_count.py --wait{plain}
  squall list{plain}
  squall status word-count{plain}
  squall kill word-count --wait{plain}
`squall --help` lists all commands.

{kept}
Log:                     {directory / LOG}
Token, for other users:  {token}
Ctrl-C ends it, with all topologies and workers."""
