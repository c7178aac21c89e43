"""A topic of Kafka read with Bytewax in one of two processes: run by `kafka_workers.py` in Bytewax's own environment.

Its own KafkaSource, in batches of 500, a `map` that decodes with msgspec, and a sink that counts. The clocks run from the first
decoded message to the last one. It must not import Squall.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found]
import msgspec
from bytewax.connectors.kafka import KafkaSource  # type: ignore[import-not-found]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found]
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # type: ignore[import-not-found]
from bytewax.testing import cluster_main  # type: ignore[import-not-found]

BATCH = 500

_decode = msgspec.json.Decoder().decode


class Moments:
    """Seconds and processor seconds at the first and at the last message, and how many came."""

    begun = (0.0, 0.0)
    ended = (0.0, 0.0)
    count = 0


def decoded(message: Any) -> Any:
    """The value of a message."""
    if not Moments.count and not Moments.begun[0]:
        Moments.begun = time.perf_counter(), time.process_time()
    return _decode(message.value)


class Counting(StatelessSinkPartition):  # type: ignore[misc]
    """Counts values."""

    def write_batch(self, items: list[Any]) -> None:
        Moments.count += len(items)
        Moments.ended = time.perf_counter(), time.process_time()


class Counts(DynamicSink):  # type: ignore[misc]
    """A sink that counts."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Counting:
        return Counting()


def run() -> None:
    """Read the topic to its end, and write the figures to a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("addresses", nargs="+", help="of all processes")
    parser.add_argument("--process", type=int, required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    flow = Dataflow("orders")
    source = KafkaSource([options.servers], [options.topic], tail=False, batch_size=BATCH)
    values = op.map("decode", op.input("orders", flow, source), decoded)
    op.output("count", values, Counts())
    cluster_main(flow, options.addresses, options.process)
    figures = {
        "count": Moments.count,
        "seconds": Moments.ended[0] - Moments.begun[0],
        "cpu": Moments.ended[1] - Moments.begun[1],
    }
    Path(options.out).write_text(json.dumps(figures))


if __name__ == "__main__":
    run()
