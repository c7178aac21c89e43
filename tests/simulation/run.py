"""Runs of the simulation: one seed, many seeds, and the shortest story of a seed that still breaks.

    python -m tests.simulation.run --seconds 60          # as many seeds as possible, from a random one on
    python -m tests.simulation.run --seed 4711           # one seed, step by step
    python -m tests.simulation.run --seed 4711 --shrink  # and the fewest steps with which it breaks

Must not know: what a cluster is.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import SystemRandom
from typing import Final

from tests.simulation import story
from tests.simulation.checks import Broken, Watcher, left_over, problems_at_rest, slots_in_use
from tests.simulation.process_table import in_place_of_real_ones
from tests.simulation.story import Step, all_is_well, settings_of, story_of
from tests.simulation.tuples import BOOKS, problems_of_book, real_workers
from tests.simulation.world import World

#: Simulated seconds from the last fault until all is as it should be, and from the last kill until nothing is left.
RECOVERY_SECS: Final = 120.0
REMOVAL_SECS: Final = 90.0
COMPLETION_SECS: Final = 120.0
#: Seconds in which no problem may reappear, and in which no removed thing may come back.
REST_SECS: Final = 4.0
GONE_SECS: Final = 2.0
#: Limit of events in one run: more are an endless loop.
MOST_EVENTS: Final = 400_000
#: Broken runs after which the search stops.
MOST_BROKEN: Final = 30


@dataclass
class Outcome:
    """The result of a run."""

    seed: int
    steps: list[Step]
    problem: str | None = None
    #: A hash of all events: two runs of one seed are the same.
    digest: str = ""
    events: int = 0
    simulated: float = 0.0
    #: The tuple trees that were acked, in a run whose topologies carry tuples.
    acked: int = 0
    log: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = "\n".join(map(str, self.steps))
        return (
            f"seed {self.seed}: {self.problem}\n{told}\n"
            f"replay: python -m tests.simulation.run --seed {self.seed}, or"
            f" pytest tests/simulation --simulation-seed {self.seed}"
        )


def run(seed: int, directory: Path, without: Collection[int] = (), verbose: bool = False) -> Outcome:
    """The story of a seed, without some of its steps, with all checks."""
    settings = settings_of(seed)
    steps = [step for number, step in enumerate(story_of(seed, settings)) if number not in without]
    world = World(str(seed), directory, settings)
    outcome = Outcome(seed, steps)
    digest = hashlib.sha256()

    def note(text: str) -> None:
        line = f"{world.line.now:9.3f} {text}"
        digest.update(line.encode())
        if verbose:
            print(line)

    world.log = note
    watcher = Watcher(world)
    world.server.observer = watcher
    world.processes.on_start = watcher.started

    def after_event() -> None:
        watcher.step()
        if world.line.events > MOST_EVENTS:
            raise Broken(f"{MOST_EVENTS} events, and no end")

    world.line.after_event = after_event
    with in_place_of_real_ones(world.processes), real_workers():
        try:
            tell(world, steps)
        except Broken as broken:
            outcome.problem = str(broken)
        except Exception as error:
            where = "".join(traceback.format_exception(error)[-8:])
            outcome.problem = f"at {world.line.now:.3f} s: {type(error).__name__}: {error}\n{where}"
    outcome.acked = sum(
        entry.kind == "A" for book in world.books() for life in book.entries for entry in life
    )
    world.close()
    note(f"{world.line.events} events, {watcher.writes} writes, {watcher.starts} starts, {watcher.leaders}")
    outcome.digest = digest.hexdigest()
    outcome.events, outcome.simulated = world.line.events, world.line.now
    return outcome


def tell(world: World, steps: list[Step]) -> None:
    """A complete story and its end."""
    world.begin()
    for step in steps:
        world.line.at(step.at, world.nature, lambda step=step: step.do(world))  # type: ignore[misc]
    end = max((step.at for step in steps), default=0.0) + 1.0
    world.line.run(end)
    world.log("all is well")
    all_is_well(world)
    rest(world)
    check_submissions(world)
    if world.settings.tuples:
        check_books(world)
    world.give_up_asking()
    for record in world.registry.all_topologies():
        story.kill(world, record.name, 1.0)
    wait_for(world, REMOVAL_SECS, lambda: left_over(world), "is left when everything was killed", GONE_SECS)


def rest(world: World) -> None:
    """Everything becomes as it should be, in time."""
    wait_for(world, RECOVERY_SECS, lambda: problems_at_rest(world), "is wrong after the last fault")


def wait_for(
    world: World, seconds: float, problems: Callable[[], list[str]], what: str, rest: float = REST_SECS
) -> None:
    """Let time pass until there are no problems, and for a little longer."""
    until, fine_since = world.line.now + seconds, None
    while True:
        found = problems()
        if not found and fine_since is None:
            fine_since = world.line.now
        if found:
            fine_since = None
        if fine_since is not None and world.line.now - fine_since >= rest:
            return
        if world.line.now >= until:
            listed = "\n  ".join(found)
            raise Broken(f"this {what} ({seconds:g} s of it):\n  {listed}")
        world.line.run(world.line.now + 1.0)


def check_books(world: World) -> None:
    """End every topology, and check whether its ledger adds up."""
    for record in world.registry.all_topologies():
        BOOKS[world.book_of(record.name)].stopping = True
        if record.state == "INACTIVE":
            story.activate(world, record.name)
    free = world.settings.machines * world.settings.slots - slots_in_use(world)

    def incomplete() -> list[str]:
        return [
            f"{record.name} is {record.state}"
            for record in world.registry.all_topologies()
            if record.state != "COMPLETED" and (free or world.registry.assignments.get(record.id) is not None)
        ]

    wait_for(world, COMPLETION_SECS, incomplete, "is not complete")
    for record in world.registry.all_topologies():
        indexes = {index for _, component, index in record.tasks if component == "lines"}
        book = BOOKS[world.book_of(record.name)]
        problems = problems_of_book(book, record.state == "COMPLETED", indexes)
        if problems:
            raise Broken("the ledger of {}: {}".format(record.name, "; ".join(problems)))


def check_submissions(world: World) -> None:
    """Every topology that was submitted and never killed exists."""
    there = {record.name: record.id for record in world.registry.all_topologies()}
    for asked in world.asked:
        if asked.what != "submit" or asked.answer is None:
            continue
        later = [other for other in world.asked if other.name == asked.name and other is not asked]
        if any(other.what in ("kill", "replace") for other in later):
            continue
        if there.get(asked.name) != asked.answer.id:
            raise Broken(
                f"{asked.answer.id} was submitted and answered, and {there.get(asked.name)} is there"
            )


def shrunk(outcome: Outcome, directory: Path) -> Outcome:
    """The run of the same seed with the fewest steps that still break it."""
    every = len(story_of(outcome.seed, settings_of(outcome.seed)))
    without: set[int] = set()
    best = outcome
    for step in reversed(range(every)):
        found = run(outcome.seed, directory / f"without-{step}", without | {step})
        if found.problem is not None:
            without.add(step)
            best = found
    return best


@contextmanager
def quiet() -> Iterator[None]:
    """The logs of daemons are not wanted while thousands of them run."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def place() -> str | None:
    """The place where files are cheapest."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.run", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to run seeds for")
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--first", type=int, help="the first of the seeds")
    parser.add_argument("--shrink", action="store_true", help="find the fewest steps with which it breaks")
    parser.add_argument("--log", action="store_true", help="show what the daemons log")
    parser.add_argument("--jobs", type=int, default=1, help="in how many processes at a time")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first that breaks")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="squall-simulation-", dir=place()))
    try:
        if options.log:
            logging.basicConfig(level=logging.DEBUG, format="          %(message)s", stream=sys.stdout)
            return one(options.seed, directory, options.shrink)
        with quiet():
            if options.seed is not None:
                return one(options.seed, directory, options.shrink)
            return many(options.first, options.seconds, directory, options.keep_going, options.jobs)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def one(seed: int, directory: Path, shrink: bool) -> int:
    """Run one seed and print all of it."""
    outcome = run(seed, directory / "run", verbose=not shrink)
    if outcome.problem is not None and shrink:
        outcome = shrunk(outcome, directory)
    print(outcome)
    return int(outcome.problem is not None)


@dataclass
class Sums:
    """The results of many runs."""

    runs: int = 0
    events: int = 0
    simulated: float = 0.0
    broken: int = 0


def many(first: int | None, seconds: float, directory: Path, keep_going: bool, jobs: int) -> int:
    """Run seeds until the time is over, in several processes; print those that broke."""
    begin = SystemRandom().randrange(10**9) if first is None else first
    began = time.monotonic()
    with get_context("fork").Pool(jobs) as pool:
        rows = [(begin + job, jobs, seconds, directory, keep_going) for job in range(jobs)]
        sums = pool.starmap(row, rows)
    runs, broken = sum(each.runs for each in sums), sum(each.broken for each in sums)
    print(
        f"{runs} runs from seed {begin} on in {time.monotonic() - began:.0f} s: {sum(each.events for each in sums):,} events,"
        f" {sum(each.simulated for each in sums) / 3600:.1f} simulated hours; {broken} broken"
    )
    return int(broken > 0)


def row(seed: int, step: int, seconds: float, directory: Path, keep_going: bool) -> Sums:
    """Every n-th seed, until the time is over."""
    sums, began = Sums(), time.monotonic()
    while time.monotonic() - began < seconds:
        outcome = run(seed, directory / str(seed))
        shutil.rmtree(directory / str(seed), ignore_errors=True)
        sums.runs, sums.events, sums.simulated = (
            sums.runs + 1,
            sums.events + outcome.events,
            sums.simulated + outcome.simulated,
        )
        if outcome.problem is not None:
            sums.broken += 1
            print(outcome, flush=True)
            if not keep_going or sums.broken >= MOST_BROKEN:
                break
        seed += step
    return sums


if __name__ == "__main__":
    sys.exit(main())
