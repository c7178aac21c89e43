"""Runs of the simulation of epochs: one seed, many seeds, and the shortest story of a seed that still breaks.

    python -m tests.epochs.epochs_run --seconds 60 --jobs 2     # as many seeds as possible, from a random one on
    python -m tests.epochs.epochs_run --seed 4711               # one seed, step by step
    python -m tests.epochs.epochs_run --seed 4711 --shrink      # and the fewest steps with which it breaks
    python -m tests.epochs.epochs_run --mutant NAME             # until a guard that was removed is missed
    python -m tests.epochs.epochs_run --mutants --jobs 2        # each guard in turn, and how long it took

Must not know: what an epoch is.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing import get_context
from random import SystemRandom

from tests.epochs.epoch_mutants import MUTANTS, mutated
from tests.epochs.epoch_stores import Broken
from tests.epochs.epoch_story import Step, Story, steps_of

#: Broken runs after which the search stops.
MOST_BROKEN = 20


@dataclass
class EpochRun:
    """The result of a run."""

    seed: int
    steps: list[Step]
    problem: str | None = None
    events: int = 0
    commits: int = 0
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        steps = "\n".join(map(str, self.steps))
        return f"seed {self.seed}: {self.problem}\n{steps}\nreplay: python -m tests.epochs.epochs_run --seed {self.seed}"


def run(seed: int, without: frozenset[int] = frozenset(), verbose: bool = False) -> EpochRun:
    """The story of a seed, with all checks."""
    story = Story(seed, without)
    found = EpochRun(seed, story.steps)
    if verbose:
        story.cluster.verbose = True
        story.cluster.log = lambda text: print(f"{story.line.now:9.4f} {text}")
    try:
        found.problem = story.run()
    except Broken as broken:
        found.problem = str(broken)
    except Exception as error:
        where = "".join(traceback.format_exception(error)[-6:])
        found.problem = f"at {story.line.now:.3f} s: {type(error).__name__}: {error}\n{where}"
    found.events, found.commits = story.line.events, len(story.oracle.commits)
    return found


def shrunk(broken: EpochRun) -> EpochRun:
    """The run of the same seed with the fewest steps that still break it."""
    without: frozenset[int] = frozenset()
    best = broken
    for step in reversed(range(len(steps_of(broken.seed)))):
        found = run(broken.seed, without | {step})
        if found.problem is not None:
            without, best = without | {step}, found
    return best


def row(first: int, step: int, seconds: float, keep_going: bool) -> tuple[int, int, int, int, float]:
    """Every n-th seed until the time is over; return runs, events, commits, broken runs, and seconds of CPU."""
    runs = events = commits = broken = 0
    began, used, seed = time.monotonic(), time.process_time(), first
    while time.monotonic() - began < seconds:
        found = run(seed)
        runs, events, commits = runs + 1, events + found.events, commits + found.commits
        if found.problem is not None:
            broken += 1
            print(found, flush=True)
            if not keep_going or broken >= MOST_BROKEN:
                break
        seed += step
    return runs, events, commits, broken, time.process_time() - used


def many(first: int | None, seconds: float, jobs: int, keep_going: bool) -> int:
    """Run seeds in several processes; print those that broke, and the sums."""
    begin = SystemRandom().randrange(10**9) if first is None else first
    began = time.monotonic()
    with get_context("fork").Pool(jobs) as pool:
        rows = pool.starmap(row, [(begin + job, jobs, seconds, keep_going) for job in range(jobs)])
    runs, events, commits, broken, used = map(sum, zip(*rows))
    took = time.monotonic() - began
    print(
        f"{runs} runs from seed {begin} on in {took:.0f} s: {events:,} events, {commits:,} commits; {broken} broken\n"
        f"{60 * runs / took:,.0f} seeds a minute with {jobs} processes; {1000 * used / runs:.1f} s of CPU per 1,000 seeds"
    )
    return int(broken > 0)


def timed(name: str, first: int, seconds: float) -> tuple[str, int | None, float]:
    """Search until a removed guard is missed; return the seed (None: not missed in these seconds of CPU), and the seconds."""
    began = time.process_time()
    with mutated(name):
        seed = first
        while (used := time.process_time() - began) < seconds:
            if run(seed).problem is not None:
                return name, seed, time.process_time() - began
            seed += 1
    return name, None, used


def each_mutant(first: int, seconds: float, jobs: int) -> int:
    """Remove each guard in turn; print how long it took until it was missed, and those that were not."""
    late = 0
    with get_context("fork").Pool(jobs) as pool:
        found = pool.starmap(timed, [(name, first, seconds) for name in sorted(MUTANTS)], chunksize=1)
    for name, seed, used in sorted(found, key=lambda each: each[2]):
        late += seed is None
        print(f"{used:6.1f} s of CPU  {'NOT MISSED' if seed is None else f'seed {seed}':>16}  {name}")
    print(
        f"{len(found) - late} of {len(found)} guards are missed within {seconds:.0f} s of CPU when they are removed"
    )
    return int(late > 0)


def find(name: str, first: int, most: int) -> EpochRun | None:
    """The first run that misses a removed guard; None: no run of these seeds does."""
    with mutated(name):
        for seed in range(first, first + most):
            found = run(seed)
            if found.problem is not None:
                return found
    return None


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.epochs.epochs_run", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to run seeds for")
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--first", type=int, help="the first of the seeds")
    parser.add_argument("--shrink", action="store_true", help="find the fewest steps with which it breaks")
    parser.add_argument("--jobs", type=int, default=1, help="in how many processes at a time")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first that breaks")
    parser.add_argument(
        "--mutant", choices=sorted(MUTANTS), help="remove this guard, and search until it is missed"
    )
    parser.add_argument(
        "--mutants", action="store_true", help="remove each guard in turn, for --seconds each"
    )
    options = parser.parse_args()
    if options.mutants:
        return each_mutant(options.first or 0, options.seconds, options.jobs)
    if options.mutant is not None:
        missed = find(options.mutant, options.first or 0, 100_000)
        print(missed)
        return int(missed is None)
    if options.seed is None:
        return many(options.first, options.seconds, options.jobs, options.keep_going)
    found = run(options.seed, verbose=not options.shrink)
    print(shrunk(found) if options.shrink and found.problem is not None else found)
    return int(found.problem is not None)


if __name__ == "__main__":
    sys.exit(main())
