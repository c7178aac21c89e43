"""One task of a KafkaSpout on a real broker: each message, whatever happens to the broker, the topic and the task."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest

from squall_io.kafka import KafkaSpout
from squall_io.kafka.assignment import LostMessages
from tests.kafka_servers import KafkaServer
from tests.squall_io.kafka_tasks import KafkaSpoutTask
from topology_api import Fields, SquallError

pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.slow


def texts(first: int, last: int) -> list[str]:
    return [f"text {number}" for number in range(first, last)]


def spout(kafka: KafkaServer, topics: Any, **arguments: Any) -> KafkaSpout:
    given: dict[str, Any] = {"servers": kafka.servers, "decode": "str", "look_interval": 1.0, **arguments}
    return KafkaSpout(topics, **given)


def test_the_group_goes_on_behind_what_is_settled(kafka: KafkaServer) -> None:
    topic = kafka.create("orders", 2)
    kafka.send(topic, texts(0, 10))
    with KafkaSpoutTask(spout(kafka, topic, group=topic)) as task:
        assert task.read(10) == texts(0, 10)
        task.nothing_more()
        task.ack(0, 1, 3)
        task.fail(2, "failed")  # final: it would come back for ever
        task.fail(4, "stopped")
        task.ack(5)
    assert kafka.committed(topic, topic) == {0: 4, 1: 0}
    task = KafkaSpoutTask(spout(kafka, topic, group=topic))
    assert task.read(6) == texts(4, 10)
    task.ack()
    task.until(lambda: kafka.committed(topic, topic) == {0: 10, 1: 0})  # before its end
    kafka.send(topic, texts(10, 12))
    task.read(8)
    task.ack(6)  # and it dies: neither saved nor closed
    other = KafkaSpoutTask(spout(kafka, topic, group=topic))
    assert other.read(2) == texts(10, 12)
    task.close()
    other.close()
    assert task.errors == other.errors == []


def test_the_lag_is_what_is_not_settled(kafka: KafkaServer) -> None:
    topic = kafka.create("orders", 2)
    kafka.send(topic, texts(0, 7))
    with KafkaSpoutTask(spout(kafka, topic)) as task:
        lag, partitions = task.metrics.gauges["lag"], task.metrics.gauges["partitions"]
        assert (lag(), partitions()) == (0, 0)
        task.read(7)
        assert (lag(), partitions()) == (7, 2)
        task.ack(0, 1)
        assert lag() == 5
        task.ack(2, 3, 4, 5, 6)
        assert lag() == 0
        kafka.send(topic, texts(7, 9), partition=1)
        task.read(9)
        assert lag() == 2
    lag()  # the metrics may be reported once more


def test_new_partitions_and_topics_of_a_pattern_are_found_and_read_from_the_beginning(
    kafka: KafkaServer,
) -> None:
    first = kafka.create("pattern")
    kafka.send(first, ["old"])
    with KafkaSpoutTask(spout(kafka, "^pattern", start="latest", fields=("value", "topic"))) as task:
        task.until(lambda: task.metrics.gauges["partitions"]())
        kafka.send(first, ["new"])
        assert task.read(1) == ["new"]
        kafka.add_partitions(first, 2)
        kafka.send(first, ["of the new partition"], partition=1)
        assert task.read(2)[1] == "of the new partition"
        second = kafka.create("pattern")
        kafka.send(second, ["of the new topic"])
        assert task.read(3)[2] == "of the new topic"
        assert task.emitted[-1][1] == ("of the new topic", second)
        assert task.errors == []


def test_it_starts_at_a_time_or_an_offset(kafka: KafkaServer) -> None:
    topic = kafka.create("orders", 2)
    for hour in range(5):
        when = datetime(2026, 1, 2, hour, tzinfo=timezone.utc)
        kafka.send(topic, [f"hour {hour}"], timestamp=int(when.timestamp() * 1000))
    for start, expected in (
        (datetime(2026, 1, 2, 2, 30, tzinfo=timezone.utc), ["hour 3", "hour 4"]),
        (datetime(2026, 1, 2, 3, tzinfo=timezone.utc), ["hour 3", "hour 4"]),
        ({topic: {0: 4}}, ["hour 4"]),
        ("earliest", [f"hour {hour}" for hour in range(5)]),
    ):
        with KafkaSpoutTask(spout(kafka, topic, start=start)) as task:
            assert task.read(len(expected)) == expected
            task.nothing_more()
    for late in ("latest", datetime(2030, 1, 1, tzinfo=timezone.utc)):
        with KafkaSpoutTask(spout(kafka, topic, start=late), state=True) as task:
            task.nothing_more()
            assert task.spout.position() == {topic: {0: 5, 1: 0}}


def test_all_that_a_message_has_can_be_a_field(kafka: KafkaServer) -> None:
    topic = kafka.create("orders")
    kafka.send(topic, ["a"], key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123)
    kafka.send(topic, [None])
    fields = ("offset", "value", "key", "headers", "timestamp", "topic", "partition")
    with KafkaSpoutTask(spout(kafka, topic, fields=fields, decode_key="str")) as task:
        task.read(2)
        when = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=timezone.utc)
        assert task.emitted[0][1] == (0, "a", "k", [("h", b"1"), ("h", None)], when, topic, 0)
        assert task.emitted[1][1][:4] == (1, None, None, [])


def test_members_of_json_become_columns(kafka: KafkaServer) -> None:
    topic = kafka.create("orders")
    kafka.send(topic, [json.dumps({"id": 1, "price": 2.5, "more": 3}), '{"id": "x"}', None, '{"id": 2}'])
    arguments = {"decode": "json", "schema": "id bigint, price double", "fields": ("value", "offset")}
    with KafkaSpoutTask(spout(kafka, topic, **arguments)) as task:
        assert isinstance(task.spout.outputs, dict)
        assert task.spout.outputs["default"] == Fields("id", "price", "offset")
        task.read(2)
        assert [values for stream, values, _ in task.emitted if stream == "default"] == [
            (1, 2.5, 0),
            (2, None, 3),
        ]
        assert len(task.values("unreadable")) == 2


def test_aborted_transactions_are_not_read(kafka: KafkaServer) -> None:
    topic = kafka.create("orders")
    kafka.send(topic, texts(0, 3), transaction="commit")
    kafka.send(topic, texts(3, 6), transaction="abort")
    kafka.send(topic, texts(6, 8), transaction="commit")
    kafka.send(topic, texts(8, 10), transaction="abort")
    end = 10 + 4  # each transaction ends with a mark
    with KafkaSpoutTask(spout(kafka, topic, group=topic)) as task:
        assert task.read(5) == [*texts(0, 3), *texts(6, 8)]
        task.nothing_more()
        task.ack()
        task.until(lambda: task.metrics.gauges["lag"]() == 0)
    assert kafka.committed(topic, topic) == {0: end}
    with KafkaSpoutTask(spout(kafka, topic, settings={"isolation.level": "read_uncommitted"})) as task:
        assert task.read(10) == texts(0, 10)


def test_a_message_that_cannot_be_decoded_is_reported_kept_and_passed(kafka: KafkaServer) -> None:
    topic = kafka.create("orders")
    kafka.send(topic, ["1", "{", "2", "}", "3"], key=b"k")
    with KafkaSpoutTask(spout(kafka, topic, decode="json", group=topic)) as task:
        assert task.read(3) == [1, 2, 3]
        task.until(lambda: task.errors)
        task.nothing_more()
        assert len(task.errors) == 1
        assert f"UnreadableMessage: {topic}-0@1 cannot be decoded: it is no JSON" in task.errors[0]
        kept = [values for stream, values, _ in task.emitted if stream == "unreadable"]
        assert [values[:5] for values in kept] == [(topic, 0, 1, b"k", b"{"), (topic, 0, 3, b"k", b"}")]
        assert task.metrics.counts["messages left out"] == 2
        task.ack(0, 2, 3, 4)
        task.spout.deactivate()
        task.until(lambda: kafka.committed(topic, topic) == {0: 1})  # it is tracked, too
        task.ack(1)
    assert kafka.committed(topic, topic) == {0: 5}


def test_messages_that_retention_has_deleted_are_counted_as_lost(kafka: KafkaServer) -> None:
    topic = kafka.create("orders")
    kafka.send(topic, texts(0, 5))
    arguments: dict[str, Any] = {"group": topic, "max_gap": 5}
    with KafkaSpoutTask(spout(kafka, topic, **arguments)) as task:
        task.read(5)
        assert task.shown.startswith(
            f"{topic}-0 is paused: offset 0 is neither acked nor failed, and 5 messages"
        )
        kafka.send(topic, texts(5, 12))
        task.nothing_more()
        kafka.delete_records(topic, 0, 9)  # while it is paused
        task.ack(1, 2, 3, 4)
        task.nothing_more()
        task.ack(0)
        assert task.shown == ""
        assert task.read(8)[5:] == texts(9, 12)
        assert task.metrics.counts["messages lost"] == 4
        lost = f"LostMessages: {topic}-0 has lost 4 offset(s), 5 to 8, before they were read"
        assert [error.startswith(lost) for error in task.errors] == [True]
        task.ack(*range(5, 8))
    assert kafka.committed(topic, topic) == {0: 12}
    kafka.send(topic, texts(12, 15))
    kafka.delete_records(topic, 0, 14)  # while it is down
    with KafkaSpoutTask(spout(kafka, topic, **arguments)) as task:
        assert task.read(1) == texts(14, 15)
        assert task.metrics.counts["messages lost"] == 2
    with pytest.raises(LostMessages, match=rf"{topic}-0 has lost 2 offset\(s\), 12 to 13"):
        KafkaSpoutTask(spout(kafka, topic), state=True, position={topic: {0: 12}})


def test_a_topic_that_was_created_again_is_refused_by_a_commit_and_read_by_a_group(
    kafka: KafkaServer,
) -> None:
    topic = kafka.create("orders")
    kafka.send(topic, texts(0, 5))
    with KafkaSpoutTask(spout(kafka, topic, group=topic)) as task:
        task.read(5)
        task.ack()
    kafka.delete(topic)
    with pytest.raises(LostMessages, match=f"{topic}-0: 1 partition"):
        KafkaSpoutTask(spout(kafka, topic), state=True, position={topic: {0: 5}})
    kafka.create_again(topic)
    kafka.send(topic, texts(5, 7))
    with pytest.raises(LostMessages, match="created again"):
        KafkaSpoutTask(spout(kafka, topic), state=True, position={topic: {0: 5}})


def test_the_gap_pauses_only_its_partition(kafka: KafkaServer) -> None:
    topic = kafka.create("orders", 2)
    kafka.send(topic, texts(0, 1500))
    with KafkaSpoutTask(spout(kafka, topic, max_gap=100)) as task:
        task.until(lambda: task.shown)
        task.nothing_more()
        emitted = len(task.emitted)
        assert 100 <= emitted <= 100 + 500  # a call emits that many
        assert f"{topic}-0 is paused: offset 0 is" in task.shown
        kafka.send(topic, ["other"], partition=1)
        assert task.read(emitted + 1)[-1] == "other"
        done = 0
        while len(task.values()) < 1501:
            task.ack(*range(done, len(task.emitted)))
            done = len(task.emitted)
            task.until(lambda done=done: len(task.emitted) > done)  # type: ignore[misc]
        assert [value for value in task.values() if value != "other"] == texts(0, 1500)


def test_a_password_is_looked_up_and_missing_rights_are_reported(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create("orders")
    kafka.send(topic, texts(0, 3))

    def task_of(user: str, password: str) -> KafkaSpoutTask:
        monkeypatch.setenv("KAFKA_PASSWORD", password)
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": "env:KAFKA_PASSWORD",
        }
        return KafkaSpoutTask(spout(kafka, topic, servers=kafka.sasl_servers, settings=settings))

    with task_of("app", "secret of app") as task:
        assert task.read(3) == texts(0, 3)
        assert task.errors == []
    with task_of("guest", "secret of guest") as task:
        task.until(lambda: task.errors)
        assert f"topic '{topic}' cannot be read" in task.errors[0]
        assert "give the user the rights" in task.errors[0]


def test_settings_that_librdkafka_does_not_take_are_refused_in_open(kafka: KafkaServer) -> None:
    with pytest.raises(SquallError, match=r"settings of Kafka are refused: .*fetch\.nonsense"):
        KafkaSpoutTask(spout(kafka, "orders", settings={"fetch.nonsense": 1}))


def test_a_frozen_broker_is_noticed_and_does_not_hold_up_the_end(kafka: KafkaServer) -> None:
    topic = kafka.create("orders")
    kafka.send(topic, texts(0, 3))
    settings = {"socket.timeout.ms": 2000}
    task = KafkaSpoutTask(spout(kafka, topic, group=topic, settings=settings))
    task.read(3)
    kafka.freeze()
    try:
        task.until(lambda: task.shown.startswith("waiting for Kafka at "))
        task.ack()
        # It starts meanwhile, and has no group: the broker may take what `task` commits when it is thawed.
        other = KafkaSpoutTask(spout(kafka, topic, settings=settings))
        other.until(lambda: other.shown.startswith("waiting for Kafka at "))
        task.close()
    finally:
        kafka.thaw()
    assert sorted(other.read(3)) == texts(0, 3)
    other.until(lambda: other.shown == "")
    assert task.errors == other.errors == []
    other.close()


def test_a_rewound_task_waits_for_a_broker_that_is_away_and_keeps_its_position(kafka: KafkaServer) -> None:
    topic = kafka.create("orders")
    kafka.send(topic, texts(0, 5))
    kafka.freeze()
    try:
        settings = {"socket.timeout.ms": 2000}
        task = KafkaSpoutTask(
            spout(kafka, topic, settings=settings), 0, 1, state=True, position={topic: {0: 2}}
        )
        assert task.spout.position() == {topic: {0: 2}}
    finally:
        kafka.thaw()
    assert task.read(3) == texts(2, 5)
    assert task.spout.position() == {topic: {0: 5}}
    task.close()


def test_with_epochs_the_group_has_what_positions_said(kafka: KafkaServer) -> None:
    topic = kafka.create("orders")
    kafka.send(topic, texts(0, 5))
    with KafkaSpoutTask(spout(kafka, topic, group=topic), state=True) as task:
        task.read(5)
        assert kafka.committed(topic, topic) == {}
        assert task.spout.position() == {topic: {0: 5}}
        task.until(lambda: kafka.committed(topic, topic) == {0: 5})
    with KafkaSpoutTask(spout(kafka, topic, group=topic), state=True) as task:
        assert task.read(5) == texts(0, 5)  # without a commit of the topology it begins at the start


def test_a_topic_that_is_deleted_and_created_again_while_it_is_read_is_reported_and_read_on(
    kafka: KafkaServer,
) -> None:
    topic = kafka.create("orders")
    kafka.send(topic, texts(0, 5))
    with KafkaSpoutTask(spout(kafka, topic, settings={"topic.metadata.refresh.interval.ms": 1000})) as task:
        task.read(5)
        kafka.delete(topic)
        task.until(lambda: any("has no topic" in error for error in task.errors))
        kafka.create_again(topic)
        kafka.send(topic, ["fresh"])
        assert task.read(6)[5:] == ["fresh"]
        assert any("created again" in error for error in task.errors)
