"""KafkaSink: a bolt that writes a message for each tuple to a topic of Kafka.

    builder.set_bolt("write", KafkaSink("orders", servers="kafka1:9092", key="id")).shuffle_grouping("orders")

Must not know: clients, transactions, how values become messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from squall_io.kafka.client import TOPIC, servers_problem, settings_problems
from squall_io.kafka.messages import Shape, row_maker
from squall_io.kit.codecs import Encode, MessageCodec, encoder, format_problem
from topology_api import Fields, InvalidConfig
from topology_api.token_sink import TokenSink
from topology_api.wording import listed, typed

if TYPE_CHECKING:
    from squall_io.kafka.producing import Producing
    from topology_api import Context, Tuple

#: What a user's settings may not say, and what to do instead.
DECIDED: Final = {
    "transactional.id": "it is made of the state of the topology and the task",
    "enable.idempotence": "the sink always sets it",
    "acks": "the sink waits for all replicas in sync",
    "request.required.acks": "the sink waits for all replicas in sync",
    "delivery.report.only.error": "the sink decides which reports it needs",
    "isolation.level": "the sink reads its tokens with read_committed",
    "batch.num.messages": "give batch.size, in bytes",
}


class KafkaSink(TokenSink):
    """Writes a message for each tuple. The topic must exist; the topic of tokens is created if it is missing.

    In a topology with `topology.state.path` each message is there once, for readers with `isolation.level=read_committed`: the
    messages of an epoch are one transaction. In any other, messages are written at least once, by an idempotent producer.

    topic: the topic, or a function that can be imported, from the tuple to the name of its topic.
    servers: the brokers: "kafka1:9092,kafka2:9092", or a list.
    key: the field that is the key; None: messages have no key. None in the field makes a message without one. Messages with the
        same key stay in order.
    fields: the field that is the value (None in it writes a tombstone, a message without a value), or a list of fields, which
        are written as one object. None: an object of all fields.
    encode: how a value becomes bytes: "json", "str", "bytes", a function that returns bytes, or a codec with a schema registry.
    encode_key: the same for keys.
    headers: the field of each header, {"source": "host"}. Fields have text, bytes or None.
    partition: the field with the number of the partition; None: the key decides, by the hash of Kafka's Java clients
        (murmur2_random).
    timestamp: the field with the time of the message, a datetime with a time zone or milliseconds since 1970; None: when it is
        sent.
    tokens: the topic that keeps what was written; created with one partition, compacted, if it is missing. Do not delete or
        change it.
    settings: further settings of librdkafka. A secret is named: `env:NAME`, a variable of the workers, or `file:PATH`, a file
        on their hosts.
    """

    _producing: Producing | None = None
    _made: Callable[[Tuple], Any]
    #: Whether all other rows of the batch were written when some were refused.
    _others_written = False

    def __init__(
        self,
        topic: str | Callable[[Tuple], str],
        *,
        servers: str | Sequence[str],
        key: str | None = None,
        fields: str | Sequence[str] | None = None,
        encode: str | Encode | MessageCodec = "json",
        encode_key: str | Encode | MessageCodec = "str",
        headers: Mapping[str, str] | None = None,
        partition: str | None = None,
        timestamp: str | None = None,
        tokens: str = "squall-tokens",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        problems = [
            problem
            for problem in (
                *_topic_problems(topic, tokens),
                servers_problem(servers),
                *_field_problems(key=key, partition=partition, timestamp=timestamp),
                *_fields_problems(fields, headers),
                format_problem("encode", encode),
                format_problem("encode_key", encode_key),
                *settings_problems(settings, DECIDED),
            )
            if problem is not None
        ]
        if callable(topic):
            problems += [
                f"{name} has no subject, and the topic is a function: give the codec subject="
                for name, format in (("encode", encode), ("encode_key", encode_key))
                if isinstance(format, MessageCodec) and format.subject is None
            ]
        if problems:
            raise InvalidConfig(problems, type(self).__name__)
        self.topic = topic
        self.servers = servers if isinstance(servers, str) else tuple(servers)
        self.shape = Shape(
            topic,
            fields if fields is None or isinstance(fields, str) else tuple(fields),
            key,
            None if headers is None else dict(headers),
            partition,
            timestamp,
        )
        self.encode, self.encode_key = encode, encode_key
        self.tokens = tokens
        self.settings = dict(settings or {})

    def input_problems(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Yield each input that lacks a field."""
        for (component, stream), fields in inputs.items():
            for name in self.shape.used():
                if name not in fields:
                    yield (
                        f"stream {stream!r} of component {component!r} has no field {name!r} to write; it has:"
                        f" {listed(fields)}"
                    )

    def prepare(self, context: Context) -> None:
        """Take what is needed to write. Kafka is asked at the first write."""
        from squall_io.kafka.cluster import Cluster
        from squall_io.kafka.producing import Producing

        topic = self.topic if isinstance(self.topic, str) else ""
        self._made = row_maker(
            self.shape,
            encoder(self.encode, f"{topic}-value"),
            encoder(self.encode_key, f"{topic}-key"),
        )
        cluster = Cluster(
            self.servers,
            self.settings,
            context.log,
            context.progress,
            lambda: context.stopped,
            context.now,
        )
        self._producing = Producing(cluster, topic, self.tokens, self.settings)

    def row(self, tup: Tuple) -> Any:
        """Return the message of a tuple. Raises FailTuple for a value that cannot be written."""
        return self._made(tup)

    def read_token(self, token: str) -> int:
        """Return the number of the last epoch that was written under this name. From then on older processes of the task write
        nothing."""
        return self._opened().read_token(token)

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        """Write the rows in one transaction, with a token only if its number is `expected`. Raises RowsRefused for rows that
        Kafka refuses whenever they come, such as too large ones."""
        if token is None or epoch is None:
            self._opened().write(rows)
            return True
        return self._opened().write_once(rows, token, expected, epoch)

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        """Write a batch that belongs to no epoch, and wait until all is delivered."""
        self._others_written = False
        super().execute_batch(tups)

    def write_batch(self, rows: list[Any]) -> None:
        """Write rows without a token. After some were refused by the broker, the others of the batch are there already."""
        from squall_io.kafka.producing import OthersWritten

        if self._others_written:
            return
        try:
            self._opened().write(rows)
        except OthersWritten:
            self._others_written = True
            raise

    def cleanup(self) -> None:
        """Close the producers."""
        if self._producing is not None:
            self._producing.close()

    def _opened(self) -> Producing:
        assert self._producing is not None, "prepare was called"
        return self._producing


