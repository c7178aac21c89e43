"""Spark sessions: one in a process, shared by everything in it that uses Spark, and made anew when its Java process has died.

    with shared_session("local[2]", {"spark.driver.memory": "1g"}) as lease:
        lease.session.range(10).count()

PySpark takes one Spark driver a process. Whoever needs it takes a lease; the first one starts it, the last one to release it
stops it. A session that the user's own code has made is used as it is, and never stopped.
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
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from squall_io.spark.session.beat import Beat
from squall_io.spark.session.java import NotInstalled, require_packages
from squall_io.spark.session.jvm import JavaFailed, JavaProcess, environment, start_jvm
from squall_io.spark.session.wishes import Wish, told, wish_problem
from topology_api import SquallError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SessionLease", "SessionMismatch", "shared_session", "start_session", "stop_session"]

_log = logging.getLogger(__name__)

#: How often a wait for another task's start looks, and says that it goes on.
_LOOK_SECONDS: Final = 0.2
#: How often a start that takes long is told of.
_TELL_SECONDS: Final = 10.0


class SessionMismatch(SquallError):
    """A session runs in this process, and has another master or other settings than are wanted."""


@dataclass
class _Shared:
    """The session that this process's leases share."""

    wish: Wish
    session: SparkSession
    #: Made here; else the user's code made it.
    owned: bool
    users: int = 0


@dataclass
class _Process:
    """What there is in this process. A start holds the lock for seconds, so waits for it are told of (`_hold`)."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    shared: _Shared | None = None
    #: The Java that was started here, of the session that runs.
    jvm: JavaProcess | None = None


_process: Final = _Process()


class SessionLease:
    """The right to use the shared session. Any thread may call."""

    def __init__(self, shared: _Shared, log: logging.Logger, progress: Callable[[], None]) -> None:
        self._shared: _Shared | None = shared
        self._log = log
        self._progress = progress

    @property
    def session(self) -> SparkSession:
        """The session as it is now; after `renew` another one."""
        if self._shared is None:
            raise SquallError("this lease of a Spark session was released")
        return self._shared.session

    def renew(self, broken: SparkSession) -> SparkSession:
        """A session in place of `broken`, which does not work any more: a new one, or the one that another user of it has made
        meanwhile. What the start of a session raises."""
        shared = self._shared
        if shared is None:
            raise SquallError("this lease of a Spark session was released")
        with _hold(self._progress):
            if shared.session is broken:
                self._log.warning("Spark's driver is gone; starting another one (%s)", shared.wish)
                shared.session = _start_again(shared, self._log, self._progress)
                shared.owned = True
        return shared.session

    def release(self) -> None:
        """Give it back; the last one stops the session. Nothing happens the second time."""
        with _hold(self._progress):
            shared, self._shared = self._shared, None
            if shared is None:
                return
            shared.users -= 1
            if shared.users:
                return
            _process.shared = None
            if shared.owned:
                stop_session(shared.session)

    def __enter__(self) -> SessionLease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def shared_session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log: logging.Logger = _log,
    progress: Callable[[], None] = lambda: None,
) -> SessionLease:
    """A lease of this process's Spark session, which is started if there is none.

    master: as Spark takes it (`local[2]`, `spark://...`, `yarn`, `sc://...`); None: `local[*]`, or whatever the user's own
        code has started. conf: Spark settings, and `squall.` ones, which are left out. log: gets a line when Spark starts, and
        when it is up. progress: called again and again while this takes long.
    `SessionMismatch`: a session with another master or other settings is in use; `NotInstalled`, `JavaFailed`, `NoSession`: it
    cannot start; `NoServer`: there is none yet.
    """
    wish = Wish.of(master, conf)
    with _hold(progress):
        shared = _process.shared
        if shared is None:
            shared = _adopted(wish) or _Shared(wish, _start(wish, log, progress), owned=True)
            _process.shared = shared
        elif shared.owned:
            problem = wish_problem(wish, shared.wish)
            if problem is not None:
                raise SessionMismatch(problem)
        else:
            _require_fit(wish, shared.session)
        shared.users += 1
    return SessionLease(shared, log, progress)


def is_broken(session: SparkSession) -> bool:
    """Whether a session can do nothing any more: its Java process is gone, or its context was stopped. Asks it."""
    try:
        context = getattr(session, "_sc", None)
        if context is None:  # Spark Connect
            session.conf.get("spark.sql.session.timeZone")
            return False
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:
        return True


def start_session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log: logging.Logger = _log,
    progress: Callable[[], None] = lambda: None,
) -> SparkSession:
    """Start a session with Squall's settings that is shared with nobody; see `stop_session`."""
    with _hold(progress):
        return _start(Wish.of(master, conf), log, progress)


def stop_session(session: SparkSession) -> None:
    """Stop a session, and end its Java process if it was started here."""
    if getattr(session, "_sc", None) is None:
        from squall_io.spark.session.connect import stop

        stop(session)
        return
    if not is_broken(session):
        session.stop()
    _forget()


