"""What Python's garbage collector costs a cluster in one process: 100,000 tuples held, 200,000 pending; and a bolt with cycles.

Each figure comes from a process of its own. `time`: CPU seconds until all tuples are executed, of these the seconds in the
collector, its collections by generation, and the ratio to a run without a collector. `cycles`: the peak memory while a bolt
makes garbage that only the collector frees, with Python's thresholds and with those of a cluster.

    python -m benchmarks collector [--tuples 300000] [--cycles 10000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from benchmarks.child import answer, ask, machine, peak_rss
from local_cluster import LocalCluster
from local_cluster.collector import PACE
from topology_api import Bolt, Context, Fields, Spout, Topology, TopologyBuilder, Tuple

HELD, PENDING = 100_000, 200_000
AT_ONCE = 100
"""Emissions of one call of next_tuple."""
CYCLES = 1_000
"""Cycles that the bolt makes for each tuple."""
MODES = ("python", "squall", "off")
"""The thresholds of Python, those of a cluster, and no collector."""


class Numbers(Spout):
    """Emits this many numbers, each with a text."""

    outputs = Fields("number", "text")

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, context: Context) -> None:
        self.number = 0

    def next_tuple(self) -> None:
        for number in range(self.number, min(self.number + AT_ONCE, self.count)):
            self.emit((number, str(number)), message_id=number)
        self.number += AT_ONCE
        if self.number >= self.count:
            self.finish()


class Holds(Bolt):
    """Acks a tuple when many later tuples have arrived, and keeps it long after that."""

    auto_ack = False

    def prepare(self, context: Context) -> None:
        self.open: deque[Tuple] = deque()
        self.kept: deque[Tuple] = deque(maxlen=HELD)

    def execute(self, tup: Tuple) -> None:
        self.open.append(tup)
        if len(self.open) > PENDING - AT_ONCE:
            self.ack_oldest()

    def ack_oldest(self) -> None:
        tup = self.open.popleft()
        self.kept.append(tup)
        self.ack(tup)

    def end_of_input(self) -> None:
        while self.open:
            self.ack_oldest()


class Cycles(Bolt):
    """Makes objects that refer to themselves."""

    def execute(self, tup: Tuple) -> None:
        for number in range(CYCLES):
            cycle: dict[str, Any] = {"number": number}
            cycle["itself"] = cycle


def topology(count: int, bolt: Bolt) -> Topology:
    """Return a topology of one spout and one bolt."""
    conf = {"topology.max.spout.pending": PENDING, "topology.message.timeout.secs": 600}
    builder = TopologyBuilder("collector", conf)
    builder.set_spout("numbers", Numbers(count))
    builder.set_bolt("bolt", bolt).shuffle_grouping("numbers")
    return builder.build()


class Collections:
    """Counts collections, and measures their time."""

    def __init__(self) -> None:
        self.seconds, self.began, self.counts = 0.0, 0.0, [0, 0, 0]

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase == "start":
            self.began = time.thread_time()
        else:
            self.seconds += time.thread_time() - self.began
            self.counts[info["generation"]] += 1


def run(mode: str, kind: str, count: int) -> None:
    """The child's part: one run."""
    if mode != "squall":
        PACE.begin = PACE.end = lambda: None  # type: ignore[method-assign]
    if mode == "off":
        gc.disable()
    made = topology(count, Holds() if kind == "time" else Cycles())
    collections = Collections()
    gc.callbacks.append(collections)
    with LocalCluster() as cluster:
        began = time.process_time()
        cluster.submit(made)
        while (status := cluster.status("collector")).components["bolt"].executed < count:
            assert not status.errors, status.errors[0].render()
            time.sleep(0.02)
        cpu = time.process_time() - began
    answer({"cpu": cpu, "collecting": collections.seconds, "counts": collections.counts, "rss": peak_rss()})


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tuples", type=int, default=300_000)
    parser.add_argument("--cycles", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", nargs=3, metavar=("MODE", "KIND", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        mode, kind, count = options.run
        return run(mode, kind, int(count))
    print(machine())
    print(f"{options.tuples:,} tuples, {HELD:,} held, {PENDING:,} pending; the best of {options.rounds} runs")
    least = {mode: best_of(options.rounds, mode, "time", options.tuples, "cpu") for mode in MODES}
    for mode, found in least.items():
        ratio = found["cpu"] / least["off"]["cpu"]
        print(
            f"  {mode:7} {found['cpu']:5.2f} s CPU, {found['collecting']:5.2f} s of it collecting {found['counts']},"
            f" {ratio:.2f} times the time without a collector"
        )
    tuples = options.cycles // CYCLES
    print(f"{tuples * CYCLES:,} cycles; the peak memory of the process, the best of {options.rounds} runs")
    memory = {mode: best_of(options.rounds, mode, "cycles", tuples, "rss") for mode in MODES[:2]}
    for mode, found in memory.items():
        ratio = found["rss"] / memory["python"]["rss"]
        print(f"  {mode:7} {found['rss']:5.0f} MB, {ratio:.2f} times; {found['cpu']:.2f} s CPU")
    return None


def best_of(rounds: int, mode: str, kind: str, count: int, by: str) -> dict[str, Any]:
    """Return the run with the lowest value."""
    return min(
        (ask(__name__, "--run", mode, kind, count) for _ in range(rounds)), key=lambda found: found[by]
    )
