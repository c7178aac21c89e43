"""One connection to a Redis server: commands go out together, and their answers come in the same order.

What passes by itself is `RedisAway`: the server does not answer, loads its data, is a replica for now, or takes no writes for
now. What does not is `RedisRefused`: a login, rights, a key of another type. Which is which: `meaning_of`.
redis-py is imported where it is used. Must not know: tuples, streams.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

from squall_io.kit.secrets import resolve
from squall_io.redis.address import (
    Sentinels,
    client_settings,
    sentinels_of,
    shown_address,
    url_of_master,
)
from topology_api import SquallError

#: Seconds for which an answer is awaited.
ANSWER_SECONDS: Final = 10.0
#: The same for a Sentinel: there are others to ask.
SENTINEL_SECONDS: Final = 2.0
#: The least version of a server: since then a stream knows how many entries it ever had.
LEAST_VERSION: Final = 7
#: A command: its name and its arguments.
Command = tuple[str | bytes | int, ...]

#: What the server says while it takes no writes, or no commands at all, for now: by its first word.
_AWAY: Final = {
    "LOADING": "it loads its data",
    "READONLY": "it is a replica, until it is made the master or the address leads to the master",
    "MASTERDOWN": "it is a replica without its master",
    "NOREPLICAS": "it has too few replicas (min-replicas-to-write)",
    "MISCONF": "it takes no writes, since it cannot store its data (see its log)",
    "OOM": "its memory is used up (maxmemory), and it evicts nothing",
    "BUSY": "it runs a script",
    "TRYAGAIN": "it moves keys",
    "MAXCLIENTS": "it has too many clients (maxclients)",
}
#: What redis-py makes of these words: it cuts them off.
_CLASSES: Final = {
    "BusyLoadingError": "LOADING",
    "ReadOnlyError": "READONLY",
    "MasterDownError": "MASTERDOWN",
    "OutOfMemoryError": "OOM",
    "TryAgainError": "TRYAGAIN",
    "MaxClientsError": "MAXCLIENTS",
}
_LOGIN: Final = "correct the user in url, and the password"
_CLUSTER: Final = (
    "it is a node of a Redis Cluster, which Squall does not support: give a server without cluster mode"
)


class RedisRefused(SquallError):
    """Redis refuses what a connector asks for, and will until something is changed: a login, rights, the type of a key."""


class RedisAway(SquallError):
    """Redis does not answer, or cannot do it now. Whether a command was carried out is not known."""


def loaded(component: str, module: str = "redis") -> Any:
    """Return a module of redis-py. component: the class that needs it, for the error."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and not error.name.startswith("redis"):
            raise
        raise SquallError(f"{component} needs redis-py: install Squall with its extra `redis`") from None


def meaning_of(error: Exception, where: str) -> SquallError:
    """Return a RedisAway or a RedisRefused for an error of redis-py. where: the server."""
    name, text = type(error).__name__, " ".join(str(error).split())
    word = _CLASSES.get(name, text.partition(" ")[0])
    if name == "ExecAbortError":  # the server changed between the commands and EXEC
        word = text.partition("because of: ")[2].partition(" ")[0]
    if word == "max" and "number of clients" in text:
        word = "MAXCLIENTS"
    if (why := _AWAY.get(word)) is not None:
        return RedisAway(f"{why}: {text}")
    if name == "NoPermissionError" or word == "NOPERM":
        return RedisRefused(f"{where} refuses it: {text}: give the user these rights (ACL SETUSER)")
    if "HELLO must be called" in text or "Authentication required" in text:
        return RedisRefused(
            f"{where} wants a password: name it with password, and the user, if it is another, in url"
        )
    if name.startswith(("Authentication", "Authorization")) or word in ("NOAUTH", "WRONGPASS"):
        return RedisRefused(f"{where} refuses the login: {text}: {_LOGIN}")
    if word in ("MOVED", "ASK", "CROSSSLOT", "CLUSTERDOWN") or name in ("MovedError", "AskError"):
        return RedisRefused(f"{where}: {_CLUSTER} ({text})")
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return RedisRefused(f"{where}: {text}: name the authority with ?ssl_ca_certs=/PATH in url")
    if "Protocol error" in text:
        return RedisRefused(f"{where} refuses it: {text}: a value is larger than its `proto-max-bulk-len`")
    if name in ("ConnectionError", "TimeoutError", "ChildDeadlockedError", "InvalidResponse"):
        return RedisAway(text or name)
    if isinstance(error, OSError):
        return RedisAway(text or name)
    return RedisRefused(f"{where} refuses it: {text or name}")


