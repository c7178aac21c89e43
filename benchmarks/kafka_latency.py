"""Kafka to a count to Kafka at 1,000 messages a second: latency beside a bare loop of consume and produce.

This process sends messages with their time and reads the answers; the clock is one for all processes of a machine. The bare
loop polls, counts by key and produces each answer at once; Squall has KafkaSpout, a bolt that counts by key, and KafkaSink with
batches that wait 2 ms at most, without epochs. All clients have `linger.ms` 0; each way runs in a process of its own.
The first seconds are not counted. Needs Java, Maven and confluent-kafka.

    python -m benchmarks kafka_latency [--rate 1000] [--seconds 20] [--rounds 3]
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.child import core, machine
from benchmarks.goals import Goal, print_goals
from local_cluster import LocalCluster
from squall_io.kafka import KafkaSink, KafkaSpout
from tests.kafka_servers import KafkaServer
from topology_api import Bolt, Context, Fields, TopologyBuilder, Tuple

KEYS = 100
#: Milliseconds that Squall's 99th percentile may be above that of the bare loop.
ABOVE = 10.0
#: Seconds at the start that are not counted, and after the last message until all answers must be there.
WARM_UP, PATIENCE = 5.0, 30.0
LINGER = {"linger.ms": 0}

_names = itertools.count(1)


class Count(Bolt):
    """Counts by key."""

    outputs = Fields("key", "count", "at")

    def prepare(self, context: Context) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        row = tup["value"]
        key = row["key"]
        self.counts[key] = count = self.counts.get(key, 0) + 1
        self.emit((key, count, row["at"]))


class QuickSink(KafkaSink):
    """A sink whose batches do not wait for more."""

    batch_interval = 0.002


def main() -> None:
    """Print the latencies of each way."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks kafka_latency", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rate", type=int, default=1000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    ways: dict[str, Callable[..., None]] = {"bare loop": bare, "Squall": squall}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    with (
        tempfile.TemporaryDirectory(prefix="squall-kafka-") as folder,
        KafkaServer(Path(folder)) as kafka,
    ):
        for _ in range(given.rounds):
            for name, way in ways.items():
                found[name].append(measured(kafka, way, given.rate, given.seconds))
    print(f"{machine()}\n{core()} core; {given.rate:,} messages a second for {given.seconds:g} s")
    goals = [
        Goal(f"{name}, {what}", [run[what] for run in runs], unit=unit)
        for name, runs in found.items()
        for what, unit in (("p50", " ms"), ("p99", " ms"), ("processor time", " us"))
    ]
    above = [own["p99"] - other["p99"] for own, other in zip(found["Squall"], found["bare loop"])]
    print_goals([*goals, Goal("p99 of Squall above that of the bare loop", above, ABOVE, unit=" ms")])


def measured(kafka: KafkaServer, way: Callable[..., None], rate: int, seconds: float) -> dict[str, float]:
    """Run a way in a process; return its percentiles in milliseconds, and microseconds of processor time a message."""
    source, target = kafka.create("source", partitions=2), kafka.create("target", partitions=2)
    context = multiprocessing.get_context("spawn")
    ends, ended = context.Event(), context.SimpleQueue()
    process = context.Process(target=timed, args=(way, kafka.servers, source, target, ends, ended))
    process.start()
    answers = Answers(kafka, target)
    try:
        total = send(kafka, source, rate, WARM_UP + seconds)
        taken = answers.wait(total)
        ends.set()
        cpu = ended.get()
    finally:
        ends.set()
        process.join(PATIENCE)
        process.kill()
    counted = sorted(taken[int(WARM_UP * rate) :])
    return {
        "p50": 1e3 * counted[len(counted) // 2],
        "p99": 1e3 * counted[len(counted) * 99 // 100],
        "processor time": 1e6 * cpu / total,
    }


def send(kafka: KafkaServer, topic: str, rate: int, seconds: float) -> int:
    """Send messages evenly; return how many."""
    from confluent_kafka import Producer

    encode = msgspec.json.Encoder().encode
    producer = Producer({**kafka.settings, **LINGER})
    begun, total = time.perf_counter(), int(rate * seconds)
    for number in range(total):
        while (early := begun + number / rate - time.perf_counter()) > 0:
            time.sleep(min(early, 0.001))
        row = {"key": f"key-{number % KEYS}", "at": time.perf_counter(), "note": "x" * 140}
        producer.produce(topic, encode(row), partition=number % 2)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0
    return total


class Answers:
    """Reads the answers in a thread, and notes how long each took, in their order."""

    def __init__(self, kafka: KafkaServer, topic: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.consumer = Consumer(
            {**kafka.settings, "group.id": "answers", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
        )
        self.consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
        self.taken: list[float] = []
        self.over = False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self) -> None:
        """The thread."""
        decode = msgspec.json.Decoder().decode
        while not self.over:
            message = self.consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                self.taken.append(time.perf_counter() - decode(message.value())["at"])

    def wait(self, total: int) -> list[float]:
        """Return the seconds of each, when all are here."""
        end = time.monotonic() + PATIENCE
        while len(self.taken) < total:
            assert time.monotonic() < end, f"{len(self.taken):,} of {total:,} answers came"
            time.sleep(0.05)
        self.over = True
        self.thread.join()
        self.consumer.close()
        return self.taken


def timed(way: Callable[..., None], servers: str, source: str, target: str, ends: Any, ended: Any) -> None:
    """In the process: run a way until it is to end; answer with its processor seconds."""
    begun = time.process_time()
    way(servers, source, target, ends, lambda: ended.put(time.process_time() - begun))


def bare(servers: str, source: str, target: str, ends: Any, answer: Callable[[], None]) -> None:
    """The loop."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bare", "enable.auto.commit": False})
    consumer.assign([TopicPartition(source, partition, 0) for partition in range(2)])
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **LINGER})
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    counts: dict[str, int] = {}
    while not ends.is_set():
        message = consumer.poll(0.1)
        if message is None:
            continue
        assert message.error() is None, message.error()
        row = decode(message.value())
        key = row["key"]
        counts[key] = count = counts.get(key, 0) + 1
        producer.produce(target, encode({"key": key, "count": count, "at": row["at"]}), key.encode())
        producer.poll(0)
    answer()
    producer.flush(PATIENCE)
    consumer.close()


def squall(servers: str, source: str, target: str, ends: Any, answer: Callable[[], None]) -> None:
    """A topology in a LocalCluster."""
    builder = TopologyBuilder("counts")
    spout = KafkaSpout(source, servers=servers, group=f"squall-{next(_names)}")
    orders = builder.set_spout("orders", spout, parallelism=1)
    builder.set_bolt("count", Count()).shuffle_grouping(orders)
    sink = QuickSink(target, servers=servers, key="key", settings=LINGER)
    builder.set_bolt("write", sink).shuffle_grouping("count")
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        ends.wait()
        answer()
