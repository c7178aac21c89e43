"""`squall nimbus` without its command line: one Nimbus over a given store, assembled from its parts.

A Nimbus has four threads: control (elections, and the master while this Nimbus leads), housekeeping (files, counters),
hand-overs (of pending tuples, after a rollback), and HTTP. With `start` and `stop` the Nimbus runs inside another program;
`run` serves HTTP in the calling thread until `ask_to_stop` is called. The state directory (`squall.daemon.state_directory`)
also holds `files/` (the files of topologies, by their SHA-256), `counters/` (the counters of topologies), and, unless
squall.token.file names a different place, `token` (the operators' token, mode 0600).
Must not know: the kind of store, the command line, signals.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final, cast

import msgspec

from nimbus.counters.counting import Counters
from nimbus.files.housekeeping import Housekeeping
from nimbus.files.stored_files import FileStore
from nimbus.http.app import make_app
from nimbus.http.auth import Authenticator
from nimbus.http.hand_overs import HandOvers
from nimbus.http.handlers import Services
from nimbus.http.views import Views
from nimbus.leader.control import LeaderLoop
from nimbus.leader.master import Nimbus
from nimbus.lifecycle.replacing import ReplaceTerms
from nimbus.security.changes import ChangeFiles
from nimbus.security.secrets import Secrets
from squall.cluster.identity import OtherCluster
from squall.cluster.records import FORMAT, NimbusRecord, SupervisorRecord
from squall.cluster.store import Store
from squall.daemon.command_loop import Driver
from squall.daemon.state_directory import BadStateDirectory, StateDirectory
from squall.daemon.state_mark import state_mark
from squall.http.client import Client
from squall.http.host_names import is_local_name, reached_at
from squall.http.pool import Address
from squall.http.server import HttpServer, listen
from squall.packages.versions import own_versions
from squall.security import tls
from squall.security.sealing import NIMBUS_TO_NIMBUS, NIMBUS_TO_SUPERVISOR, daemon_header, fingerprint
from topology_api.errors import SquallError
from topology_api.options import defaults

_log = logging.getLogger(__name__)

#: The most connections at a time; a supervisor keeps one or two.
MOST_CONNECTIONS: Final = 4096
#: How many seconds a connection without requests is kept: longer than the pauses between a supervisor's requests.
KEEP_ALIVE_SECS: Final = 15
#: Seconds that the control thread has for resigning when the daemon stops.
STOP_SECS: Final = 1.0
#: Seconds after which the master reads the store even without a notification, since ZooKeeper may lose notifications. The store
#: may answer from its cache, which is at most 8 s old, so every change is seen within 10 s.
LOOK_SECS: Final = 2.0


class NimbusSettings(msgspec.Struct, frozen=True):
    """The settings of a Nimbus.

    state: the state directory. host, port: where the Nimbus listens (port 0: any free port). advertise: the URL under which
    others reach the Nimbus. insecure: whether the Nimbus may listen to other machines without HTTPS. new_cluster: forget to
    which cluster the Nimbus belonged. new_token: give the operators a new token when the Nimbus leads for the first time. conf:
    the site's options (missing options have their defaults). environ: the environment variables that name the user's
    directories.
    """

    state: Path
    host: str = "127.0.0.1"
    port: int = 0
    advertise: str | None = None
    insecure: bool = False
    new_cluster: bool = False
    new_token: bool = False
    conf: Mapping[str, object] = msgspec.field(default_factory=dict)
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)

    def number(self, name: str) -> float:
        """Return the value of an option that is a number."""
        return cast(float, {**defaults("daemon"), **self.conf}[name])


class NimbusDaemon:
    """One Nimbus, from `start` to `stop`."""

    def __init__(self, store: Store, settings: NimbusSettings) -> None:
        self._store = store
        self._settings = settings
        files = tls.server_context_files(settings.conf)
        tls.check_bind(settings.host, files is not None, settings.insecure)
        self._ca = tls.ca(settings.conf)
        self._stopped = False
        with ExitStack() as opened:  # if a later step fails, closes what was opened before
            self._listener = opened.enter_context(listen(settings.host, settings.port))
            #: The URL at which this Nimbus answers.
            self.url = self._own_url("http" if files is None else "https")
            self._warn_of_its_name()
            state = StateDirectory(settings.state, "Nimbus", f"nimbus-{socket.gethostname()}")
            self._state = opened.enter_context(closing(state))
            try:
                if settings.new_cluster:
                    state.cluster.forget()
                self._put_together(files)
            except OSError as error:
                raise BadStateDirectory(
                    f"the state directory {settings.state} cannot be used: {error}"
                ) from error
            self._opened = opened.pop_all()

    def _put_together(self, server_files: tls.ServerFiles | None) -> None:
        settings, store, state = self._settings, self._store, self._state
        self.me = NimbusRecord(
            state.id, self.url, socket.gethostname(), state.pair.public, own_versions(), time.time(), FORMAT
        )
        self._driver = Driver("Nimbus", "squall-nimbus-control")
        clock = self._driver.clock
        limit, unpacked = (
            int(settings.number(f"nimbus.package.{name}.bytes")) for name in ("limit", "unpacked.limit")
        )
        self.files = FileStore(state.directory / "files", limit, unpacked)
        self.counters = Counters(settings.number("supervisor.logs.keep.days"))
        self.counters.load(state.directory / "counters")
        self._housekeeping = Housekeeping(
            store, self.files, self.counters, state.directory / "counters", self.me, self._ask_nimbus, clock
        )
        self._secrets = Secrets(
            store,
            state.pair,
            state.id,
            topology_keys,
            clock,
            state.directory,
            self._urls(),
            settings.environ,
            settings.conf,
            settings.new_token,
        )
        self._control = LeaderLoop(
            store,
            self.me,
            clock,
            self._make_master,
            self._secrets,
            self._why_not,
            self._driver.wake,
            self._why_aside,
            state_mark(state.directory),
            time.time,
        )
        self.views = Views(store, self.counters, time.time, self._housekeeping.missing.lost)
        conf = {**defaults("daemon"), **settings.conf}
        services = Services(self.views, self.files, self._control, self._driver, conf, self._ask_supervisor)
        self._hand_overs = HandOvers(services)
        authenticator = Authenticator(lambda: self._secrets.token, state.pair, store, self._control.given_up)
        changes = ChangeFiles(state.directory, time.time)
        app = make_app(services, authenticator, changes, self._listener.admission)
        self._server = HttpServer(
            app,
            self._listener,
            "squall-nimbus-http",
            KEEP_ALIVE_SECS,
            MOST_CONNECTIONS,
            server_files,
            int(settings.number("squall.http.unknown.per.address")),
        )

    # Life

    def start(self) -> None:
        """Start, with HTTP in its own thread. Requests are accepted when this returns."""
        self._begin()
        self._server.start()

    def run(self) -> None:
        """Start, and serve HTTP in this thread until `ask_to_stop` is called. Call `stop` afterwards."""
        self._begin()
        self._server.run()

    def ask_to_stop(self) -> None:
        """Make `run` return; may be called from a signal handler."""
        self._server.stop()

    def stop(self) -> None:
        """Resign, stop, and release the state directory. A second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        try:
            self._driver.stop(self._control.stop, STOP_SECS)
        except SquallError as error:  # the store does not answer: the term ends with the session
            _log.warning("%s", error)
        self._housekeeping.stop()
        self._hand_overs.stop()
        self._server.stop()
        self._server.join()
        self._opened.close()
        _log.info("Nimbus %s has ended", self.me.id)

    def _begin(self) -> None:
        where = self.me.id, self.url, fingerprint(self.me.public_key), self._state.directory
        _log.info("Nimbus %s answers at %s; its key is %s, its state is in %s", *where)
        self._driver.start(self._control)
        self._housekeeping.start()
        self._hand_overs.start()

    # State

    @property
    def leading(self) -> bool:
        """Whether this Nimbus leads at this moment."""
        return self._control.leading

    @property
    def token(self) -> str | None:
        """The operators' token; None while it is not known yet."""
        return self._secrets.token

    # Parts

    def _make_master(self, store: Store) -> Nimbus:
        master = Nimbus(
            store,
            self._driver.clock,
            keyring=self._secrets.ring,
            counters=self.counters,
            supervisor_timeout_secs=self._settings.number("nimbus.supervisor.timeout.secs"),
            replacing=ReplaceTerms(
                self._settings.number("nimbus.replace.timeout.secs"),
                int(self._settings.number("nimbus.versions.keep")),
            ),
            wall_clock=time.time,
            poll_secs=LOOK_SECS,
            turned_away=lambda: self._listener.admission.turned_away,
        )
        self._state.cluster.remember(master.cluster_id)
        return master

    def _why_not(self) -> str | None:
        """Return why this Nimbus should not begin to lead; None if it may."""
        try:
            self._state.cluster.admit(self._store)
        except OtherCluster as error:
            return str(error)
        return self._secrets.lacks() or self._housekeeping.lacks()

    def _why_aside(self) -> str | None:
        """Return why this Nimbus should let another Nimbus lead; None if there is no reason."""
        return self._secrets.aside or self._housekeeping.missing.steps_aside()

    def _ask_nimbus(self, other: NimbusRecord) -> Client:
        authorization = partial(self._header, other.public_key, NIMBUS_TO_NIMBUS)
        return Client([other.url], authorization, self._ca, what=f"Nimbus {other.id}", advice="")

    def _ask_supervisor(self, record: SupervisorRecord) -> Client:
        what = f"supervisor {record.id} on {record.host}"
        authorization = partial(self._header, record.public_key, NIMBUS_TO_SUPERVISOR)
        return Client([record.url], authorization, self._ca, timeout=4.0, what=what, advice="")

    def _header(self, public_key: str, context: str, url: str) -> str:
        return daemon_header(self.me.id, self._state.pair.token_with(public_key, context))

    def _own_url(self, scheme: str) -> str:
        if self._settings.advertise:
            return Address.of(self._settings.advertise).url
        return _url(scheme, reached_at(self._settings.host), self._listener.getsockname()[1])

    def _warn_of_its_name(self) -> None:
        """Warn if the advertised URL has a name such as localhost, which on each host refers to that host itself."""
        host = Address.of(self.url).host
        if is_local_name(host) and not tls.is_loopback(self._settings.host):
            _log.warning(
                "this Nimbus listens to other machines, but gives them the URL %s, which on each machine means that machine"
                " itself: give --advertise with a URL under which other machines reach this Nimbus",
                self.url,
            )

    def _urls(self) -> list[str]:
        """Return all URLs under which a command on this host may reach this Nimbus."""
        scheme = self.url.partition("://")[0]
        return [self.url, _url(scheme, self._settings.host or "0.0.0.0", self._listener.getsockname()[1])]


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def topology_keys() -> dict[str, str]:
    """Return a new key pair for a topology."""
    from squall.transport.carriers.sockets import make_keys  # ZeroMQ: Nimbus starts faster without it

    return asdict(make_keys())
