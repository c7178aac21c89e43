"""The MQTT spout on a real broker: sessions that outlive their task, shared subscriptions, and a broker that goes and comes."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from squall_io.mqtt import MqttSpout
from tests.mqtt_servers import PASSWORDS, MosquittoServer
from tests.squall_io.queue_tasks import SpoutTask
from topology_api import InvalidConfig, SquallError

pytest.importorskip("paho.mqtt.client")

_names = itertools.count(1)


def place() -> str:
    """A topic, and the client id of a session, that no other test uses."""
    return f"place-{os.getpid()}-{next(_names)}"


def task(server: MosquittoServer, topic: str, index: int = 0, tasks: int = 1, **more: Any) -> SpoutTask:
    given = {"url": server.url, "client_id": topic, "decode": "str", **more}
    return SpoutTask(MqttSpout(f"{topic}/#", **given), index, tasks)


def test_a_session_keeps_messages_while_its_task_is_away(mosquitto: MosquittoServer) -> None:
    topic = place()
    with task(mosquitto, topic) as first:
        first.connects()
        mosquitto.send(f"{topic}/a", ["1", "2", "3"])
        assert first.read(3) == ["1", "2", "3"]
        first.ack(0)
    mosquitto.send(f"{topic}/b", ["4"])
    with task(mosquitto, topic) as second:
        assert second.read(3) == ["2", "3", "4"]
        second.ack()
    with task(mosquitto, topic) as third:
        third.nothing_more()


def test_messages_are_acknowledged_in_the_order_in_which_they_came(mosquitto: MosquittoServer) -> None:
    topic = place()
    with task(mosquitto, topic) as first:
        first.connects()
        mosquitto.send(topic, ["1", "2", "3", "4"])
        first.read(4)
        first.ack(0, 2, 3)  # the second is not
    with task(mosquitto, topic) as second:
        assert second.read(3) == ["2", "3", "4"]
        second.ack()


def test_the_broker_sends_no_more_than_max_in_flight(mosquitto: MosquittoServer) -> None:
    topic = place()
    with task(mosquitto, topic, max_in_flight=2) as one:
        one.connects()
        mosquitto.send(topic, map(str, range(6)))
        assert one.read(2) == ["0", "1"]
        one.nothing_more()
        one.ack(0, 1)
        assert one.read(4)[2:] == ["2", "3"]


def test_the_tasks_of_a_group_divide_the_messages(mosquitto: MosquittoServer) -> None:
    topic = place()
    with (
        task(mosquitto, topic, 0, 2, group="g") as left,
        task(mosquitto, topic, 1, 2, group="g") as right,
    ):
        for each in (left, right):
            each.connects()
        mosquitto.send(topic, map(str, range(20)))
        left.until(lambda: right.stepped() and len(left.values()) + len(right.values()) >= 20)
        assert sorted(left.values() + right.values(), key=int) == [str(n) for n in range(20)]
        assert left.values() and right.values()


def test_several_tasks_without_a_group_are_refused(mosquitto: MosquittoServer) -> None:
    with pytest.raises(SquallError, match="orders has 2 tasks and no group"):
        task(mosquitto, place(), 0, 2)


def test_a_task_has_what_it_asks_for_of_a_message(mosquitto: MosquittoServer) -> None:
    topic = place()
    fields = ("topic", "value", "qos", "retain", "properties")
    mosquitto.send(f"{topic}/kept", ['{"n": 1}'], retain=True)
    with task(mosquitto, topic, fields=fields, decode="json") as one:
        one.read(1)
        mosquitto.send(f"{topic}/x", ["[2]"], qos=0)
        one.read(2)
    assert [values for _, values, _ in one.emitted] == [
        (f"{topic}/kept", {"n": 1}, 1, True, {}),
        (f"{topic}/x", [2], 0, False, {}),
    ]
    mosquitto.send(f"{topic}/kept", [""], retain=True)


def test_what_cannot_be_decoded_is_emitted_beside_and_acknowledged(mosquitto: MosquittoServer) -> None:
    topic = place()
    with task(mosquitto, topic, decode="json") as one:
        one.connects()
        mosquitto.send(topic, ["1", "{", "3"])
        assert one.read(2) == [1, 3]
        one.until(lambda: one.errors)
        assert "it is no JSON" in one.errors[0]
        [(_, values, _)] = [each for each in one.emitted if each[0] == "unreadable"]
        assert values[:2] == (topic, b"{")
        one.ack()
    with task(mosquitto, topic, decode="json") as two:
        two.nothing_more()
    assert one.metrics.counts["messages rejected"] == 1


def test_a_message_that_failed_for_good_is_acknowledged_and_one_that_was_cut_off_is_not(
    mosquitto: MosquittoServer,
) -> None:
    topic = place()
    with task(mosquitto, topic) as one:
        one.connects()
        mosquitto.send(topic, ["1", "2"])
        one.read(2)
        one.fail(0, "failed")
        one.fail(1, "stopped")
    assert one.metrics.counts["messages rejected"] == 1
    with task(mosquitto, topic) as two:
        assert two.read(1) == ["2"]
        two.ack()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_broker_that_was_killed_is_waited_for_and_nothing_is_lost(tmp_path: Path, version: str) -> None:
    with MosquittoServer(tmp_path) as server, task(server, "t", version=version) as one:
        one.connects()
        server.send("t", ["1", "2"])
        one.read(2)
        one.ack(0)
        server.kill()
        one.until(lambda: one.shown.startswith("waiting for MQTT at 127.0.0.1"))
        server.start()
        server.send("t", ["3"])
        one.until(lambda: one.values()[-1] == "3")
        assert set(one.values()) == {"1", "2", "3"}
        assert one.shown == ""
        assert one.errors == []


def test_a_session_that_the_broker_has_forgotten_is_reported(tmp_path: Path) -> None:
    with MosquittoServer(tmp_path) as server, task(server, "t") as one:
        one.connects()
        server.kill()
        (tmp_path / "mosquitto.db").unlink()
        server.start()
        one.until(lambda: one.errors)
        assert one.errors[0].startswith("LostSession: MQTT at 127.0.0.1")
        server.send("t", ["1"])
        assert one.read(1) == ["1"]


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_wrong_password_is_an_error_and_the_right_one_is_taken_later(
    mosquitto: MosquittoServer, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_io.kit.queue_task.RETRY_SECONDS", 0.0)
    monkeypatch.setenv("BROKER_PASSWORD", "wrong")
    topic = place()
    more: dict[str, Any] = {
        "url": mosquitto.login_as("app"),
        "password": "env:BROKER_PASSWORD",
        "version": version,
    }
    with task(mosquitto, topic, **more) as one:
        one.until(lambda: one.errors)
        assert "Not authorized; check the user in url, and password" in one.errors[0]
        assert "wrong" not in one.errors[0]
        monkeypatch.setenv("BROKER_PASSWORD", PASSWORDS["app"])
        one.connects()
        mosquitto.send(topic, ["1"])


def test_wrong_arguments_are_refused_with_what_to_give() -> None:
    with pytest.raises(InvalidConfig) as found:
        MqttSpout(
            ["a/#/b", "$share/g/t", ""], url="mqtt://app:pw@h", group="a/b", client_id="", fields=["key"], qos=2,
            password="pw", tls={"ca": "ca.pem"}, keepalive=0, version="4", session_expiry=0, max_in_flight=0,
        )  # fmt: skip
    text = str(found.value)
    for part in (
        "'#' is a whole level", "the group with group=", "give the text of a topic", "group is 'a/b'",
        "url has a password", "password has the secret itself", "absolute paths", "keepalive is 0", "version is '4'",
        "session_expiry is 0", "max_in_flight is 0", "qos is 2", "client_id is ''", "fields are",
    ):  # fmt: skip
        assert part in text
    for url in ("http://h", "mqtt://", "mqtt://h:x", "mqtt://h/topic"):
        with pytest.raises(InvalidConfig, match="mqtt://HOST:PORT"):
            MqttSpout("t", url=url)
    with pytest.raises(InvalidConfig, match="url is without TLS"):
        MqttSpout("t", url="mqtt://h", tls={"ca": "/ca.pem"})
