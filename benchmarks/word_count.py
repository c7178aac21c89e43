"""How fast Squall counts words, beside the same job by hand.

Three variants, in turn, several rounds: `yardstick.run_plain`, `yardstick.run_acked`, and Squall with acking on (one spout,
one Split, two Counts in a LocalCluster). Each run has a process of its own and checks its counts and its acks.

    python benchmarks/word_count.py [--sentences 100000] [--rounds 5] [--seed 1]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

# As a script, only this folder is on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.child import answer, ask, machine, peak_rss, spread

VARIANTS = {"plain": "plain loop", "acked": "acked loop", "squall": "Squall, acked"}


def main() -> None:
    """Run all variants and print what they took; or, as a child, one of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sentences", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.variant:
        answer(measure(options.variant, options.sentences, options.seed))
        return
    print(machine())
    print(f"{options.sentences:,} sentences (seed {options.seed}), {options.rounds} rounds in turn")
    print(
        "median (least to greatest); memory is the peak RSS, the sentences themselves included\n", flush=True
    )
    rounds = []
    for _ in range(options.rounds):
        rounds.append(
            {
                variant: ask(
                    __file__,
                    *("--sentences", options.sentences, "--seed", options.seed, "--variant", variant),
                )
                for variant in VARIANTS
            }
        )
    print_table(rounds)


def print_table(rounds: list[dict[str, dict[str, Any]]]) -> None:
    """A line per variant, and the ratios of each round."""
    print(f"{'':<15}{'words/s':>36}{'CPU s':>26}{'MB':>18}")
    for variant, name in VARIANTS.items():
        runs = [each[variant] for each in rounds]
        rates = spread([run["words"] / run["seconds"] for run in runs])
        cpu = spread([run["cpu_seconds"] for run in runs], ".2f")
        memory = spread([run["peak_rss"] for run in runs])
        print(f"{name:<15}{rates:>36}{cpu:>26}{memory:>18}")
    words, acked = rounds[0]["squall"]["words"], rounds[0]["squall"]["acked"]
    print(f"\n{words:,} words; counts equal, {acked:,} trees acked in every round")
    for variant, name in list(VARIANTS.items())[:2]:
        by_time = [each[variant]["seconds"] / each["squall"]["seconds"] for each in rounds]
        by_cpu = [each[variant]["cpu_seconds"] / each["squall"]["cpu_seconds"] for each in rounds]
        print(f"Squall : {name}: {spread(by_time, '.2f')} by time, {spread(by_cpu, '.2f')} by CPU")
    latency = statistics.median(each["squall"]["p50"] for each in rounds)
    print(f"Squall's complete latency at this full rate: p50 {latency * 1e3:.1f} ms")


def measure(variant: str, count: int, seed: int) -> dict[str, Any]:
    """One run of one variant, in this process."""
    from benchmarks import yardstick

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
    from benchmarks.sentences import sentences

    lines = sentences(count, seed)
    run = yardstick.run_plain if variant == "plain" else yardstick.run_acked
    taken = run(lines)
    values = {"words": taken.words, "seconds": taken.seconds, "cpu_seconds": taken.cpu_seconds}
    return {**values, "acked": taken.acked, "peak_rss": peak_rss()}


if __name__ == "__main__":
    main()
