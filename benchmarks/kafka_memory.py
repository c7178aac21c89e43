"""Memory of a worker that reads Kafka: messages of 10 MB, and a lag of ten million messages.

Each way runs in a process of its own, whose resident memory is looked at ten times a second. The large messages are random
bytes, and their bolt takes 100 ms for each, so that the reader is ahead of it; the short ones have 20 bytes. Needs Java, Maven,
confluent-kafka and Linux.

    python -m benchmarks kafka_memory [--large 200] [--short 10000000]
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.child import core, machine
from local_cluster import LocalCluster
from squall_io.kafka import KafkaSpout
from tests.kafka_servers import KafkaServer
from topology_api import Bolt, Context, TopologyBuilder, Tuple

LARGE_BYTES = 10_000_000
LONGEST_RUN = 600.0
#: Seconds that a bolt takes for a large message.
LARGE_SECONDS = 0.1

_names = itertools.count(1)


class Counted(Bolt):
    """Counts tuples, and takes its time."""

    def __init__(self, total: int, seconds: float, folder: str) -> None:
        self.total, self.seconds, self.folder = total, seconds, folder

    def prepare(self, context: Context) -> None:
        self.left = self.total

    def execute(self, tup: Tuple) -> None:
        if self.seconds:
            time.sleep(self.seconds)
        self.left -= 1
        if not self.left:
            Path(self.folder, "over").touch()


def main() -> None:
    """Print the memory of each way."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks kafka_memory", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--large", type=int, default=200, help="messages of 10 MB")
    parser.add_argument("--short", type=int, default=10_000_000, help="messages of 20 bytes")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="squall-kafka-") as folder,
        KafkaServer(Path(folder)) as kafka,
    ):
        print(f"{machine()}\n{core()} core", flush=True)
        large = kafka.create("large", settings={"max.message.bytes": "20000000"})
        data = random.Random(1).randbytes(LARGE_BYTES)
        kafka.send(large, (data for _ in range(given.large)))
        for name, conf in (
            ("no limit", {}),
            ("topology.max.spout.pending: 10", {"topology.max.spout.pending": 10}),
        ):
            text = f"{given.large} messages of 10 MB, {name}"
            report(text, kafka.servers, large, given.large, LARGE_SECONDS, conf)
        short, begun = kafka.create("short"), time.perf_counter()
        settings = {"linger.ms": 20, "batch.num.messages": 10_000}
        kafka.send(short, numbered(given.short), settings=settings)
        print(
            f"({given.short:,} short messages were sent in {time.perf_counter() - begun:.0f} s)", flush=True
        )
        report(f"a lag of {given.short:,} messages of 20 bytes", kafka.servers, short, given.short, 0.0, {})


def numbered(count: int) -> Iterator[bytes]:
    """Yield values of 20 bytes."""
    for number in range(count):
        yield b"%020d" % number


def report(text: str, servers: str, topic: str, total: int, seconds: float, conf: dict[str, Any]) -> None:
    """Read a topic in a process; print its memory."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="squall-notes-") as folder:
        reader = context.Process(target=read, args=(servers, topic, total, seconds, conf, folder))
        reader.start()
        begun = time.perf_counter()
        seen = list(watched(reader.pid or 0, Path(folder, "over").exists, Path(folder, "open").exists))
        taken = time.perf_counter() - begun
        reader.join(LONGEST_RUN)
        assert reader.exitcode == 0, reader.exitcode
    first, quarter, last = seen[0], seen[len(seen) // 4], seen[-1]
    print(
        f"{text}: {taken:.0f} s; {first:.0f} MB at the start, {quarter:.0f} MB after a quarter, {max(seen):.0f} MB at most,"
        f" {last:.0f} MB at the end",
        flush=True,
    )


def watched(process: int, is_over: Callable[[], bool], is_open: Callable[[], bool]) -> Iterator[float]:
    """Yield the resident memory of a process in MB, ten times a second, from when it begins to read until all is read."""
    end = time.monotonic() + LONGEST_RUN
    while not is_over():
        assert time.monotonic() < end, "not everything was read"
        if is_open():
            pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
            yield pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        time.sleep(0.1)


def read(servers: str, topic: str, total: int, seconds: float, conf: dict[str, Any], folder: str) -> None:
    """In the process: read the whole topic."""
    builder = TopologyBuilder("memory", conf)
    spout = KafkaSpout(topic, servers=servers, decode="bytes", group=f"squall-{next(_names)}-{os.getpid()}")
    builder.set_spout("messages", spout)
    builder.set_bolt("count", Counted(total, seconds, folder)).shuffle_grouping("messages")
    with LocalCluster() as cluster:
        Path(folder, "open").touch()
        cluster.submit(builder.build())
        while not Path(folder, "over").exists():
            time.sleep(0.05)
