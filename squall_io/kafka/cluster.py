"""The brokers as the Kafka sink sees them: what topics take, the topic of tokens, and waiting while there is no answer.

Must not know: tuples, transactions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from squall_io.kafka.client import (
    ClientEvents,
    KafkaRefused,
    MissingTopic,
    client_settings,
    is_away,
    loaded,
    made,
    refusal,
    text_of,
)
from squall_io.kafka.messages import TopicLimits
from squall_io.kit.waiting import Waiting
from topology_api import SquallError

T = TypeVar("T")
#: Seconds of a single call; longer waits are made of such calls, so that a sink notices when it is stopped.
STEP: Final = 1.0
#: Seconds for which a topic may be unknown, since it is being created, before that is an error.
UNKNOWN_SECS: Final = 1.5
#: What every client of the sink has, if the user's settings say nothing else.
_CLIENT: Final = {
    "reconnect.backoff.max.ms": 2000,
    "socket.timeout.ms": 10_000,
    "socket.keepalive.enable": True,
}
#: Settings that only producers have.
_OF_PRODUCERS: Final = (
    "acks", "request.required.acks", "batch.", "compression.", "delivery.", "linger.ms", "message.send.max.retries",
    "message.timeout.ms", "partitioner", "queue.buffering.", "request.timeout.ms", "retries", "sticky.partitioning.",
    "transaction.timeout.ms", "enable.gapless.guarantee", "queuing.strategy",
)  # fmt: skip
#: The topic of tokens has a short tail that is not compacted, so that reading it takes no time.
_OF_TOKENS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 2**20),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "86400000",
}


class StoppedWaiting(SquallError):
    """The worker ends, or its tasks return to the last commit, while the sink waits for Kafka."""


class Cluster:
    """The brokers of a sink.

    show: takes what `squall status` shows; None: the call goes on. stopped: whether a call that waits has
    to end. now: the clock.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        settings: Mapping[str, Any] | None,
        log: logging.Logger,
        show: Callable[[str | None], object],
        stopped: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._servers, self._settings = servers, settings
        self.events = ClientEvents(log, now)
        self.waiting = Waiting(
            f"Kafka at {client_settings(servers, None, {})['bootstrap.servers']}", log, show, now
        )
        self.show, self.stopped = show, stopped
        self.kafka = loaded("KafkaSink")
        self._admin: Any = None

    # Clients.

    def producer(self, own: Mapping[str, Any]) -> Any:
        """Return a new producer."""
        settings = client_settings(self._servers, self._settings, {**_CLIENT, **own})
        return made(self.kafka.Producer, {**settings, **self.events.settings})

    def _client(self, kind: Callable[..., Any], own: Mapping[str, Any]) -> Any:
        """Return a client that sends nothing: without the settings of producers."""
        kept = {
            name: value
            for name, value in (self._settings or {}).items()
            if not name.startswith(_OF_PRODUCERS)
        }
        settings = {**client_settings(self._servers, kept, _CLIENT), **own}
        return made(kind, {**settings, **self.events.settings})

    @property
    def admin(self) -> Any:
        """A client that asks for topics and makes them."""
        if self._admin is None:
            self._admin = self._client(loaded("KafkaSink", "confluent_kafka.admin").AdminClient, {})
        return self._admin

    def close(self) -> None:
        """Close what is open."""
        self._admin = None

    # Waiting.

    def until(self, what: str, call: Callable[[float], T], serve: Callable[[float], object]) -> T:
        """Make a call until Kafka answers it. Raises KafkaRefused, StoppedWaiting, and KafkaException if waiting does not help.

        what: what fails if it does: "topic 'orders' cannot be written". call: takes the most seconds that it lasts. serve: lets
        the client of the call say what it has to say, for some seconds (`poll`).
        """
        while True:
            if self.stopped():
                raise StoppedWaiting(f"{what}: the task is stopped while it waits for {self.waiting.what}")
            begun = time.monotonic()
            try:
                answer = self._made(call)
            except self.kafka.KafkaException as error:
                serve(0)
                self.failed(what, error)
                left = self.waiting.failed(self.events.reason(text_of(error.args[0])))
                if (left := min(left, STEP) - (time.monotonic() - begun)) > 0:
                    serve(left)
            else:
                self.answered()
                return answer

    def _made(self, call: Callable[[float], T]) -> T:
        try:
            return call(STEP)
        except SystemError as error:
            # confluent_kafka reports a deadly error of a producer by an exception beside the reports of deliveries, which then
            # fail in Python.
            if isinstance(error.__cause__, self.kafka.KafkaException):
                raise error.__cause__ from None
            raise

    def failed(self, what: str, error: Any) -> None:
        """Take note of a KafkaException: raise what waiting does not help."""
        reason = error.args[0]
        if self.events.refused is not None:
            raise refusal(self.events.refused, what) from None
        if reason.fatal() or reason.txn_requires_abort() or not is_away(reason):
            raise error

    def answered(self) -> None:
        """Take note that Kafka answers."""
        self.events.cleared()
        self.waiting.succeeded()

    def late(self, text: str) -> Exception:
        """Return an error for a call that has no answer so far."""
        error: Exception = self.kafka.KafkaException(
            self.kafka.KafkaError(self.kafka.KafkaError._TIMED_OUT, text)
        )
        return error

    def _asked(self, what: str, call: Callable[[float], T]) -> T:
        admin = self.admin
        try:
            return self.until(what, call, admin.poll)
        except self.kafka.KafkaException as error:
            raise refusal(error.args[0], what) from None

    # Topics.

    def limits(self, topic: str, until: float | None = None) -> TopicLimits:
        """Return what a topic takes. Raises MissingTopic if there is none at a time (`time.monotonic`; 0: ask once), and
        KafkaRefused."""
        what = f"topic {topic!r} cannot be written"
        until = time.monotonic() + UNKNOWN_SECS if until is None else until
        while True:
            found = self._asked(what, lambda secs: self.admin.list_topics(topic, timeout=secs)).topics[topic]
            if found.error is None:
                break
            missing = found.error.name() == "UNKNOWN_TOPIC_OR_PART"
            if not is_away(found.error) and (not missing or time.monotonic() > until):
                error = refusal(found.error, f"{what} at {self.waiting.what}")
                raise MissingTopic(str(error)) if missing else error
            self.admin.poll(0.2)
        configured = self._configured(topic)
        most = configured.get("max.message.bytes", "")
        return TopicLimits(
            partitions=len(found.partitions),
            most_bytes=int(most) if most.isdecimal() else None,
            needs_key="compact" in configured.get("cleanup.policy", ""),
        )

    def _configured(self, topic: str) -> dict[str, str]:
        """Return the configuration of a topic; {} if the user may not see it."""
        module = loaded("KafkaSink", "confluent_kafka.admin")
        resource = module.ConfigResource(module.ResourceType.TOPIC, topic)

        def described(secs: float) -> Any:
            return self.admin.describe_configs([resource], request_timeout=secs)[resource].result(2 * secs)

        try:
            found = self.until(f"topic {topic!r} is not described", described, self.admin.poll)
        except self.kafka.KafkaException:
            return {}
        return {name: entry.value for name, entry in found.items() if entry.value is not None}

    def ensure_tokens(self, topic: str) -> None:
        """Create the topic of tokens if it is missing. Another task may do so at the same time. Raises KafkaRefused."""
        what = f"the topic of tokens, {topic!r}, is missing and cannot be created"
        module = loaded("KafkaSink", "confluent_kafka.admin")

        def there(secs: float) -> bool:
            return self.admin.list_topics(timeout=secs).topics.get(topic) is not None

        if self._asked(what, there):
            policy = self._configured(topic).get("cleanup.policy", "compact")
            if policy != "compact":
                raise KafkaRefused(
                    f"the topic of tokens, {topic!r}, has cleanup.policy={policy}, so Kafka would forget what is written:"
                    " set it to compact, or name another topic with tokens="
                )
            return
        new = module.NewTopic(topic, 1, replication_factor=-1, config=_OF_TOKENS)

        def created(secs: float) -> None:
            try:
                self.admin.create_topics([new], request_timeout=secs)[topic].result(2 * secs)
            except self.kafka.KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise

        self._asked(what, created)
        while not self._asked(what, there):
            self.admin.poll(0.05)

    def last_number(self, topic: str, token: str) -> int:
        """Return the highest number that is committed under a token; 0 if there is none.

        Everything is read that is in the topic now, also what is behind an open transaction of another task: it waits for its
        end.
        """
        what = f"the topic of tokens, {topic!r}, cannot be read"
        kafka, module = self.kafka, loaded("KafkaSink", "confluent_kafka.admin")
        found = self._asked(what, lambda secs: self.admin.list_topics(topic, timeout=secs)).topics[topic]
        if found.error is not None:
            raise refusal(found.error, what)
        places = [kafka.TopicPartition(topic, number) for number in found.partitions]
        latest, raw = module.OffsetSpec.latest(), kafka.IsolationLevel.READ_UNCOMMITTED

        def ends(secs: float) -> dict[int, int]:
            asked = self.admin.list_offsets(
                dict.fromkeys(places, latest), isolation_level=raw, request_timeout=secs
            )
            return {place.partition: each.result(2 * secs).offset for place, each in asked.items()}

        left = {partition: end for partition, end in self._asked(what, ends).items() if end > 0}
        reader = self._client(kafka.Consumer, {
            "group.id": topic, "enable.auto.commit": False, "isolation.level": "read_committed",
            "auto.offset.reset": "earliest", "enable.partition.eof": True, "fetch.wait.max.ms": 20,
        })  # fmt: skip
        try:
            reader.assign([kafka.TopicPartition(topic, number, 0) for number in left])
            return self._read(reader, what, left, token.encode())
        finally:
            reader.close()

    def _read(self, reader: Any, what: str, left: dict[int, int], token: bytes) -> int:
        """Read up to the ends of partitions."""
        highest = 0

        def some(secs: float) -> list[Any]:
            if (message := reader.poll(secs)) is None:
                raise self.late(f"{what}: no answer yet, or a transaction of another task is open")
            messages = [message]
            while (message := reader.poll(0)) is not None:
                messages.append(message)
            for message in messages:
                # The reader commits nothing, so it needs no rights for its group, which the client asks for all the same.
                error = message.error()
                if error is not None and error.name() not in ("_PARTITION_EOF", "GROUP_AUTHORIZATION_FAILED"):
                    raise self.kafka.KafkaException(error)
            return messages

        while left:
            for message in self.until(what, some, time.sleep):
                at = message.offset()
                if message.topic() is None:
                    continue
                if message.error() is None:
                    at += 1
                    if message.key() == token:
                        highest = max(highest, number_of(message.value(), self.waiting.what))
                if at >= left.get(message.partition(), at + 1):
                    del left[message.partition()]
        return highest


def number_of(value: bytes | None, where: str) -> int:
    """Return the number in a record of tokens."""
    if value is None:
        return 0
    if not value.isdigit():
        raise KafkaRefused(
            f"the topic of tokens at {where} has a record that is no number: name a topic of its own"
        )
    return int(value)
