"""KinesisSpout and KinesisSink against moto behind a door that is killed and frozen, for the matrix.

Must not know: promises.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from squall_io.aws import KinesisSink, KinesisSpout
from tests.aws_servers import REGION, AwsServer
from tests.connector_contract import SOON, SinkWorld, SourceWorld
from topology_api import Bolt, Spout

_NO_LOGIN = "it takes no password: credentials are those that boto3 finds"


class KinesisSource(SourceWorld):
    """A stream of three shards."""

    name = "kinesis_source"
    connector = "squall_io.aws.KinesisSpout"
    slow = frozenset({"nothing lost, without epochs", "missing", "rebalanced"})
    rewindable = True
    partitions = 3
    missing_words = "there is no stream"
    not_applicable = {"wrong login": _NO_LOGIN}

    def __init__(self, aws: AwsServer) -> None:
        super().__init__()
        self.server = self.aws = aws
        self.stream = aws.stream(self.partitions)

    def spout(self, **options: Any) -> Spout:
        given = {"region": REGION, "endpoint_url": self.aws.url, "replay": SOON}
        return KinesisSpout(self.stream, **{**given, **options})

    def put(self, numbers: Iterable[int], partition: int = 0) -> None:
        self.aws.put(self.stream, map(str, numbers), partition)

    def number_of(self, values: Sequence[Any]) -> int:
        return int(str(values[0]).rstrip("x"))

    def put_unreadable(self) -> None:
        self.aws.put(self.stream, ["{"])

    def put_large(self, number: int) -> str:
        self.aws.put(self.stream, [f'"{number}{"x" * 1_000_000}"'])
        return ""

    def remove(self) -> None:
        self.aws.client("kinesis").delete_stream(StreamName=self.stream)

    def create(self) -> None:
        self.aws.make_stream(self.stream, self.partitions)


@pytest.fixture
def kinesis_source(aws: AwsServer, monkeypatch: pytest.MonkeyPatch) -> KinesisSource:
    _short_waits(monkeypatch)
    return KinesisSource(aws)


class KinesisTarget(SinkWorld):
    """A stream of two shards."""

    name = "kinesis_sink"
    connector = "squall_io.aws.KinesisSink"
    once = False
    slow = frozenset({"nothing lost"})
    missing_words = "there is no stream"
    refused_words = "and Kinesis takes 1048576"
    not_applicable = {"wrong login": _NO_LOGIN}

    def __init__(self, aws: AwsServer) -> None:
        super().__init__()
        self.server = self.aws = aws
        self.stream = aws.stream(2)

    def sink(self, **options: Any) -> Bolt:
        given = {"region": REGION, "endpoint_url": self.aws.url, "key": "number"}
        return KinesisSink(self.stream, **{**given, **options})

    def written(self) -> list[int]:
        return [json.loads(each["Data"])["number"] for each in self.aws.records(self.stream)]

    def refused(self, number: int) -> tuple[Any, ...]:
        return number, "x" * 1_100_000

    def large(self, number: int) -> tuple[tuple[Any, ...], bool]:
        return (number, "x" * 1_000_000), True

    def remove(self) -> None:
        self.aws.client("kinesis").delete_stream(StreamName=self.stream)

    def create(self) -> None:
        self.aws.make_stream(self.stream, 2)

    @contextlib.contextmanager
    def answer_lost(self) -> Iterator[Callable[[], bool]]:
        self.aws.fails(("PutRecords", "after"))
        yield lambda: not self.aws.faults()


@pytest.fixture
def kinesis_sink(aws: AwsServer, monkeypatch: pytest.MonkeyPatch) -> KinesisTarget:
    _short_waits(monkeypatch)
    return KinesisTarget(aws)


def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall_io.aws.calls.ANSWER_SECONDS", 3.0)
    for name in ("LOOK_SECONDS", "AGAIN_SECONDS", "IDLE_SECONDS"):
        monkeypatch.setattr(f"squall_io.aws.kinesis_task.{name}", 0.02)
