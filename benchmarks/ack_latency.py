"""Ack latency over two workers with each core: at a steady low rate, with one tuple in flight, and at 80 % of the full rate.

- 500 sentences a second, open loop: the word count of `latency.py`, timed from when a sentence was due to its ack.
- One tuple in flight: a spout in one worker, a bolt that does nothing in the other; timed from emit to ack, then the next one.
- 80 % of the full rate, open loop: first the same spouts emit at full speed with 1,000 pending sentences each; then pending is
  unlimited, and sentences are due at 80 % of the rate that was reached. Lateness accumulates. The spouts record each sentence's
  times, so their full rate is below that of `cores.py`.

    python -m benchmarks ack_latency [--seconds 10] [--rounds 3] [--rate 500] [--share 0.8]
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

from benchmarks import latency
from benchmarks.child import answer, ask, cores_here, machine, spread
from benchmarks.latency import FULL_RATE, FullRate
from benchmarks.notes import find, leave
from local_cluster import LocalCluster
from topology_api import Bolt, Context, TopologyBuilder, Tuple

KINDS = {
    "steady": "a second, open loop",
    "one": "one tuple in flight",
    "share": "of the full rate, open loop",
}
WANTED = {"steady": {"p50": 0.8, "p99": 3.0}, "one": {"p50": 0.2}, "share": {"p99": 10.0}}
"""Milliseconds that are not to be exceeded with the compiled core."""
PENDING = 1_000
NO_LIMIT = 1_000_000
"""An open loop is not to be held up by what is pending."""
SHOWN = ("p50", "p99", "worst")


class Heard(Bolt):
    """The other end of a round trip."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def prepare(self, context: Context) -> None:
        leave(self.folder, "heard", 0)

    def execute(self, tup: Tuple) -> None:
        """Does nothing with the tuple, which is acked."""


def one_in_flight(seconds: float, seed: int) -> list[float]:
    """Round trips, one after another."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        conf = {"topology.workers": 2, "topology.max.spout.pending": 1}
        builder = TopologyBuilder("round-trips", conf=conf)
        builder.set_spout("sentences", FullRate(folder, FULL_RATE, seconds, seed))
        builder.set_bolt("heard", Heard(folder)).shuffle_grouping("sentences")
        with LocalCluster(processes=True, slots=2) as cluster:
            cluster.submit(builder.build())
            cluster.wait("round-trips", timeout=seconds + 60)
            totals = cluster.status("round-trips").components["sentences"]
        (spout,), (heard,) = find(folder, "spout"), find(folder, "heard")
    latency.check([spout], totals, 1)
    if spout["pid"] == heard["pid"]:
        raise AssertionError("the spout and the bolt were in one process: nothing has crossed")
    latencies: list[float] = spout["latencies"]
    return latencies


def measure(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return one run: the percentiles in milliseconds, and the rate at which sentences were due."""
    shape = argparse.Namespace(workers=2, supervisors=1, seconds=options.seconds, seed=options.seed)
    if kind == "one":
        latencies = one_in_flight(options.seconds, options.seed)
        due = len(latencies) / options.seconds
    else:
        due = options.rate
        if kind == "share":
            notes, _ = latency.run(shape, FULL_RATE, PENDING)
            due = options.share * len(latency.of_all(notes, "latencies")) / options.seconds
        notes, _ = latency.run(shape, due, NO_LIMIT)
        latencies = latency.of_all(notes, "latencies")
    points = {name: value * 1e3 for name, value in latency.points(latencies)}
    return {**points, "due": due, "acked": len(latencies)}


def main() -> None:
    """Measure every kind with each core in turn, or one of them in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=500.0, help="sentences a second")
    parser.add_argument("--share", type=float, default=0.8, help="of the full rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        answer(measure(options.kind, options))
        return
    cores = cores_here()
    print(machine())
    print(
        f"two workers; {options.seconds:g} s a run, {options.rounds} rounds in turn; all acked; milliseconds: median "
        f"(least to greatest)\n"
    )
    print(f"{'':<46}{'sentences/s':>12}{''.join(f'{name:>32}' for name in SHOWN)}   wanted", flush=True)
    arguments = (
        "--seconds",
        options.seconds,
        "--rate",
        options.rate,
        "--share",
        options.share,
        "--seed",
        options.seed,
    )
    for kind, text in KINDS.items():
        before = {"steady": f"{options.rate:g} ", "share": f"{options.share:.0%} "}.get(kind, "")
        rounds = [
            {core: ask(__name__, *arguments, "--kind", kind, of=core) for core in cores}
            for _ in range(options.rounds)
        ]
        for core in cores:
            runs = [each[core] for each in rounds]
            due = sorted(run["due"] for run in runs)[len(runs) // 2]
            row = "".join(f"{spread([run[name] for run in runs], '.3f'):>32}" for name in SHOWN)
            wanted = ", ".join(f"{name} < {most:g}" for name, most in WANTED[kind].items())
            name = f"{before}{text}, {core}"
            print(f"{name:<46}{due:>12,.0f}{row}   {wanted if core == 'compiled' else ''}", flush=True)
