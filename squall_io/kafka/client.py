"""What the spout and the sink of Kafka share: the settings of their clients, what errors mean, and what clients say beside.

confluent_kafka is imported where it is used. Must not know: topics, tuples.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from squall_io.kit.secrets import NoSecret, resolved, secret_problem
from squall_io.kit.waiting import LOG_AGAIN
from topology_api import SquallError
from topology_api.wording import typed

#: Values of librdkafka's settings.
Value = str | int | float | bool

_ADDRESS: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
#: Parts of the names of settings that hold secrets.
_SECRET: Final = ("password", "secret", "passphrase", "key.pem")
#: The one setting that is a function: it fetches a token, from its own secrets.
_OAUTH: Final = "oauth_cb"

#: Settings that no user gives, and what to do instead.
DECIDED: Final = {
    "bootstrap.servers": "give servers=",
    "metadata.broker.list": "give servers=",
    "logger": "the client's log is part of the task's log",
    "log_cb": "the client's log is part of the task's log",
    "error_cb": "errors of the client are reported",
    "stats_cb": "see the metrics of the component",
    "throttle_cb": "see the metrics of the component",
}

#: Errors that pass by themselves: brokers are down, not reached, or about to be what they were.
_AWAY: Final = frozenset({
    "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_DESTROY_BROKER",
    "_WAIT_COORD", "_WAIT_CACHE", "_IN_PROGRESS", "_RETRY", "REQUEST_TIMED_OUT", "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION", "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "NETWORK_EXCEPTION",
    "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "NOT_CONTROLLER",
    "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "KAFKA_STORAGE_ERROR", "OFFSET_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "UNSTABLE_OFFSET_COMMIT", "CONCURRENT_TRANSACTIONS",
    "THROTTLING_QUOTA_EXCEEDED", "PREFERRED_LEADER_NOT_AVAILABLE", "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "THROTTLED",
})  # fmt: skip
#: What the name of a topic is.
TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_CREDENTIALS: Final = "check `sasl.mechanism`, `sasl.username` and `sasl.password` in the settings"
_NO_TOPIC: Final = "create the topic, or correct the argument that names it"
#: What helps against errors that do not pass by themselves.
_ADVICE: Final = {
    "_AUTHENTICATION": _CREDENTIALS,
    "SASL_AUTHENTICATION_FAILED": _CREDENTIALS,
    "UNSUPPORTED_SASL_MECHANISM": _CREDENTIALS,
    "ILLEGAL_SASL_STATE": _CREDENTIALS,
    "_SSL": "check `security.protocol` and the `ssl.*` settings",
    "_UNKNOWN_TOPIC": _NO_TOPIC,
    "_UNKNOWN_PARTITION": _NO_TOPIC,
    "UNKNOWN_TOPIC_OR_PART": _NO_TOPIC,
    "UNKNOWN_TOPIC_ID": _NO_TOPIC,
    "TOPIC_EXCEPTION": "give a valid name of a topic",
    "TOPIC_AUTHORIZATION_FAILED": "give the user the rights that it needs for this topic (Describe; Read, or Write)",
    "GROUP_AUTHORIZATION_FAILED": "give the user the right Read for this group, or give another group",
    "CLUSTER_AUTHORIZATION_FAILED": "give the user the right to do this in the cluster",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "give the user the rights Describe and Write for this transactional id",
}  # fmt: skip
#: What a client says of its connections when they are refused: the errors of its calls say only that time is over.
_REFUSED: Final = frozenset(
    ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "_SSL")
)


class KafkaRefused(SquallError):
    """Kafka refuses what a connector asks for, and will until something is changed: credentials, rights, a topic."""


class MissingTopic(KafkaRefused):
    """There is no such topic."""


def loaded(component: str, module: str = "confluent_kafka") -> Any:
    """Return a module of confluent_kafka. component: the class that needs it, for the error."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and not error.name.startswith("confluent_kafka"):
            raise  # a library that this module needs: the caller knows the extra
        raise SquallError(
            f"{component} needs confluent-kafka: install Squall with its extra `kafka`"
        ) from None


def servers_problem(servers: object) -> str | None:
    """Return why an argument names no brokers; None if it does. It is "HOST:PORT,HOST:PORT", or a list of "HOST:PORT"."""
    addresses = servers.split(",") if isinstance(servers, str) else servers
    wanted = 'give the addresses of brokers: "kafka1:9092,kafka2:9092"'
    if not isinstance(addresses, Sequence) or not addresses:
        return f"servers is {typed(servers)}: {wanted}"
    for address in addresses:
        if not isinstance(address, str) or not _ADDRESS.fullmatch(address.strip()):
            return f"servers has {typed(address)}: {wanted}"
    return None


