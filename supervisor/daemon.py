"""The supervisor daemon: the agent of a host, its link to the Nimbuses, the HTTP for logs, and the state directory they share.

One thread runs `Supervisor.sync` whenever a watch, a timer or a signal wakes it; nothing that takes long is done there. When
it stops, its workers go on until their leases are over, and the next supervisor on the same state directory takes them over:
a restart, an upgrade or a kill of this process disturbs no tuple. `stop(end_workers=True)` ends them with it.
Must not know: which store it is given, command lines.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Final

from squall.clock import RealClock
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from squall.host_names import reached_at
from squall.tls import LOGS, ServerFiles, check_bind
from squall.transport.sockets import check_address
from squall.versions import own_versions
from supervisor import processes, provisions
from supervisor.agent import Supervisor
from supervisor.directories import Directories
from supervisor.identity import KnownCluster, StateLock, own_id, own_keys
from supervisor.log_server import Logs, LogServer
from supervisor.nimbus_http import HttpNimbusLink, Nimbuses, NimbusFiles
from supervisor.plan import Limits
from supervisor.provisions import Provisions
from supervisor.removals import Removals
from supervisor.waker import Waker
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds after which a look is taken again that an error cut short.
RETRY_SECS: Final = 1.0
#: The longest that the loop sleeps.
LONGEST_SLEEP: Final = 1.0
#: Seconds that workers have beyond their own time to stop, when they are to end with the daemon.
PATIENCE: Final = 2.0
#: Seconds in which the last words to Nimbus may be sent.
LAST_WORDS_SECS: Final = 1.0


@dataclass(frozen=True)
class SupervisorSettings:
    """What a supervisor daemon is started with."""

    state: Path
    """Its own directory: it outlives the process."""
    host: str = "127.0.0.1"
    """The name that others reach this host by."""
    slots: int = 4
    bind: str = "127.0.0.1"
    """The address that workers listen on."""
    ports: str | None = None
    """The ports that they choose from, 6700-6799; None: any that are free."""
    listen: tuple[str, int] = ("127.0.0.1", 0)
    """Where its own HTTP (logs) listens; port 0: a free one."""
    lease_secs: float = 20.0
    tls: ServerFiles | None = None
    ca: str | None = None
    """The file with the certificates that Nimbus's HTTPS is trusted by."""
    insecure: bool = False
    new_cluster: bool = False
    """Belong to whichever cluster the store holds, whatever is remembered."""
    packages: provisions.Limits = field(default_factory=provisions.Limits)
    limits: Limits = field(default_factory=Limits)
    command: Callable[[Path], Sequence[str]] = processes.worker_command


