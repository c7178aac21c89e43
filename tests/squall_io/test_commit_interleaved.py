"""The commit protocol with all actors at work at once, in thousands of orders: frozen, killed, with lost answers.

`squall_io.spark.manifest.commit` has the promises, and `commit_world` the checks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pytest

from squall.stores.files import FilesError, FilesUnavailable
from squall_io.spark.manifest.ended import find_leftovers, sweep_ended
from tests.squall_io.baton import Actor, Baton, Killed
from tests.squall_io.commit_script import small_and_in_order
from tests.squall_io.commit_world import World
from tests.squall_io.memory_files import Manners, Step

T = TypeVar("T")

WRITER_IDS = 2


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `small_and_in_order`."""
    small_and_in_order(monkeypatch)


class Run:
    """One run of many actors, all of whose random choices come from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(Manners(self.random.random() < 0.3, self.random.random() < 0.3))
        self.baton = Baton(self._choose_by_rank if self.random.random() < 0.6 else self._choose_by_chance)
        self.story: list[str] = []
        #: Chances at each step: of another actor's turn; of a death; of a lost answer.
        self._switch = self.random.choice([0.02, 0.1, 0.5])
        self._death = self.random.choice([0.0, 0.0, 0.005, 0.02])
        self._loss = self.random.choice([0.0, 0.0, 0.02, 0.1])
        self._turns = {self.random.randrange(1, 500) for _ in range(self.random.randrange(0, 8))}
        self._steps = 0
        self._ranks: dict[Actor, float] = {}
        self._late: list[Callable[[], object]] = []

    def play(self) -> World:
        """Run all actors in some order, and check."""
        self._cast()
        self.baton.run()
        self._deliver()
        for write in self.world.orphans:
            write()
        self.world.settle(WRITER_IDS)
        return self.world

    def _cast(self) -> None:
        luck, world = self.random, self.world
        for number in range(luck.randrange(1, 4)):
            incarnation = (luck.randrange(1, 4), 0)
            batches, checkpoint = luck.randrange(0, 3), luck.random() < 0.4
            tasks = luck.choice([1, 2])
            work = partial(world.owner, self.gate, 0, incarnation, batches, tasks, self._job, checkpoint)
            self._add(f"owner {number} {incarnation}", work)
        if luck.random() < 0.4:
            self._add(
                "owner of writer id 1", lambda: world.owner(self.gate, 1, (1, 0), 1, WRITER_IDS, self._job)
            )
        for number in range(luck.randrange(0, 3)):
            self._add(f"reader {number}", lambda: world.reader(self.gate, 2))
        if luck.random() < 0.2:
            self._add("read-only reader", lambda: world.reader(self.gate, 2, may_write=False))
        for number in range(luck.choice([0, 1, 1, 2, 5])):
            self._add(f"checkpoint {number}", lambda: world.checkpoint(self.gate))
        for number in range(luck.choice([0, 0, 1, 2])):
            self._add(f"sweeper {number}", self._sweeper)
        if luck.random() < 0.3:
            self._add("network", self._network)

    def _add(self, name: str, work: Callable[[], None]) -> None:
        self._ranks[self.baton.add(name, work)] = self.random.random()

    def gate(self, step: Step, effect: Callable[[], T]) -> T:
        """The event at an actor's step."""
        self.baton.step()
        self.story.append(f"{self.baton.runs}: {step.call} {step.path}")
        luck = self.random.random()
        if luck < self._death:
            if self.random.random() < 0.5:
                effect()
            self.story.append("  and dies")
            raise Killed
        if luck < self._death + self._loss:
            fate = self.random.choice(["before", "after", "late"])
            self.story.append(f"  lost: {fate}")
            if fate == "after":
                effect()
            elif fate == "late" and step.writes:
                self._late.append(effect)
            raise FilesUnavailable(f"{step.call} {step.path}: no answer")
        return effect()

    def _job(self) -> str:
        return "orphan" if self.random.random() < 0.15 else "good"

    def _sweeper(self) -> None:
        """A sweeper that presumes every submission ended."""
        files = self.world.files(self.gate)
        with suppress(FilesUnavailable):  # the command reports it, and the user repeats it
            sweep_ended(files, find_leftovers(files, 0.0), "squall table --sweep", 0.0)

    def _network(self) -> None:
        for _ in range(60):
            self.baton.step()
            self._deliver(1)
            if self.world.orphans and self.random.random() < 0.3:
                self.story.append("an orphan writes")
                self.world.orphans.pop(self.random.randrange(len(self.world.orphans)))()

    def _deliver(self, most: int = 1000) -> None:
        """Execute an old call whose answer is no longer awaited."""
        for _ in range(min(most, len(self._late))):
            with suppress(FilesError):
                self._late.pop(self.random.randrange(len(self._late)))()
                self.story.append("a late call is done")

    def _choose_by_chance(self, actors: Sequence[Actor], runs: Actor | None) -> Actor:
        if runs is not None and self.random.random() > self._switch:
            return runs
        return self.random.choice(actors)

    def _choose_by_rank(self, actors: Sequence[Actor], runs: Actor | None) -> Actor:
        """The first by rank, which falls behind all others at a few steps: it is frozen until they are done."""
        self._steps += 1
        if runs is not None and self._steps in self._turns:
            self._ranks[runs] = -self._steps
        return max(actors, key=lambda actor: self._ranks[actor])


def check(seed: int) -> World:
    """A run whose steps are reported if it breaks a promise."""
    run = Run(seed)
    try:
        return run.play()
    except BaseException as error:
        text = "\n".join([f"seed {seed}", *run.story])
        raise AssertionError(f"{type(error).__name__}: {error}\n{text}") from error


@pytest.mark.parametrize("group", [0, 1, *(pytest.param(at, marks=pytest.mark.soak) for at in (2, 3))])
def test_acked_batches_count_once_and_completely_in_any_order_of_actors(group: int) -> None:
    acked = sum(len(check(1000 * group + seed).acked) for seed in range(150))
    assert acked > 100  # otherwise nothing was checked
