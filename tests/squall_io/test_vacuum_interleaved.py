"""Vacuums in any order of owners, followers of the log, readers with leases, compactions, sweepers and each other.

`squall_io.spark.retention.vacuum` has the promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

from squall.stores.files import FilesUnavailable
from squall_io.spark.delta import following
from squall_io.spark.manifest.ended import find_leftovers, sweep_ended
from squall_io.spark.retention import vacuum as vacuuming
from tests.squall_io.commit_script import small_and_in_order
from tests.squall_io.memory_files import any_manners, straight
from tests.squall_io.random_order import RandomOrder, check
from tests.squall_io.vacuum_world import VacuumWorld

WRITER_IDS = 2


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See `small_and_in_order`; files are deleted one by one, so that a death or a reader can come between."""
    small_and_in_order(monkeypatch)
    monkeypatch.setattr(following, "MOST_FILES", 3)
    monkeypatch.setattr(vacuuming, "_AT_ONCE", 1)
    yield


class VacuumRun(RandomOrder):
    """One run."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world = VacuumWorld(any_manners(self.random))

    def play(self) -> VacuumWorld:
        """Run all actors in some order, and check."""
        luck, world = self.random, self.world
        world.owner(straight, 1, batches=luck.randrange(0, 3), parallelism=WRITER_IDS)
        for number in range(luck.randrange(0, 3)):
            batches, checkpoint = luck.randrange(1, 3), luck.random() < 0.3
            incarnation = (luck.randrange(1, 4), 0)
            owner = partial(world.owner, self.gate, 0, incarnation, batches, 1, self._job, checkpoint)
            self.add(f"owner {number} {incarnation}", owner)
        for number in range(luck.randrange(1, 3)):
            self.add(f"compaction {number}", self._compactor)
        for number in range(luck.randrange(1, 4)):
            self.add(f"vacuum {number}", self._vacuum)
        for number in range(luck.randrange(0, 4)):
            early = luck.random() < 0.5
            self.add(f"reader {number}", lambda early=early: world.lessee(self.gate, self._pause, early))  # type: ignore[misc]
        for number in range(luck.randrange(0, 2)):
            self.add(f"follower {number}", lambda: world.follower(self.gate))
        for number in range(luck.randrange(0, 2)):
            self.add(f"sweeper {number}", self._sweeper)
        if luck.random() < 0.3:
            self.add("reader of the log", lambda: world.read_log(self.gate))
        self.baton.run()
        self.deliver()
        for write in world.orphans:
            write()
        world.settle(WRITER_IDS)
        return world

    def _compactor(self) -> None:
        for _ in range(self.random.randrange(1, 3)):
            self.world.compactor(self.gate, insists=self.random.random() < 0.5)
            self._pause()

    def _vacuum(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            self._pause()
            self.world.vacuuming(
                self.gate, lambda step: self._pause() if self.random.random() < 0.3 else None
            )

    def _pause(self) -> None:
        """Let others work for a while."""
        self._ranks[self.baton.runs] = self.random.random() - self.random.randrange(0, 2)
        for _ in range(self.random.choice([0, 1, 1, 20])):
            self.baton.step()

    def _sweeper(self) -> None:
        files = self.world.files(self.gate)
        with suppress(FilesUnavailable):
            sweep_ended(files, find_leftovers(files, 0.0), "squall table --sweep", 0.0)

    def _job(self) -> str:
        return "orphan" if self.random.random() < 0.1 else "good"


@pytest.mark.parametrize("group", [0, *(pytest.param(at, marks=pytest.mark.soak) for at in (1, 2, 3))])
def test_a_vacuum_deletes_what_is_replaced_and_nothing_that_a_lease_holds(group: int) -> None:
    worlds = [check(VacuumRun, 1000 * group + seed) for seed in range(120)]
    done = [each for world in worlds for each in world.done]
    assert sum(each.files for each in done) > 100  # otherwise nothing was checked
    assert sum(bool(each.held) for each in done) > 5
    assert sum(world.read for world in worlds) > 100
