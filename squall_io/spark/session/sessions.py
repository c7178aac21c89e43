"""Spark sessions: one per process, shared by all users of Spark in the process, and recreated when its Java process has died.

    with shared_session("local[2]", {"spark.driver.memory": "1g"}) as lease:
        lease.session.range(10).count()

PySpark allows one Spark driver per process. Each user of the session takes a lease. The first lease starts the session, and the
release of the last lease stops it. A session that the user's own code has made is used unchanged, and never stopped.
Must not know: tables, topologies.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from squall.stores.java.java import INSTALL, NotInstalled, require_packages
from squall.stores.java.jvm import JavaFailed, JavaProcess, environment, start_jvm
from squall_io.spark.session.request import SessionRequest, is_classic, request_conflict, shown_value
from squall_io.spark.signs_of_life import keep_alive
from topology_api import SquallError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

#: Seconds between checks (and progress reports) while another task starts the session.
_POLL_SECONDS: Final = 0.2
#: Seconds between log lines about a long start.
_LOG_SECONDS: Final = 10.0


class SessionMismatch(SquallError):
    """A session in this process has a different master or different settings from those requested."""


@dataclass
class _SharedSession:
    """The session that this process's leases share."""

    request: SessionRequest
    session: SparkSession
    #: Whether Squall made the session; if not, the user's code did.
    owned: bool
    users: int = 0
    #: How many leases there have been.
    leases: int = 0


@dataclass
class _Process:
    """The state of this process. A start holds the lock for seconds, so a task that waits for the lock reports progress
    (`_hold`).
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    shared: _SharedSession | None = None
    #: The Java process of the running session, if Squall started it.
    jvm: JavaProcess | None = None


_process: Final = _Process()


@dataclass(eq=False, repr=False)
class SessionLease(AbstractContextManager["SessionLease"]):
    """The right to use the shared session, from any thread."""

    _shared: _SharedSession | None
    _log: logging.Logger
    _progress: Callable[[], None]

    @property
    def session(self) -> SparkSession:
        """The current session; a different one after `renew`."""
        if self._shared is None:
            raise SquallError("this lease of a Spark session was released")
        return self._shared.session

    def renew(self, broken: SparkSession) -> SparkSession:
        """Return a session to replace `broken`: a new session, or the session that a different lease has started meanwhile.
        Raises the errors of a start.
        """
        with _hold(self._progress):
            if self.session is broken:
                assert self._shared is not None
                shared = self._shared
                self._log.warning("Spark's driver is gone; starting another one (%s)", shared.request)
                shared.session = _start_again(shared, self._log, self._progress)
                shared.owned = True
            return self.session

    def release(self, linger: float = 0.0) -> None:
        """Give the lease back; the last release stops the session. A second call does nothing.

        linger: the session is stopped only if it has no user for this many seconds: one that comes earlier need not wait for
            Java.
        """
        with _hold(self._progress):
            shared, self._shared = self._shared, None
            if shared is None:
                return
            shared.users -= 1
            if shared.users:
                return
            if linger and shared.owned:
                over = threading.Timer(linger, _stop_unused, (shared, shared.leases))
                over.daemon = True
                over.start()
            else:
                _stop_shared(shared)

    def __exit__(self, *raised: object) -> None:
        self.release()


def shared_session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log: logging.Logger = _log,
    progress: Callable[[], None] = lambda: None,
) -> SessionLease:
    """Return a lease of this process's Spark session, which is started if there is none.

    master: in Spark's form (`local[2]`, `spark://...`, `yarn`, `sc://...`); None: `local[*]`, or the master of the user's own
        session. conf: Spark settings; settings that begin with `squall.` are ignored. log: gets a line when Spark starts, and
        when it is up. progress: called repeatedly during a long start.
    Raises `SessionMismatch` if a session with a different master or other settings is in use, `NotInstalled`, `JavaFailed` or
    `NoSession` if a session cannot start, and `NoConnectServer` if the server does not answer yet.
    """
    request = SessionRequest.of(master, conf)
    with _hold(progress):
        shared = _process.shared
        if shared is not None and not shared.users and not _serves(shared, request):
            _stop_shared(shared)
            shared = None
        if shared is None:
            shared = _adopted(request) or _SharedSession(
                request, start_session(request, log, progress), owned=True
            )
            _process.shared = shared
        elif not shared.owned:
            _require_fit(request, shared.session)
        elif (problem := request_conflict(request, shared.request)) is not None:
            raise SessionMismatch(problem)
        shared.users += 1
        shared.leases += 1
    return SessionLease(shared, log, progress)


def _serves(shared: _SharedSession, request: SessionRequest) -> bool:
    """Return whether a session that waits for another user is usable for this one."""
    return request_conflict(request, shared.request) is None and not is_broken(shared.session)


def _stop_shared(shared: _SharedSession) -> None:
    """Stop a session without users. The caller must hold the lock."""
    _process.shared = None
    if shared.owned:
        stop_session(shared.session)


def _stop_unused(shared: _SharedSession, leases: int) -> None:
    """Stop a session if no lease was taken since this number of leases."""
    with _hold(lambda: None):
        if _process.shared is shared and shared.leases == leases:
            _stop_shared(shared)


def is_broken(session: SparkSession) -> bool:
    """Return whether a session is unusable: its Java process or server is gone, or its context was stopped. The check makes a
    call to Java or to the server.
    """
    try:
        if is_classic(session):
            java = session._sc._jsc
            return java is None or bool(java.sc().isStopped())
        session.conf.get("spark.sql.session.timeZone")
        return False
    except Exception:
        return True


def stop_session(session: SparkSession) -> None:
    """Stop a session, and end its Java process if Squall started that Java process."""
    if not is_classic(session):
        from squall_io.spark.session.connect import stop

        stop(session)
        return
    if not is_broken(session):
        session.stop()
    _forget()


@contextmanager
def _hold(progress: Callable[[], None]) -> Iterator[None]:
    """Hold the process's lock; report progress while waiting for the lock."""
    while not _process.lock.acquire(timeout=_POLL_SECONDS):
        progress()
    try:
        yield
    finally:
        _process.lock.release()


