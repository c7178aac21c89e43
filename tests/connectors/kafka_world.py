"""KafkaSpout and KafkaSink on a real broker, for the matrix of faults. Must not know: promises."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from squall_io.kafka import KafkaSink, KafkaSpout
from tests.connector_contract import SOON, SinkWorld, SourceWorld
from tests.kafka_servers import KafkaServer
from topology_api import Bolt, Spout

_SHORT = {
    "socket.timeout.ms": 2000,
    "topic.metadata.refresh.interval.ms": 1000,
    "reconnect.backoff.max.ms": 200,
}
_LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "app",
    "sasl.password": "env:WRONG_PASSWORD",
}
_LOGIN_WORDS = "check `sasl.mechanism`, `sasl.username` and `sasl.password`"


class KafkaSource(SourceWorld):
    """A topic of three partitions, and a group."""

    name = "kafka_source"
    connector = "squall_io.kafka.KafkaSpout"
    rewindable = True
    partitions = 3
    missing_words = "has no topic"

    def __init__(self, kafka: KafkaServer) -> None:
        super().__init__()
        self.server = self.kafka = kafka
        self.topic = kafka.create("numbers", self.partitions, {"max.message.bytes": "10000000"})

    def spout(self, **options: Any) -> Spout:
        given = {
            "servers": self.kafka.servers,
            "group": self.topic,
            "look_interval": 1.0,
            "replay": SOON,
            "settings": _SHORT,
        }
        return KafkaSpout(self.topic, **{**given, **options})

    def put(self, numbers: Iterable[int], partition: int = 0) -> None:
        self.kafka.send(self.topic, map(str, numbers), partition=partition)

    def number_of(self, values: Sequence[Any]) -> int:
        return int(str(values[0]).rstrip("x"))

    def put_unreadable(self) -> None:
        self.kafka.send(self.topic, ["{"])

    def put_large(self, number: int) -> str:
        self.kafka.send(self.topic, [f'"{number}{"x" * 5_000_000}"'])
        return ""

    def wrong_login(self) -> tuple[Spout, str]:
        return self.spout(servers=self.kafka.sasl_servers, settings=_LOGIN), _LOGIN_WORDS

    def remove(self) -> None:
        self.kafka.delete(self.topic)

    def create(self) -> None:
        self.kafka.create_again(self.topic, self.partitions)

    def settled(self) -> bool:
        ends = {
            n: len([m for m in self.kafka.read(self.topic) if m.partition() == n])
            for n in range(self.partitions)
        }
        return self.kafka.committed(self.topic, self.topic) == ends


@pytest.fixture
def kafka_source(kafka: KafkaServer) -> KafkaSource:
    return KafkaSource(kafka)


class KafkaTarget(SinkWorld):
    """A topic that takes messages of two thousand bytes."""

    name = "kafka_sink"
    connector = "squall_io.kafka.KafkaSink"
    once = True
    missing_words = "create the topic"
    refused_words = "refuses the message"
    slow = frozenset({"nothing lost, without epochs"})
    not_applicable = {
        "answer lost, without epochs": "librdkafka sends again, and the broker drops what it has"
    }

    def __init__(self, kafka: KafkaServer) -> None:
        super().__init__()
        self.server = self.kafka = kafka
        self.topic = kafka.create("numbers", 2, {"max.message.bytes": "2000"})

    def sink(self, **options: Any) -> Bolt:
        given = {"servers": self.kafka.servers, "key": "number", "encode_key": "json", "settings": _SHORT}
        return KafkaSink(self.topic, **{**given, **options})

    def written(self) -> list[int]:
        return [int(message.key()) for message in self.kafka.read(self.topic)]

    def refused(self, number: int) -> tuple[Any, ...]:
        return number, "x" * 3000

    def large(self, number: int) -> tuple[tuple[Any, ...], bool]:
        return (number, "x" * 1800), True

    def wrong_login(self) -> tuple[Bolt, str]:
        return self.sink(servers=self.kafka.sasl_servers, settings=_LOGIN), _LOGIN_WORDS

    def remove(self) -> None:
        self.kafka.delete(self.topic)

    def create(self) -> None:
        self.kafka.create_again(self.topic, 2)

    @contextlib.contextmanager
    def answer_lost(self) -> Iterator[Callable[[], bool]]:
        from confluent_kafka import KafkaError, KafkaException

        from squall_io.kafka.producing import _TokenWriter

        original, lost = _TokenWriter._call, list[str]()

        def call(writer: Any, request: Callable[[float], object]) -> None:
            original(writer, request)
            if getattr(request, "__name__", "") == "commit_transaction" and not lost:
                lost.append("answer")
                raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the connection is gone"))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_TokenWriter, "_call", call)
            yield lambda: bool(lost)


@pytest.fixture
def kafka_sink(kafka: KafkaServer) -> KafkaTarget:
    return KafkaTarget(kafka)
