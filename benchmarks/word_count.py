"""How fast Squall counts words, compared with the same job by hand.

There are three variants in one process: `yardstick.run_plain`, `yardstick.run_acked`, and Squall with acking on (one spout, one
Split, two Counts in a LocalCluster). With `--workers 2` they run over processes: the limit by hand (`two_processes`), plain and
with CURVE, and Squall (two spouts, two Splits, two Counts in two workers; acking and CURVE are on). The variants run in turn,
several rounds; each run has processes of its own and checks its counts and its acks.

    python -m benchmarks word_count [--workers 2 [--supervisors 2] [--pending 1000]] [--sentences 100000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from benchmarks.child import answer, ask, machine, peak_rss, spread

ONE_PROCESS = {"plain": "plain loop", "acked": "acked loop", "squall": "Squall, acked"}
WORKERS = {
    "limit": "by hand, plain",
    "limit-curve": "by hand, CURVE",
    "stages-curve": "in stages, CURVE",
    "squall-workers": "Squall, acked",
}
"""The last of the variants is compared with the others."""
OTHERS = ("squall-untracked",)
"""What `cores.py` asks for besides."""

Rounds = list[dict[str, dict[str, Any]]]


def main() -> None:
    """Run all variants and print their figures, or one of them in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, choices=(1, 2), default=1, help="2: worker processes")
    parser.add_argument("--supervisors", type=int, choices=(1, 2), default=1, help="of the worker processes")
    parser.add_argument("--sentences", type=int, help="default: 100,000; over worker processes 300,000")
    parser.add_argument("--pending", type=int, default=1_000, help="sentences a worker may have pending")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--variant", choices=[*ONE_PROCESS, *WORKERS, *OTHERS], help=argparse.SUPPRESS)
    options = parser.parse_args()
    count = options.sentences or (100_000 if options.workers == 1 else 300_000)
    if options.variant:
        answer(measure(options.variant, count, options.seed, options))
        return
    variants = ONE_PROCESS if options.workers == 1 else WORKERS
    print(machine())
    pending = f", {options.pending:,} pending a worker" if options.workers > 1 else ""
    print(f"{count:,} sentences (seed {options.seed}){pending}, {options.rounds} rounds in turn")
    what = (
        ", the sentences themselves included" if options.workers == 1 else " of the larger of two processes"
    )
    print(f"median (least to greatest); memory is the peak RSS{what}\n", flush=True)
    arguments: tuple[object, ...] = ("--sentences", count, "--seed", options.seed)
    if options.workers > 1:
        arguments += ("--supervisors", options.supervisors, "--pending", options.pending)
    rounds: Rounds = [
        {variant: ask(__name__, *arguments, "--variant", variant) for variant in variants}
        for _ in range(options.rounds)
    ]
    print_table(rounds, variants)
    if options.workers == 1:
        latency = statistics.median(each["squall"]["p50"] for each in rounds)
        print(f"Squall's complete latency at this full rate: p50 {latency * 1e3:.1f} ms")
    else:
        print_workers([each["squall-workers"] for each in rounds])


def print_table(rounds: Rounds, variants: dict[str, str]) -> None:
    """A line per variant, and the ratios of each round."""
    print(f"{'':<17}{'words/s':>36}{'CPU s':>26}{'CPU us/word':>24}{'MB':>18}")
    for variant, name in variants.items():
        runs = [each[variant] for each in rounds]
        rates = spread([run["words"] / run["seconds"] for run in runs])
        cpu = spread([run["cpu_seconds"] for run in runs], ".2f")
        cost = spread([run["cpu_seconds"] / run["words"] * 1e6 for run in runs], ".2f")
        memory = spread([run["peak_rss"] for run in runs])
        print(f"{name:<17}{rates:>36}{cpu:>26}{cost:>24}{memory:>18}")
    *others, squall = variants
    words, acked = rounds[0][squall]["words"], rounds[0][squall]["acked"]
    print(f"\n{words:,} words; counts equal, {acked:,} trees acked in every round")
    for variant in others:
        by_time = [rate(each[squall]) / rate(each[variant]) for each in rounds]
        by_cpu = [cost_of(each[variant]) / cost_of(each[squall]) for each in rounds]
        name = variants[variant]
        print(f"Squall : {name}: {spread(by_time, '.2f')} by time, {spread(by_cpu, '.2f')} by CPU")


def rate(run: dict[str, Any]) -> float:
    """Words per second."""
    return float(run["words"] / run["seconds"])


def cost_of(run: dict[str, Any]) -> float:
    """CPU seconds per word."""
    return float(run["cpu_seconds"] / run["words"])


def print_workers(runs: list[dict[str, Any]]) -> None:
    """The other figures of worker processes."""
    halves = {f"{run['crossed']:.0%}" for run in runs}
    print(f"of the words crossed between the workers: {', '.join(sorted(halves))}")
    for name in ("p50", "p99"):
        print(
            f"complete latency at this full rate, {name}: {spread([run[name] * 1e3 for run in runs], '.1f')} ms"
        )
    whole = spread([run["whole"] - run["seconds"] for run in runs], ".2f")
    print(f"start, making of the sentences and end, which the rate leaves out: {whole} s")
    control = spread([run["control_cpu_seconds"] for run in runs], ".2f")
    print(f"CPU of Nimbus and supervisors from submit to completed, in no figure above: {control} s")


def measure(variant: str, count: int, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return one run of one variant, in this process or in workers of its own."""
    if variant == "squall":
        began = time.perf_counter()
        from benchmarks import topology

        imported = time.perf_counter() - began
        job = topology.Job(count, count, seed)
        return {
            **topology.run(job).as_dict(),
            "peak_rss": peak_rss(),
            "import_seconds": imported,
        }
    if variant == "squall-workers":
        from benchmarks import two_workers

        return vars(two_workers.run(count, seed, options.supervisors, options.pending))
    if variant == "squall-untracked":
        from benchmarks import two_workers

        return vars(two_workers.run(count, seed, options.supervisors, options.pending, tracked=False))
    if variant in WORKERS:
        from benchmarks import two_processes

        layout = "stages" if variant == "stages-curve" else "halves"
        curve = variant != "limit"
        return vars(two_processes.run(two_processes.Job(count, seed, layout, curve, options.pending)))
    return by_hand(variant, count, seed)


def by_hand(variant: str, count: int, seed: int) -> dict[str, Any]:
    """Return one run without Squall, in this process."""
    from benchmarks import yardstick
    from benchmarks.sentences import sentences

    lines = sentences(count, seed)
    run = yardstick.run_plain if variant == "plain" else yardstick.run_acked
    taken = run(lines)
    values = {"words": taken.words, "seconds": taken.seconds, "cpu_seconds": taken.cpu_seconds}
    return {**values, "acked": taken.acked, "peak_rss": peak_rss()}
