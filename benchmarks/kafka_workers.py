"""KafkaSpout beside a bare consumer and Bytewax, each in one process a partition: messages a second and processor time.

Messages of 200 bytes of JSON in two partitions of one broker. The bare loop is `consume(500)` of confluent_kafka and msgspec's
decoder. Squall has two workers, each with a task of the spout and one of a bolt that counts, with acks and a group. Bytewax has
two processes in an environment of its own (`.venv-bytewax`), its own KafkaSource, the same decoder and a sink that counts; it
has no acks. The clocks of a process begin with its first message and end with its last one; the rates of the processes are
added, and so is their processor time. Needs Java, Maven and confluent-kafka.

    python -m benchmarks kafka_workers [--messages 1000000] [--rounds 3] [--without-bytewax]
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import beside_bytewax
from benchmarks.child import ROOT, core, machine, spread
from benchmarks.notes import find, leave
from local_cluster import LocalCluster
from squall_io.kafka import KafkaSpout
from tests.kafka_servers import KafkaServer
from tests.zookeeper_servers import eventually
from topology_api import Bolt, Context, TopologyBuilder, Tuple

PARTITIONS = 2
AT_ONCE = 500
LONGEST_RUN = 300.0
#: What Bytewax's environment needs beside it.
BESIDE_BYTEWAX = ("confluent-kafka", "msgspec")
SCRIPT = Path(__file__).with_name("bytewax_kafka.py")

_names = itertools.count(1)


class Counted(Bolt):
    """Counts its tuples, and leaves a note when all of its share have come."""

    def __init__(self, folder: str, share: int) -> None:
        self.folder, self.share = folder, share

    def prepare(self, context: Context) -> None:
        self.index, self.left = context.index, self.share

    def execute(self, tup: Tuple) -> None:
        if self.left == self.share:
            self.begun, self.used = time.perf_counter(), time.process_time()
        self.left -= 1
        if not self.left:
            seconds, cpu = time.perf_counter() - self.begun, time.process_time() - self.used
            leave(self.folder, "read", self.index, seconds=seconds, cpu=cpu)


def main() -> None:
    """Print messages a second of each way, and its processor time a message."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks kafka_workers", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-bytewax", action="store_true")
    given = parser.parse_args()
    each = given.messages // PARTITIONS
    with (
        tempfile.TemporaryDirectory(prefix="squall-kafka-") as folder,
        KafkaServer(Path(folder)) as kafka,
    ):
        topic = filled(kafka, each)
        ways: dict[str, Callable[[str], list[dict[str, Any]]]] = {
            "bare consumers": lambda notes: bare(kafka, topic, each, notes),
            "KafkaSpout, acks and a group": lambda notes: squall(kafka, topic, each, notes),
        }
        if not given.without_bytewax:
            python = bytewax_python()
            ways["Bytewax's KafkaSource"] = lambda notes: bytewax(python, kafka, topic, each, notes)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(given.rounds + 1):  # the first round is not counted
            for name, way in ways.items():
                with tempfile.TemporaryDirectory(prefix="squall-notes-") as notes:
                    read = way(notes)
                rate = sum(each / note["seconds"] for note in read)
                found[name].append((rate, 1e6 * sum(note["cpu"] for note in read) / (each * PARTITIONS)))
    print(
        f"{machine()}\n{core()} core; {each * PARTITIONS:,} messages, {PARTITIONS} processes each, {given.rounds} rounds,"
        " median (least to greatest)"
    )
    for name, runs in found.items():
        rates, cpu = spread([rate for rate, _ in runs[1:]]), spread([used for _, used in runs[1:]], ".2f")
        shares = [own / other for (own, _), (other, _) in zip(runs[1:], found["bare consumers"][1:])]
        print(
            f"{name:28} {rates:>34} messages/s {cpu:>24} us of processor time each; {spread(shares, '.2f')} of bare"
        )


