"""Pipes between topics of Kafka: what of a message is copied."""

from __future__ import annotations

from typing import Any

import pytest

from local_cluster import LocalCluster
from squall_io.pipes import Pipe, topology_of
from tests.kafka_servers import KafkaServer
from tests.zookeeper_servers import eventually

pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.slow
WHEN = 1_700_000_000_123


def copied(kafka: KafkaServer, source: str, sink: str) -> list[Any]:
    """Copy two messages with a key and a time, and a tombstone; return what is there then."""
    one, other = kafka.create(), kafka.create()
    kafka.send(one, ['{"n":1}', '{"n": 2}', None], key=b"k\xff", timestamp=WHEN)
    first, second = f"kafka://{kafka.servers}/{one}", f"kafka://{kafka.servers}/{other}"
    with LocalCluster() as cluster:
        cluster.submit(topology_of([Pipe(first + source, second + sink)]))
        eventually(lambda: len(kafka.read(other)) == 3, 60)
    return [(each.key(), each.value(), each.timestamp()[1] == WHEN) for each in kafka.read(other)]


def test_values_are_copied_and_keys_where_the_addresses_name_them(kafka: KafkaServer) -> None:
    assert copied(kafka, "", "") == [
        (None, b'{"n":1}', False),
        (None, b'{"n":2}', False),
        (None, None, False),
    ]
    found = copied(kafka, "?fields=key,value", "?key=key&encode_key=bytes&fields=value")
    assert found == [(b"k\xff", b'{"n":1}', False), (b"k\xff", b'{"n":2}', False), (b"k\xff", None, False)]


def test_key_value_and_time_are_copied_byte_for_byte(kafka: KafkaServer) -> None:
    source = "?fields=key,value,timestamp&decode=bytes"
    sink = "?key=key&encode_key=bytes&fields=value&encode=bytes&timestamp=timestamp"
    wanted = [(b"k\xff", value, True) for value in (b'{"n":1}', b'{"n": 2}', None)]
    assert copied(kafka, source, sink) == wanted