def _topic_problems(topic: object, tokens: object) -> Iterable[str]:
    names = "of letters, digits, '.', '_' and '-'"
    if not callable(topic) and not (isinstance(topic, str) and TOPIC.fullmatch(topic)):
        yield f"topic is {typed(topic)}: give the name of a topic, {names}, or a function from the tuple to a name"
    if not (isinstance(tokens, str) and TOPIC.fullmatch(tokens)):
        yield f"tokens is {typed(tokens)}: give the name of a topic, {names}"
    elif tokens == topic:
        yield f"tokens and topic are both {topic!r}: tokens need a topic of their own"


def _field_problems(**names: object) -> Iterable[str]:
    for argument, name in names.items():
        if name is not None and not isinstance(name, str):
            yield f"{argument} is {typed(name)}: give the name of a field, or None"


def _fields_problems(fields: object, headers: object) -> Iterable[str]:
    if isinstance(fields, Sequence) and not isinstance(fields, (str, bytes)):
        good = bool(fields) and all(isinstance(name, str) for name in fields)
    else:
        good = fields is None or isinstance(fields, str)
    if not good:
        yield f"fields is {typed(fields)}: give a field, a list of fields, or None for all"
    if headers is not None and not (
        isinstance(headers, Mapping)
        and all(isinstance(each, str) for pair in headers.items() for each in pair)
    ):
        yield f"headers is {typed(headers)}: give a dict from the name of a header to a field"
