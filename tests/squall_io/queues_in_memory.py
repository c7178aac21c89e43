"""A queue in memory, a spout that reads it, and its task with a clock of its own, for tests of the kit."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from squall_io.kit import queue_task
from squall_io.kit.codecs import UnreadableMessage
from squall_io.kit.queue_client import QueueClient, Received
from squall_io.kit.queue_spout import QueueSpout
from tests.squall_io.kafka_tasks import CountingMetrics
from topology_api import Context, EmitError, Failure


class QueueServer:
    """A queue in memory. A message that is neither acknowledged nor rejected comes again, to the next connection."""

    def __init__(self, *messages: str) -> None:
        self.ready = deque(messages)
        self.sent: dict[int, str] = {}
        self.done: list[str] = []
        self.dead: list[tuple[str, str]] = []
        self.calls: list[str] = []
        #: What the next calls raise, by the call's name.
        self.errors: dict[str, list[Exception]] = {}
        self.tags = 0
        #: Whether messages of an ended connection stay with their receiver, as those of SQS.
        self.keeps_ids = False

    def called(self, name: str) -> None:
        self.calls.append(name)
        if waiting := self.errors.get(name):
            raise waiting.pop(0)


class MemoryQueueClient(QueueClient):
    """Tags begin again with each connection, as those of AMQP do."""

    what = "the queue in memory"
    keep_alive_interval = 10.0

    def __init__(self, server: QueueServer) -> None:
        self.server = server
        self.keeps_ids = server.keeps_ids
        self.alive: list[list[int]] = []

    def connect(self) -> None:
        self.server.called("connect")
        if not self.keeps_ids:
            self.server.tags = 0

    def receive(self, most: int, seconds: float) -> list[Received]:
        self.server.called("receive")
        server = self.server
        received: list[Received] = []
        while server.ready and len(received) < most:
            server.tags += 1
            server.sent[server.tags] = server.ready.popleft()
            received.append(Received(server.tags, server.sent[server.tags]))
        return received

    def acknowledge(self, ids: Sequence[Any]) -> None:
        self.server.called("acknowledge")
        self.server.done += [self.server.sent.pop(each) for each in ids]

    def reject(self, ids: Sequence[Any], reason: str) -> None:
        self.server.called("reject")
        self.server.dead += [(self.server.sent.pop(each), reason) for each in ids]

    def values(self, message: str) -> tuple[object, ...]:
        self.server.called(f"decode {message}")
        if message.startswith("bad"):
            raise UnreadableMessage("it is bad")
        return (message,)

    def raw(self, message: str) -> tuple[object, ...]:
        return (message.encode(),)

    def close(self) -> None:
        self.server.calls.append("close")
        if not self.keeps_ids:
            self.server.ready.extendleft(reversed(self.server.sent.values()))
            self.server.sent.clear()

    def keep_alive(self, ids: Sequence[Any]) -> None:
        self.server.called("keep_alive")
        self.alive.append(list(ids))

    def pause(self) -> None:
        self.server.called("pause")

    def waiting(self) -> int | None:
        return len(self.server.ready)


class MemoryQueueSpout(QueueSpout):
    def __init__(self, server: QueueServer, max_in_flight: int = 100) -> None:
        self.server = server
        self.set_up(("value",), ("value",), max_in_flight, None)

    def make_client(self, context: Context) -> QueueClient:
        self.client = MemoryQueueClient(self.server)
        return self.client


class QueueSpoutTask:
    """A task with a clock of its own; the test calls its second thread."""

    def __init__(self, server: QueueServer, max_in_flight: int = 100) -> None:
        self.server, self.now, self.shown, self.woken = server, 0.0, "", 0
        self.metrics = CountingMetrics()
        self.emitted: list[tuple[str, tuple[Any, ...], Any]] = []
        self.refuses: Callable[[Any], bool] = lambda values: False
        self.spout = MemoryQueueSpout(server, max_in_flight)
        vars(self.spout)["_squall_task"] = self
        context = Context(
            topology="shop", component="orders", task=1, index=0, parallelism=1, conf={}, tasks=lambda component: [],
            log=logging.getLogger("task"), metrics=self.metrics, resources={}, directory=lambda: "", now=lambda: self.now,
            random=random.Random(0), wake=self._wake, progress=self._progress,
        )  # fmt: skip
        self.spout.open(context)

    def _progress(self, text: str | None) -> None:
        self.shown = text or ""

    def _wake(self) -> None:
        self.woken += 1

    def emit(self, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        if self.refuses(values):
            raise EmitError("too long")
        self.emitted.append((stream, tuple(values), message_id))

    def step(self, seconds: float = 0.0) -> float | None:
        self.now += seconds
        return self.spout.next_tuple()

    def stand_by(self, seconds: float = 0.0) -> None:
        self.now += seconds
        assert self.spout._task is not None
        self.spout._task.stand_by()

    def values(self) -> list[Any]:
        return [values[0] for _, values, _ in self.emitted]

    def ack(self, *numbers: int) -> None:
        for number in numbers:
            self.spout.ack(self.emitted[number][2])

    def fail(self, number: int, reason: str, error: str | None = None) -> None:
        self.spout.fail(self.emitted[number][2], Failure(reason, "split", 4, error))


Opened = Callable[..., QueueSpoutTask]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Opens tasks whose second thread only runs when the test says so."""
    monkeypatch.setattr(queue_task, "LOOK_SECONDS", 3600.0)
    tasks: list[QueueSpoutTask] = []

    def opened(server: QueueServer, **more: Any) -> QueueSpoutTask:
        tasks.append(QueueSpoutTask(server, **more))
        return tasks[-1]

    yield opened
    for task in tasks:
        task.spout.close()
