"""The commit protocol over local files, with truly concurrent owners, readers and checkpoints."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from squall_io.spark.manifest import checkpoints
from squall_io.spark.manifest import state as table_state
from tests.squall_io.disk_world import DiskWorld
from tests.squall_io.memory_files import straight

OWNERS = 6


@pytest.mark.slow
def test_owners_readers_and_checkpoints_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_state, "DUE", 2)
    monkeypatch.setattr(checkpoints, "PART", 3)
    world = DiskWorld(tmp_path / "table")
    done = threading.Event()
    jobs = random.Random(6)

    def owner(number: int) -> None:
        # Each one starts while the earlier ones are at work.
        world.owner(
            straight,
            index=number % 2,
            incarnation=(number, 0),
            batches=4,
            parallelism=2,
            job=lambda: "orphan" if jobs.random() < 0.1 else "good",
            checkpoint=True,
        )

    def until_done(work: Callable[[], object]) -> int:
        rounds = 0
        while not done.is_set():
            work()
            rounds += 1
        return rounds

    with ThreadPoolExecutor(OWNERS + 3) as pool:
        others = [
            pool.submit(until_done, lambda: world.reader(straight)),
            pool.submit(until_done, lambda: world.reader(straight)),
            pool.submit(until_done, lambda: world.checkpoint(straight)),
        ]
        try:
            for owning in [pool.submit(owner, number) for number in range(OWNERS)]:
                owning.result(90)
        finally:
            done.set()
        assert all(other.result(90) for other in others)
    for write in world.orphans:
        write()
    monkeypatch.setattr(table_state, "DUE", 1)  # so that no entry is open in the end
    world.settle(2)
    assert len(world.acked) >= 4
