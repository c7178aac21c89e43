"""How many bytes a second go from a spout in one worker to a bolt in another, by the size of a value, beside a raw ZeroMQ copy.

The raw copy sends one message per value from one process to another over a PUSH and a PULL socket, plain and with CURVE, both
sides copying as pyzmq does by default; nothing is packed, tracked or acked. Squall's values are tracked and acked, over its own
links (CURVE is on), with each of its cores; the time ends with the last ack. Small values share a frame, which raw messages do
not. The bolt checks the type, size and order of the values. They are made in advance (at most 32 MB of them, all different
objects: the same object would be packed once), and the same number may be pending.

    python -m benchmarks sizes [--megabytes 256] [--rounds 3] [--supervisors 2]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.child import answer, ask, cores_here, machine, spread
from benchmarks.notes import Usage, find, leave
from benchmarks.two_processes import Link, hear
from local_cluster import LocalCluster
from topology_api import Bolt, Context, Fields, Spout, TopologyBuilder, Tuple

SIZES = {"1 KB": 1_000, "10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000}
KINDS = {"raw": "raw", "raw-curve": "raw, CURVE", "bytes": "Squall, bytes", "numpy": "Squall, numpy"}
MOST = 200_000
"""Values a run, so that small ones do not take for ever."""
PENDING_BYTES = 32_000_000
Measured = tuple[str, str]
"""A kind, and the core."""
WARM = 16
"""Values before the clock starts: the workers find each other, and the receiver imports numpy."""


def different(size: int) -> int:
    """Return how many different values there are: more than a frame holds, because the same object would be packed
    once. The same number may be pending.
    """
    return max(16, min(1_000, PENDING_BYTES // size))


def value(kind: str, size: int, number: int) -> Any:
    """Return the value of this number: `size` bytes."""
    data = bytes([number % 256]) + os.urandom(size - 1)
    if kind != "numpy":
        return data
    import numpy

    return numpy.frombuffer(data, dtype=numpy.uint8).copy()


class Values(Spout):
    """Emits this many values and records their acks."""

    outputs = Fields("value")

    def __init__(self, folder: str, kind: str, size: int, count: int) -> None:
        self.folder, self.kind, self.size, self.count = folder, kind, size, count

    def open(self, context: Context) -> None:
        self.values = [value(self.kind, self.size, number) for number in range(different(self.size))]
        self.number = self.acked = 0
        self.begun = self.finished = 0.0
        self.last = WARM + self.count

    def next_tuple(self) -> float | None:
        number = self.number
        if number >= self.last:
            self.finish()
            return None
        if number == WARM and not self.begun:
            if self.acked < WARM:
                return 0.001
            self.usage = Usage()
            self.begun = time.perf_counter()
        self.number = number + 1
        self.emit((self.values[number % len(self.values)],), message_id=number)
        return None

    def ack(self, message_id: object) -> None:
        self.acked += 1
        if self.acked == self.last:
            self.finished = time.perf_counter()

    def close(self) -> None:
        usage = self.usage.read()
        leave(self.folder, "spout", 0, acked=self.acked, begun=self.begun, finished=self.finished, **usage)


class Sink(Bolt):
    """Checks and counts the values."""

    def __init__(self, folder: str, kind: str, size: int) -> None:
        self.folder, self.size = folder, size
        self.name = "ndarray" if kind == "numpy" else "bytes"

    def prepare(self, context: Context) -> None:
        self.number = 0
        self.different = different(self.size)

    def execute(self, tup: Tuple) -> None:
        got = tup["value"]
        first = self.number % self.different % 256
        if type(got).__name__ != self.name or len(got) != self.size or got[0] != first:
            raise AssertionError(
                f"value {self.number} is a {type(got).__name__} of {len(got)}, it begins with {got[0]}"
            )
        self.number += 1
        if self.number == WARM:
            self.usage = Usage()

    def cleanup(self) -> None:
        leave(self.folder, "sink", 0, executed=self.number, **self.usage.read())


def squall(kind: str, size: int, count: int, supervisors: int) -> dict[str, float]:
    """Return one run over two workers."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        conf = {"topology.workers": 2, "topology.max.spout.pending": different(size)}
        builder = TopologyBuilder("sizes", conf=conf)
        builder.set_spout("values", Values(folder, kind, size, count))
        builder.set_bolt("sink", Sink(folder, kind, size)).shuffle_grouping("values")
        with LocalCluster(processes=True, supervisors=supervisors, slots=2) as cluster:
            cluster.submit(builder.build())
            cluster.wait("sizes", timeout=300)
            totals = cluster.status("sizes").components["values"]
        (spout,), (sink,) = find(folder, "spout"), find(folder, "sink")
    sent = WARM + count
    if (spout["acked"], sink["executed"], totals.acked, totals.failed) != (sent, sent, sent, 0):
        raise AssertionError(f"{sent} values; noted: {spout}, {sink}; by status(): {totals}")
    if spout["pid"] == sink["pid"]:
        raise AssertionError("the spout and the bolt were in one process: nothing has crossed")
    return {
        "seconds": spout["finished"] - spout["begun"],
        "cpu_seconds": spout["cpu_seconds"] + sink["cpu_seconds"],
        "peak_rss": max(spout["peak_rss"], sink["peak_rss"]),
    }