def filled(kafka: KafkaServer, each: int) -> str:
    """Return a topic with this many messages in each partition."""
    topic = kafka.create("orders", partitions=PARTITIONS)
    encode = msgspec.json.Encoder().encode
    for partition in range(PARTITIONS):
        rows = ({"id": str(n), "note": "x" * 164, "n": n} for n in range(100_000, 100_000 + each))
        kafka.send(topic, map(encode, rows), partition=partition, settings={"linger.ms": 5})
    return topic


def bare(kafka: KafkaServer, topic: str, each: int, notes: str) -> list[dict[str, Any]]:
    """Read as a script would, in a process for each partition."""
    context = multiprocessing.get_context("spawn")
    readers = [
        context.Process(target=read_partition, args=(kafka.servers, topic, partition, each, notes))
        for partition in range(PARTITIONS)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(LONGEST_RUN)
        assert reader.exitcode == 0, reader.exitcode
    return find(notes, "read")


def read_partition(servers: str, topic: str, partition: int, each: int, notes: str) -> None:
    """The loop of one process."""
    from confluent_kafka import Consumer, TopicPartition

    decode = msgspec.json.Decoder().decode
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bare", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    left, begun, used = each, 0.0, 0.0
    while left:
        messages = consumer.consume(AT_ONCE, 1.0)
        if messages and not begun:
            begun, used = time.perf_counter(), time.process_time()
        for message in messages:
            assert message.error() is None, message.error()
            assert len(decode(message.value())) == 3
        left -= len(messages)
    leave(notes, "read", partition, seconds=time.perf_counter() - begun, cpu=time.process_time() - used)
    consumer.close()


def squall(kafka: KafkaServer, topic: str, each: int, notes: str) -> list[dict[str, Any]]:
    """Read with two workers."""
    builder = TopologyBuilder("orders", {"topology.workers": PARTITIONS})
    spout = KafkaSpout(topic, servers=kafka.servers, group=f"squall-{next(_names)}")
    orders = builder.set_spout("orders", spout, parallelism=PARTITIONS)
    builder.set_bolt("count", Counted(notes, each), parallelism=PARTITIONS).local_or_shuffle_grouping(orders)
    with LocalCluster(processes=True, supervisors=1, slots=PARTITIONS) as cluster:
        cluster.submit(builder.build())
        eventually(lambda: len(find(notes, "read")) == PARTITIONS, LONGEST_RUN, every=0.1)
    read = find(notes, "read")
    assert len({note["pid"] for note in read}) == PARTITIONS, "both tasks ran in one worker"
    return read


def bytewax_python() -> Path:
    """Return the interpreter of Bytewax's environment, with what its KafkaSource needs."""
    python = beside_bytewax.bytewax_python()
    if subprocess.run(
        [python, "-c", "import confluent_kafka, msgspec"], stderr=subprocess.DEVNULL
    ).returncode:
        command: list[str | Path] = [
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            *BESIDE_BYTEWAX,
        ]
        subprocess.run(command, check=True)
    return python


def bytewax(python: Path, kafka: KafkaServer, topic: str, each: int, notes: str) -> list[dict[str, Any]]:
    """Read with Bytewax, in a process for each partition."""
    addresses = [f"127.0.0.1:{port}" for port in beside_bytewax.free_ports(PARTITIONS)]
    outs = [Path(notes, f"{index}.json") for index in range(PARTITIONS)]
    children = [
        subprocess.Popen(
            [python, SCRIPT, kafka.servers, topic, *addresses, "--process", str(index), "--out", out],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index, out in enumerate(outs)
    ]
    try:
        for child in children:
            _, errors = child.communicate(timeout=LONGEST_RUN)
            if child.returncode:
                raise RuntimeError(f"Bytewax ended with status {child.returncode}: {errors[-2000:]}")
    finally:
        for child in children:
            child.kill()
    read: list[dict[str, Any]] = [json.loads(out.read_text()) for out in outs]
    assert [note["count"] for note in read] == [each] * PARTITIONS, read
    return read
