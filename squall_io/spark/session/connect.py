"""Sessions of Spark Connect, whose driver is in a server: made, made anew on the same server, and copied to write with.

PySpark tries a call again for ten minutes when the server does not answer. These sessions do for some seconds: whoever uses
them tries again by itself, and says so.
Must not know: leases, tables. (It imports PySpark and gRPC, so it is imported where it is used.)
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.errors import PySparkException
from pyspark.sql.connect import session as connect_session
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState

from squall_io.spark.session.wishes import SQL_DEFAULTS, NoServer, NoSession, Wish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Tries of a call after the first one, some 7 seconds in all.
_TRIES: Final = 6
_LONGEST_WAIT_MS: Final = 2_000
#: Spark's settings that are Hadoop's begin so.
_HADOOP: Final = "spark.hadoop."
#: By this PySpark's functions know that they are for Spark Connect; its own `builder.remote` sets it, too.
_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"
#: What gRPC says of a server that is away, and why.
_AWAY: Final = re.compile(r'StatusCode\.UNAVAILABLE\s+details = "(.*)"')


def connect(wish: Wish) -> SparkSession:
    """A session of the server, and this process's own; `NoServer`, `NoSession`."""
    try:
        session = connect_session.SparkSession(connection=wish.where)
    except PySparkException:  # which may quote a token
        raise NoSession(
            f"{wish.place} is no address of a Spark Connect server: write sc://HOST:PORT, or sc://HOST:PORT/;NAME=VALUE"
        ) from None
    return _ready(_plain(session), wish)


def connect_again(gone: SparkSession, wish: Wish) -> SparkSession:
    """A session of the same server in place of one that it does not know any more; `NoServer`, `NoSession`."""
    return _ready(gone.newSession(), wish)


def copied(session: SparkSession) -> SparkSession:
    """A session of the same server with the same settings; `discard` it in the end."""
    copy = cast(Any, session).cloneSession()
    _be_quick(copy)
    return _plain(copy)


def discard(session: SparkSession) -> None:
    """End a session on its server, if that answers, and the connection to it. (Its `stop` would end a server that PySpark has
    started in this process, too.)"""
    with suppress(Exception):
        _client(session).release_session()
    close(session)


def stop(session: SparkSession) -> None:
    """End this process's own session."""
    discard(session)
    os.environ.pop(_MODE, None)


def close(session: SparkSession) -> None:
    """End the connection; the server forgets the session by itself."""
    with suppress(Exception):
        _client(session).close()


def own_session() -> SparkSession | None:
    """The session that this process has already; None: it has none."""
    session = connect_session.SparkSession._get_default_session()
    return None if session is None else _plain(session)


def _ready(session: SparkSession, wish: Wish) -> SparkSession:
    """Give a new session its settings; the first calls to the server."""
    _be_quick(session)
    try:
        for name, value in {**SQL_DEFAULTS, **wish.conf}.items():
            session.conf.set(name, value)
            if name.startswith(_HADOOP):
                # A session's settings are Hadoop's by their own names; those with the prefix are the server's.
                session.conf.set(name.removeprefix(_HADOOP), value)
    except PySparkException as error:
        close(session)
        found = _AWAY.search(str(error))
        if found is not None:
            raise NoServer(
                f"the Spark Connect server {wish.place} does not answer: {found.group(1)}"
            ) from None
        raise NoSession(
            f"the Spark Connect server {wish.place} gives no session: {str(error).splitlines()[0]}"
        ) from None
    except BaseException:
        close(session)
        raise
    # PySpark asks here and there for the process's session, or the thread's, and may take one that has ended for it.
    theirs: Any = connect_session.SparkSession
    theirs._default_session = theirs._active_session.session = session
    os.environ[_MODE] = "1"
    return session


def _be_quick(session: SparkSession) -> None:
    """Have a session give up soon."""
    _client(session).set_retry_policies([_Quick(max_retries=_TRIES, max_backoff=_LONGEST_WAIT_MS)])


def _client(session: SparkSession) -> Any:
    return cast(Any, session).client


def _plain(session: object) -> SparkSession:
    """PySpark's two kinds of sessions have no class in common, but what they can do."""
    return cast("SparkSession", session)


class _Quick(DefaultPolicy):
    """Spark's own rule of what is tried again, without its warning when it was tried often enough."""

    def to_state(self) -> RetryPolicyState:
        return _Tries(self)


class _Tries(RetryPolicyState):
    """The tries of one call."""

    def can_retry(self, exception: BaseException) -> bool:
        limit = self.policy.max_retries
        return (limit is None or self._attempt < limit) and super().can_retry(exception)
