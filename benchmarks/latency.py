"""Ack latency at a steady rate, open loop: the time from when a sentence was due until the spout gets the ack of its tree.

The spout returns the seconds until the next sentence is due, like a source with a timetable. The latency of a late sentence
counts from when it was due, not from when it was emitted. One spout, one Split and two Counts run in one process; with
`--workers 2` two of each run in two worker processes, which share the timetable (every second sentence each), so that half of
the words cross. After that it runs at full speed, with several limits of pending sentences.

    python -m benchmarks latency [--workers 2 [--supervisors 2]] [--rate 500] [--seconds 20] [--seed 1]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

from benchmarks.child import machine
from benchmarks.notes import Meeting, Usage, find, leave
from benchmarks.sentences import sentences
from benchmarks.topology import Count, Split
from local_cluster import LocalCluster
from topology_api import Context, Fields, Spout, TopologyBuilder

FULL_RATE = 0.0
"""Instead of sentences a second: as many as go."""
FULL_RATE_PENDING = (1_000, 500, 250)
DIFFERENT = 10_000
"""Different sentences."""


class Timetable(Spout):
    """Emits each sentence when it is due. Each of n tasks emits every n-th sentence."""

    outputs = Fields("sentence")

    def __init__(self, folder: str, rate: float, seconds: float, seed: int) -> None:
        self.folder = folder
        self.rate = rate
        self.seconds = seconds
        self.seed = seed

    def open(self, context: Context) -> None:
        self.index = context.index
        self.step = context.parallelism
        self.lines = sentences(DIFFERENT, self.seed)
        self.number = context.index
        self.count = int(self.rate * self.seconds)
        self.begins: float | None = None
        self.due_at: list[float] = []
        self.late: list[float] = []  # how late each sentence was emitted
        self.latencies: list[float] = []  # how late each sentence was acked
        self.meeting = Meeting(self.folder, context.index, context.parallelism)

    def next_tuple(self) -> float | None:
        if self.begins is None:
            return self.wait_for_others()
        due = self.due(self.number)
        if due is None:
            self.finish()
            return None
        wait = due - time.perf_counter()
        if wait > 0:
            return wait
        self.late.append(-wait)
        self.due_at.append(due)
        self.emit((self.lines[self.number % DIFFERENT],), message_id=len(self.due_at) - 1)
        self.number += self.step
        wait = (self.due(self.number) or 0.0) - time.perf_counter()
        return wait if wait > 0 else None  # None: the next call may follow at once, in the same run of calls

    def wait_for_others(self) -> float:
        """Return all tasks begin at the same moment, so that they share one timetable."""
        self.begins = self.meeting.begins()
        self.usage = Usage()
        return 0.01

    def due(self, number: int) -> float | None:
        """Return the time at which a sentence is due; None if there are no more."""
        assert self.begins is not None
        return self.begins + number / self.rate if number < self.count else None

    def ack(self, message_id: object) -> None:
        self.latencies.append(time.perf_counter() - self.due_at[message_id])  # type: ignore[call-overload]

    def close(self) -> None:
        leave(self.folder, "spout", self.index, late=self.late, latencies=self.latencies, **self.usage.read())


class FullRate(Timetable):
    """Every sentence is due at once."""

    def due(self, number: int) -> float | None:
        assert self.begins is not None
        now = time.perf_counter()
        return now if now < self.begins + self.seconds else None


def main() -> None:
    """Run and print percentiles."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, choices=(1, 2), default=1, help="2: worker processes")
    parser.add_argument("--supervisors", type=int, choices=(1, 2), default=1, help="of the worker processes")
    parser.add_argument("--rate", type=float, default=500.0, help="sentences a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(machine())
    notes, _ = run(options, options.rate)
    latencies = of_all(notes, "latencies")
    acked = len(latencies)
    cpu = sum(note["cpu_seconds"] for note in notes)
    print(f"{acked:,} sentences, {options.rate:g} a second, {options.seconds:g} s; all acked")
    print(f"from due to emitted: {percentiles(of_all(notes, 'late'))}")
    print(f"from due to acked:   {percentiles(latencies)}")
    where = "CPU" if options.workers == 1 else "CPU of both workers"
    print(f"{where}: {cpu / options.seconds:.1%} of a core, {cpu / acked * 1e6:.0f} us a sentence")
    if options.workers > 1:
        print_full_rate(options)


def print_full_rate(options: argparse.Namespace) -> None:
    """Run at full speed, to show the queues: the more sentences may be pending, the longer each waits."""
    print(f"\nas fast as it goes, {options.seconds:g} s each; all acked; milliseconds from emitted to acked")
    names = ("p50", "p90", "p99", "p99.9", "worst", "p50 by status()", "p99 by status()")
    head = "".join(f"{name:>{max(9, len(name) + 2)}}" for name in names)
    print(f"{'pending a spout':>15}{'sentences/s':>13}{head}")
    for pending in FULL_RATE_PENDING:
        notes, totals = run(options, FULL_RATE, pending)
        latencies = of_all(notes, "latencies")
        values = [*(value for _, value in points(latencies)), totals.p50, totals.p99]
        row = "".join(f"{value * 1e3:>{max(9, len(name) + 2)}.1f}" for name, value in zip(names, values))
        print(f"{pending:>15,}{len(latencies) / options.seconds:>13,.0f}{row}", flush=True)


def run(options: argparse.Namespace, rate: float, pending: int = 1_000) -> tuple[list[dict[str, Any]], Any]:
    """Return one run: the spouts' records, and the figures of status()."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        kind = FullRate if rate == FULL_RATE else Timetable
        conf = {"topology.workers": options.workers, "topology.max.spout.pending": pending}
        builder = TopologyBuilder("latency", conf=conf)
        spout = kind(folder, rate, options.seconds, options.seed)
        builder.set_spout("sentences", spout, parallelism=options.workers)
        split = builder.set_bolt("split", Split(), parallelism=options.workers)
        split.local_or_shuffle_grouping("sentences")
        builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", "word")
        processes = {"processes": True, "supervisors": options.supervisors, "slots": 2}
        with LocalCluster(**processes if options.workers > 1 else {}) as cluster:
            cluster.submit(builder.build())
            cluster.wait("latency", timeout=options.seconds + 60)
            totals = cluster.status("latency").components["sentences"]
        notes = find(folder, "spout")
    check(notes, totals, options.workers)
    return notes, totals


def check(notes: list[dict[str, Any]], totals: Any, workers: int) -> None:
    """Check that all were acked, by the spouts and by status(), and that each worker is a process of its own."""
    emitted = sum(len(note["late"]) for note in notes)
    acked = sum(len(note["latencies"]) for note in notes)
    if (acked, totals.acked, totals.failed) != (emitted, emitted, 0) or not emitted:
        raise AssertionError(f"{acked} of {emitted} sentences were acked; by status(): {totals}")
    if len({note["pid"] for note in notes}) != workers:
        raise AssertionError(
            f"{workers} workers were to have one spout each: {[note['pid'] for note in notes]}"
        )


def of_all(notes: list[dict[str, Any]], name: str) -> list[float]:
    """Return the values of all spouts."""
    return [value for note in notes for value in note[name]]


def percentiles(values: list[float]) -> str:
    """Return the text of some percentiles, in milliseconds."""
    return ", ".join(f"{name} {value * 1e3:.3f} ms" for name, value in points(values))


def points(values: list[float]) -> list[tuple[str, float]]:
    """Some percentiles and the worst."""
    ordered = sorted(values)
    last = len(ordered) - 1
    found = [(f"p{point:g}", ordered[round(last * point / 100)]) for point in (50, 90, 99, 99.9)]
    return [*found, ("worst", ordered[-1])]
