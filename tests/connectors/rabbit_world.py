"""RabbitSpout and RabbitSink on a real RabbitMQ, for the matrix of faults. Must not know: promises."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from squall_io.rabbitmq import RabbitSink, RabbitSpout
from squall_io.rabbitmq.confirming import Sending
from tests.connector_contract import SOON, SinkWorld, SourceWorld
from tests.rabbitmq_servers import RabbitServer
from topology_api import Bolt, Spout

_LOGIN_WORDS = "refuses the login"


class RabbitSource(SourceWorld):
    """A durable queue."""

    name = "rabbitmq_source"
    connector = "squall_io.rabbitmq.RabbitSpout"
    rewindable = False
    missing_words = "declare it"
    not_applicable = {"nothing twice": "it cannot go back to a position"}
    slow = frozenset({"missing"})  # tests/squall_io/test_rabbit_spout.py shows it without the pause

    def __init__(self, rabbitmq: RabbitServer) -> None:
        super().__init__()
        self.server = self.rabbitmq = rabbitmq
        self.create()

    def spout(self, **options: Any) -> Spout:
        return RabbitSpout(self.id, **{"url": self.rabbitmq.url, "replay": SOON, **options})

    def put(self, numbers: Iterable[int], partition: int = 0) -> None:
        self.rabbitmq.send(self.id, map(str, numbers))

    def number_of(self, values: Sequence[Any]) -> int:
        return int(str(values[0]).rstrip("x"))

    def put_unreadable(self) -> None:
        self.rabbitmq.send(self.id, ["{"])

    def put_large(self, number: int) -> str:
        self.rabbitmq.send(self.id, [f'"{number}{"x" * 90_000}"'])
        return ""

    def remove(self) -> None:
        self.rabbitmq.delete(self.id)

    def create(self) -> None:
        self.rabbitmq.declare(self.id)

    def wrong_login(self) -> tuple[Spout, str]:
        return self.spout(url=self.rabbitmq.login_as("app"), password="env:WRONG_PASSWORD"), _LOGIN_WORDS

    def settled(self) -> bool:
        return self.rabbitmq.count(self.id) == 0


@pytest.fixture
def rabbitmq_source(rabbitmq: RabbitServer) -> RabbitSource:
    return RabbitSource(rabbitmq)


class RabbitTarget(SinkWorld):
    """An exchange, and a durable queue that gets all its messages."""

    name = "rabbitmq_sink"
    connector = "squall_io.rabbitmq.RabbitSink"
    once = False
    refused_words = "the server takes 100000"
    missing_words = "declare it"

    def __init__(self, rabbitmq: RabbitServer) -> None:
        super().__init__()
        self.server = self.rabbitmq = rabbitmq
        self._found: list[int] = []
        self.create()

    def sink(self, **options: Any) -> Bolt:
        return RabbitSink(self.id, **{"url": self.rabbitmq.url, "routing_key": "rows", **options})

    def written(self) -> list[int]:
        self._found += [json.loads(body)["number"] for body in self.rabbitmq.bodies(self.id)]
        return list(self._found)

    def refused(self, number: int) -> tuple[Any, ...]:
        return number, "x" * 200_000

    def large(self, number: int) -> tuple[tuple[Any, ...], bool]:
        return (number, "x" * 90_000), True

    def remove(self) -> None:
        self.rabbitmq.delete(exchange=self.id)

    def create(self) -> None:
        self.rabbitmq.bind(self.id, self.id, "rows")

    def wrong_login(self) -> tuple[Bolt, str]:
        return self.sink(url=self.rabbitmq.login_as("app"), password="env:WRONG_PASSWORD"), _LOGIN_WORDS

    @contextlib.contextmanager
    def answer_lost(self) -> Iterator[Callable[[], bool]]:
        original, lost = Sending.confirmed, list[str]()

        def confirmed(sending: Any, *given: Any) -> None:
            if lost:
                original(sending, *given)
            else:
                lost.append("answer")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Sending, "confirmed", confirmed)
            patch.setattr("squall_io.rabbitmq.publishing.SILENCE_SECONDS", 1.0)
            yield lambda: bool(lost)


@pytest.fixture
def rabbitmq_sink(rabbitmq: RabbitServer) -> RabbitTarget:
    return RabbitTarget(rabbitmq)
