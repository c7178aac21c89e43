"""The MQTT sink on a real broker: acknowledged messages, refused ones alone, and a broker that goes and comes."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from squall_io.mqtt import MqttSink
from tests.mqtt_servers import MOST_BYTES, PASSWORDS, MosquittoServer
from tests.squall_io.sinks_that_publish import SinkTask
from tests.squall_io.test_mqtt_spout import place
from tests.zookeeper_servers import eventually
from topology_api import InvalidConfig

pytest.importorskip("paho.mqtt.client")

topic_field = itemgetter("topic")


def wrong_topic(tup: Any) -> str:
    return "a/#"


def rows(*values: Any) -> list[dict[str, Any]]:
    return [{"v": value} for value in values]


def test_each_tuple_is_a_message_in_order(mosquitto: MosquittoServer) -> None:
    topic = place()
    sink = MqttSink(topic, url=mosquitto.url, fields="v")
    with mosquitto.listen(topic) as listener, SinkTask(sink) as task:
        assert task.write(rows(*range(100))) == {}
        assert listener.payloads(100) == [b"%d" % n for n in range(100)]


def test_a_function_names_the_topic_and_retained_messages_stay(mosquitto: MosquittoServer) -> None:
    topic = place()
    sink = MqttSink(topic_field, url=mosquitto.url, fields=["v"], retain=True)
    with SinkTask(sink) as task:
        assert task.write([{"topic": f"{topic}/a", "v": 1}, {"topic": f"{topic}/+", "v": 2}]) == {
            1: f"the function that names the topic returned '{topic}/+' (str) is no topic to write to: it is text without '+'"
            " and '#', and not empty"
        }
        with mosquitto.listen(f"{topic}/#") as listener:
            assert listener.payloads(1) == [b'{"v":1}']
            assert listener.messages[0][3]
        task.sink.fields = "v"  # type: ignore[attr-defined]
    with SinkTask(MqttSink(f"{topic}/a", url=mosquitto.url, fields="v", retain=True)) as task:
        assert task.write(rows(None)) == {}  # removes it


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_message_that_is_too_large_fails_alone(mosquitto: MosquittoServer, version: str) -> None:
    topic = place()
    sink = MqttSink(topic, url=mosquitto.url, fields="v", encode="str", version=version)
    with mosquitto.listen(topic) as listener, SinkTask(sink) as task:
        failed = task.write(rows("a", "x" * MOST_BYTES, "b"))
        assert list(failed) == [1]
        wanted = "the broker takes 100000" if version == "5" else "has ended 3 connections"
        assert wanted in failed[1]
        # A connection that ended may have sent the first one already.
        eventually(lambda: {payload for _, payload, _, _ in listener.messages} == {b"a", b"b"}, 30)


def test_a_topic_that_the_user_may_not_write_fails_its_tuples(
    mosquitto: MosquittoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GUEST", PASSWORDS["guest"])
    sink = MqttSink("t", url=mosquitto.login_as("guest"), password="env:GUEST", fields="v")
    with SinkTask(sink) as task:
        assert task.write(rows(1)) == {0: "the broker refuses the message: Not authorized (0x87)"}


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_broker_that_is_away_is_waited_for(tmp_path: Path, fault: str) -> None:
    sink = partial(MqttSink, "t", fields="v", retain=True, keepalive=1)
    with MosquittoServer(tmp_path) as server, SinkTask(sink(url=server.url)) as task:
        task.write(rows(0))
        (server.kill if fault == "killed" else server.freeze)()
        thread = task.writing(rows(*range(1, 60)))
        eventually(lambda: any("waiting for MQTT at" in text for text in task.shown), 60)
        (server.start if fault == "killed" else server.thaw)()
        thread.join(60)
        assert not thread.is_alive()
        assert task.failed == {}
        assert task.shown[-1] == ""
        with server.listen("t") as listener:
            assert listener.payloads(1) == [b"59"]


def test_wrong_arguments_are_refused_with_what_to_give() -> None:
    with pytest.raises(InvalidConfig) as found:
        MqttSink("a/+", url="mqtt://h", fields=[], encode="xml", qos=2, retain=1, client_id="")  # type: ignore[arg-type]
    text = str(found.value)
    for part in (
        "no topic to write to",
        "fields is []",
        "encode is",
        "qos is 2",
        "retain is 1",
        "client_id is ''",
    ):
        assert part in text