def _adopted(request: SessionRequest) -> _SharedSession | None:
    """Return the session that the user's own code has made in this process, if any."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    if (session is None or session._sc._jsc is None) and "pyspark.sql.connect.session" in sys.modules:
        from squall_io.spark.session.connect import own_session

        session = own_session()
    if session is None:
        return None
    _require_fit(request, session)
    return _SharedSession(request, session, owned=False)


def _require_fit(request: SessionRequest, session: SparkSession) -> None:
    """Raise `SessionMismatch` if the user's own session does not match the request."""
    connect = not is_classic(session)
    master = "sc://..." if connect else str(session._sc.master)
    differ = [
        f"{name} is {shown_value(name, value)} there, but {shown_value(name, wanted)} is requested"
        for name, wanted in request.conf.items()
        if (value := session.conf.get(name, None)) != wanted
    ]
    if not (request.master in (None, master) or (request.is_connect and connect)):
        differ.insert(0, f"its master is {master}, but {request.place} is requested")
    if differ:
        raise SessionMismatch(
            f"Spark runs in this process already, in a session that was made outside Squall: {'; '.join(differ)}. There is one"
            " Spark driver in a process: leave out master and conf to use that session, or stop it first"
        )


def start_session(
    request: SessionRequest, log: logging.Logger = _log, progress: Callable[[], None] = lambda: None
) -> SparkSession:
    """Start a session that is not shared. The caller must hold this process's lock, or be the process's only user of Spark;
    every other caller takes a lease (`shared_session`).
    """
    log.info("starting Spark, %s", request)
    started = time.monotonic()
    logged = [started]

    def report() -> None:
        if (now := time.monotonic()) - logged[0] >= _LOG_SECONDS:
            logged[0] = now
            log.info("Spark is starting, for %.0f s now", now - started)
        progress()

    session = _connect(request) if request.is_connect else _start_classic(request, report)
    log.info("Spark %s is up after %.1f s", session.version, time.monotonic() - started)
    return session


