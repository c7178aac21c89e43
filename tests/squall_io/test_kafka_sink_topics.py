"""KafkaSink with a function that names the topic: rows of a missing topic are refused, and hold up no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cluster import LocalCluster
from local_cluster.contracts.opened import Surroundings, context_of, tuples_of
from squall_io.kafka import KafkaSink
from tests.kafka_servers import KafkaServer, values_of
from tests.rewinding_spout import FromPosition
from tests.zookeeper_servers import eventually
from topology_api import Fields, RowsRefused, TopologyBuilder, Tuple

pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.slow
CAP = 60.0


def names_topic(tup: Tuple) -> str:
    """Return the topic of a tuple."""
    return str(tup["topic"])


def sink(kafka: KafkaServer) -> KafkaSink:
    # For how long the client takes a topic that is gone for one that is not known everywhere yet.
    soon = {"topic.metadata.propagation.max.ms": 500, "topic.metadata.refresh.interval.ms": 500}
    return KafkaSink(names_topic, servers=kafka.servers, fields="v", encode="str", settings=soon)


class Orders(FromPosition):
    """Every tenth order is for a topic that is missing."""

    outputs = Fields("topic", "v")

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def next_tuple(self) -> float:
        if self.at < 30:
            name = f"{self.topic}-missing" if self.at % 10 == 4 else self.topic
            self.emit((name, str(self.at)), message_id=self.at)
            self.at += 1
        return 0.001


@pytest.mark.parametrize("epochs", [True, False])
def test_only_rows_of_a_missing_topic_are_refused(kafka: KafkaServer, tmp_path: Path, epochs: bool) -> None:
    topic = kafka.create()
    builder = TopologyBuilder("orders")
    builder.set_spout("orders", Orders(topic))
    builder.set_bolt("write", sink(kafka)).shuffle_grouping("orders")
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.2} if epochs else {}
    wanted = sorted(str(number).encode() for number in range(30) if number % 10 != 4)
    with LocalCluster() as cluster:
        cluster.submit(builder.build(), conf)
        eventually(lambda: sorted(map(bytes, values_of(kafka.read(topic)))) == wanted, CAP)  # type: ignore[arg-type]
        if epochs:
            eventually(lambda: len(cluster.dead_letters("orders")) == 3, CAP)
            for letter in cluster.dead_letters("orders"):
                error = letter.failure.error or ""
                assert f"topic '{topic}-missing' cannot be written" in error and "create the topic" in error


def test_a_topic_that_is_deleted_is_missing_and_one_that_is_made_is_written(kafka: KafkaServer) -> None:
    one, other = kafka.create(), kafka.create()
    around = Surroundings()
    bolt = sink(kafka)
    bolt.prepare(context_of("write", 0, 1, around))
    try:
        rows = [
            bolt.row(tup) for tup in tuples_of([{"topic": name, "v": name} for name in (one, other, one)])
        ]
        assert bolt.write(1, rows, bolt.read_token("t"), "t")
        kafka.delete(other)
        reasons: dict[int, str] = {}

        def refused() -> bool:
            try:
                bolt.write(2, rows, bolt.read_token("t"), "t")
            except RowsRefused as error:
                reasons.update(error.reasons)
            except Exception:
                return False  # what the client remembers of the topic is older
            return bool(reasons)

        eventually(refused, CAP)
        assert list(reasons) == [1] and f"topic {other!r} cannot be written" in reasons[1]
        kafka.create_again(other)
        assert bolt.write(2, rows, bolt.read_token("t"), "t")
        assert values_of(kafka.read(other)) == [other.encode()]
    finally:
        bolt.cleanup()
        around.end()