@contextmanager
def _hold(progress: Callable[[], None]) -> Iterator[None]:
    """Hold the process's lock; say that it goes on while somebody else has it."""
    while not _process.lock.acquire(timeout=_LOOK_SECONDS):
        progress()
    try:
        yield
    finally:
        _process.lock.release()


def _adopted(wish: Wish) -> _Shared | None:
    """The session that the user's own code has made in this process; None: there is none."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    if (session is None or session._sc._jsc is None) and "pyspark.sql.connect.session" in sys.modules:
        from squall_io.spark.session.connect import own_session

        session = own_session()
    if session is None:
        return None
    _require_fit(wish, session)
    return _Shared(wish, session, owned=False)


def _require_fit(wish: Wish, session: SparkSession) -> None:
    """`SessionMismatch` when the user's own session has not what is wanted of it."""
    context = getattr(session, "_sc", None)
    there = "sc://..." if context is None else str(context.master)
    differ = [
        f"{name} is {told(name, value)} there, wanted was {told(name, wish.conf[name])}"
        for name, value in _others(wish, session)
    ]
    fits = wish.master is None or wish.master == there or (wish.is_connect and context is None)
    if not fits:
        differ.insert(0, f"its master is {there}, wanted was {wish.place}")
    if differ:
        raise SessionMismatch(
            f"Spark runs in this process already, in a session that was made outside Squall: {'; '.join(differ)}. There is one"
            " Spark driver in a process: leave master and conf away to use that session, or stop it first"
        )


def _others(wish: Wish, session: SparkSession) -> Iterator[tuple[str, str | None]]:
    """Settings that the session has with another value than is wanted."""
    for name, value in wish.conf.items():
        there = session.conf.get(name, None)
        if there != value:
            yield name, there


def _start(wish: Wish, log: logging.Logger, progress: Callable[[], None]) -> SparkSession:
    """Start a session; the lock is held."""
    log.info("starting Spark, %s", wish)
    started = time.monotonic()
    said = [started]

    def going_on() -> None:
        now = time.monotonic()
        if now - said[0] >= _TELL_SECONDS:
            said[0] = now
            log.info("Spark is starting, for %.0f s now", now - started)
        progress()

    session = _connect(wish) if wish.is_connect else _start_classic(wish, going_on)
    log.info("Spark %s is up after %.1f s", session.version, time.monotonic() - started)
    return session


def _start_classic(wish: Wish, progress: Callable[[], None]) -> SparkSession:
    """Start Java and a session in it."""
    require_packages()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise SessionMismatch(
            f"Spark runs in this process already (master {SparkContext._active_spark_context.master}), and there is one Spark"
            f" driver in a process; wanted was {wish}"
        )
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable} if wish.is_local else {}
    before = {name: value for name, value in local.items() if name not in os.environ}
    jvm = start_jvm(wish.settings, before, progress)
    assert jvm.gateway is not None
    _process.jvm = jvm
    SparkContext._gateway, SparkContext._jvm = jvm.gateway, jvm.gateway.jvm
    try:
        with environment(before), _sigint_kept(), Beat(progress):
            return SparkSession.builder.config(map={**wish.settings}).getOrCreate()
    except Exception as error:
        text = _reason_of(error, jvm)  # before Java is ended: it may be asked
        _forget()
        raise JavaFailed(f"Spark did not start with {wish}: {text}") from None
    except BaseException:
        _forget()
        raise


def _reason_of(error: Exception, jvm: JavaProcess) -> str:
    """What was wrong, in one line: the error's own word if Java still answers, and what stands in its log."""
    java = getattr(error, "java_exception", None)
    try:
        text = str(error) if java is None else str(java.toString())
    except Exception:
        text = ""
    logged = jvm.logged()
    return (text.partition("\n")[0] or jvm.why()) + (f" (logged before that: {logged})" if logged else "")


def _start_again(shared: _Shared, log: logging.Logger, progress: Callable[[], None]) -> SparkSession:
    """A session in place of the shared one, which is broken; the lock is held."""
    broken = shared.session
    if getattr(broken, "_sc", None) is not None:
        _forget()
        return _start(shared.wish, log, progress)
    from squall_io.spark.session.connect import close, connect_again

    session = connect_again(broken, shared.wish)
    if shared.owned:
        close(broken)
    return session


def _connect(wish: Wish) -> SparkSession:
    """A session of a Spark Connect server."""
    require_packages()
    try:
        from squall_io.spark.session.connect import connect
    except ImportError as error:
        raise NotInstalled(
            f"no Spark Connect client can be made here: {error}: pip install 'squall[spark]'"
        ) from None
    return connect(wish)


def _forget() -> None:
    """Bring PySpark to where it was before there was a session in Java, and end that; whatever state they are in."""
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
    """Whether the Java process of a gateway that the user's code has made is gone."""
    process = getattr(gateway, "proc", None)
    return process is not None and process.poll() is not None


@contextmanager
def _sigint_kept() -> Iterator[None]:
    """Ctrl-C stays what it was: PySpark makes it cancel jobs when a session is made in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
