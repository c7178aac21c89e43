"""The kit's sink that publishes: each tuple is acked or failed by what the server says of its message."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from local_cluster.testing import run_bolt
from squall_io.kit import calls, publishing
from squall_io.kit.codecs import CodecAway
from squall_io.kit.publishing import Confirmations, Publisher, PublishingSink
from squall_io.kit.waiting import SystemAway, Waiting
from tests.squall_io.kafka_tasks import CountingMetrics
from tests.zookeeper_servers import eventually
from topology_api import Context, FailTuple, SquallError

#: Seconds after which a test gives up.
CAP = 30.0


class MemoryServer:
    """Keeps messages. `script` has what happens in the next calls of `publish`: how many messages are confirmed before the
    error; None: all are."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.script: list[tuple[int, Exception | None]] = []
        self.connect_errors: list[Exception] = []
        self.codec_errors: list[Exception] = []
        self.events: list[str] = []
        self.answers = threading.Event()
        self.answers.set()


class MemoryPublisher(Publisher):
    what = "the server in memory"

    def __init__(self, server: MemoryServer) -> None:
        self.server = server

    def message(self, tup: Any) -> str:
        if self.server.codec_errors:
            raise self.server.codec_errors.pop(0)
        if tup["value"] == "no text":
            raise FailTuple("it is no text")
        return str(tup["value"])

    def connect(self) -> None:
        self.server.events.append("connect")
        if self.server.connect_errors:
            raise self.server.connect_errors.pop(0)

    def publish(self, messages: Sequence[str], confirmations: Confirmations) -> None:
        server = self.server
        server.events.append(f"publish {len(messages)}")
        server.answers.wait(CAP)
        most, error = server.script.pop(0) if server.script else (len(messages), None)
        for at, message in list(enumerate(messages))[:most]:
            if message == "too large":
                confirmations.refused(at, "it is too large")
            else:
                server.messages.append(message)
                confirmations.sent(at)
        if error is not None:
            raise error

    def close(self) -> None:
        self.server.events.append("close")

    def keep_alive(self) -> None:
        self.server.events.append("keep_alive")
        if self.server.connect_errors:
            raise self.server.connect_errors.pop(0)


class MemorySink(PublishingSink):
    """Is run in this process, so the server needs no pickle."""

    servers: dict[str, MemoryServer] = {}

    def __init__(self, name: str) -> None:
        self.name = name

    def make_publisher(self, context: Context) -> Publisher:
        return MemoryPublisher(self.servers[self.name])


@pytest.fixture
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryServer]:
    """A server; pauses are short."""
    monkeypatch.setattr(publishing, "Waiting", _ShortWaiting)
    monkeypatch.setattr(calls, "LOOK", 0.005)
    server = MemorySink.servers[request.node.name] = MemoryServer()
    yield server
    del MemorySink.servers[request.node.name]


class _ShortWaiting(Waiting):
    def failed(self, reason: str) -> float:
        super().failed(reason)
        return 0.001


class PublishingTask:
    """A task, with its batches in the hands of the test."""

    def __init__(self, server: MemoryServer) -> None:
        self.shown: list[str] = []
        self.stopped = False
        self.metrics = CountingMetrics()
        self.work = publishing.Publishing(
            MemoryPublisher(server),
            Context(
                topology="shop", component="write", task=1, index=0, parallelism=1, conf={}, tasks=lambda component: [],
                log=logging.getLogger("task"), metrics=self.metrics, resources={}, directory=lambda: "",
                now=lambda: 0.0, random=random.Random(0), wake=lambda: None,
                progress=lambda text: self.shown.append(text or ""), stopped=lambda: self.stopped,
            ),
        )  # fmt: skip

    def send(self, *values: str) -> list[tuple[Any, str]]:
        rows: list[Any] = [{"value": value} for value in values]
        return [(tup["value"], str(reason)) for tup, reason in self.work.send(rows)]


@pytest.fixture
def task(server: MemoryServer) -> Iterator[PublishingTask]:
    task = PublishingTask(server)
    yield task
    server.answers.set()
    task.work.close()


def run(server: MemoryServer, *values: str, name: str) -> Any:
    return run_bolt(MemorySink(name), [(value,) for value in values], source_fields="value")


def test_each_tuple_is_acked_or_failed_for_itself(
    server: MemoryServer, request: pytest.FixtureRequest
) -> None:
    done = run(server, "a", "no text", "b", "too large", "c", name=request.node.name)
    assert server.messages == ["a", "b", "c"]
    assert done.acked() == [("a",), ("b",), ("c",)]
    failed = {item[0]: failure.error for item, failure in done.failed()}
    assert failed == {"no text": "it is no text", "too large": "it is too large"}
    assert not done.errors
    assert server.events[-1] == "close"


