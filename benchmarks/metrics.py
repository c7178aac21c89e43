"""The cost of the runtime's own metrics: the word count over two workers with them, and without the work that they cause.

Metrics have no switch, so the work is replaced here, in the workers of the variant without:
- the histogram of complete latencies: nothing is added to it;
- the counters that a worker reads and writes each second: none are read until its spouts have ended. The sums that a task keeps
  for each batch (executed, acked) and for each emit stay in both: flow control and pacing need them, metrics or not. A user's
  own `Context.counter` is not covered. Both variants run in turn with each core. Since a percent or two is less than a shared
  machine's noise, instructions are counted too (compiled, one process, see `instructions`: there only the histogram is left
  out), and the time that a worker spends on reading and writing once a second is measured.

    python -m benchmarks metrics [--rounds 5] [--sentences 300000]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

from benchmarks import callgrind, instructions, two_workers
from benchmarks.child import answer, ask, cores_here, machine, spread
from benchmarks.notes import find, leave
from benchmarks.word_count import cost_of, rate
from squall.cluster.counters import WorkerCounters
from squall.reports.histogram import LatencyHistogram
from topology_api import Context
from worker.loop import snapshot
from worker.loop.worker import Worker
from worker.process import daemon
from worker.process.heartbeat import Heartbeat
from worker.tasks import spout

KINDS = ("with", "without")
WANTED = 0.03
"""The greatest part that metrics may take."""


class NoLatencies(LatencyHistogram):
    """A histogram that counts nothing."""

    def add(self, value: float, count: int = 1) -> None:
        """Count nothing."""


def leave_out_latencies() -> None:
    """Make the spout tasks that are created from now on in this process count no latencies."""
    spout.Histogram = NoLatencies  # type: ignore[attr-defined]


class NoReadings:
    """`worker_counters`, but read only once until the worker's spouts have ended."""

    def __init__(self) -> None:
        self.last: WorkerCounters | None = None

    def __call__(self, worker: Worker) -> WorkerCounters:
        if self.last is None or all(spout.exhausted for spout in worker.spouts):
            self.last = snapshot.worker_counters(worker)
        return self.last


class TimedBeats:
    """`Heartbeat.write_heartbeat`, with the CPU that it has taken of its thread in all."""

    def __init__(self) -> None:
        self.write_heartbeat = Heartbeat.write_heartbeat
        self.beats = 0
        self.seconds = 0.0

    def __call__(self, heartbeat: Heartbeat, call: Any) -> None:
        began = time.thread_time()
        self.write_heartbeat(heartbeat, call)
        self.beats += 1
        self.seconds += time.thread_time() - began


class With(two_workers.Sentences):
    """Unchanged, but records the cost of reading and writing counters and heartbeats."""

    def open(self, context: Context) -> None:
        self.timed = TimedBeats()
        timed = self.timed
        Heartbeat.write_heartbeat = lambda heartbeat, call: timed(heartbeat, call)  # type: ignore[method-assign, assignment]
        super().open(context)

    def close(self) -> None:
        super().close()
        leave(self.job.folder, "beats", self.index, beats=self.timed.beats, seconds=self.timed.seconds)


class Without(two_workers.Sentences):
    """Leaves out, in its process, all work that only metrics need."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        leave_out_latencies()  # before the task of this instance is made
        vars(self).update(state)

    def open(self, context: Context) -> None:
        daemon.worker_counters = NoReadings()  # type: ignore[attr-defined]
        super().open(context)


def measure(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return one run over two workers."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        job = two_workers.Job(folder, options.sentences, options.seed, options.pending)
        measured = two_workers.run_in(job, 1, With if kind == "with" else Without)
        beats = find(folder, "beats")
    if (measured.p50 > 0) != (kind == "with"):
        raise AssertionError(f"{kind} metrics, but the latency's p50 is {measured.p50}")
    seconds = sum(note["seconds"] for note in beats)
    number = sum(note["beats"] for note in beats)
    return {**vars(measured), "beat": seconds / number if number else 0.0}


def main() -> None:
    """Measure in turn and print the cost of the metrics, or do one run in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pending", type=int, default=1_000, help="sentences a worker may have pending")
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        leave_out_latencies()
        instructions.answer_runs()
        return
    if options.kind:
        answer(measure(options.kind, options))
        return
    cores = cores_here()
    print(machine())
    print(
        f"{options.sentences:,} sentences, {options.rounds} rounds in turn; median (least to greatest)\n",
        flush=True,
    )
    arguments = ("--sentences", options.sentences, "--seed", options.seed, "--pending", options.pending)
    rounds = [
        {
            (core, kind): ask(__name__, *arguments, "--kind", kind, of=core)
            for core in cores
            for kind in (KINDS if number % 2 else KINDS[::-1])
        }
        for number in range(options.rounds)
    ]
    for core in cores:
        print_core(core, rounds)
    if "compiled" in cores and callgrind.available():
        print_instructions()


def print_core(core: str, rounds: list[dict[tuple[str, str], dict[str, Any]]]) -> None:
    """The cost of the metrics with one core."""
    for kind in KINDS:
        runs = [each[core, kind] for each in rounds]
        rates, cost = spread([rate(run) for run in runs]), spread([cost_of(run) * 1e6 for run in runs], ".3f")
        print(f"{core}, {kind + ' metrics':<16}{rates:>36} words/s{cost:>24} CPU us/word")
    times = spread([rate(each[core, "without"]) / rate(each[core, "with"]) - 1 for each in rounds], "+.1%")
    cpu = spread(
        [cost_of(each[core, "with"]) / cost_of(each[core, "without"]) - 1 for each in rounds], "+.1%"
    )
    beat = spread([each[core, "with"]["beat"] * 1e6 for each in rounds], ".0f")
    print(f"{core}: metrics take {times} by time, {cpu} by CPU (wanted: <= {WANTED:.0%} either way)")
    print(
        f"{core}: counters and heartbeat, read and written once a second in a worker: {beat} us\n", flush=True
    )


def print_instructions() -> None:
    """The share in instructions, which does not depend on the machine's load."""
    without = sum(instructions.measure(__name__)[0].values())
    whole = sum(instructions.measure()[0].values())
    print(
        f"instructions a word, compiled, one process: {whole:,.0f} with the histogram of latencies, {without:,.0f} without: "
        f"{whole / without - 1:+.2%}"
    )
