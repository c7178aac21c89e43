"""Runs of many actors in an order that a seed gives: at each step an actor may fall behind, be frozen, die, or lose an answer.

class Mine(RandomOrder):
    ...  # `add` actors, whose files have the gate of the run

    def play(self):
        self.baton.run()
        self.deliver()
        return ...

check(Mine, seed)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from squall.stores.files import FilesError, FilesUnavailable
from tests.squall_io.baton import Actor, Baton, Killed
from tests.squall_io.memory_files import Step

T = TypeVar("T")


class RandomOrder:
    """One run of many actors, all of whose random choices come from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.baton = Baton(self._choose_by_rank if self.random.random() < 0.6 else self._choose_by_chance)
        self.story: list[str] = []
        #: Chances at each step: of another actor's turn; of a death; of a lost answer.
        self._switch = self.random.choice([0.02, 0.1, 0.5])
        self.death = self.random.choice([0.0, 0.0, 0.005, 0.02])
        self.loss = self.random.choice([0.0, 0.0, 0.02, 0.1])
        self._turns = {self.random.randrange(1, 500) for _ in range(self.random.randrange(0, 8))}
        self._steps = 0
        self._ranks: dict[Actor, float] = {}
        self._late: list[Callable[[], object]] = []

    def add(self, name: str, work: Callable[[], None]) -> None:
        """Add another actor."""
        self._ranks[self.baton.add(name, work)] = self.random.random()

    def gate(self, step: Step, effect: Callable[[], T]) -> T:
        """The event at an actor's step."""
        self.baton.step()
        self.story.append(f"{self.baton.runs}: {step.call} {step.path}")
        luck = self.random.random()
        if luck < self.death:
            if self.random.random() < 0.5:
                effect()
            self.story.append("  and dies")
            raise Killed
        if luck < self.death + self.loss:
            fate = self.random.choice(["before", "after", "late"])
            self.story.append(f"  lost: {fate}")
            if fate == "after":
                effect()
            elif fate == "late" and step.writes:
                self._late.append(effect)
            raise FilesUnavailable(f"{step.call} {step.path}: no answer")
        return effect()

    def deliver(self, most: int = 1000) -> None:
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


class Played(Protocol):
    """A run that can be played."""

    story: list[str]

    def play(self) -> Any:
        """Run all actors in some order, and check."""


def check(make: Callable[[int], Played], seed: int) -> Any:
    """Play the run of a seed; return its world. The steps are reported if it breaks a promise."""
    run = make(seed)
    try:
        return run.play()
    except BaseException as error:
        text = "\n".join([f"seed {seed}", *run.story])
        raise AssertionError(f"{type(error).__name__}: {error}\n{text}") from error