def test_only_what_was_not_confirmed_is_sent_again(server: MemoryServer, task: PublishingTask) -> None:
    server.script = [(2, SystemAway("connection reset")), (1, SystemAway("connection reset"))]
    assert task.send("a", "b", "c", "too large", "d") == [("too large", "it is too large")]
    assert server.messages == ["a", "b", "c", "d"]
    publishes = [each for each in server.events if each.startswith("publish")]
    assert publishes == ["publish 5", "publish 3", "publish 2"]
    assert server.events.count("connect") == 3 and server.events.count("close") == 2
    assert task.metrics.counts["messages sent again"] == 5
    assert any(text.startswith("waiting for the server in memory") for text in task.shown)
    assert task.shown[-1] == ""


def test_a_batch_waits_for_a_server_that_cannot_be_reached(
    server: MemoryServer, task: PublishingTask
) -> None:
    server.connect_errors = [SystemAway("refused") for _ in range(4)]
    assert task.send("a", "b") == []
    assert server.messages == ["a", "b"]
    assert server.events.count("connect") == 5


def test_a_server_that_confirms_nothing_is_asked_again(server: MemoryServer, task: PublishingTask) -> None:
    server.script = [(0, None), (1, None)]
    assert task.send("a", "b") == []
    assert server.messages == ["a", "b"]
    assert any("it has confirmed nothing" in text for text in task.shown)
    assert server.events.count("connect") == 1  # it is no reason to connect again


def test_what_a_user_has_to_change_fails_the_batch_with_a_report(
    server: MemoryServer, task: PublishingTask
) -> None:
    server.script = [(1, SquallError("there is no exchange 'orders'"))]
    with pytest.raises(SquallError, match="no exchange"):
        task.send("a", "b")
    assert task.send("b") == []
    assert server.messages == ["a", "b"]
    assert server.events == ["connect", "publish 2", "close", "connect", "publish 1"]


def test_tuples_wait_for_what_the_codec_needs(server: MemoryServer, task: PublishingTask) -> None:
    server.codec_errors = [CodecAway("no registry"), CodecAway("no registry")]
    assert task.send("a", "b") == []
    assert server.messages == ["a", "b"]
    assert any("no registry" in text for text in task.shown)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_stop_ends_the_wait(server: MemoryServer, task: PublishingTask, frozen: bool) -> None:
    """Whether the server does not answer a call, or the sink pauses between two attempts."""
    if frozen:
        server.answers.clear()
    else:
        server.connect_errors = [SystemAway("refused") for _ in range(20_000)]
    outcome: list[Any] = []
    thread = threading.Thread(target=lambda: outcome.append(task.send("a", "no text")), daemon=True)
    thread.start()
    eventually(lambda: any("waiting for" in text for text in task.shown), CAP)
    task.stopped = True
    thread.join(CAP)
    assert outcome == [[]]  # its tuples have failed already
    server.connect_errors.clear()


def test_a_connection_is_kept_alive_between_batches(server: MemoryServer, task: PublishingTask) -> None:
    task.work.keep_alive()
    assert server.events == []  # there is none
    task.send("a")
    task.work.keep_alive()
    eventually(lambda: server.events[-1] == "keep_alive", CAP)


def test_a_connection_that_is_lost_between_batches_is_made_again(
    server: MemoryServer, task: PublishingTask
) -> None:
    task.send("a")
    server.connect_errors = [SystemAway("heartbeats missed")]
    task.work.keep_alive()
    eventually(lambda: server.events[-1] == "close", CAP)
    task.send("b")
    assert server.messages == ["a", "b"]
    assert server.events.count("connect") == 2
    assert task.metrics.counts["messages sent again"] == 0


def test_over_any_outages_each_message_is_there_and_in_order_of_its_first_attempt(
    server: MemoryServer, task: PublishingTask
) -> None:
    chance: Callable[[int, int], int] = random.Random(7).randint
    expected: list[str] = []
    for batch in range(40):
        server.script = [(chance(0, 6), SystemAway("reset")) for _ in range(chance(0, 3))]
        server.connect_errors = [SystemAway("refused") for _ in range(chance(0, 2))]
        values = [f"{batch}-{number}" for number in range(chance(1, 6))]
        expected += values
        assert task.send(*values) == []
    assert server.messages == expected