def addresses_of(servers: str | Sequence[str]) -> str:
    """Return an argument that names brokers as librdkafka takes it."""
    addresses = servers.split(",") if isinstance(servers, str) else servers
    return ",".join(address.strip() for address in addresses)


def settings_problems(settings: object, decided: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the user's settings of a client. No text shows the value of a secret.

    decided: the settings that the connector decides itself, and what to do instead; `DECIDED` is added.
    """
    if settings is None:
        return
    if not isinstance(settings, Mapping):
        yield f'settings is {typed(settings)}: give a dict, {{"security.protocol": "SASL_SSL"}}'
        return
    for name, value in settings.items():
        if not isinstance(name, str):
            yield f"settings has the name {typed(name)}: give the name of a setting of librdkafka"
        elif (instead := {**DECIDED, **decided}.get(name)) is not None:
            yield f"settings has {name!r}, which is decided already: {instead}"
        elif name == _OAUTH:
            if not callable(value):
                yield f"settings[{name!r}] is {typed(value)}: give a function that can be imported"
        elif any(part in name for part in _SECRET):
            if (problem := secret_problem(f"settings[{name!r}]", value)) is not None:
                yield problem
        elif not isinstance(value, Value):
            yield f"settings[{name!r}] is {typed(value)}: give text, a number, True or False"


def client_settings(
    servers: str | Sequence[str], settings: Mapping[str, Any] | None, own: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings of a client: the connector's own, under the user's, whose secrets are looked up. Raises NoSecret."""
    given = dict(settings or {})
    try:
        return {**own, **resolved(given), "bootstrap.servers": addresses_of(servers)}
    except NoSecret as error:
        raise NoSecret(f"settings of Kafka: {error}") from None


def made(kind: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    """Return a client. Raises SquallError for a setting that librdkafka does not know or take."""
    try:
        return kind(dict(settings))
    except Exception as error:
        if type(error).__name__ not in ("KafkaException", "ValueError", "TypeError"):
            raise
        known: Any = error.args[0] if error.args else error
        text = known.str() if hasattr(known, "str") else str(known)
        raise SquallError(
            f"the settings of Kafka are refused: {text}; see librdkafka's CONFIGURATION.md"
        ) from None


def is_away(error: Any) -> bool:
    """Return whether a KafkaError passes by itself."""
    return error.name() in _AWAY or bool(error.retriable())


def text_of(error: Any) -> str:
    """Return what a KafkaError says, on one line."""
    text = " ".join(str(error.str()).split())
    return text if text else str(error.name())


def refusal(error: Any, what: str) -> KafkaRefused:
    """Return an error for a KafkaError that does not pass by itself. what: what failed: "topic 'orders' cannot be read"."""
    advice = _ADVICE.get(error.name())
    return KafkaRefused(f"{what}: {text_of(error)}" + (f": {advice}" if advice else f" ({error.name()})"))


class ClientEvents:
    """What a client says beside its answers: errors of its connections, and lines for the log.

    The client calls these methods within its own calls (`poll`, `consume`, `flush`), in the thread of the task. Of each kind of
    line one a minute is logged: a client repeats them with each attempt to connect.
    """

    def __init__(self, log: logging.Logger, now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._logged: dict[str, float] = {}
        self._left_out: dict[str, int] = {}
        #: The last error of a connection; None after `cleared`.
        self.last: Any = None
        #: The last error of a connection that was refused; None after `cleared`.
        self.refused: Any = None

    @property
    def settings(self) -> dict[str, Any]:
        """What connects a client with this object."""
        return {"error_cb": self.error, "logger": self}

    def error(self, error: Any) -> None:
        """Take an error of a connection."""
        if error.name() != "_ALL_BROKERS_DOWN" or self.last is None:  # it says less than the one before
            self.last = error
        if error.name() in _REFUSED:
            self.refused = error

    def cleared(self) -> None:
        """Forget errors: the client has answers again."""
        self.last = self.refused = None

    def reason(self, otherwise: str) -> str:
        """Return why there is no answer, as far as it is known."""
        return otherwise if self.last is None else text_of(self.last)

    def log(self, level: int, text: str, *arguments: Any) -> None:
        """Write a line of the client, unless one of its kind was written within the last minute."""
        kind = f"{level} {arguments[0] if arguments else text}"
        now = self._now()
        if (last := self._logged.get(kind)) is not None and now - last < LOG_AGAIN:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._logged[kind] = now
        more = self._left_out.pop(kind, 0)
        line = text % arguments if arguments else text
        self._log.log(
            min(level, logging.WARNING), "%s%s", line, f" (and {more} more like this)" if more else ""
        )
