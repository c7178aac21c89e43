"""What the Kafka spout makes of messages, without a broker: runs, columns, and what a codec of the user may do."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from squall_io.kafka import KafkaSpout
from squall_io.kafka import task as kafka_task
from squall_io.kafka.rows import row_makers
from squall_io.kafka.task import KafkaTask
from squall_io.kit.codecs import Decode, MessageCodec, UnreadableMessage
from tests.squall_io.kafka_tasks import CountingMetrics
from topology_api import Context, EmitError, FailTuple


class Message:
    """A message of the client's library."""

    def __init__(
        self, offset: int, value: bytes | None = b"v", key: bytes | None = None, number: int = 0
    ) -> None:
        self._offset, self._value, self._key, self._number = offset, value, key, number

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return self._number

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def headers(self) -> None:
        return None


class Reads(MessageCodec):
    """A codec that makes a text of each message."""

    def open_decoder(self) -> Decode:
        return lambda data: f"read {data!r}"


class Stops(MessageCodec):
    """A codec with an error of its author: `next` of an iterator that has ended."""

    def open_decoder(self) -> Decode:
        return lambda data: data if data != b"end" else next(iter(()))


def read(data: bytes) -> str:
    return f"read {data!r}"


class Reader:
    """The client of a task: it has these messages."""

    def __init__(self, *arguments: object) -> None:
        self.coming: list[list[Message]] = []
        self.stored: dict[Any, int] = {}
        self.asked: list[dict[Any, int]] = []
        self.paused: set[Any] = set()
        self.commit_error = None
        self.refuses_resume = False

    def find(self, topics: object) -> tuple[dict[str, list[int]], dict[str, Any]]:
        return {"orders": [0, 1]}, {}

    def committed(self, every: object) -> dict[Any, int]:
        return {}

    def offsets_at(self, places: Any) -> dict[Any, int]:
        return dict.fromkeys(places, 0)

    def bounds(self, places: Any) -> dict[Any, tuple[int, int]]:
        return dict.fromkeys(places, (0, 100))

    def add(self, offsets: object) -> None:
        pass

    def receive(self, most: int, seconds: float) -> list[Message]:
        return self.coming.pop(0) if self.coming else []

    def pause(self, place: Any) -> None:
        self.paused.add(place)

    def resume(self, place: Any) -> None:
        self.paused.discard(place)
        if self.refuses_resume:
            raise RuntimeError(f"{place} cannot be resumed")

    def commit(self, offsets: dict[Any, int]) -> None:
        self.asked.append(offsets)

    def close(self) -> None:
        pass


class Emitted:
    """`emit_many` of a spout. fails: the errors of the next calls, each with the number of rows before it."""

    def __init__(self, *fails: tuple[int, BaseException]) -> None:
        self.fails = list(fails)
        self.rows: list[tuple[Any, Any, str]] = []

    def __call__(self, rows: Any, *, message_ids: Any, stream: str) -> None:
        most = len(rows)
        if self.fails:
            most, error = self.fails.pop(0)
            error.emitted = most  # type: ignore[attr-defined]
        self.rows += [(*pair, stream) for pair in zip(rows[:most], message_ids)]
        if most < len(rows):
            raise error

    @property
    def offsets(self) -> list[tuple[int, str]]:
        return [(message_id[1], stream) for _, message_id, stream in self.rows]


