"""The commit protocol with all actors at work at once, in thousands of orders: frozen, killed, with lost answers.

`squall_io.spark.manifest.commit` has the promises, and `commit_world` the checks.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

from squall.stores.files import FilesUnavailable
from squall_io.spark.manifest.ended import find_leftovers, sweep_ended
from squall_io.spark.manifest.layout import DATA
from tests.squall_io.commit_script import small_and_in_order
from tests.squall_io.commit_world import World
from tests.squall_io.memory_files import any_manners
from tests.squall_io.random_order import RandomOrder, check

WRITER_IDS = 2


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `small_and_in_order`."""
    small_and_in_order(monkeypatch)


class Run(RandomOrder):
    """One run of owners, readers and sweepers."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        manners = any_manners(self.random)
        # Every second run is in a table of layout 1.
        self.world = World(manners, data=DATA if seed % 2 else "")

    def play(self) -> World:
        """Run all actors in some order, and check."""
        self._cast()
        self.baton.run()
        self.deliver()
        for write in self.world.orphans:
            write()
        self.world.settle(WRITER_IDS)
        self.world.vacuum()
        self.world.checked_look()
        return self.world

    def _cast(self) -> None:
        luck, world = self.random, self.world
        for number in range(luck.randrange(1, 4)):
            incarnation = (luck.randrange(1, 4), 0)
            batches, checkpoint = luck.randrange(0, 3), luck.random() < 0.4
            tasks = luck.choice([1, 2])
            work = partial(world.owner, self.gate, 0, incarnation, batches, tasks, self._job, checkpoint)
            self.add(f"owner {number} {incarnation}", work)
        if luck.random() < 0.4:
            self.add(
                "owner of writer id 1", lambda: world.owner(self.gate, 1, (1, 0), 1, WRITER_IDS, self._job)
            )
        for number in range(luck.randrange(0, 3)):
            self.add(f"reader {number}", lambda: world.reader(self.gate, 2))
        if luck.random() < 0.2:
            self.add("read-only reader", lambda: world.reader(self.gate, 2, may_write=False))
        for number in range(luck.choice([0, 1, 1, 2, 5])):
            self.add(f"checkpoint {number}", lambda: world.checkpoint(self.gate))
        for number in range(luck.choice([0, 0, 1, 2])):
            compactor = partial(world.compactor, self.gate, luck.choice([300, 1_000]), luck.random() < 0.5)
            self.add(f"compaction {number}", compactor)
        for number in range(luck.choice([0, 0, 1, 2])):
            self.add(f"sweeper {number}", self._sweeper)
        if luck.random() < 0.3:
            self.add("network", self._network)

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
            self.deliver(1)
            if self.world.orphans and self.random.random() < 0.3:
                self.story.append("an orphan writes")
                self.world.orphans.pop(self.random.randrange(len(self.world.orphans)))()


@pytest.mark.parametrize("group", [0, *(pytest.param(at, marks=pytest.mark.soak) for at in (1, 2, 3))])
def test_acked_batches_count_once_and_completely_in_any_order_of_actors(group: int) -> None:
    worlds = [check(Run, 1000 * group + seed) for seed in range(150)]
    assert sum(len(world.acked) for world in worlds) > 100  # otherwise nothing was checked
    assert sum(world.merged for world in worlds) > 5
