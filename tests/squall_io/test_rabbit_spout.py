"""The RabbitMQ spout on a real server: what is acknowledged, rejected and given back, and a server that goes and comes."""

from __future__ import annotations

import itertools
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from squall_io.rabbitmq import RabbitSpout
from tests.certificates import make_certificates
from tests.rabbitmq_servers import PASSWORDS, RabbitServer
from tests.squall_io.queue_tasks import SpoutTask
from tests.zookeeper_servers import eventually

pytest.importorskip("pika")
pytestmark = pytest.mark.slow

KINDS = ["classic", "quorum"]
_names = itertools.count(1)


def place() -> str:
    """A name that no other test uses."""
    return f"place-{os.getpid()}-{next(_names)}"


def queue_of(server: RabbitServer, kind: str = "classic", **arguments: Any) -> str:
    """A new queue."""
    name = place()
    server.declare(name, x_queue_type=kind, **arguments)
    return name


def task(server: RabbitServer, queue: str, index: int = 0, tasks: int = 1, **more: Any) -> SpoutTask:
    return SpoutTask(RabbitSpout(queue, **{"url": server.url, **more}), index, tasks)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_acked_is_gone_and_all_else_comes_again(rabbitmq: RabbitServer, kind: str) -> None:
    queue = queue_of(rabbitmq, kind)
    rabbitmq.send(queue, map(str, range(100)))
    with task(rabbitmq, queue, fields=("value", "redelivered")) as first:
        assert first.read(100) == list(range(100))
        first.ack(*range(10), *range(20, 100))
    with task(rabbitmq, queue, fields=("value", "redelivered")) as second:
        assert second.read(10) == list(range(10, 20))
        assert all(redelivered for _, (_, redelivered), _ in second.emitted)
        second.ack()
    assert rabbitmq.count(queue) == 0


def test_the_server_sends_no_more_than_max_in_flight(rabbitmq: RabbitServer) -> None:
    queue = queue_of(rabbitmq)
    rabbitmq.send(queue, map(str, range(6)))
    with task(rabbitmq, queue, max_in_flight=2) as one:
        assert one.read(2) == [0, 1]
        one.nothing_more()
        assert rabbitmq.count(queue) == 4
        one.ack(0, 1)
        assert one.read(4)[2:] == [2, 3]


def test_tasks_share_the_messages(rabbitmq: RabbitServer) -> None:
    queue = queue_of(rabbitmq)
    with task(rabbitmq, queue, 0, 2) as left, task(rabbitmq, queue, 1, 2) as right:
        left.connects()
        right.connects()
        rabbitmq.send(queue, map(str, range(20)))
        left.until(lambda: right.stepped() and len(left.values()) + len(right.values()) >= 20)
        assert sorted(left.values() + right.values()) == list(range(20))
        assert left.values() and right.values()


