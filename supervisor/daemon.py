"""The supervisor daemon: a supervisor, its link to the Nimbuses, its HTTP server for logs and dead letters, and the state
directory that they use.

One thread runs `Supervisor.sync` whenever a watch, a timer or a signal wakes the thread; slow work is done elsewhere. When the
daemon stops, its workers continue until their leases expire, and the next supervisor on the same state directory adopts them: a
restart, an upgrade or a kill of the daemon disturbs no tuple. `stop(end_workers=True)` also ends the workers.
Must not know: the kind of store, command lines.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from squall.clock import RealClock
from squall.cluster.records import FORMAT, SupervisorRecord
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from squall.daemon.state_directory import StateDirectory
from squall.http.admission import PER_ADDRESS
from squall.http.host_names import reached_at
from squall.packages.versions import own_versions
from squall.security.sealing import fingerprint
from squall.security.tls import LOGS, ServerFiles, check_bind
from squall.transport.carriers.sockets import check_address
from supervisor import artifacts, processes
from supervisor.agent import Supervisor, WorkerTerms
from supervisor.artifacts import Artifacts
from supervisor.directories import Directories
from supervisor.host_letters import HostLetters, LetterCount
from supervisor.kept_logs import KeptLogs
from supervisor.letter_reports import LetterReports
from supervisor.log_server import LogServer
from supervisor.nimbus_http import HttpNimbusLink, Nimbuses, NimbusFiles
from supervisor.plan import Timeouts
from supervisor.removals import Removals
from supervisor.worker_processes import WorkerCommand, WorkerProcesses
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds before `sync` is retried after an error.
RETRY_SECS: Final = 1.0
#: The longest sleep of the loop, in seconds.
LONGEST_SLEEP: Final = 1.0
#: Seconds that workers have for stopping when they end with the daemon, in addition to the stop timeout.
PATIENCE: Final = 2.0
#: Seconds that the daemon has to send its last reports to Nimbus.
LAST_WORDS_SECS: Final = 1.0


class SupervisorSettings(msgspec.Struct, frozen=True):
    """The settings of a supervisor daemon."""

    #: The supervisor's state directory, which outlives the process.
    state: Path
    #: The name under which other hosts reach this host.
    host: str = "127.0.0.1"
    slots: int = 4
    #: The address that workers listen on.
    bind: str = "127.0.0.1"
    #: The ports that workers choose from, such as "6700-6799"; None: any free ports.
    ports: str | None = None
    #: Where the HTTP server for logs listens; port 0: any free port.
    listen: tuple[str, int] = ("127.0.0.1", 0)
    lease_secs: float = 20.0
    #: How long logs are kept after their topology has ended.
    keep_days: float = 7.0
    #: The most connections of one address to the server for logs that have shown no credentials.
    per_address: int = PER_ADDRESS
    tls: ServerFiles | None = None
    #: The file with the CA certificates for Nimbus's HTTPS.
    ca: str | None = None
    insecure: bool = False
    #: Join the cluster that the store holds, even if the state directory names a different cluster.
    new_cluster: bool = False
    packages: artifacts.PackageLimits = msgspec.field(default_factory=artifacts.PackageLimits)
    limits: Timeouts = msgspec.field(default_factory=Timeouts)
    command: Callable[[Path], Sequence[str]] = processes.worker_command
    #: The umask of workers; -1: the supervisor's own.
    worker_umask: int = -1


class SupervisorDaemon:
    """One supervisor over a store. Call `run` in the main thread, or `start` and `stop`."""

    def __init__(self, store: Store, settings: SupervisorSettings) -> None:
        """Raises `SquallError` if the state directory is in use or the address is taken."""
        self._settings = settings
        self._clock = RealClock()
        check_bind(settings.listen[0], settings.tls is not None, settings.insecure, LOGS)
        check_address(settings.bind)
        self._end_workers = False
        self._hurried = False
        self._stopping = False
        self._thread: threading.Thread | None = None
        with ExitStack() as opened:  # if a later step fails, closes what was opened before
            self._waker = opened.enter_context(closing(Waker()))
            state = StateDirectory(settings.state, "supervisor", settings.host)
            self._state = opened.enter_context(closing(state))
            if settings.new_cluster:
                state.cluster.forget()
            self._assemble(store, settings)
            for end in (self._logs.stop, self._link.close, self._artifacts.close, self._letters.close):
                opened.callback(end)
            self._opened = opened.pop_all()

    def _assemble(self, store: Store, settings: SupervisorSettings) -> None:
        state = settings.state
        #: The supervisor's id, which no other supervisor has; it is kept in the state directory.
        self.id, pair = self._state.id, self._state.pair
        nimbuses = Nimbuses(store, self.id, pair)
        self._link = HttpNimbusLink(nimbuses, self.id, settings.ca)
        registry, files = Registry(store), NimbusFiles(nimbuses, settings.packages.packed, settings.ca)
        removals = Removals(state, threads=True)
        self._artifacts = Artifacts(
            state,
            store,
            files.fetch,
            threads=True,
            done=self._waker.wake,
            limits=settings.packages,
            removals=removals,
        )
        kept = KeptLogs(state, settings.keep_days, removals.remove, time.time)
        self._directories = Directories(state, own_work=True, remove=removals.remove, logs=kept)
        count = LetterCount(HostLetters(self._directories.letters), self.id, settings.host)
        self._letters = LetterReports(count, Registry(store), self.id)
        self._logs = LogServer(
            *settings.listen,
            self._directories,
            self._artifacts.build_log,
            nimbuses.comes_from_one,
            settings.tls,
            settings.per_address,
        )
        self._supervisor = Supervisor(
            self._record(),
            registry,
            self._link,
            WorkerProcesses(
                state,
                registry,
                self.id,
                key_pair=pair,
                start=WorkerCommand(
                    processes.own_folders(), settings.ports, settings.command, settings.worker_umask
                ),
                artifacts=self._artifacts,
                directories=self._directories,
            ),
            self._clock,
            WorkerTerms(settings.bind, settings.lease_secs, settings.limits),
            admit=lambda: self._state.cluster.admit(store),
            wake=self._waker.wake,
            last_words=lambda: self._link.flush(LAST_WORDS_SECS),
            closed=self._logs.closed,
        )

    def _record(self) -> SupervisorRecord:
        """Return the record with which the supervisor registers."""
        return SupervisorRecord(
            self.id,
            self._settings.host,
            self._settings.slots,
            beats=True,
            public_key=self._state.pair.public,
            url=self.url,
            versions=own_versions(),
            resources=resources(),
            state_folder=self._directories.make_kept_state(),
            reads=FORMAT,
        )

    @property
    def url(self) -> str:
        """The URL at which others reach the HTTP server."""
        settings = self._settings
        bare = reached_at(settings.listen[0], settings.host).strip("[]")
        scheme = "http" if settings.tls is None else "https"
        return f"{scheme}://{f'[{bare}]' if ':' in bare else bare}:{self._logs.port}"

    @property
    def has_workers(self) -> bool:
        """Whether there may be workers to adopt."""
        return bool(self._directories.workers())

    # Life

    def start(self) -> None:
        """Run in a thread."""
        self._thread = threading.Thread(target=self._serve, name="squall-supervisor", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Run in this thread, which must be the main one, until a signal ends it."""
        signal.set_wakeup_fd(self._waker.descriptor, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Under nohup: keep running.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, _look_up)
        try:
            self._serve()
        finally:
            signal.set_wakeup_fd(-1)

    def stop(self, end_workers: bool = False) -> None:
        """Stop, and wait until the daemon has stopped. The workers continue, unless `end_workers` is true."""
        self._end_workers |= end_workers
        self._stopping = True
        self._waker.wake()
        if self._thread is not None:
            self._thread.join()

    def hurry(self) -> None:
        """Do not wait any longer for workers that end with the daemon: kill them. May be called from any thread."""
        self._hurried = True
        self._waker.wake()

    def release(self) -> None:
        """Release the state directory and the address of a daemon that does not run. A second call does nothing."""
        self._opened.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True  # the wake-up descriptor ends the wait

    def _serve(self) -> None:
        """The life of the daemon."""
        settings = self._settings
        try:
            self._artifacts.sweep()
            self._link.start()
            self._logs.start()
            self._letters.start()
            _log.info(
                "supervisor %s of host %s: %d slots, logs at %s, its key is %s, its state is in %s",
                self.id,
                settings.host,
                settings.slots,
                self.url,
                fingerprint(self._state.pair.public),
                settings.state,
            )
            while not self._stopping:
                self._waker.wait(self._look() - self._clock.now())
            self._end()
        finally:
            self.release()

    def _look(self) -> float:
        """Sync once; return the time of the next sync."""
        now = self._clock.now()
        try:
            self._supervisor.sync(now)
        except Exception as error:  # the workers continue, and so does the supervisor
            if isinstance(error, (SquallError, OSError)):
                _log.warning("supervisor %s cannot supervise its workers at the moment: %s", self.id, error)
            else:
                _log.exception("internal error in supervisor %s; it continues", self.id)
            return now + RETRY_SECS
        return min(self._supervisor.next_time(self._clock.now()), now + LONGEST_SLEEP)

    def _end(self) -> None:
        supervisor = self._supervisor
        if not self._end_workers:
            running = sum(worker.pid is not None for worker in supervisor.workers())
            supervisor.leave(for_good=False)
            _log.info(
                "supervisor %s ends; its workers (%d) continue for %g s, and the next supervisor with --state %s adopts them",
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


class Waker:
    """Lets a thread wait until `wake` is called. If `wake` is called between two waits, the second wait ends at once.

    The pipe replaces a condition variable: on a signal, Python itself writes into the pipe (`signal.set_wakeup_fd`),
    regardless of what the main thread is doing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read, self.descriptor = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """End the wait. May be called from any thread, but not from a signal handler."""
        # If the pipe is full, the loop will wake in any case.
        with self._lock, contextlib.suppress(BlockingIOError):
            if self.descriptor >= 0:
                os.write(self.descriptor, b"w")

    def wait(self, seconds: float) -> None:
        """Wait until `wake` is called, or the time has passed."""
        select.select([self._read], [], [], max(seconds, 0.0))
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def close(self) -> None:
        """Close the pipe. Later calls of `wake` do nothing."""
        with self._lock:
            descriptors = (self._read, self.descriptor)
            self._read = self.descriptor = -1
        for descriptor in descriptors:
            os.close(descriptor)


def resources() -> dict[str, float]:
    """Return the resources of this host, as far as they are known."""
    found = {"cpus": float(len(os.sched_getaffinity(0)))}
    with contextlib.suppress(ValueError, OSError):
        found["memory_bytes"] = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return found


def _look_up(number: int, frame: FrameType | None) -> None:
    """Handle SIGCHLD: a signal wakes the loop only if the signal has a handler."""
