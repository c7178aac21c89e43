"""What committed state costs: the word count over two workers with state, beside the one with a dict, by CPU per word.

Both variants are acked and run in turn, several rounds, with one epoch a second and a local store (see `stateful_count`): with
the words of a book, and with a million words of which a tenth is counted in each second. `--bytewax`: the words of the book are
also counted by Bytewax in two processes, each word on its own (`fold_final`), with recovery and a snapshot every second. It
acks nothing and does not encrypt; its snapshots hold what changed. Time to the last ack includes the wait for the last commit.

    python -m benchmarks state_counts [--seconds 8] [--rounds 3] [--keys 1000000] [--bytewax]
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import beside_bytewax
from benchmarks.child import answer, ask, core, machine, spread
from benchmarks.goals import Goal, print_goals
from benchmarks.sentences import sentences
from benchmarks.word_count import cost_of, rate

FEW, MANY = 0.85, 0.75
"""The parts of the rate of a dict that are wanted: with the words of a book, and with many keys."""
BYTEWAX = "Bytewax, two processes, snapshots"

Rounds = list[dict[str, dict[str, Any]]]


def main() -> None:
    """Run the variants in turn and print their figures, or one of them in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, default=1_000_000, help="0: only the words of a book")
    parser.add_argument("--bytewax", action="store_true", help="count with Bytewax, too")
    parser.add_argument("--sentences", type=int, default=500_000, help="of Bytewax")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        from benchmarks.stateful_count import run_once

        keys = options.keys if "many" in options.once else 0
        answer(vars(run_once(options.seconds, keys, "state" in options.once, seed=options.seed)))
        return
    print(f"{machine()}; core: {core()}")
    print(
        f"{options.seconds:g} s a run, {options.rounds} rounds in turn; median (least to greatest)\n",
        flush=True,
    )
    names = {"few dict": "words of a book, in a dict", "few state": "words of a book, in state"}
    if options.keys:
        names |= {
            "many dict": f"{options.keys:,} words, in a dict",
            "many state": f"{options.keys:,} words, in state",
        }
    python = beside_bytewax.bytewax_python() if options.bytewax else None
    rounds = [one_round(names, python, options) for _ in range(options.rounds)]
    print_runs(rounds, names)
    print_goals(goals(rounds, names))


def one_round(
    names: dict[str, str], python: Path | None, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Run each variant once."""
    arguments = ("--seconds", options.seconds, "--keys", options.keys, "--seed", options.seed)
    taken = {name: ask(__name__, *arguments, "--once", name) for name in names}
    if python is not None:
        expected = Counter(
            word for line in sentences(options.sentences, options.seed) for word in line.split()
        )
        taken[BYTEWAX] = beside_bytewax.bytewax(python, "fold", 2, True, expected, options)
    return taken


def print_runs(rounds: Rounds, names: dict[str, str]) -> None:
    """A line per variant."""
    print(f"{'':<36}{'CPU us/word':>24}{'words/s':>36}{'MB':>20}")
    for name in rounds[0]:
        runs = [each[name] for each in rounds]
        cost = spread([cost_of(run) * 1e6 for run in runs], ".3f")
        rates, memory = spread([rate(run) for run in runs]), spread([run["peak_rss"] for run in runs])
        print(f"{names.get(name, name):<36}{cost:>24}{rates:>36}{memory:>20}")


def goals(rounds: Rounds, names: dict[str, str]) -> list[Goal]:
    """Return the ratios of each round."""
    found = []
    for size, bound in (("few", FEW), ("many", MANY)):
        if f"{size} state" in names:
            ratios = [cost_of(each[f"{size} dict"]) / cost_of(each[f"{size} state"]) for each in rounds]
            what = f"state : dict by CPU, {names[f'{size} state'].partition(',')[0] if size == 'few' else 'many words'}"
            found.append(Goal(what, ratios, bound, least=True))
    if BYTEWAX in rounds[0]:
        ratios = [cost_of(each[BYTEWAX]) / cost_of(each["few state"]) for each in rounds]
        found.append(Goal("state : Bytewax by CPU, words of a book", ratios))
    return found
