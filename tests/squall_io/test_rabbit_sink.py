"""The RabbitMQ sink on a real server: confirmed messages, refused ones alone, and a server that goes, comes, and is full."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from squall_io.rabbitmq import RabbitSink
from squall_io.rabbitmq.confirming import WINDOW
from tests.rabbitmq_servers import MOST_BYTES, PASSWORDS, RabbitServer
from tests.squall_io.sinks_that_publish import SinkTask
from tests.squall_io.test_rabbit_spout import KINDS, place, queue_of
from tests.zookeeper_servers import eventually
from topology_api import SquallError

pytest.importorskip("pika")
pytestmark = pytest.mark.slow

key_field = itemgetter("key")


def rows(*values: Any) -> list[dict[str, Any]]:
    return [{"v": value} for value in values]


def sink(server: RabbitServer, queue: str, **more: Any) -> RabbitSink:
    """A sink to a queue, by the default exchange."""
    return RabbitSink("", **{"routing_key": queue, "url": server.url, "fields": "v", **more})


@pytest.mark.parametrize("kind", KINDS)
def test_each_tuple_is_a_message_in_order(rabbitmq: RabbitServer, kind: str) -> None:
    queue = queue_of(rabbitmq, kind)
    with SinkTask(sink(rabbitmq, queue)) as task:
        assert task.write(rows(*range(2 * WINDOW + 10))) == {}
        assert task.write(rows(None, "last")) == {}
    assert rabbitmq.bodies(queue) == [*(b"%d" % n for n in range(2 * WINDOW + 10)), b"", b'"last"']


def test_a_message_has_what_the_sink_gives_it(rabbitmq: RabbitServer) -> None:
    queue, exchange = place(), place()
    rabbitmq.bind(exchange, queue, "#")
    out = RabbitSink(
        exchange,
        url=rabbitmq.url,
        routing_key=key_field,
        fields=["v"],
        headers="h",
        message_id="id",
        persistent=False,
    )
    row: dict[str, Any] = {"key": "a.b", "v": 1, "h": {"t": "x", "n": 2, "b": True}, "id": "m1"}
    wrong: list[dict[str, Any]] = [
        {"h": {"x": []}},
        {"h": {"x": 2**70}},
        {"h": {"x" * 300: 1}},
        {"h": {"x": "y" * 120_000}},
        {"id": 7},
        {"key": 7},
    ]
    with SinkTask(out) as task:
        failed = task.write([row, *({**row, **each} for each in wrong)])
    assert list(failed) == [1, 2, 3, 4, 5, 6]
    for at, words in enumerate(
        (
            "texts, whole numbers and booleans",
            "cannot be sent",
            "cannot be sent",
            "at most 100000",
            "field 'id' is 7",
            "routing key is 7",
        ),
        start=1,
    ):
        assert words in failed[at]
    [(frame, properties, body)] = rabbitmq.take(queue)
    assert (frame.routing_key, body) == ("a.b", b'{"v":1}')
    assert (properties.headers, properties.message_id) == (row["h"], "m1")
    assert (properties.delivery_mode, properties.content_type) == (1, "application/json")


def test_a_message_that_no_queue_gets_fails_alone(rabbitmq: RabbitServer) -> None:
    queue, exchange = place(), place()
    rabbitmq.bind(exchange, queue, "good")
    out = RabbitSink(exchange, url=rabbitmq.url, routing_key=key_field, fields="v")
    with SinkTask(out) as task:
        failed = task.write([{"key": "bad" if n % 10 == 3 else "good", "v": n} for n in range(30)])
    assert list(failed) == [3, 13, 23]
    assert failed[3] == (
        f"no queue gets a message of exchange '{exchange}' with routing key 'bad' (NO_ROUTE): bind or declare one"
    )
    assert len(rabbitmq.bodies(queue)) == 27
    with SinkTask(sink(rabbitmq, place())) as task:
        assert "of the default exchange" in task.write(rows(1))[0]


def test_a_message_that_is_too_large_fails_alone(rabbitmq: RabbitServer) -> None:
    queue = queue_of(rabbitmq)
    with SinkTask(sink(rabbitmq, queue, encode="str")) as task:
        for _ in range(2):  # the second time the sink knows the limit
            failed = task.write(rows("a", "x" * (MOST_BYTES + 1), "b", "x" * MOST_BYTES))
            assert failed == {
                1: "the message has 100001 bytes, and the server takes 100000 (`max_message_size`)"
            }
        assert {body[:2] for body in rabbitmq.bodies(queue)} == {b"a", b"b", b"xx"}


def test_a_missing_exchange_and_missing_rights_are_errors(
    rabbitmq: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, exchange = place(), place()
    out = RabbitSink(exchange, url=rabbitmq.url, routing_key="k", fields="v")
    with SinkTask(out) as task:
        with pytest.raises(SquallError, match=f"has no exchange '{exchange}' in vhost '/': declare it"):
            task.write(rows(1))
        rabbitmq.bind(exchange, queue, "k")
        assert task.write(rows(1)) == {}
        rabbitmq.delete(exchange=exchange)
        with pytest.raises(SquallError, match=f"has no exchange '{exchange}' in vhost '/': declare it"):
            task.write(rows(2))
        rabbitmq.bind(exchange, queue, "k")
        assert task.write(rows(2)) == {}
    assert rabbitmq.bodies(queue) == [b"1", b"2"]
    monkeypatch.setenv("BROKER_PASSWORD", PASSWORDS["stranger"])
    more = {"url": rabbitmq.login_as("stranger"), "password": "env:BROKER_PASSWORD"}
    with (
        SinkTask(sink(rabbitmq, queue, **more)) as task,
        pytest.raises(SquallError, match="give the user the rights"),
    ):
        task.write(rows(1))


def test_a_queue_that_is_full_is_waited_for(rabbitmq: RabbitServer) -> None:
    queue = queue_of(rabbitmq, x_max_length=5, x_overflow="reject-publish")
    with SinkTask(sink(rabbitmq, queue)) as task:
        thread = task.writing(rows(*range(12)))
        eventually(lambda: any("a queue is full" in text for text in task.shown), 30)
        found: list[bytes] = []

        def has_ended() -> bool:
            found.extend(rabbitmq.bodies(queue))
            return not thread.is_alive()

        eventually(has_ended, 60, every=0.05)
        found.extend(rabbitmq.bodies(queue))
        assert set(found) == {b"%d" % n for n in range(12)}
        assert task.failed == {}


def test_a_server_without_memory_is_waited_for_and_gets_each_message_once(rabbitmq: RabbitServer) -> None:
    queue = queue_of(rabbitmq)
    with SinkTask(sink(rabbitmq, queue)) as task:
        task.write(rows(0))
        rabbitmq.alarm(True)
        try:
            thread = task.writing(rows(*range(1, 60)))
            eventually(lambda: any("low on memory" in text for text in task.shown), 60)
            assert thread.is_alive()
        finally:
            rabbitmq.alarm(False)
        thread.join(60)
        assert not thread.is_alive()
        assert (task.failed, task.shown[-1]) == ({}, "")
    assert rabbitmq.bodies(queue) == [b"%d" % n for n in range(60)]


def test_a_worker_that_ends_while_the_server_has_no_memory_ends_soon(rabbitmq: RabbitServer) -> None:
    queue = queue_of(rabbitmq)
    task = SinkTask(sink(rabbitmq, queue))
    rabbitmq.alarm(True)
    try:
        thread = task.writing(rows(1))
        eventually(lambda: any("low on memory" in text for text in task.shown), 60)
        task.sink._publishing._context._stopped = lambda: True  # type: ignore[union-attr]
        thread.join(60)
        assert not thread.is_alive()
        task.__exit__()
    finally:
        rabbitmq.alarm(False)


@pytest.mark.soak  # tests/connectors shows the first
@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_server_that_is_away_is_waited_for(tmp_path: Path, fault: str) -> None:
    with RabbitServer(tmp_path) as server:
        queue = queue_of(server)
        with SinkTask(sink(server, queue)) as task:
            task.write(rows(0))
            (server.kill if fault == "killed" else server.freeze)()
            thread = task.writing(rows(*range(1, 60)))
            eventually(lambda: any("waiting for RabbitMQ at" in text for text in task.shown), 60)
            (server.start if fault == "killed" else server.thaw)()
            thread.join(60)
            assert not thread.is_alive()
            assert (task.failed, task.shown[-1]) == ({}, "")
        assert set(server.bodies(queue)) == {b"%d" % n for n in range(60)}
