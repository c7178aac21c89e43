"""KafkaSpout beside a bare consumer of confluent_kafka: messages of 200 bytes of JSON, messages a second and processor time.

The messages are in two partitions. The bare loop reads one partition after the other, `consume(500)` at a time, and decodes
each message with msgspec. Squall reads them with two tasks in a LocalCluster, into a bolt that counts, with acks and a group,
and in epochs. All run in this process, in turn, in several rounds; the clock and the processor time begin with the first
message and end with the last one, so the start is in neither. Needs Java, Maven and confluent-kafka.

    python -m benchmarks kafka_spout [--messages 200000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.child import core, machine, spread
from local_cluster import LocalCluster
from squall_io.kafka import KafkaSpout
from tests.kafka_servers import KafkaServer
from topology_api import Bolt, TopologyBuilder, Tuple

PARTITIONS = 2
AT_ONCE = 500
LONGEST_RUN = 300.0

#: Seconds and processor seconds of a run.
Taken = tuple[float, float]
_names = itertools.count(1)


class Stopwatch:
    """Runs from the first of some messages to the last one; measures this process."""

    def __init__(self, messages: int) -> None:
        self.left = messages
        self.over = threading.Event()
        self._begun = self._taken = (0.0, 0.0)
        self._runs = False

    def count(self) -> None:
        """Count one message."""
        if not self._runs:
            self._runs, self._begun = True, _clocks()
        self.left -= 1
        if not self.left:
            wall, cpu = _clocks()
            self._taken = (wall - self._begun[0], cpu - self._begun[1])
            self.over.set()

    def taken(self) -> Taken:
        """Wait for the last message; return seconds and processor seconds."""
        if not self.over.wait(LONGEST_RUN):
            raise AssertionError(f"{self.left} messages are missing after {LONGEST_RUN:g} s")
        return self._taken


def _clocks() -> Taken:
    return time.perf_counter(), time.process_time()


#: Of the run that is under way: a bolt is a copy, which finds it here.
_watch = Stopwatch(0)


class Counted(Bolt):
    """Counts its tuples."""

    def prepare(self, context: Any) -> None:
        self.count = _watch.count

    def execute(self, tup: Tuple) -> None:
        self.count()


def main() -> None:
    """Print messages a second of each way, and its processor time of the process a message."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks kafka_spout", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    each = given.messages // PARTITIONS
    total = each * PARTITIONS
    with (
        tempfile.TemporaryDirectory(prefix="squall-kafka-") as folder,
        KafkaServer(Path(folder)) as kafka,
    ):
        topic = kafka.create("orders", partitions=PARTITIONS)
        encode = msgspec.json.Encoder().encode
        for partition in range(PARTITIONS):
            rows = ({"id": str(n), "note": "x" * 164, "n": n} for n in range(100_000, 100_000 + each))
            kafka.send(topic, map(encode, rows), partition=partition, settings={"linger.ms": 5})
        ways: dict[str, Callable[[], Taken]] = {
            "bare consumer": lambda: bare(kafka, topic, each),
            "KafkaSpout, acks and a group": lambda: squall(kafka, topic, total, {}),
            "KafkaSpout, epochs": lambda: squall(
                kafka, topic, total, {"topology.state.path": Path(folder, f"state-{next(_names)}").as_uri()}
            ),
        }
        found: dict[str, list[Taken]] = {name: [] for name in ways}
        for _ in range(given.rounds + 1):  # the first round is not counted
            for name, way in ways.items():
                found[name].append(way())
    print(
        f"{machine()}\n{core()} core; {total:,} messages, {given.rounds} rounds, median (least to greatest)"
    )
    for name, runs in found.items():
        rates = spread([total / wall for wall, _ in runs[1:]])
        cpu = spread([1e6 * used / total for _, used in runs[1:]], ".2f")
        print(f"{name:28} {rates:>30} messages/s {cpu:>24} us of processor time each")


def bare(kafka: KafkaServer, topic: str, each: int) -> Taken:
    """Read as a script would, one partition after the other; return the sums."""
    from confluent_kafka import Consumer, TopicPartition

    decode = msgspec.json.Decoder().decode
    sums = [0.0, 0.0]
    for partition in range(PARTITIONS):
        consumer = Consumer({**kafka.settings, "group.id": "bare", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, partition, 0)])
        left = each
        begun: Taken | None = None
        while left:
            messages = consumer.consume(AT_ONCE, 1.0)
            if begun is None and messages:
                begun = _clocks()
            for message in messages:
                assert message.error() is None, message.error()
                assert len(decode(message.value())) == 3
            left -= len(messages)
        assert begun is not None
        sums = [so_far + end - start for so_far, end, start in zip(sums, _clocks(), begun, strict=True)]
        consumer.close()
    return sums[0], sums[1]


def squall(kafka: KafkaServer, topic: str, total: int, conf: dict[str, object]) -> Taken:
    """Read with two tasks into one bolt."""
    global _watch
    _watch = watch = Stopwatch(total)
    spout = KafkaSpout(topic, servers=kafka.servers, group=f"squall-{next(_names)}")
    builder = TopologyBuilder("orders", conf)
    orders = builder.set_spout("orders", spout, parallelism=PARTITIONS)
    builder.set_bolt("count", Counted()).shuffle_grouping(orders)
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        return watch.taken()
