"""How the Kafka sink writes rows: in a transaction with the number of a token, or, without one, until all are delivered.

A token is written by the producer whose transactional id is made of it. A new producer of this id fences off the older ones,
and ends what they have left open; then the topic of tokens says what is written. So as long as a producer is not fenced off,
nothing else has changed the number that it read.
Must not know: tuples, topologies, how values become bytes.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from squall_io.kafka.client import MissingTopic, is_away, refusal, text_of
from squall_io.kafka.cluster import STEP, UNKNOWN_SECS, Cluster, StoppedWaiting
from squall_io.kafka.messages import (
    ANY,
    REFUSALS,
    Row,
    TopicLimits,
    Undelivered,
    doubtful_positions,
    refused_by,
    refused_positions,
)
from topology_api import RowsRefused

#: How many tokens of one task stay open: its own, and few of tasks that no longer run.
MOST_OPEN: Final = 4
#: How often a write begins again with a new producer, since another process had fenced off the one before.
TURNS: Final = 3
#: Seconds between two looks at what has failed, while messages are under way.
_LOOK: Final = 0.1
#: Names of errors that say: another producer has the transactional id now.
_FENCED: Final = frozenset(
    ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")
)
#: The same: there is no such topic any more.
_MISSING: Final = frozenset(("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"))
#: For how many seconds a topic that was found to be missing is not waited for again.
MISSING_SECS: Final = 30.0
#: The longest transactional id that is made of a token as it is.
_LONGEST_ID: Final = 200
#: What the client takes and batches, unless the topic says otherwise.
_MOST_BYTES: Final = 1_000_000
#: What every producer has, if the user's settings say nothing else. The partitioner is that of Kafka's own clients, so that
#: equal keys are in the same partition, with whatever they are written.
_PRODUCER: Final[dict[str, Any]] = {
    "partitioner": "murmur2_random",
    "queue.buffering.max.messages": 1_000_000,
    "linger.ms": 5,
}
_OWN: Final[dict[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    "delivery.report.only.error": True,
}


class OthersWritten(RowsRefused):
    """Rows without a token were refused, and all others of the call are written."""


class Deliveries:
    """The messages of one write that were not delivered. Successes are not reported: of these the client only says how many are
    left, which costs nothing for each message."""

    def __init__(self) -> None:
        self.failed: list[Undelivered] = []
        #: The error of each.
        self.errors: list[Any] = []

    def __call__(self, error: Any, message: Any) -> None:
        if error is not None:
            self.report(None, error, message)

    def report(self, at: int | None, error: Any, message: Any) -> None:
        """Note the report about the row at a position."""
        if error is not None:
            topic, partition = message.topic(), message.partition()
            self.add(error, topic, partition, message.value(), message.key(), at)

    def add(self, error: Any, *message: Any) -> None:
        """Add a message: topic, partition, value, key, and the position of its row."""
        self.errors.append(error)
        self.failed.append(Undelivered(error.name(), text_of(error), *message))


class _BatchRefused(Exception):
    """A batch of several messages was refused: which of them is to blame is not known."""


class Producing:
    """The producers of one task.

    topic: of rows that name none; "" if all name one.
    """

    def __init__(self, cluster: Cluster, topic: str, tokens: str, settings: Mapping[str, Any]) -> None:
        self.cluster, self.topic, self.tokens = cluster, topic, tokens
        self._settings = settings
        self._limits: dict[str, TopicLimits] = {}
        #: Topics that rows have named and that were missing, and since when.
        self._missed: dict[str, float] = {}
        self._compressed = any(
            settings.get(name, "none") != "none" for name in ("compression.type", "compression.codec")
        )
        self._plain: Any = None
        self._writers: dict[str, _TokenWriter] = {}
        self._tokens_exist = False
        self.what = f"topic {topic!r} cannot be written" if topic else "topics cannot be written"

    def check_topic(self) -> None:
        """Find what the topic takes. Raises KafkaRefused if it is missing, or may not be written."""
        if self.topic and self.topic not in self._limits:
            self._limits[self.topic] = self.cluster.limits(self.topic)

    def close(self) -> None:
        """Close the producers."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        if self._plain is not None:
            self._plain.purge()
            self._plain.flush(0)
            self._plain = None
        self.cluster.close()

    # Tokens.

    def read_token(self, token: str) -> int:
        """Return the number of a token, after all older producers of it were fenced off."""
        writer = self._writers.pop(token, None)
        if writer is not None:
            writer.close()
        writer = self._opened(token)
        self._keep(token, writer)
        return writer.number

    def write_once(self, rows: Sequence[Row], token: str, expected: int, epoch: int) -> bool:
        """Write the rows and the number of the token in one transaction, if its number is `expected`; return whether it was.

        Raises RowsRefused, with nothing written, KafkaRefused, StoppedWaiting, and KafkaException: then the token says what is
        written.
        """
        careful = False
        failure: Any = None
        for _ in range(TURNS):
            # A writer is kept only after a success: whatever is raised, and wherever, its successor ends what it has begun.
            writer = None if careful else self._writers.pop(token, None)
            try:
                if writer is None:
                    writer = self._opened(token, careful)
                written = writer.number == expected
                if written:
                    self._check(rows)
                    writer.commit(rows, epoch)
            except _BatchRefused as error:
                careful, failure = True, error.__cause__
            except self.cluster.kafka.KafkaException as error:
                failure = error
                if not _is_of_transactions(error.args[0]):
                    raise
            else:
                if not careful:
                    self._keep(token, writer)
                return written
            finally:
                if writer is not None and self._writers.get(token) is not writer:
                    writer.close()
        if _is_fenced(failure.args[0]):
            return False
        raise failure

    def _keep(self, token: str, writer: _TokenWriter) -> None:
        self._writers[token] = writer
        while len(self._writers) > MOST_OPEN:
            self._writers.pop(next(iter(self._writers))).close()

    def _opened(self, token: str, careful: bool = False) -> _TokenWriter:
        self.check_topic()
        if not self._tokens_exist:
            self.cluster.ensure_tokens(self.tokens)
            self._tokens_exist = True
        own = {**self._own(), "transactional.id": transactional_id(self.tokens, token)}
        if careful:
            own["batch.num.messages"] = 1
        return _TokenWriter(self, token, own, careful)

    # Without tokens.

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows, and wait until all are delivered.

        Raises RowsRefused, with nothing written, for rows of which it is known before; OthersWritten; and KafkaRefused,
        StoppedWaiting or KafkaException if it is not known of all rows whether they are there.
        """
        self.check_topic()
        self._check(rows)
        if self._plain is None:
            self._plain = self.cluster.producer(self._own())
        failed = self._delivered(self._plain, rows)
        if not failed:
            return
        # The broker refuses batches. Alone, each row is refused for what it is.
        doubtful = doubtful_positions(rows, self.topic, failed)
        alone = self.cluster.producer({**self._own(), "batch.num.messages": 1})
        left = [rows[at] for at in doubtful]
        found = refused_positions(self._delivered(alone, left, alone=True))
        self.forget_limits()
        if found:
            raise OthersWritten({doubtful[at]: why for at, why in found.items()})

    def _delivered(self, producer: Any, rows: Sequence[Row], alone: bool = False) -> list[Undelivered]:
        """Send rows until all are delivered or refused for good; return the refused. alone: each row is a request."""
        deliveries = Deliveries()
        try:
            self.send(producer, rows, deliveries, alone)
            self.flush(producer, deliveries)
            for each, error in zip(deliveries.failed, deliveries.errors, strict=True):
                if each.error not in REFUSALS:
                    raise self.reason(error)
        except BaseException:
            # What is still in its queue would be written later, beside what is tried again.
            self._plain = None
            with suppress(Exception):
                producer.purge()
                producer.flush(0)
            raise
        self.cluster.answered()
        return deliveries.failed

    # Both.

    def send(self, producer: Any, rows: Sequence[Row], deliveries: Deliveries, alone: bool = False) -> None:
        """Give rows to a producer, in their order. alone: each row is a request, and its position is reported with it."""
        produce, topic = producer.produce, self.topic
        report: Callable[[Any, Any], None] = deliveries
        for at, row in enumerate(rows):
            if alone:
                report = partial(deliveries.report, at)
            while True:
                try:
                    if len(row) == 2:
                        produce(topic, row[0], row[1], ANY, report)
                    else:
                        value, key, name, partition, when, headers = row
                        produce(name, value, key, partition, report, timestamp=when, headers=headers)
                    break
                except BufferError:
                    self._make_room(producer)
                except self.cluster.kafka.KafkaException as error:
                    if error.args[0].name() not in REFUSALS:
                        raise
                    name, number = (topic, ANY) if len(row) == 2 else row[2:4]
                    deliveries.add(error.args[0], name, number, row[0], row[1], at)
                    break

    def flush(self, producer: Any, deliveries: Deliveries, in_transaction: bool = False) -> None:
        """Wait until nothing is left in the queue of a producer. After a failure a transaction sends nothing more."""
        cluster, before = self.cluster, len(producer)

        def flushed(secs: float) -> None:
            nonlocal before
            until = time.monotonic() + secs
            while (left := producer.flush(_LOOK)) > 0 and not (in_transaction and deliveries.failed):
                if cluster.stopped() or (left >= before and time.monotonic() >= until):
                    raise cluster.late("no answer yet")
                if left < before:
                    before, until = left, time.monotonic() + secs
                    cluster.show(None)

        cluster.until(self.what, flushed, producer.poll)

    def _make_room(self, producer: Any) -> None:
        """Wait until messages have left the queue of the client, which is full."""
        before = len(producer)
        if self.cluster.stopped():
            raise StoppedWaiting(f"{self.what}: the task is stopped")
        producer.poll(0.05)
        if len(producer) < before:
            self.cluster.waiting.succeeded()
        elif self.cluster.events.last is not None:
            self.cluster.waiting.failed(self.cluster.events.reason(""))

    def forget_limits(self) -> None:
        """Ask again what topics take: they refuse what they should have taken."""
        self._limits.clear()

    def _check(self, rows: Sequence[Row]) -> None:
        """Raise RowsRefused for rows that would be refused, as far as it is known. What is known may be old: so it is asked
        again first."""
        missing = {} if self.topic else self._missing({row[2] for row in rows} - self._limits.keys())
        if found := self._refused(rows):
            if self.topic:
                self._limits = {self.topic: self.cluster.limits(self.topic)}
            else:
                known = [*self._limits]
                self._limits.clear()
                missing |= self._missing(known)
            found = self._refused(rows)
        if missing:
            found |= {at: missing[row[2]] for at, row in enumerate(rows) if row[2] in missing}
        if found:
            raise RowsRefused(found)

    def _missing(self, names: Iterable[str]) -> dict[str, str]:
        """Find what topics take that rows name; return why there is none of those that are missing. A row with a wrong name
        must not hold up the others: it is waited for once, and then asked for once in each call. Where the sink has one topic,
        all wait for it."""
        now, missing = time.monotonic(), {}
        self._missed = {name: since for name, since in self._missed.items() if now - since < MISSING_SECS}
        for name in names:
            until = 0.0 if name in self._missed else now + UNKNOWN_SECS
            try:
                self._limits[name] = self.cluster.limits(name, until)
            except MissingTopic as error:
                missing[name] = str(error)
                self._missed.setdefault(name, now)
            else:
                self._missed.pop(name, None)
        return missing

    def _refused(self, rows: Sequence[Row]) -> dict[int, str]:
        most = int(self._own()["message.max.bytes"])
        return refused_by(rows, self.topic, self._limits, most, self._compressed)

    def _own(self) -> dict[str, Any]:
        """Return the settings of a producer, the user's over its own: the client has those of the topic."""
        limits = self._limits.get(self.topic)
        most = limits.most_bytes if limits is not None and limits.most_bytes is not None else _MOST_BYTES
        own = {
            **_PRODUCER,
            "message.max.bytes": max(1000, most),
            # A batch that is larger than the topic takes would be refused as a whole.
            "batch.size": min(_MOST_BYTES, max(1, most)),
        }
        return {**own, **{name: value for name, value in self._settings.items() if name in own}, **_OWN}

    def reason(self, error: Any) -> Exception:
        """Return what to raise for the error of a message that was not delivered."""
        if error.name() in _MISSING:
            self.forget_limits()  # the next attempt finds which topic it is
        if is_away(error) or error.name().startswith("_PURGE"):
            failure: Exception = self.cluster.kafka.KafkaException(error)
            return failure
        return refusal(error, self.what)


