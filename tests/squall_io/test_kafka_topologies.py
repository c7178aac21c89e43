"""KafkaSpout in topologies of this process: each message is processed and its offset stored, and each counts once in state."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from squall_io.kafka import KafkaSpout
from tests.kafka_servers import KafkaServer
from tests.zookeeper_servers import eventually
from topology_api import Bolt, StatefulBolt, Topology, TopologyBuilder, Tuple, ValueState

pytest.importorskip("confluent_kafka")

WORDS = [{"word": f"w{number % 7}"} for number in range(200)]


class Keep(Bolt):
    """Appends each value to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def execute(self, tup: Tuple) -> None:
        with self.path.open("a") as file:
            file.write(f"{json.dumps(tup['value'])}\n")


@pytest.mark.slow
def test_what_a_topology_has_processed_is_in_the_group(kafka: KafkaServer, tmp_path: Path) -> None:
    topic, kept = kafka.create("words", 3), tmp_path / "kept"
    for partition in range(3):
        kafka.send(topic, map(json.dumps, WORDS), partition=partition)
    kafka.send(topic, ["no JSON"])
    builder = TopologyBuilder("words")
    spout = KafkaSpout(topic, servers=kafka.servers, group=topic)
    builder.set_spout("words", spout, parallelism=2)
    builder.set_bolt("keep", Keep(kept)).shuffle_grouping("words")
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        eventually(lambda: kafka.committed(topic, topic) == {0: 201, 1: 200, 2: 200}, 60, every=0.2)
    assert len(kept.read_text().splitlines()) == 600


class Count(StatefulBolt):
    """Counts words, and writes each count to a file."""

    key = "word"
    times = ValueState(int, default=0)

    def __init__(self, path: Path) -> None:
        self.path = path

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1
        with self.path.open("a") as file:
            file.write(f"{tup['word']} {self.times.value}\n")


def counting(kafka: KafkaServer, topic: str, counts: Path, tasks: int) -> Topology:
    builder = TopologyBuilder("counting")
    builder.set_spout(
        "words", KafkaSpout(topic, servers=kafka.servers, schema="word string"), parallelism=tasks
    )
    builder.set_bolt("count", Count(counts), parallelism=2).fields_grouping("words", "word")
    return builder.build()


@pytest.mark.slow
def test_each_message_counts_once_in_state_when_a_topology_comes_back(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    topic = kafka.create("words", 3)
    settings = {"topology.state.path": f"file://{tmp_path}/state"}

    def last(counts: Path) -> dict[str, int]:
        lines = [line.split() for line in counts.read_text().splitlines()] if counts.exists() else []
        return {word: int(times) for word, times in lines}

    def counted(counts: Path, words: int) -> bool:
        return sum(last(counts).values()) == words

    for tasks, turn in ((1, 1), (2, 2)):
        counts = tmp_path / f"counts-{turn}"
        for partition in range(3):
            kafka.send(topic, map(json.dumps, WORDS), partition=partition)
        with LocalCluster() as cluster:
            cluster.submit(counting(kafka, topic, counts, tasks), settings)
            eventually(partial(counted, counts, turn * 600), 60, every=0.1)
        expected = 3 * turn
        assert last(counts) == {
            f"w{n}": expected * sum(each["word"] == f"w{n}" for each in WORDS) for n in range(7)
        }
