"""Kafka to Kafka on three brokers that are killed in turn: the others go on, and each message is written once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from squall_io.kafka import KafkaSink, KafkaSpout
from tests.kafka_servers import KafkaBrokers, KafkaServer
from tests.zookeeper_servers import eventually
from topology_api import Bolt, Fields, Topology, TopologyBuilder, Tuple

pytest.importorskip("confluent_kafka")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.soak,
    pytest.mark.timeout(900),
]  # one broker shows the same of each call

PORTION = 500


class Louder(Bolt):
    """Emits each value in upper case."""

    outputs = Fields("value")

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["value"].upper(),))


def louder(brokers: KafkaBrokers, source: str, target: str) -> Topology:
    builder = TopologyBuilder("louder")
    spout = KafkaSpout(source, servers=brokers.servers, decode="str")
    builder.set_spout("read", spout, parallelism=2)
    builder.set_bolt("louder", Louder()).shuffle_grouping("read")
    sink = KafkaSink(target, servers=brokers.servers, fields="value", encode="str")
    builder.set_bolt("write", sink).shuffle_grouping("louder")
    return builder.build()


def there(broker: KafkaServer, topic: str) -> Counter[str]:
    return Counter(message.value().decode() for message in broker.read(topic))


def test_brokers_that_are_killed_in_turn(tmp_path: Path) -> None:
    folder = tmp_path / "brokers"
    folder.mkdir()
    with KafkaBrokers(folder) as brokers, LocalCluster() as cluster:
        source, target = (brokers.first.create(name, 3, copies=3) for name in ("quiet", "loud"))
        cluster.submit(
            louder(brokers, source, target),
            {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.5},
        )
        expected = Counter[str]()
        for turn, broker in enumerate(brokers.brokers):
            living = brokers.brokers[turn - 1]
            values = [f"v{turn}-{number}" for number in range(PORTION)]
            for partition in range(3):
                living.send(source, [f"{each}-{partition}" for each in values], partition=partition)
            expected.update(f"{each}-{partition}".upper() for each in values for partition in range(3))
            broker.kill()
            eventually(lambda: there(living, target) == expected, 120, every=1.0)  # noqa: B023
            broker.begin()
            broker.wait_ready()
        assert there(brokers.first, target) == expected
