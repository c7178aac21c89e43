"""NatsSpout and NatsSink on a real server, for the matrix of faults. Must not know: promises."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from squall_io.nats import NatsSink, NatsSpout
from squall_io.nats.connection import NatsAway
from squall_io.nats.publishing import NatsPublisher
from tests.connector_contract import SOON, SinkWorld, SourceWorld
from tests.nats_servers import MOST_BYTES, NatsServer
from topology_api import Bolt, Spout

_LOGIN_WORDS = "check the user in url, and password"


class NatsSource(SourceWorld):
    """A stream, and a durable consumer."""

    name = "nats_source"
    connector = "squall_io.nats.NatsSpout"
    rewindable = False
    missing_words = "has no stream"
    not_applicable = {"nothing twice": "it cannot go back to a position"}

    def __init__(self, nats_server: NatsServer) -> None:
        super().__init__()
        self.server = self.nats = nats_server
        nats_server.create(self.id)

    def spout(self, **options: Any) -> Spout:
        given = {"consumer": "matrix", "url": self.nats.url, "ack_wait": 2, "replay": SOON, **options}
        return NatsSpout(given.pop("stream", self.id), **given)

    def put(self, numbers: Iterable[int], partition: int = 0) -> None:
        self.nats.send(f"{self.id}.a", map(str, numbers))

    def number_of(self, values: Sequence[Any]) -> int:
        return int(str(values[0]).rstrip("x"))

    def put_unreadable(self) -> None:
        self.nats.send(f"{self.id}.a", ["{"])

    def put_large(self, number: int) -> str:
        head = f'"{number}'
        self.nats.send(f"{self.id}.a", [head + "x" * (MOST_BYTES - len(head) - 1) + '"'])
        return ""

    def remove(self) -> None:
        self.nats.delete(self.id)

    def create(self) -> None:
        self.nats.create(self.id)

    def wrong_login(self) -> tuple[Spout, str]:
        return self.spout(url=self.nats.login_as("app"), password="env:WRONG_PASSWORD"), _LOGIN_WORDS

    def settled(self) -> bool:
        return self.nats.pending(self.id, "matrix") == (0, 0)


@pytest.fixture
def nats_source(nats_server: NatsServer) -> NatsSource:
    return NatsSource(nats_server)


class NatsTarget(SinkWorld):
    """A stream."""

    name = "nats_sink"
    connector = "squall_io.nats.NatsSink"
    once = False
    missing_words = "create one that does"
    refused_words = f"the server takes {MOST_BYTES}"

    def __init__(self, nats_server: NatsServer) -> None:
        super().__init__()
        self.server = self.nats = nats_server
        nats_server.create(self.id)

    def sink(self, **options: Any) -> Bolt:
        given = {"url": self.nats.url, **options}
        return NatsSink(given.pop("subject", f"{self.id}.a"), **given)

    def written(self) -> list[int]:
        return [json.loads(each.data)["number"] for each in self.nats.read(self.id)]

    def remove(self) -> None:
        self.nats.delete(self.id)

    def create(self) -> None:
        self.nats.create(self.id)

    def refused(self, number: int) -> tuple[Any, ...]:
        return number, "x" * 2 * MOST_BYTES

    def large(self, number: int) -> tuple[tuple[Any, ...], bool]:
        return (number, "x" * (MOST_BYTES - 100)), True

    def wrong_login(self) -> tuple[Bolt, str]:
        return self.sink(url=self.nats.login_as("app"), password="env:WRONG_PASSWORD"), _LOGIN_WORDS

    @contextlib.contextmanager
    def answer_lost(self) -> Iterator[Callable[[], bool]]:
        original, lost = NatsPublisher.publish, list[str]()

        def publish(publisher: Any, messages: Any, confirmations: Any) -> None:
            if lost:
                return original(publisher, messages, confirmations)
            unread = type(confirmations)(len(messages))
            original(publisher, messages, unread)
            lost.append("answer")
            raise NatsAway("the connection is lost")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(NatsPublisher, "publish", publish)
            yield lambda: bool(lost)


@pytest.fixture
def nats_sink(nats_server: NatsServer) -> NatsTarget:
    return NatsTarget(nats_server)
