"""The group of a KafkaSpout: its offsets are stored again each hour, and without one it needs no right for a group."""

from __future__ import annotations

import time
from typing import Any

import pytest

from squall_io.kafka import KafkaSpout
from squall_io.kafka.task import RENEW_SECONDS
from tests.kafka_servers import ANSWER_SECS, KafkaServer
from tests.squall_io.kafka_tasks import KafkaSpoutTask
from tests.zookeeper_servers import eventually

pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.slow


def test_offsets_are_stored_again_after_an_hour_though_nothing_has_come(kafka: KafkaServer) -> None:
    """A broker forgets the offsets of a group that stores none for days (`offsets.retention.minutes`)."""
    topic, ahead = kafka.create("orders"), [0.0]
    kafka.send(topic, ["1", "2", "3"])
    spout = KafkaSpout(topic, servers=kafka.servers, group=topic)
    with KafkaSpoutTask(spout, now=lambda: time.monotonic() + ahead[0]) as task:
        task.read(3)
        task.ack()
        task.until(lambda: kafka.committed(topic, topic) == {0: 3})
        kafka.admin.delete_consumer_groups([topic])[topic].result(ANSWER_SECS)
        ahead[0] = RENEW_SECONDS / 2
        task.nothing_more(20)
        assert kafka.committed(topic, topic) == {}
        ahead[0] = RENEW_SECONDS
        task.until(lambda: kafka.committed(topic, topic) == {0: 3})
        assert task.errors == []


def may_read(kafka: KafkaServer, topic: str) -> None:
    """Give the user `guest` the rights that it needs for a topic, and none for any group."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    for operation in (AclOperation.READ, AclOperation.DESCRIBE):
        right = AclBinding(ResourceType.TOPIC, topic, literal, "User:guest", "*", operation, allow)
        kafka.admin.create_acls([right])[right].result(ANSWER_SECS)


def test_without_a_group_no_right_for_a_group_is_needed_and_with_one_it_is_named(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create("orders")
    kafka.send(topic, ["1", "2", "3"])
    may_read(kafka, topic)
    monkeypatch.setenv("KAFKA_PASSWORD", "secret of guest")

    def task_of(**more: Any) -> KafkaSpoutTask:
        settings = {
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "guest",
            "sasl.password": "env:KAFKA_PASSWORD",
        }  # fmt: skip
        return KafkaSpoutTask(KafkaSpout(topic, servers=kafka.sasl_servers, settings=settings, **more))

    def reads() -> bool:
        """Rights take effect a moment after they were given."""
        with task_of() as task:
            task.until(lambda: task.errors or len(task.values()) == 3)
            task.nothing_more(20)
            return task.errors == []

    eventually(reads, 60.0)
    with task_of(group="theirs") as task:
        task.until(lambda: task.errors)
        assert "group" in task.errors[0] and "give the user the right Read for this group" in task.errors[0]