def raw(size: int, count: int, curve: bool) -> dict[str, float]:
    """Return one run of the raw copy: this process sends, another receives."""
    context = multiprocessing.get_context("spawn")
    parent, pipe = context.Pipe()
    child = context.Process(target=receive_raw, args=(pipe, size, count, curve), daemon=True)
    child.start()
    try:
        link = Link(curve, room(size))
        address = hear(parent)
        parent.send((link.endpoint, link.public))
        link.connect(*address)
        values = [value("raw", size, number) for number in range(different(size))]
        usage, started = Usage(), time.perf_counter()
        for number in range(count):
            link.push.send(values[number % len(values)])
        taken: dict[str, float] = hear(parent)
        mine = usage.read()
        link.close()
    finally:
        child.join(5.0)
        child.kill()
    return {
        "seconds": taken["finished"] - started,
        "cpu_seconds": taken["cpu_seconds"] + mine["cpu_seconds"],
        "peak_rss": max(taken["peak_rss"], mine["peak_rss"]),
    }


def receive_raw(parent: Connection, size: int, count: int, curve: bool) -> None:
    """The other process of the raw copy."""
    link = Link(curve, room(size))
    parent.send((link.endpoint, link.public))
    link.connect(*parent.recv())
    usage = Usage()
    for number in range(count):
        got = link.pull.recv()
        if len(got) != size or got[0] != number % different(size) % 256:
            raise AssertionError(f"message {number} has {len(got)} bytes and begins with {got[0]}")
    parent.send({"finished": time.perf_counter(), **usage.read()})
    link.close()


def room(size: int) -> int:
    """Return how many messages each side may hold."""
    return max(2, min(1_000, PENDING_BYTES // 2 // size))


def main() -> None:
    """Measure every size and kind in turn, or one of them in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=256, help="a run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--supervisors", type=int, choices=(1, 2), default=1)
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        answer(measure(options.kind, options.size, options.megabytes, options.supervisors))
        return
    print(machine())
    raw_kinds = [(kind, "plain") for kind in KINDS if kind.startswith("raw")]
    kinds = raw_kinds + [
        (kind, core) for kind in KINDS if not kind.startswith("raw") for core in cores_here()
    ]
    print(f"{options.megabytes} MB or {MOST:,} values a run, {options.rounds} rounds in turn")
    print(
        "GB/s of values: median (least to greatest); memory is the peak RSS of the larger of the two processes\n"
    )
    print(
        f"{'':<8}{'':<24}{'GB/s':>24}{'values/s':>12}{'CPU us/value':>14}{'MB':>6}   Squall : raw, CURVE",
        flush=True,
    )
    for name, size in SIZES.items():
        arguments = ("--megabytes", options.megabytes, "--supervisors", options.supervisors, "--size", size)
        rounds = [
            {(kind, core): ask(__name__, *arguments, "--kind", kind, of=core) for kind, core in kinds}
            for _ in range(options.rounds)
        ]
        for kind in kinds:
            print_row(name if kind == kinds[0] else "", kind, rounds)


def print_row(name: str, kind: Measured, rounds: list[dict[Measured, dict[str, Any]]]) -> None:
    """One size and kind."""
    runs = [each[kind] for each in rounds]
    rates = spread([run["bytes"] / run["seconds"] / 1e9 for run in runs], ".3f")
    best = min(runs, key=lambda run: float(run["seconds"]))
    values, cpu = best["count"] / best["seconds"], best["cpu_seconds"] / best["count"] * 1e6
    ratios = [each["raw-curve", "plain"]["seconds"] / each[kind]["seconds"] for each in rounds]
    is_raw = kind[0].startswith("raw")
    ratio = "" if is_raw else spread(ratios, ".2f")
    text = KINDS[kind[0]] + ("" if is_raw else f", {kind[1]}")
    memory = max(run["peak_rss"] for run in runs)
    print(
        f"{name:<8}{text:<24}{rates:>24}{values:>12,.0f}{cpu:>14,.1f}{memory:>6.0f}   {ratio}",
        flush=True,
    )


def measure(kind: str, size: int, megabytes: int, supervisors: int) -> dict[str, Any]:
    """Return one run."""
    count = max(16, min(MOST, megabytes * 1_000_000 // size))
    if kind.startswith("raw"):
        taken = raw(size, count, kind == "raw-curve")
    else:
        taken = squall(kind, size, count, supervisors)
    return {**taken, "count": count, "bytes": count * size}