def _start_classic(request: SessionRequest, progress: Callable[[], None]) -> SparkSession:
    """Start Java and a session in it."""
    require_packages()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise SessionMismatch(
            f"Spark runs in this process already (master {SparkContext._active_spark_context.master}), and there is one Spark"
            f" driver in a process; the request is for {request}"
        )
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable} if request.is_local else {}
    before = {name: value for name, value in local.items() if name not in os.environ}
    jvm = start_jvm(request.settings, before, progress)
    assert jvm.gateway is not None
    _process.jvm = jvm
    SparkContext._gateway, SparkContext._jvm = jvm.gateway, jvm.gateway.jvm
    try:
        with environment(before), _sigint_kept(), keep_alive(progress):
            return SparkSession.builder.config(map={**request.settings}).getOrCreate()
    except Exception as error:
        text = _reason_of(error, jvm)  # before Java is ended, since the function may call Java
        _forget()
        raise JavaFailed(f"Spark did not start with {request}: {text}") from None
    except BaseException:
        _forget()
        raise


def _reason_of(error: Exception, jvm: JavaProcess) -> str:
    """Return the reason in one line: the error's own text if Java still answers, and the last error in Java's log."""
    java = getattr(error, "java_exception", None)
    try:
        text = str(error) if java is None else str(java.toString())
    except Exception:
        text = ""
    logged = jvm.logged()
    return (text.partition("\n")[0] or jvm.why()) + (f" (logged before that: {logged})" if logged else "")


def _start_again(shared: _SharedSession, log: logging.Logger, progress: Callable[[], None]) -> SparkSession:
    """Return a new session in place of the broken shared session; the caller must hold the lock."""
    broken = shared.session
    if is_classic(broken):
        _forget()
        return start_session(shared.request, log, progress)
    from squall_io.spark.session.connect import close, connect_again

    session = connect_again(broken, shared.request)
    if shared.owned:
        close(broken)
    return session


def _connect(request: SessionRequest) -> SparkSession:
    """Return a session of a Spark Connect server."""
    require_packages()
    try:
        from squall_io.spark.session.connect import connect
    except ImportError as error:
        raise NotInstalled(f"no Spark Connect client can be made here: {error}: {INSTALL}") from None
    return connect(request)


def _forget() -> None:
    """Make PySpark forget its session, and end the Java process if Squall started it, whatever state they are in."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.context import SQLContext

    context = SparkContext._active_spark_context
    server = None if context is None else getattr(context, "_accumulatorServer", None)
    if context is not None:
        context._jsc = None
        context._accumulatorServer = None  # type: ignore[assignment]
    if server is not None:
        server.shutdown()
        server.server_close()
    jvm, _process.jvm = _process.jvm, None
    gateway = SparkContext._gateway
    with SparkContext._lock:
        SparkContext._active_spark_context = None
        if jvm is not None or gateway is None or _has_ended(gateway):
            SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    if jvm is not None:
        jvm.stop()


def _has_ended(gateway: Any) -> bool:
    """Return whether the Java process of a gateway that the user's code has made has ended."""
    process = getattr(gateway, "proc", None)
    return process is not None and process.poll() is not None


@contextmanager
def _sigint_kept() -> Iterator[None]:
    """Keep the Ctrl-C handler. When a session is made in the main thread, PySpark installs a handler that cancels jobs."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def changed_settings(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Set these settings of a session while the `with` block runs."""
    before = {name: session.conf.get(name, None) for name in wanted}
    _set(session, wanted)
    # After an interruption (Ctrl-C), the old values are not restored: the connection to Java still waits for an answer.
    try:
        yield
    except Exception:
        with suppress(Exception):  # the driver itself may have died
            _set(session, before)
        raise
    _set(session, before)


def _set(session: SparkSession, values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)
