"""The commit protocol over local files, with owners, readers and checkpoints that are really there at the same time."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from squall_io.spark.manifest import checkpoints, upkeep
from squall_io.spark.manifest.files import Files
from squall_io.spark.stores.local import LocalFiles
from tests.squall_io.commit_world import World
from tests.squall_io.memory_files import Gate, straight

OWNERS = 6


class DiskContents(Mapping[str, bytes]):
    """What each file below a folder holds now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, path: str) -> bytes:
        try:
            return (self._folder / path).read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            raise KeyError(path) from None

    def __iter__(self) -> Iterator[str]:
        for folder, _, names in os.walk(self._folder):
            yield from (os.path.relpath(os.path.join(folder, name), self._folder) for name in names)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class DiskStore:
    """A folder of this machine, past `Files`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def files(self) -> DiskContents:
        """What each file holds."""
        return DiskContents(self.folder)

    @property
    def folders(self) -> set[str]:
        """The paths of all folders."""
        return {os.path.relpath(folder, self.folder) for folder, _, _ in os.walk(self.folder)} - {"."}

    def write(self, path: str, data: bytes) -> None:
        """Make a file with its folders, or replace it."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(data)

    def remove(self, path: str) -> None:
        """Delete a file."""
        (self.folder / path).unlink()


class DiskWorld(World):
    """A table on this machine's disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(store=DiskStore(folder))

    def files(self, gate: Gate = straight) -> Files:
        """The store; nobody interferes but the machine."""
        return LocalFiles(str(self.folder))


@pytest.mark.slow
def test_owners_readers_and_checkpoints_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "DUE", 2)
    monkeypatch.setattr(checkpoints, "PART", 3)
    world = DiskWorld(tmp_path / "table")
    done = threading.Event()
    jobs = random.Random(6)

    def owner(number: int) -> None:
        # Each comes while the ones before it are at work.
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
    monkeypatch.setattr(upkeep, "DUE", 1)  # so that nothing lies open in the end
    world.settle(2)
    assert len(world.acked) >= 4
