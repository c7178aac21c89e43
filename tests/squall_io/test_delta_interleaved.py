"""The Delta log follows the manifest, in any order of owners, followers, readers and compactions, with lost answers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from squall_io.spark.delta import following
from squall_io.spark.manifest.layout import BatchName
from tests.squall_io.commit_script import small_and_in_order
from tests.squall_io.delta_world import DeltaWorld
from tests.squall_io.memory_files import any_manners
from tests.squall_io.random_order import RandomOrder, check

WRITER_IDS = 2


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See `small_and_in_order`; checkpoints of the log, and versions that are cut, come early, too."""
    small_and_in_order(monkeypatch)
    monkeypatch.setattr(following, "MOST_FILES", 3)
    yield


class Run(RandomOrder):
    """One run."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world = DeltaWorld(any_manners(self.random))

    def play(self) -> DeltaWorld:
        """Run all actors in some order, and check."""
        luck, world = self.random, self.world
        for number in range(luck.randrange(1, 4)):
            batches, checkpoint = luck.randrange(1, 4), luck.random() < 0.3
            incarnation = (luck.randrange(1, 4), 0)
            owner = partial(world.owner, self.gate, 0, incarnation, batches, 1, self._job, checkpoint)
            self.add(f"owner {number} {incarnation}", owner)
        if luck.random() < 0.4:
            self.add(
                "owner of writer id 1", lambda: world.owner(self.gate, 1, (1, 0), 2, WRITER_IDS, self._job)
            )
        for number in range(luck.randrange(0, 4)):
            self.add(f"follower {number}", lambda: world.follower(self.gate, 2))
        for number in range(luck.randrange(0, 3)):
            self.add(f"reader {number}", lambda: world.read_log(self.gate))
        for number in range(luck.choice([0, 1, 1, 2])):
            self.add(f"compaction {number}", partial(world.compactor, self.gate, insists=luck.random() < 0.5))
        self.baton.run()
        self.deliver()
        for write in world.orphans:
            write()
        world.settle(WRITER_IDS)
        self.world.vacuum()
        self.world.checked_look()
        return world

    def _job(self) -> str:
        return "orphan" if self.random.random() < 0.15 else "good"


@pytest.mark.parametrize("group", [0, *(pytest.param(at, marks=pytest.mark.soak) for at in (1, 2, 3))])
def test_the_log_has_each_batch_that_counts_once_and_no_other(group: int) -> None:
    worlds = [check(Run, 1000 * group + seed) for seed in range(120)]
    assert sum(len(world.acked) for world in worlds) > 100  # otherwise nothing was checked
    assert sum(world.merged for world in worlds) > 10
    assert all(isinstance(batch, BatchName) for world in worlds for batch in world.acked)