class RedisConnection:
    """The connection of one task, made when it is needed. All methods raise RedisAway and RedisRefused.

    component: the class that needs it. After an error the connection is closed: what was sent may have been carried out.
    """

    def __init__(self, url: str, password: str | None, component: str) -> None:
        self._url, self._password, self._component = url, password, component
        self.where = f"Redis at {shown_address(url)}"
        self._redis = loaded(component)
        self._connection: Any = None

    def call(self, *commands: Command) -> list[Any]:
        """Send commands, and return their answers in order. An answer may be a ResponseError of redis-py: see `fault_in`."""
        try:
            connection = self._connection or self._connect()
            return self._answers(connection, commands)
        except BaseException as error:
            self.close()  # its next answer would be that of an earlier command
            if isinstance(error, (self._redis.RedisError, OSError)):
                raise meaning_of(error, self.where) from error
            raise

    def ask(self, *command: str | bytes | int) -> Any:
        """Send one command, and return its answer. Raises RedisRefused if it is an error."""
        (answer,) = self.call(command)
        if self.is_fault(answer):
            raise self.fault_in(answer)
        return answer

    def is_fault(self, answer: object) -> bool:
        """Return whether an answer is an error."""
        return isinstance(answer, self._redis.RedisError)

    def fault_in(self, answer: Any) -> SquallError:
        """Return the error that an answer is. While the server takes nothing, the connection is closed, so that the next one
        may lead to another server."""
        fault = meaning_of(answer, self.where)
        if isinstance(fault, RedisAway):
            self.close()
        return fault

    def close(self) -> None:
        """Close the connection; the next call makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _connect(self) -> Any:
        password = None if self._password is None else resolve("password", self._password)
        settings = client_settings(password, ANSWER_SECONDS)
        sentinels = sentinels_of(self._url)
        url = self._url if sentinels is None else url_of_master(self._url, *self._master(sentinels))
        connection = self._redis.ConnectionPool.from_url(url, **settings).make_connection()
        try:
            connection.connect()
            (greeting,) = self._answers(connection, [("HELLO",)])
            self._check(greeting, must_be_master=sentinels is not None)
        except BaseException:
            connection.disconnect()
            raise
        self._connection = connection
        return connection

    def _master(self, sentinels: Sentinels) -> tuple[str, int]:
        """Return the host and the port of the master, as the first Sentinel says that knows it."""
        reasons, knows = [], False
        for host, port in sentinels.hosts:
            settings = client_settings(None, SENTINEL_SECONDS)
            asked = self._redis.Connection(host=host, port=port, **settings)
            try:
                (answer,) = self._answers(asked, [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinels.master)])
            except (self._redis.RedisError, OSError) as error:
                reasons.append(" ".join(str(error).split()))
            else:
                if self.is_fault(answer):
                    raise answer
                if answer is not None:
                    return answer[0].decode(), int(answer[1])
                knows = True
            finally:
                asked.disconnect()
        if knows:
            raise RedisRefused(
                f"{self.where}: the Sentinels know no master {sentinels.master!r}: correct its name in url"
            )
        raise RedisAway(f"no Sentinel answers: {'; '.join(reasons)}")

    def _check(self, greeting: Any, must_be_master: bool) -> None:
        """Raise RedisRefused for a server that is none for Squall, and RedisAway for one that is to be a master and is none."""
        if self.is_fault(greeting):
            raise greeting
        known = {name.decode(): value for name, value in greeting.items()}
        mode, version = known.get("mode", b"").decode(), known.get("version", b"").decode()
        if mode == "cluster":
            raise RedisRefused(f"{self.where}: {_CLUSTER}")
        if mode == "sentinel":
            raise RedisRefused(f"{self.where} is a Sentinel: give redis+sentinel://HOST:PORT/MASTER/DATABASE")
        if (major := version.partition(".")[0]).isdecimal() and int(major) < LEAST_VERSION:
            raise RedisRefused(f"{self.where} is version {version}: Squall needs {LEAST_VERSION} or newer")
        if must_be_master and known.get("role") != b"master":
            raise RedisAway("the Sentinels name a server that is no master yet")

    def _answers(self, connection: Any, commands: Sequence[Command]) -> list[Any]:
        connection.send_packed_command(connection.pack_commands(commands))
        answers: list[Any] = []
        for _ in commands:
            try:
                answers.append(connection.read_response())
            except self._redis.ResponseError as error:
                if "Protocol error" in str(error):
                    raise  # the server hangs up
                answers.append(error)
        return answers
