"""Runs of a `World` with a given order of steps, given deaths, and given lost answers.

play = Play()
play.add("old", lambda gate: play.world.owner(gate))
play.add("new", lambda gate: play.world.owner(gate, incarnation=(2, 0)))
play.run(("old", 17), ("new", ALL))      # 17 steps of the old one, which then freezes; the new one to its end;
                                         # and finally the remaining ones, to their end, in the order of `add`
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import pytest

from squall.stores import concurrently
from squall.stores.files import FilesError, FilesUnavailable
from squall_io.spark.manifest import checkpoints
from squall_io.spark.manifest import state as table_state
from tests.squall_io.baton import Actor, Baton, Killed
from tests.squall_io.commit_world import World
from tests.squall_io.memory_files import HDFS, Gate, Manners, Step

T = TypeVar("T")

ALL: Final = 1_000_000
#: Faults of a step. The answer is lost, and the step was not done; was done; will be done when all others are finished.
DIES: Final = "dies"
NOT_DONE: Final = "not done"
DONE: Final = "done"
LATE: Final = "late"
LOST: Final = (NOT_DONE, DONE, LATE)


def small_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simultaneous calls are made one after another, names are not random, and checkpoints come early."""
    numbers = itertools.count(1)
    monkeypatch.setattr("secrets.token_hex", lambda size: f"{next(numbers):0{2 * size}x}")
    monkeypatch.setattr(concurrently, "_AT_ONCE", 1)
    monkeypatch.setattr(table_state, "DUE", 1)
    monkeypatch.setattr(checkpoints, "PART", 2)


class Play:
    """One run."""

    def __init__(self, fates: Mapping[tuple[str, int], str] | None = None, manners: Manners = HDFS) -> None:
        self.world = World(manners)
        #: How many steps each actor has taken.
        self.steps: dict[str, int] = {}
        self.story: list[str] = []
        self._fates = fates or {}
        self._baton = Baton(self._choose)
        self._turns: list[tuple[str, int]] = []
        self._late: list[Callable[[], object]] = []

    def add(self, name: str, work: Callable[[Gate], None]) -> None:
        """Add another actor."""
        self.steps[name] = 0
        self._baton.add(name, lambda: work(self._gate))

    def run(self, *turns: tuple[str, int], writer_ids: int = 1) -> Play:
        """Run all actors to their end, and check the invariants."""
        self._turns = list(turns)
        try:
            self._baton.run()
            for effect in self._late:
                self._done_late(effect)
            self.world.settle(writer_ids)
        except BaseException as error:
            text = "\n".join([f"turns {turns}, fates {self._fates}", *self.story])
            raise AssertionError(f"{type(error).__name__}: {error}\n{text}") from error
        return self

    def _gate(self, step: Step, effect: Callable[[], T]) -> T:
        self._baton.step()
        name = self._baton.runs.name
        self.steps[name] += 1
        fate = self._fates.get((name, self.steps[name]), "")
        self.story.append(f"{name} {self.steps[name]}: {step.call} {step.path} {fate}")
        if fate == DIES:
            raise Killed
        if fate == LATE and step.writes:
            self._late.append(effect)
        elif fate == DONE:
            effect()
        if fate:
            raise FilesUnavailable(f"{step.call} {step.path}: no answer")
        return effect()

    def _done_late(self, effect: Callable[[], object]) -> None:
        try:
            effect()
        except FilesError as error:
            self.story.append(f"late, and in vain: {error}")

    def _choose(self, actors: Sequence[Actor], runs: Actor | None) -> Actor:
        named = {actor.name: actor for actor in actors}
        while self._turns:
            name, left = self._turns[0]
            if left > 0 and name in named:
                # An actor that has not begun reaches its first step without taking one.
                if named[name].started:
                    self._turns[0] = (name, left - 1)
                return named[name]
            del self._turns[0]
        return runs if runs is not None else actors[0]
