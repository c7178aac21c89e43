"""What epochs add to a tuple's way: the pause of a task at a snapshot, and the time from a barrier to its commit.

Pauses: one worker executes 1,000 tuples a second (open loop) in state of many keys, once with an epoch a second, once without
epochs. Of each second the longest wait counts: from when a tuple was due until it was executed. An epoch adds what these waits
are above their median without epochs. Commits: two workers with few keys and ten epochs a second; the time is that of a spout,
from when it is asked for its position until the first `ack`, which comes with the commit.

    python -m benchmarks state_pauses [--keys 1000000] [--seconds 15] [--rounds 3]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

from benchmarks import paced_state
from benchmarks.child import answer, ask, core, machine
from benchmarks.goals import Goal, print_goals
from local_cluster import LocalCluster

MOST_ADDED_MS = 20
MOST_TO_COMMIT_MS = 150
FEW_KEYS = 1_000
RATE = 1_000
PATIENCE = 600.0
"""Seconds after which a run is given up."""


def main() -> None:
    """Run the variants in turn and print their figures, or one of them in a child process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", choices=("epochs", "none", "commits"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        answer(measure(options.once, options.keys, options.seconds))
        return
    print(f"{machine()}; core: {core()}")
    print(
        f"{options.keys:,} keys, {RATE:,} tuples/s, {options.seconds:g} s a run, {options.rounds} rounds",
        flush=True,
    )
    arguments = ("--keys", options.keys, "--seconds", options.seconds)
    rounds = [
        {
            once: ask(__name__, *arguments, "--once", once, timeout=PATIENCE + 60)
            for once in ("none", "epochs", "commits")
        }
        for _ in range(options.rounds)
    ]
    usual = [percentile(each["none"]["longest"], 50) for each in rounds]
    added = [percentile(each["epochs"]["longest"], 99) - base for each, base in zip(rounds, usual)]
    middle = [percentile(each["epochs"]["longest"], 50) - base for each, base in zip(rounds, usual)]
    print_goals(
        [
            Goal("longest wait in a second without epochs, p50", milliseconds(usual), form=".1f", unit=" ms"),
            Goal("an epoch adds, p50", milliseconds(middle), form=".1f", unit=" ms"),
            Goal("an epoch adds, p99", milliseconds(added), MOST_ADDED_MS, form=".1f", unit=" ms"),
            *(
                Goal(
                    f"barrier to commit at 100 ms epochs, p{part}",
                    milliseconds([percentile(each["commits"]["asked"], part) for each in rounds]),
                    MOST_TO_COMMIT_MS,
                    form=".1f",
                    unit=" ms",
                )
                for part in (50, 99)
            ),
        ]
    )


def milliseconds(values: list[float]) -> list[float]:
    return [value * 1e3 for value in values]


def percentile(values: list[float], part: int) -> float:
    """Return the value that `part` per cent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * part // 100)]


def measure(once: str, keys: int, seconds: float) -> dict[str, Any]:
    """Return one run: the longest wait in each second, and the seconds of each epoch from barrier to commit."""
    with tempfile.TemporaryDirectory(prefix="squall-benchmark-") as folder:
        if once == "commits":
            job = paced_state.Job(folder, FEW_KEYS, RATE, seconds, workers=2, epoch=0.1)
        else:
            job = paced_state.Job(folder, keys, RATE, seconds, epoch=1.0 if once == "epochs" else None)
        with LocalCluster(processes=True, slots=2) as cluster:
            cluster.submit(paced_state.build(job))
            cluster.wait(paced_state.NAME, timeout=PATIENCE)
        paced_state.check_counts(job)
        longest: dict[int, float] = {}
        every = paced_state.waits(job)
        for due, wait in every:
            second = int(due - every[0][0])
            longest[second] = max(wait, longest.get(second, 0.0))
        return {"longest": list(longest.values())[:-1], "asked": paced_state.asked(job), "at": time.time()}