Made = Callable[..., tuple[KafkaTask, Reader]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Return what makes a task whose client is a `Reader`."""
    monkeypatch.setattr(kafka_task, "KafkaReader", Reader)

    def make(fields: tuple[str, ...] = ("value",), **arguments: Any) -> tuple[KafkaTask, Reader]:
        spout = KafkaSpout(
            "orders", servers="localhost:9", group="g", fields=fields, **{"decode": "bytes", **arguments}
        )
        context = Context(
            topology="shop", topology_id="shop-1", component="orders", task=1, index=0, parallelism=1, conf={},
            tasks=lambda component: [], log=logging.getLogger("task"), metrics=CountingMetrics(), resources={},
            directory=lambda: "", now=lambda: 100.0, random=random.Random(0), wake=lambda: None,
            progress=lambda text: None,
        )  # fmt: skip
        task = KafkaTask(spout, context, epochs=False)
        reader = task._reader
        assert isinstance(reader, Reader)
        return task, reader

    return make


@pytest.mark.parametrize("codec", [read, Reads()])
def test_no_function_of_the_user_is_asked_what_none_becomes(codec: Any) -> None:
    """A message without a value deletes its key: it must be told from one with a value."""
    messages = [Message(0, None, b"k"), Message(1, b"v", None)]
    row, rows = row_makers(("key", "value"), codec, codec, None)
    wanted = [("read b'k'", None), (None, "read b'v'")]
    assert list(rows(messages)) == wanted == [row(each) for each in messages]


@pytest.mark.parametrize("fields", [("value",), ("key", "value"), ("value", "headers")])
def test_a_codec_that_raises_stop_iteration_leaves_out_that_message(
    made: Made, fields: tuple[str, ...]
) -> None:
    task, reader = made(decode=Stops(), fields=fields)
    reader.coming.append([Message(at, b"end" if at == 1 else b"v") for at in range(4)])
    emitted = Emitted()
    task.next(emitted)
    assert emitted.offsets == [(0, "default"), (1, "unreadable"), (2, "default"), (3, "default")]
    with pytest.raises(UnreadableMessage, match="StopIteration"):
        task.next(emitted)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("of a library"), KeyboardInterrupt()])
def test_a_message_that_was_not_emitted_for_a_lack_of_memory_is_emitted_later(
    made: Made, error: BaseException
) -> None:
    task, reader = made()
    reader.coming.append([Message(at) for at in range(4)])
    emitted = Emitted((2, error))
    with pytest.raises(type(error)):
        task.next(emitted)
    task.settle_many([message_id for _, message_id, _ in emitted.rows])
    assert task._assignment.settled()["orders", 0] == 2, "a process that ends now begins there"
    task.next(emitted)
    assert emitted.offsets == [(at, "default") for at in range(4)]
    task.settle_many([message_id for _, message_id, _ in emitted.rows[2:]])
    assert task._assignment.settled()["orders", 0] == 4


def test_the_same_holds_for_a_message_that_cannot_be_decoded(made: Made) -> None:
    task, reader = made(decode=Stops())
    reader.coming.append([Message(at, b"end" if at == 1 else b"v") for at in range(3)])
    emitted = Emitted((1, EmitError("not reached")), (0, MemoryError()))
    with pytest.raises(MemoryError):
        task.next(emitted)
    assert task._assignment.settled()["orders", 0] == 0
    for _ in range(3):
        with suppress(UnreadableMessage):
            task.next(emitted)
    assert emitted.offsets == [(0, "default"), (1, "unreadable"), (2, "default")]


@pytest.mark.parametrize("error", [EmitError("too many values"), FailTuple("not this one")])
def test_a_message_that_is_refused_counts_as_settled(made: Made, error: Exception) -> None:
    task, reader = made()
    reader.coming.append([Message(at) for at in range(4)])
    emitted = Emitted((2, error))
    with pytest.raises(type(error)):
        task.next(emitted)
    task.next(emitted)
    assert [offset for offset, _ in emitted.offsets] == [0, 1, 3]
    task.settle_many([message_id for _, message_id, _ in emitted.rows])
    assert task._assignment.settled()["orders", 0] == 4


def test_all_partitions_of_a_call_are_settled_before_one_is_read_on(made: Made) -> None:
    task, reader = made(max_gap=2)
    reader.coming += [[Message(at, number=number) for at in range(2)] for number in (0, 1)]
    emitted = Emitted()
    for _ in range(3):
        task.next(emitted)
    assert reader.paused == {("orders", 0), ("orders", 1)}
    reader.refuses_resume = True
    with pytest.raises(RuntimeError, match="cannot be resumed"):
        task.settle_many([message_id for _, message_id, _ in emitted.rows])
    assert task._assignment.settled() == {("orders", 0): 2, ("orders", 1): 2}
    task.settle_many([])
