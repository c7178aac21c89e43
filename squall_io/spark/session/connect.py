"""Sessions of Spark Connect, whose driver is in a server: creates, recreates, copies and ends them.

PySpark retries a call for ten minutes if the server does not answer. The sessions that are made here retry for only a few
seconds: their callers also retry, and these callers report the wait.
Must not know: leases, tables. (This module imports PySpark and gRPC, so other modules import it only where they use it.)
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.errors import PySparkException
from pyspark.sql.connect import session as connect_session
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState

from squall.stores.java.java_settings import HADOOP_PREFIX
from squall_io.spark.session.request import NoConnectServer, NoSession, SessionRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How many times a call is retried. All retries together take about 7 seconds.
_TRIES: Final = 6
#: The longest wait before a retry, in milliseconds.
_LONGEST_WAIT_MS: Final = 2_000
#: Tells PySpark's functions that they run against Spark Connect; PySpark's own `builder.remote` sets this variable, too.
_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"
#: gRPC's message for a server that cannot be reached, with the reason.
_AWAY: Final = re.compile(r'StatusCode\.UNAVAILABLE\s+details = "(.*)"')


def connect(request: SessionRequest) -> SparkSession:
    """Create this process's session on the server. Raises `NoConnectServer` or `NoSession`."""
    try:
        session = connect_session.SparkSession(connection=request.where)
    except PySparkException:  # the error may quote a token
        raise NoSession(
            f"{request.place} is not the address of a Spark Connect server: write sc://HOST:PORT, or sc://HOST:PORT/;NAME=VALUE"
        ) from None
    return _ready(_plain(session), request)


def connect_again(gone: SparkSession, request: SessionRequest) -> SparkSession:
    """Create a session on the server that has lost the session `gone`. Raises `NoConnectServer` or `NoSession`."""
    return _ready(gone.newSession(), request)


def copied(session: SparkSession) -> SparkSession:
    """Return a session of the same server with the same settings; the caller has to `discard` it."""
    copy = cast(Any, session).cloneSession()
    _be_quick(copy)
    return _plain(copy)


def discard(session: SparkSession) -> None:
    """End a session on its server, if the server answers, and close the connection. (PySpark's own `stop` would also end a
    server that PySpark started.)"""
    with suppress(Exception):
        _client(session).release_session()
    close(session)


def stop(session: SparkSession) -> None:
    """End this process's own session."""
    discard(session)
    os.environ.pop(_MODE, None)


def close(session: SparkSession) -> None:
    """Close the connection; the server forgets the session later."""
    with suppress(Exception):
        _client(session).close()


def own_session() -> SparkSession | None:
    """Return the session that this process already has, if any."""
    session = connect_session.SparkSession._get_default_session()
    return None if session is None else _plain(session)


def _ready(session: SparkSession, request: SessionRequest) -> SparkSession:
    """Give a new session its settings. These are the first calls to the server; if they fail, close the session."""
    _be_quick(session)
    try:
        for name, value in request.connect_settings.items():
            session.conf.set(name, value)
            if name.startswith(HADOOP_PREFIX):
                # In a session, Hadoop's settings have no prefix; settings with the prefix belong to the server.
                session.conf.set(name.removeprefix(HADOOP_PREFIX), value)
    except PySparkException as error:
        close(session)
        server = f"the Spark Connect server {request.place}"
        if (found := _AWAY.search(str(error))) is not None:
            raise NoConnectServer(f"{server} does not answer: {found[1]}") from None
        raise NoSession(f"{server} gives no session: {str(error).splitlines()[0]}") from None
    except BaseException:
        close(session)
        raise
    # PySpark sometimes asks for the process's or the thread's session, and might get a session that has ended.
    theirs: Any = connect_session.SparkSession
    theirs._default_session = theirs._active_session.session = session
    os.environ[_MODE] = "1"
    return session


def _be_quick(session: SparkSession) -> None:
    """Let calls of a session give up after a few seconds."""
    _client(session).set_retry_policies([_Quick(max_retries=_TRIES, max_backoff=_LONGEST_WAIT_MS)])


def _client(session: SparkSession) -> Any:
    return cast(Any, session).client


def _plain(session: object) -> SparkSession:
    """Return a session with the static type of a classic session. PySpark's two session classes have the same methods, but no
    common type.
    """
    return cast("SparkSession", session)


class _Quick(DefaultPolicy):
    """Spark's own rule for retries, without its warning after the last retry."""

    def to_state(self) -> RetryPolicyState:
        return _Tries(self)


class _Tries(RetryPolicyState):
    """The tries of one call."""

    def can_retry(self, exception: BaseException) -> bool:
        limit = self.policy.max_retries
        return (limit is None or self._attempt < limit) and super().can_retry(exception)