class _TokenWriter:
    """The producer of a token, and the number that is committed under it."""

    def __init__(self, around: Producing, token: str, own: Mapping[str, Any], careful: bool) -> None:
        self._around, self._cluster, self._token, self._careful = around, around.cluster, token, careful
        self._producer = self._cluster.producer(own)
        # Connected before: otherwise the client waits for half a second until it looks for the coordinator again.
        self._call(lambda secs: self._producer.list_topics(around.tokens, timeout=secs))
        self._call(self._producer.init_transactions)
        self.number = self._cluster.last_number(around.tokens, token)

    def _call(self, call: Callable[[float], object]) -> None:
        kafka = self._cluster.kafka
        try:
            self._cluster.until(self._around.what, call, self._producer.poll)
        except kafka.KafkaException as error:
            reason = error.args[0]
            if reason.fatal() or reason.txn_requires_abort() or _is_fenced(reason) or is_away(reason):
                raise
            raise refusal(reason, self._around.what) from None

    def commit(self, rows: Sequence[Row], epoch: int) -> None:
        """Write rows and the number in one transaction."""
        around, producer, deliveries = self._around, self._producer, Deliveries()
        try:
            producer.begin_transaction()
            around.send(producer, rows, deliveries, self._careful)
            producer.produce(around.tokens, str(epoch), self._token, on_delivery=deliveries)
            around.flush(producer, deliveries, in_transaction=True)
            if deliveries.failed:
                raise self._cluster.kafka.KafkaException(deliveries.errors[0])
            self._call(producer.commit_transaction)
        except self._cluster.kafka.KafkaException as error:
            producer.poll(0)
            self._explain(rows, deliveries, error)
            raise
        self.number = epoch

    def _explain(self, rows: Sequence[Row], deliveries: Deliveries, error: Any) -> None:
        """Raise what is known about why a transaction failed, after it was aborted."""
        if error.args[0].fatal() or _is_fenced(error.args[0]):
            return
        # If the broker is away, the next producer of this token aborts.
        with suppress(self._cluster.kafka.KafkaException):
            self._producer.abort_transaction(5 * STEP)
        around = self._around
        if any(each.error in REFUSALS for each in deliveries.failed):
            around.forget_limits()
            found = refused_positions(deliveries.failed)
            if not (self._careful and found):
                raise _BatchRefused from error
            raise RowsRefused(found) from error
        for each in deliveries.errors:
            if _is_fenced(each):
                raise self._cluster.kafka.KafkaException(each) from error
            if not each.name().startswith("_PURGE"):
                raise around.reason(each) from error

    def close(self) -> None:
        """Close the producer; what it has begun is aborted by the next one of its token."""
        producer = self._producer
        with suppress(Exception):
            producer.purge()
            producer.flush(0)


def transactional_id(tokens: str, token: str) -> str:
    """Return the transactional id of a token: it begins with the name of the topic of tokens, so that rights can be given."""
    name = f"{tokens}/{token}"
    if len(name) <= _LONGEST_ID:
        return name
    return f"{tokens}/{hashlib.sha256(token.encode()).hexdigest()}"


def _is_fenced(error: Any) -> bool:
    return error.name() in _FENCED


def _is_of_transactions(error: Any) -> bool:
    """Return whether a new producer may have more success: the transaction is void, and the broker answers."""
    return _is_fenced(error) or bool(error.fatal() or error.txn_requires_abort())
