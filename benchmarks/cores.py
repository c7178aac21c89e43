"""Both cores of Squall at the word count, compared in one run with the limit written by hand in plain Python.

The goal is `two_processes` without CURVE; its variant with CURVE is shown too. Squall runs in one process and over two workers
(acked; over workers with CURVE), and over two workers untracked, each with the plain core and with the compiled one. All
variants run in turn, several rounds; each run has processes of its own and checks its counts and its acks. The output for each
variant: words/s, CPU seconds per million words, and its words/s as a share of the limit's in the same round; the same share by
CPU, too, which varies less on a busy machine.

    python -m benchmarks cores [--rounds 5] [--sentences 300000]
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from benchmarks.child import ask, cores_here, machine, spread
from benchmarks.word_count import cost_of, rate

WORD_COUNT = "word_count"
ONE_PROCESS = 3
"""One process gets this many times fewer sentences, since it has half of the cores and its start counts."""


class Variant(NamedTuple):
    """The arguments of `word_count.py`, and the core."""

    name: str
    core: str
    workers: int

    @property
    def text(self) -> str:
        """The name in the table."""
        return NAMES[self.name] + (f", {self.core}" if self.name.startswith("squall") else "")


NAMES = {
    "limit": "by hand, two processes",
    "limit-curve": "by hand, with CURVE",
    "squall": "one process",
    "squall-workers": "two workers",
    "squall-untracked": "two workers, untracked",
}
LIMIT = Variant("limit", "plain", 2)
WANTED = {
    ("squall-workers", "plain"): 0.55,
    ("squall-workers", "compiled"): 1.6,
    ("squall", "plain"): 0.4,
    ("squall", "compiled"): 1.3,
}
"""The least part of the limit that is wanted."""
UNTRACKED_WANTED = 1.2

Rounds = list[dict[Variant, dict[str, Any]]]


def variants() -> list[Variant]:
    """Return all variants, in the order of the rounds."""
    squall = [
        Variant(name, core, 1 if name == "squall" else 2)
        for name in ("squall-workers", "squall", "squall-untracked")
        for core in cores_here()
    ]
    return [LIMIT, Variant("limit-curve", "plain", 2), *squall]


def main() -> None:
    """Run all variants in turn and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=300_000, help="one process: a third of it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pending", type=int, default=1_000, help="sentences a worker may have pending")
    options = parser.parse_args()
    print(machine())
    measured = variants()
    print(
        f"{options.sentences:,} sentences, one process {options.sentences // ONE_PROCESS:,} (seed {options.seed}), "
        f"{options.pending:,} pending a worker, {options.rounds} rounds in turn; median (least to greatest)\n",
        flush=True,
    )
    rounds = [{variant: run(variant, options) for variant in measured} for _ in range(options.rounds)]
    print_table(rounds, measured)


def run(variant: Variant, options: argparse.Namespace) -> dict[str, Any]:
    """Return one run of one variant."""
    sentences = options.sentences // (1 if variant.workers == 2 else ONE_PROCESS)
    arguments = ("--workers", variant.workers, "--sentences", sentences, "--seed", options.seed)
    more = ("--pending", options.pending, "--variant", variant.name)
    return ask(WORD_COUNT, *arguments, *more, of=variant.core)


def print_table(rounds: Rounds, measured: list[Variant]) -> None:
    """A line per variant, and the goal."""
    print(
        f"{'':<34}{'words/s':>36}{'CPU s/million words':>24}{'of the limit by time':>24}{'by CPU':>22}{'wanted':>9}"
    )
    for variant in measured:
        runs = [each[variant] for each in rounds]
        rates = spread([rate(each) for each in runs])
        cpu = spread([cost_of(each) * 1e6 for each in runs], ".2f")
        parts = spread([rate(each[variant]) / rate(each[LIMIT]) for each in rounds], ".2f")
        by_cpu = spread([cost_of(each[LIMIT]) / cost_of(each[variant]) for each in rounds], ".2f")
        wanted = WANTED.get((variant.name, variant.core))
        text = "" if wanted is None else f">= {wanted:g}"
        print(f"{variant.text:<34}{rates:>36}{cpu:>24}{parts:>24}{by_cpu:>22}{text:>9}")
    print()
    for core in dict.fromkeys(variant.core for variant in measured if variant.name == "squall-untracked"):
        acked = Variant("squall-workers", core, 2)
        untracked = Variant("squall-untracked", core, 2)
        by_time = spread([rate(each[untracked]) / rate(each[acked]) for each in rounds], ".2f")
        wanted_text = f" (wanted: >= {UNTRACKED_WANTED:g})" if core == "compiled" else ""
        print(f"untracked : acked, two workers, {core}: {by_time}{wanted_text}")
    if "compiled" in {variant.core for variant in measured}:
        for name, workers in (("squall-workers", 2), ("squall", 1)):
            times = [
                rate(each[Variant(name, "compiled", workers)]) / rate(each[Variant(name, "plain", workers)])
                for each in rounds
            ]
            print(f"compiled : plain, {NAMES[name]}: {spread(times, '.2f')}")
