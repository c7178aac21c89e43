"""A spout of prepared rows in one of two workers, and bolts behind it: the frame of the benchmarks of values and of shapes.

The spout emits a few rows that are all acked before the clock starts (the workers connect), then `count` more; the time ends
with the last ack. CPU is that of both workers, from when a worker's first component was ready until it was closed: some 0.06 s
of that are start and end, little beside a run's seconds. It also has what both benchmarks share: their options, and the table
with a column for each core. It must not know what the values are or what the bolts do.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from benchmarks.child import CORES, answer, ask, cores_here, machine, spread
from benchmarks.notes import Usage, find, leave
from local_cluster import LocalCluster
from topology_api import Bolt, Context, Spout, Topology, Tuple

__all__ = ["DIFFERENT", "WARM", "Noted", "Rows", "main", "print_table", "run", "usage_starts"]

DIFFERENT = 1_000
"""Different rows, more than a frame holds: what is the same object in a frame is packed once."""
WARM = 16
LONGEST_RUN = 300.0

Row = tuple[Any, ...]

_usage: list[Usage] = []
"""Of this process, once something stands ready."""


def usage_starts() -> None:
    """A component is ready: count this worker's CPU from now on."""
    if not _usage:
        _usage.append(Usage())


def leave_usage(folder: str) -> None:
    """A component was closed: record this worker's CPU so far."""
    leave(folder, "usage", os.getpid(), **_usage[0].read())


class Rows(Spout):
    """Emits its rows in turn and records their acks. `make`: the row of a number."""

    def __init__(self, folder: str, count: int, make: Callable[[int], Row]) -> None:
        self.folder = folder
        self.count = count
        self.make = make

    def open(self, context: Context) -> None:
        self.rows = [self.make(number) for number in range(DIFFERENT)]
        self.number = self.acked = 0
        self.begun = self.finished = 0.0
        self.last = WARM + self.count
        usage_starts()

    def next_tuple(self) -> float | None:
        number = self.number
        if number >= self.last:
            self.finish()
            return None
        if number == WARM and not self.begun:
            if self.acked < WARM:
                return 0.001
            self.begun = time.perf_counter()
        self.number = number + 1
        self.emit(self.rows[number % DIFFERENT], message_id=number)
        return None

    def ack(self, message_id: object) -> None:
        self.acked += 1
        if self.acked == self.last:
            self.finished = time.perf_counter()

    def close(self) -> None:
        leave(self.folder, "spout", 0, acked=self.acked, begun=self.begun, finished=self.finished)
        leave_usage(self.folder)


class Noted(Bolt):
    """A bolt whose worker's CPU counts."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def prepare(self, context: Context) -> None:
        usage_starts()

    def execute(self, tup: Tuple) -> None:
        """Does nothing with the tuple."""

    def cleanup(self) -> None:
        leave_usage(self.folder)


def run(build: Callable[[str], Topology], count: int, expected: dict[str, int]) -> dict[str, float]:
    """Run the topology that `build` returns for a folder of notes; its spout must be called "rows". `expected`: how many tuples
    each bolt must execute for `WARM + count` rows. Return seconds and CPU, and how many tuples were executed in that time.
    """
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        topology = build(folder)
        with LocalCluster(processes=True, slots=2) as cluster:
            cluster.submit(topology)
            cluster.wait(topology.name, timeout=LONGEST_RUN)
            status = cluster.status(topology.name).components
        (spout,), workers = find(folder, "spout"), find(folder, "usage")
    sent = WARM + count
    rows = status["rows"]
    if (spout["acked"], rows.acked, rows.failed) != (sent, sent, 0):
        raise AssertionError(f"{sent} rows; noted: {spout}; by status(): {rows}")
    executed = {name: status[name].executed for name in expected}
    if executed != expected:
        raise AssertionError(f"executed: {executed}, not {expected}")
    if len({worker["pid"] for worker in workers}) != 2:
        raise AssertionError(f"not both workers had something to do: {workers}")
    return {
        "seconds": spout["finished"] - spout["begun"],
        "cpu_seconds": sum(worker["cpu_seconds"] for worker in workers),
        "peak_rss": max(worker["peak_rss"] for worker in workers),
        "tuples": sum(executed.values()) * count // sent,
    }


def main(
    benchmark: str,
    text: str | None,
    kinds: Collection[str],
    measure: Callable[[str, int], dict[str, float]],
    about: str = "",
) -> None:
    """Measure every kind with each core in turn, or one of them in a child process. `text`: the benchmark's docstring;
    `measure`: one run of a kind with `about` tuples.
    """
    parser = argparse.ArgumentParser(description=text.partition("\n")[0] if text else None)
    parser.add_argument("--tuples", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", choices=kinds, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        answer(measure(options.kind, options.tuples))
        return
    print(machine())
    print(
        f"{about}{options.tuples:,} tuples a run, {options.rounds} rounds in turn; median (least to greatest)\n"
    )
    print_table(benchmark, kinds, ("--tuples", options.tuples), options.rounds)


def print_table(benchmark: str, names: Iterable[str], arguments: tuple[object, ...], rounds: int) -> None:
    """Run the benchmark for each of its kinds (`--kind`) with each core in turn, and print a line for each."""
    cores = cores_here()
    heads = "".join(f"{core:>34}" for core in cores)
    print(
        f"{'tuples/s':<26}{heads}{'compiled : plain':>22}   CPU s/million tuples: {', '.join(cores)}",
        flush=True,
    )
    for name in names:
        taken = [
            {core: ask(benchmark, *arguments, "--kind", name, of=core) for core in cores}
            for _ in range(rounds)
        ]
        rates = [spread([each[core]["tuples"] / each[core]["seconds"] for each in taken]) for core in cores]
        cpu = [
            spread([each[core]["cpu_seconds"] / each[core]["tuples"] * 1e6 for each in taken], ".2f")
            for core in cores
        ]
        ratio = ""
        if len(cores) == len(CORES):
            ratio = spread([each["plain"]["seconds"] / each["compiled"]["seconds"] for each in taken], ".2f")
        print(
            f"{name:<26}{''.join(f'{text:>34}' for text in rates)}{ratio:>22}   {',  '.join(cpu)}", flush=True
        )
