"""KafkaSink beside a bare producer of confluent_kafka: messages of 200 bytes of JSON, seconds and processor time.

Each way sends the same messages to a topic of its own, one after the other, in several rounds: the bare producer's loop; the
sink in batches without epochs; the sink with a token, in epochs. All wait until everything is delivered. The sink's time has
`row`, which makes the JSON; the bare loop makes it too. Needs Java, Maven and confluent-kafka.

    python -m benchmarks kafka_sink [--messages 200000] [--rounds 3] [--batch 1000] [--epoch 20000]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from local_cluster.contracts.opened import Surroundings, context_of, tuples_of
from squall_io.kafka import KafkaSink
from tests.kafka_servers import KafkaServer

Way = Callable[[], None]


def main() -> None:
    """Print messages a second of each way, and its processor time of the process a message."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks kafka_sink", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1000, help="tuples of a batch without epochs")
    parser.add_argument("--epoch", type=int, default=20_000, help="rows of an epoch")
    given = parser.parse_args()
    tuples = tuples_of([{"id": str(n), "note": "x" * 170, "n": n} for n in range(given.messages)])
    with (
        tempfile.TemporaryDirectory(prefix="squall-kafka-") as folder,
        KafkaServer(Path(folder)) as kafka,
    ):
        ways: dict[str, Way] = {
            "bare producer": lambda: bare(kafka, tuples),
            "KafkaSink, batches": batches(kafka, tuples, given.batch),
            "KafkaSink, epochs": epochs(kafka, tuples, given.epoch),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(given.rounds + 1):  # the first round is not counted
            for name, way in ways.items():
                found[name].append(measured(way))
    for name, runs in found.items():
        wall, cpu = (statistics.median(column) for column in zip(*runs[1:], strict=True))
        print(
            f"{name:20} {given.messages / wall:9,.0f} messages/s   {1e6 * cpu / given.messages:5.2f} us of processor time each"
        )


def measured(way: Way) -> tuple[float, float]:
    """Run; return seconds and processor seconds of this process."""
    wall, cpu = time.perf_counter(), used()
    way()
    return time.perf_counter() - wall, used() - cpu


def used() -> float:
    """Return the processor seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def bare(kafka: KafkaServer, tuples: list[Any]) -> None:
    """Send as a script would: idempotent, with a callback that looks at errors."""
    from confluent_kafka import Producer

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error

    topic, encode = kafka.create("bare"), msgspec.json.Encoder().encode
    producer = Producer(
        {**kafka.settings, "enable.idempotence": True, "queue.buffering.max.messages": 1_000_000}
    )
    for tup in tuples:
        value = encode(dict(zip(tup.fields, tup.values, strict=True)))
        producer.produce(topic, value, tup["id"].encode(), on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0


def opened(kafka: KafkaServer, around: Surroundings) -> KafkaSink:
    """Return a task that writes to a topic of its own."""
    sink = KafkaSink(kafka.create("sink"), servers=kafka.servers, key="id")
    sink.prepare(context_of("write", 0, 1, around))
    return sink


def batches(kafka: KafkaServer, tuples: list[Any], size: int) -> Way:
    """Send in batches that belong to no epoch."""
    around = Surroundings()
    around.without_epochs()
    sink = opened(kafka, around)

    def run() -> None:
        for at in range(0, len(tuples), size):
            sink.execute_batch(tuples[at : at + size])

    return run


def epochs(kafka: KafkaServer, tuples: list[Any], size: int) -> Way:
    """Send in transactions, one an epoch."""
    sink = opened(kafka, Surroundings())
    sink.read_token("benchmark")
    epoch = 0

    def run() -> None:
        nonlocal epoch
        for at in range(0, len(tuples), size):
            rows = [sink.row(tup) for tup in tuples[at : at + size]]
            assert sink.write(epoch + 1, rows, epoch, "benchmark")
            epoch += 1

    return run