class SupervisorDaemon:
    """One supervisor over a store. `run` in the main thread, or `start` in one of its own; then `stop`."""

    def __init__(self, store: Store, settings: SupervisorSettings) -> None:
        """`SquallError` says what is wrong: the state directory is in use, the address is taken."""
        self._settings = settings
        self._clock = RealClock()
        check_bind(settings.listen[0], settings.tls is not None, settings.insecure, LOGS)
        check_address(settings.bind)
        self._lock = StateLock(settings.state)
        self._waker = Waker()
        try:
            self._assemble(store, settings)
        except BaseException:
            self._waker.close()
            self._lock.release()
            raise
        self._end_workers = False
        self._hurried = False
        self._stopping = False
        self._released = False
        self._thread: threading.Thread | None = None

    def _assemble(self, store: Store, settings: SupervisorSettings) -> None:
        state = settings.state
        #: Its name among all supervisors; it stays with the state directory.
        self.id = own_id(state, settings.host)
        pair = own_keys(state)
        cluster = KnownCluster(state)
        if settings.new_cluster:
            cluster.forget()
        nimbuses = Nimbuses(store, self.id, pair)
        self._link = HttpNimbusLink(nimbuses, self.id, settings.ca)
        registry = Registry(store)
        files = NimbusFiles(nimbuses, settings.packages.packed, settings.ca)
        removals = Removals(state, threads=True)
        self._provisions = Provisions(
            state,
            store,
            files.fetch,
            threads=True,
            done=self._waker.wake,
            limits=settings.packages,
            removals=removals,
        )
        supervisor = self._supervisor = Supervisor(
            self.id,
            settings.host,
            settings.slots,
            registry,
            self._link,
            state,
            self._clock,
            python_path=processes.own_folders(),
            lease_secs=settings.lease_secs,
            bind=settings.bind,
            ports=settings.ports,
            limits=settings.limits,
            command=settings.command,
            key_pair=pair,
            provisions=self._provisions,
            directories=Directories(state, own_work=True, remove=removals.take),
            admit=lambda: cluster.admit(store),
            wake=self._waker.wake,
            last_words=lambda: self._link.flush(LAST_WORDS_SECS),
        )
        logs = Logs(supervisor.directories, self._provisions.build_log)
        self._logs = LogServer(*settings.listen, logs, nimbuses.comes_from_one, settings.tls)
        supervisor.record = replace(
            supervisor.record, url=self.url, versions=own_versions(), resources=resources()
        )

    @property
    def url(self) -> str:
        """Where its own HTTP answers, as others reach it."""
        settings = self._settings
        bare = reached_at(settings.listen[0], settings.host).strip("[]")
        scheme = "http" if settings.tls is None else "https"
        return f"{scheme}://{f'[{bare}]' if ':' in bare else bare}:{self._logs.port}"

    @property
    def has_workers(self) -> bool:
        """Whether there may be workers to be taken over."""
        return bool(self._supervisor.directories.workers())

    # Life

    def start(self) -> None:
        """Run in a thread."""
        self._thread = threading.Thread(target=self._serve, name="squall-supervisor", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Run in this thread, the main one, until a signal ends it."""
        signal.set_wakeup_fd(self._waker.descriptor, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup: outlive it
                signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, _look_up)
        try:
            self._serve()
        finally:
            signal.set_wakeup_fd(-1)

    def stop(self, end_workers: bool = False) -> None:
        """End; the workers go on, unless they are to end too. It waits until that is so."""
        self._end_workers |= end_workers
        self._stopping = True
        self._waker.wake()
        if self._thread is not None:
            self._thread.join()

    def hurry(self) -> None:
        """Workers that are to end with it get no more time for that; may be called from any thread."""
        self._hurried = True
        self._waker.wake()

    def release(self) -> None:
        """Give back what it holds, if it does not run (any more): its directory and its address."""
        if self._released:
            return
        self._released = True
        self._provisions.close()
        self._link.close()
        self._logs.stop()
        self._lock.release()
        self._waker.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True  # and the wake-up descriptor ends the wait

    def _serve(self) -> None:
        """The life of the daemon."""
        settings = self._settings
        try:
            self._provisions.sweep()
            self._link.start()
            self._logs.start()
            _log.info(
                "supervisor %s of host %s: %d slots, logs at %s, state in %s",
                self.id,
                settings.host,
                settings.slots,
                self.url,
                settings.state,
            )
            while not self._stopping:
                self._waker.wait(self._look() - self._clock.now())
            self._end()
        finally:
            self.release()

    def _look(self) -> float:
        """Look after the workers; when to do so again."""
        now = self._clock.now()
        try:
            self._supervisor.sync(now)
        except Exception as error:  # the workers go on, and so does this
            if isinstance(error, (SquallError, OSError)):
                _log.warning("supervisor %s cannot look after its workers at the moment: %s", self.id, error)
            else:
                _log.exception("supervisor %s has a fault; it goes on", self.id)
            return now + RETRY_SECS
        return min(self._supervisor.next_time(self._clock.now()), now + LONGEST_SLEEP)

    def _end(self) -> None:
        supervisor = self._supervisor
        if not self._end_workers:
            running = sum(view.pid is not None for view in supervisor.processes())
            supervisor.leave_workers()
            _log.info(
                "supervisor %s ends; its workers (%d) go on for %g s, and the next supervisor with --state %s takes them over",
                self.id,
                running,
                self._settings.lease_secs,
                self._settings.state,
            )
            return
        end = self._clock.now() + self._settings.limits.stop + PATIENCE
        while not self._closed() and self._clock.now() < end and not self._hurried:
            self._waker.wait(0.01)
        if not self._closed() and not supervisor.kill_all():
            _log.error("supervisor %s: workers do not end though they were killed", self.id)
        _log.info("supervisor %s has ended with its workers", self.id)

    def _closed(self) -> bool:
        try:
            return self._supervisor.close(self._clock.now())
        except (SquallError, OSError) as error:
            _log.warning("supervisor %s cannot stop its workers: %s", self.id, error)
            return False


def resources() -> dict[str, float]:
    """What this host has, as far as it says."""
    found = {"cpus": float(len(os.sched_getaffinity(0)))}
    with contextlib.suppress(ValueError, OSError):
        found["memory_bytes"] = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return found


def _look_up(number: int, frame: FrameType | None) -> None:
    """A child has ended: with a handler of ours the signal wakes the loop."""
