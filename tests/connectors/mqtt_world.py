"""MqttSpout and MqttSink on a real mosquitto, for the matrix of faults. Must not know: promises."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from squall_io.mqtt import MqttSink, MqttSpout
from squall_io.mqtt.connection import MqttAway, MqttConnection
from tests.connector_contract import SOON, SinkWorld, SourceWorld
from tests.mqtt_servers import MosquittoServer
from topology_api import Bolt, Spout

_NO_TOPICS = "a topic is there as soon as it is named"
_LOGIN_WORDS = "check the user in url, and password"


class MqttSource(SourceWorld):
    """A topic, and the session of one task, which is there before the task is."""

    name = "mqtt_source"
    connector = "squall_io.mqtt.MqttSpout"
    rewindable = False
    most_tasks = 1
    not_applicable = {
        "missing": _NO_TOPICS,
        "nothing twice": "it cannot go back to a position",
        "rebalanced": "the broker keeps the sessions of tasks that are gone, with their messages",
    }

    def __init__(self, mosquitto: MosquittoServer) -> None:
        super().__init__()
        self.server = self.mosquitto = mosquitto
        mosquitto.listen(self.id, session=f"{self.id}-0").close()

    def spout(self, **options: Any) -> Spout:
        given = {"url": self.mosquitto.url, "client_id": self.id, "keepalive": 1, "replay": SOON}
        return MqttSpout(self.id, **{**given, **options})

    def put(self, numbers: Iterable[int], partition: int = 0) -> None:
        self.mosquitto.send(self.id, map(str, numbers))

    def number_of(self, values: Sequence[Any]) -> int:
        return int(str(values[0]).rstrip("x"))

    def put_unreadable(self) -> None:
        self.mosquitto.send(self.id, ["{"])

    def put_large(self, number: int) -> str:
        self.mosquitto.send(self.id, [f'"{number}{"x" * 90_000}"'])
        return ""

    def wrong_login(self) -> tuple[Spout, str]:
        return self.spout(url=self.mosquitto.login_as("app"), password="env:WRONG_PASSWORD"), _LOGIN_WORDS


@pytest.fixture
def mqtt_source(mosquitto: MosquittoServer) -> MqttSource:
    return MqttSource(mosquitto)


class MqttTarget(SinkWorld):
    """A topic, and a subscriber with a session."""

    name = "mqtt_sink"
    connector = "squall_io.mqtt.MqttSink"
    once = False
    refused_words = "the broker takes 100000"
    not_applicable = {"missing": _NO_TOPICS}

    def __init__(self, mosquitto: MosquittoServer) -> None:
        super().__init__()
        self.server = self.mosquitto = mosquitto
        self.listener = mosquitto.listen(self.id, session=self.id)

    def sink(self, **options: Any) -> Bolt:
        return MqttSink(self.id, **{"url": self.mosquitto.url, "keepalive": 1, **options})

    def written(self) -> list[int]:
        return [json.loads(payload)["number"] for _, payload, _, _ in list(self.listener.messages)]

    def refused(self, number: int) -> tuple[Any, ...]:
        return number, "x" * 200_000

    def large(self, number: int) -> tuple[tuple[Any, ...], bool]:
        return (number, "x" * 90_000), True

    def wrong_login(self) -> tuple[Bolt, str]:
        return self.sink(url=self.mosquitto.login_as("app"), password="env:WRONG_PASSWORD"), _LOGIN_WORDS

    @contextlib.contextmanager
    def answer_lost(self) -> Iterator[Callable[[], bool]]:
        original, lost = MqttConnection.confirmed, list[str]()

        def confirmed(connection: Any, *given: Any) -> Any:
            found = original(connection, *given)
            if found and not lost:
                lost.append("answer")
                raise MqttAway("the connection is lost")
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MqttConnection, "confirmed", confirmed)
            yield lambda: bool(lost)


@pytest.fixture
def mqtt_sink(mosquitto: MosquittoServer) -> Iterator[MqttTarget]:
    world = MqttTarget(mosquitto)
    yield world
    world.listener.close()
