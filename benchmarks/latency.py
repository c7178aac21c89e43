"""Ack latency at a steady rate, open loop: how long after a sentence was due the spout hears that its tree is done.

The spout returns the seconds until the next sentence is due, as a source with a timetable would; a late sentence is not
forgiven: its latency counts from when it was due, not from when it was emitted.

    python benchmarks/latency.py [--rate 500] [--seconds 20] [--seed 1]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

# As a script, only this folder is on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.child import machine
from benchmarks.topology import Count, Split, lines
from local_cluster import LocalCluster
from topology_api import Context, Fields, Spout, TopologyBuilder

LEAD = 0.1
"""Seconds from the spout's open to the first sentence, so that the cluster's own start is not measured."""


class Timetable(Spout):
    """Emits each sentence when it is due."""

    outputs = Fields("sentence")

    def __init__(self, rate: float, count: int, seed: int) -> None:
        self.rate = rate
        self.count = count
        self.seed = seed

    def open(self, context: Context) -> None:
        self.lines = lines(self.count, self.seed)
        self.number = 0
        self.first = time.perf_counter() + LEAD

    def due(self, number: int) -> float:
        """When a sentence is due."""
        return self.first + number / self.rate

    def next_tuple(self) -> float | None:
        if self.number >= self.count:
            self.finish()
            return None
        wait = self.due(self.number) - time.perf_counter()
        if wait > 0:
            return wait
        started.append(-wait)
        self.emit((self.lines[self.number],), message_id=self.number)
        self.number += 1
        return max(0.0, self.due(self.number) - time.perf_counter())

    def ack(self, message_id: object) -> None:
        latencies.append(time.perf_counter() - self.due(message_id))  # type: ignore[arg-type]


started: list[float] = []
"""How late each sentence was emitted."""
latencies: list[float] = []
"""How late each sentence was acked."""


def main() -> None:
    """Run once and print percentiles."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rate", type=float, default=500.0, help="sentences a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    count = int(options.rate * options.seconds)
    print(machine())
    lines(count, options.seed)
    builder = TopologyBuilder("latency")
    builder.set_spout("sentences", Timetable(options.rate, count, options.seed))
    builder.set_bolt("split", Split()).shuffle_grouping("sentences")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", "word")
    cpu = time.process_time()
    with LocalCluster() as cluster:
        cluster.submit(builder.build())
        cluster.wait("latency", timeout=options.seconds + 60)
    cpu = time.process_time() - cpu
    if len(latencies) != count:
        raise AssertionError(f"{len(latencies)} of {count} sentences were acked")
    print(f"{count:,} sentences, {options.rate:g} a second, {options.seconds:g} s; all acked")
    print(f"from due to emitted: {percentiles(started)}")
    print(f"from due to acked:   {percentiles(latencies)}")
    print(f"CPU: {cpu / options.seconds:.1%} of a core, {cpu / count * 1e6:.0f} us a sentence")


def percentiles(values: list[float]) -> str:
    """The text of some percentiles, in milliseconds."""
    ordered = sorted(values)
    last = len(ordered) - 1
    points = [(f"p{point:g}", ordered[round(last * point / 100)]) for point in (50, 90, 99, 99.9)]
    points.append(("worst", ordered[-1]))
    return ", ".join(f"{name} {value * 1e3:.3f} ms" for name, value in points)


if __name__ == "__main__":
    # Components are pickled by the name of their module; that of a script is __main__, and would go by value.
    from benchmarks.latency import main as imported_main

    imported_main()