def test_a_task_has_what_it_asks_for_of_a_message(rabbitmq: RabbitServer) -> None:
    queue, exchange = place(), place()
    rabbitmq.bind(exchange, queue, "orders.*")
    rabbitmq.send(
        "orders.new",
        ['{"n": 1}'],
        exchange,
        headers={"a": 1, "b": "c"},
        message_id="m",
        timestamp=1_800_000_000,
        priority=3,
    )
    rabbitmq.send("orders.old", ["2"], exchange)
    fields = (
        "routing_key", "exchange", "value", "headers", "message_id", "timestamp", "redelivered", "properties",
    )  # fmt: skip
    with task(rabbitmq, queue, fields=fields) as one:
        one.read(2)
    when = datetime(2027, 1, 15, 8, tzinfo=timezone.utc)
    assert [values for _, values, _ in one.emitted] == [
        (
            "orders.new", exchange, {"n": 1}, {"a": 1, "b": "c"}, "m", when, False, {"priority": 3, "delivery_mode": 2},
        ),
        ("orders.old", exchange, 2, {}, None, None, False, {"delivery_mode": 2}),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_failed_for_good_goes_to_the_dead_letter_exchange(rabbitmq: RabbitServer, kind: str) -> None:
    dead = queue_of(rabbitmq)
    queue = queue_of(rabbitmq, kind, x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    rabbitmq.send(queue, ["1", "{", "3", "4"])
    with task(rabbitmq, queue) as one:
        assert one.read(3) == [1, 3, 4]
        [unreadable] = [values for stream, values, _ in one.emitted if stream == "unreadable"]
        assert unreadable[:2] == (queue, b"{")
        one.fail(0, "failed")
        one.ack(1, 2)
        one.fail(3, "stopped")  # left to the server
    one.until(lambda: one.errors)
    assert "it is no JSON" in one.errors[0]
    assert one.metrics.counts["messages rejected"] == 2
    eventually(lambda: rabbitmq.count(dead) == 2, 30)
    assert sorted(rabbitmq.bodies(dead)) == [b"1", b"{"]
    assert rabbitmq.bodies(queue) == [b"4"]


def test_what_failed_for_good_can_be_given_back_but_never_what_cannot_be_decoded(
    rabbitmq: RabbitServer,
) -> None:
    queue = queue_of(rabbitmq)
    rabbitmq.send(queue, ["1", "{"])
    with task(rabbitmq, queue, failed="requeue") as one:
        one.until(lambda: len(one.emitted) == 2)
        one.fail(0, "failed")
        one.ack(1)
        assert one.read(2) == [1, 1]
        one.ack()
    assert rabbitmq.count(queue) == 0


def test_a_deactivated_task_gives_back_what_was_sent_ahead(rabbitmq: RabbitServer) -> None:
    queue = queue_of(rabbitmq)
    with task(rabbitmq, queue) as one:
        one.connects()
        one.spout.deactivate()
        eventually(lambda: not one.spout._task._pausing, 30)  # type: ignore[attr-defined]
        rabbitmq.send(queue, ["1"])
        assert rabbitmq.bodies(queue) == [b"1"]
        rabbitmq.send(queue, ["2"])
        one.spout.activate()
        assert one.read(1) == [2]
        one.ack()


def test_a_missing_queue_is_an_error_until_it_is_declared(
    rabbitmq: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_io.kit.queue_task.RETRY_SECONDS", 0.0)
    queue = place()
    with task(rabbitmq, queue) as one:
        one.until(lambda: one.errors)
        assert f"has no queue '{queue}' in vhost '/': declare it" in one.errors[0]
        rabbitmq.declare(queue)
        rabbitmq.send(queue, ["1"])
        assert one.read(1) == [1]
        rabbitmq.delete(queue)
        one.until(lambda: any("has cancelled the consumer" in error for error in one.errors))
        rabbitmq.declare(queue)
        rabbitmq.send(queue, ["2"])
        assert one.read(2) == [1, 2]


@pytest.mark.soak  # tests/connectors shows it with a classic queue
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_was_killed_is_waited_for_and_nothing_is_lost(tmp_path: Path, kind: str) -> None:
    with RabbitServer(tmp_path) as server:
        queue = queue_of(server, kind)
        if kind == "quorum":  # the server writes the name of a new one to the disk only after some seconds
            server.stop()
            server.start()
        with task(server, queue) as one:
            server.send(queue, ["1", "2"])
            one.read(2)
            one.ack(0)
            one.step()
            server.kill()
            one.until(lambda: one.shown.startswith(f"waiting for queue {queue} of RabbitMQ at 127.0.0.1"))
            server.start()
            server.send(queue, ["3"])
            one.until(lambda: one.values()[-1] == 3)
            assert set(one.values()) == {1, 2, 3}
            assert one.shown == ""
            assert one.errors == []
            one.ack()
        assert server.count(queue) == 0


def test_a_wrong_password_and_missing_rights_are_errors(
    rabbitmq: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_io.kit.queue_task.RETRY_SECONDS", 0.0)
    monkeypatch.setenv("BROKER_PASSWORD", "wrong")
    queue = queue_of(rabbitmq)
    rabbitmq.send(queue, ["1"])
    with task(rabbitmq, queue, url=rabbitmq.login_as("app"), password="env:BROKER_PASSWORD") as one:
        one.until(lambda: one.errors)
        assert "refuses the login: check the user in url, and password" in one.errors[0]
        assert "wrong" not in one.errors[0]
        monkeypatch.setenv("BROKER_PASSWORD", PASSWORDS["app"])
        assert one.read(1) == [1]
    monkeypatch.setenv("BROKER_PASSWORD", PASSWORDS["stranger"])
    for vhost, words in (("%2F", "give the user the rights"), ("none", "check the virtual host in url")):
        url = rabbitmq.login_as("stranger", vhost)
        with task(rabbitmq, queue, url=url, password="env:BROKER_PASSWORD") as two:
            two.until(lambda: two.errors)
            assert words in two.errors[0]


def test_messages_are_read_over_tls_and_a_certificate_of_another_authority_is_an_error(
    rabbitmq: RabbitServer, tmp_path: Path
) -> None:
    queue = queue_of(rabbitmq)
    rabbitmq.send(queue, ["1"])
    ours, other = rabbitmq.certificates, make_certificates(tmp_path)
    with task(rabbitmq, queue, url=rabbitmq.tls_url, tls={"ca": other.ca}) as one:
        one.until(lambda: one.errors)
        assert "agree on no TLS" in one.errors[0] and "check url and tls" in one.errors[0]
    tls = {"ca": ours.ca, "certificate": ours.certificate, "key": ours.key}
    with task(rabbitmq, queue, url=rabbitmq.tls_url, tls=tls) as two:
        assert two.read(1) == [1]
        two.ack()
