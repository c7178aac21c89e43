"""SqsSpout and SqsSink against moto behind a door that is killed and frozen, for the matrix. Must not know: promises."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from squall_io.aws import SqsSink, SqsSpout
from tests.aws_servers import REGION, AwsServer
from tests.connector_contract import SOON, SinkWorld, SourceWorld
from topology_api import Bolt, Spout

_NO_LOGIN = "it takes no password: credentials are those that boto3 finds"


class SqsSource(SourceWorld):
    """A queue."""

    name = "sqs_source"
    connector = "squall_io.aws.SqsSpout"
    slow = frozenset({"nothing lost", "missing", "rebalanced"})
    rewindable = False
    missing_words = "there is no queue"
    not_applicable = {
        "wrong login": _NO_LOGIN,
        "nothing twice": "it cannot go back to a position",
        "in order": "only FIFO queues have an order, that of their groups, which is tested apart",
    }

    def __init__(self, aws: AwsServer) -> None:
        super().__init__()
        self.server = self.aws = aws
        self.queue = aws.queue()

    def spout(self, **options: Any) -> Spout:
        given = {"region": REGION, "endpoint_url": self.aws.url, "failed": "delete", "replay": SOON}
        return SqsSpout(self.queue, **{**given, "visibility_timeout": 3, **options})

    def put(self, numbers: Iterable[int], partition: int = 0) -> None:
        self.aws.send(self.queue, map(str, numbers))

    def number_of(self, values: Sequence[Any]) -> int:
        return int(str(values[0]).rstrip("x"))

    def put_unreadable(self) -> None:
        self.aws.send(self.queue, ["{"])

    def put_large(self, number: int) -> str:
        self.aws.send(self.queue, [f'"{number}{"x" * 250_000}"'])
        return ""

    def remove(self) -> None:
        self.aws.client("sqs").delete_queue(QueueUrl=self.aws.queue_url(self.queue))

    def create(self) -> None:
        self.aws.make_queue(self.queue)

    def settled(self) -> bool:
        return self.aws.left(self.queue) == 0


@pytest.fixture
def sqs_source(aws: AwsServer, monkeypatch: pytest.MonkeyPatch) -> SqsSource:
    monkeypatch.setattr("squall_io.aws.sqs_client.POLL_SECONDS", 1)
    monkeypatch.setattr("squall_io.aws.calls.ANSWER_SECONDS", 3.0)
    return SqsSource(aws)


class SqsTarget(SinkWorld):
    """A queue that takes 20,000 bytes."""

    name = "sqs_sink"
    connector = "squall_io.aws.SqsSink"
    once = False
    slow = frozenset({"nothing lost"})
    missing_words = "there is no queue"
    refused_words = "(MaximumMessageSize)"
    not_applicable = {"wrong login": _NO_LOGIN}

    def __init__(self, aws: AwsServer) -> None:
        super().__init__()
        self.server = self.aws = aws
        self.queue = aws.queue(MaximumMessageSize="20000")
        self.found: list[int] = []

    def sink(self, **options: Any) -> Bolt:
        return SqsSink(self.queue, **{"region": REGION, "endpoint_url": self.aws.url, **options})

    def written(self) -> list[int]:
        self.found += [json.loads(body)["number"] for body in self.aws.bodies(self.queue)]
        return list(self.found)

    def refused(self, number: int) -> tuple[Any, ...]:
        return number, "x" * 30_000

    def large(self, number: int) -> tuple[tuple[Any, ...], bool]:
        return (number, "x" * 19_000), True

    def remove(self) -> None:
        self.aws.client("sqs").delete_queue(QueueUrl=self.aws.queue_url(self.queue))

    def create(self) -> None:
        self.aws.make_queue(self.queue, {"MaximumMessageSize": "20000"})

    @contextlib.contextmanager
    def answer_lost(self) -> Iterator[Callable[[], bool]]:
        self.aws.fails(("SendMessageBatch", "after"))
        yield lambda: not self.aws.faults()


@pytest.fixture
def sqs_sink(aws: AwsServer, monkeypatch: pytest.MonkeyPatch) -> SqsTarget:
    monkeypatch.setattr("squall_io.aws.calls.ANSWER_SECONDS", 3.0)
    return SqsTarget(aws)
