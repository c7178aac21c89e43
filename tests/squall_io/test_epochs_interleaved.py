"""The batches of epochs, made by all tasks of a sink in many orders: frozen, killed, rewound, rescaled, with lost answers.

The log is a model here: which epochs count, and what each task had staged for them. `squall_io.spark.manifest.epochs` has the
promises.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pytest

from squall.stores.files import Files, FilesUnavailable
from squall_io.spark.manifest.commit import BatchLost
from squall_io.spark.manifest.ended import find_leftovers, sweep_ended
from squall_io.spark.manifest.entries import BatchEntry
from squall_io.spark.manifest.epochs import (
    Shower,
    drop_part,
    index_of,
    list_part,
    new_part,
    put_part,
    show_epoch,
    sweep_parts,
)
from squall_io.spark.manifest.layout import DATA, STAGING, TMP, BatchName, batch_of, epoch_batch
from squall_io.spark.manifest.state import TableState
from tests.squall_io.baton import Killed
from tests.squall_io.commit_script import small_and_in_order
from tests.squall_io.commit_world import DIRECTORIES, SINK, TOPOLOGY, Broken, World, again
from tests.squall_io.memory_files import Gate, Manners, Step, any_manners, straight
from tests.squall_io.random_order import RandomOrder, check

T = TypeVar("T")

LINEAGE = "0123456789abcdef"
WRITER_IDS = 1
OWNER = epoch_batch(LINEAGE, SINK, 1).writer_id
BY = Shower("counts", TOPOLOGY, SINK, (1, 0))


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `small_and_in_order`."""
    small_and_in_order(monkeypatch)


class EpochWorld(World):
    """A table that also has batches of epochs."""

    def __init__(self, manners: Manners) -> None:
        super().__init__(manners)
        #: The parts of each epoch that the log has committed.
        self.log: dict[int, set[str]] = {}

    def _check_moved(self, state: TableState) -> None:
        """Nothing is compacted here."""

    def _check_whole(self, entry: BatchEntry) -> None:
        if entry.batch.writer_id != OWNER:
            super()._check_whole(entry)
            return
        rows = []
        for file in entry.files:
            record = json.loads(self.store.files[file.path])
            if record["epoch"] != entry.batch.number:
                raise Broken(f"{entry.batch} has rows of epoch {record['epoch']}")
            rows.append((record["part"], record["directory"]))
        parts = self.log.get(entry.batch.number)
        if parts is None:
            raise Broken(f"{entry.batch} is visible, and its epoch was not committed")
        if sorted(rows) != sorted((part, directory) for part in parts for directory in DIRECTORIES):
            raise Broken(f"{entry.batch} has {sorted(rows)}, and the log {sorted(parts)}")


Job = Callable[[int], None]


class EpochRun(RandomOrder):
    """One run. A *life* is what lies between two rewinds; actors of earlier ones are processes that were taken for dead."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world = EpochWorld(any_manners(self.random))
        self.life = 0
        self.tasks = 0
        self.begun = 0
        self.epochs = self.random.randrange(1, 6)
        #: Parts of committed epochs whose task was not told that they are visible, in their order; those of the open epoch.
        self.unconfirmed: list[tuple[int, str]] = []
        self.open: dict[int, str] = {}
        self.stagers: set[int] = set()
        self.unshown: set[int] = set()
        self.jobs: dict[int, deque[Job]] = {}
        self.works: set[int] = set()

    def play(self) -> EpochWorld:
        """Run all actors in some order, and check."""
        luck, world = self.random, self.world
        self.begin_life()
        for number in range(luck.randrange(0, 3)):
            self.add(f"rewind {number}", self.rewinder)
        for number in range(luck.randrange(0, 3)):
            self.add(f"reader {number}", lambda: world.reader(self.gate, 3))
        for number in range(luck.choice([0, 1, 2, 4])):
            self.add(f"checkpoint {number}", lambda: world.checkpoint(self.gate))
        if luck.random() < 0.3:
            self.add("sweeper", self.sweeper)
        if luck.random() < 0.3:
            self.add("other sink", lambda: world.owner(self.gate, 0, (1, 0), 1))
        self.baton.run()
        self.deliver()
        for write in world.orphans:
            write()
        self.settle()
        return world

    def gate(self, step: Step, effect: Callable[[], T]) -> T:
        try:
            return super().gate(step, effect)
        except Killed:
            if self.baton._error is None and self.baton.runs.name.startswith(f"life {self.life} "):
                self.begin_life()
            raise

    def rewinder(self) -> None:
        for _ in range(self.random.randrange(1, 60)):
            self.baton.step()
        self.begin_life()

    def sweeper(self) -> None:
        files = self.world.files(self.gate)
        with suppress(FilesUnavailable):
            sweep_ended(files, find_leftovers(files, 0.0), "squall table --sweep", 0.0)

    # The log and its coordinator.

    def begin_life(self) -> None:
        """All tasks return to the last commit; their number may change."""
        self.life += 1
        self.story.append(f"life {self.life} begins")
        self.tasks = self.random.randrange(1, 4)
        self.jobs = {index: deque() for index in range(self.tasks)}
        self.works = set()
        void, self.open = self.open, {}
        for part in void.values():
            if self.random.random() < 0.5:  # otherwise its process is dead, or its task has moved
                self.give(index_of(part) % self.tasks, partial(self.abort, self.begun, part))
        self.unshown = set(range(self.tasks))
        for epoch, part in self.unconfirmed:
            self.give(index_of(part) % self.tasks, partial(self.show, epoch, part))
        for index in range(self.tasks):
            self.give(index, partial(self.restored, index))

    def restored(self, index: int, life: int) -> None:
        """A task has shown all that is committed."""
        if life == self.life:
            self.unshown.discard(index)
            if not self.unshown:
                self.begin_epoch()

    def begin_epoch(self) -> None:
        """An epoch number is never used again."""
        while self.epochs > 0:
            self.begun += 1
            self.stagers = {index for index in range(self.tasks) if self.random.random() < 0.7}
            self.open = {}
            if self.stagers:
                for index in sorted(self.stagers):
                    self.give(index, partial(self.stage, self.begun, index))
                return
            self.epochs -= 1

    def commit(self) -> None:
        """All tasks have staged."""
        epoch, self.epochs = self.begun, self.epochs - 1
        self.story.append(f"epoch {epoch} is committed: {sorted(self.open.values())}")
        self.world.log[epoch] = set(self.open.values())
        for index, part in sorted(self.open.items()):
            self.unconfirmed.append((epoch, part))
            self.give(index, partial(self.show, epoch, part))
        self.open = {}
        self.begin_epoch()

    def give(self, index: int, job: Job) -> None:
        """Let a task do something, after what it does now."""
        self.jobs[index].append(job)
        if index not in self.works:
            self.works.add(index)
            self.add(
                f"life {self.life} task {index}", partial(self.work, index, self.jobs, self.works, self.life)
            )

    def work(self, index: int, jobs: dict[int, deque[Job]], works: set[int], life: int) -> None:
        """Do the jobs of a task until there are none."""
        while jobs[index]:
            jobs[index].popleft()(life)
        works.discard(index)

    # What tasks do.

    def stage(self, epoch: int, index: int, life: int) -> None:
        try:
            part = stage(self.world, self.gate, epoch, index, self.orphaned)
        except BatchLost:
            assert life != self.life  # others know that the epoch is void, and have swept
            return
        if life != self.life:
            if self.random.random() < 0.5:
                self.abort(epoch, part, life)
            return
        self.open[index] = part
        if self.open.keys() == self.stagers:
            self.commit()

    def orphaned(self) -> bool:
        return self.random.random() < 0.15

    def show(self, epoch: int, part: str, life: int) -> None:
        index = index_of(part) % self.tasks if life == self.life else index_of(part)
        show(self.world, self.gate, epoch, part, index, self.tasks if life == self.life else index + 1)
        if life == self.life:
            self.unconfirmed.remove((epoch, part))

    def abort(self, epoch: int, part: str, life: int) -> None:
        files, batch = self.world.files(self.gate), epoch_batch(LINEAGE, SINK, epoch)
        again(lambda: drop_part(files, batch, part))

    # The end.

    def settle(self) -> None:
        """Show everything, and an epoch of all tasks, undisturbed: then only the table may be left."""
        world, tasks = self.world, 2
        for epoch, part in self.unconfirmed:
            show(world, straight, epoch, part, index_of(part) % tasks, tasks)
        last = self.begun + 1
        parts = [stage(world, straight, last, index, lambda: False) for index in range(tasks)]
        world.log[last] = set(parts)
        for index, part in enumerate(parts):
            show(world, straight, last, part, index, tasks)
        state = world.checked_look()
        there = {batch.number for batch in state.counted if batch.writer_id == OWNER}
        assert there == set(world.log), f"in the table: {sorted(there)}, in the log: {sorted(world.log)}"
        left = [path for path in {*world.store.files, *world.store.folders} if path.startswith(f"{STAGING}/")]
        assert not [path for path in left if is_ours(path.split("/")[2])], left
        for path in list(world.store.files):  # see `sweep_temporary`
            if path.startswith(f"{TMP}/") and is_ours(path.rpartition("/")[2].rpartition(".")[0]):
                world.store.remove(path)
        world.settle(WRITER_IDS)


def is_ours(name: str) -> bool:
    batch = batch_of(name)
    return batch is not None and batch.writer_id == OWNER


def stage(world: World, gate: Gate, epoch: int, index: int, orphaned: Callable[[], bool]) -> str:
    """Stage a part as a task does, until that is done; return its name."""
    files, batch = world.files(gate), epoch_batch(LINEAGE, SINK, epoch)
    while True:
        name = new_part(index)
        if write(world, files, batch, name, orphaned()):
            break
    part = again(lambda: list_part(files, batch, name, TOPOLOGY, 1, len(DIRECTORIES), data=DATA))
    again(lambda: put_part(files, batch, part))
    return name


def write(world: World, files: Files, batch: BatchName, name: str, orphaned: bool) -> bool:
    """Spark writes a part; return whether the job succeeds. If not, a part of it goes on."""
    for number, directory in enumerate(DIRECTORIES):
        path = f"{batch.attempt(name)}/{directory}/part-00000-c000.snappy.parquet"
        data = json.dumps({"epoch": batch.number, "part": name, "directory": directory}).encode()
        if orphaned and number:
            world.orphans.append(partial(world.store.write, path, data))
            return False
        again(partial(files.replace, path, data))
    return True


def show(world: World, gate: Gate, epoch: int, part: str, index: int, parallelism: int) -> None:
    """Show a part as a task does, until that is done."""
    files, batch = world.files(gate), epoch_batch(LINEAGE, SINK, epoch)
    again(lambda: show_epoch(files, batch, part, BY, world.wall))
    with suppress(FilesUnavailable):  # the sink logs it
        sweep_parts(files, batch, index, parallelism)


@pytest.mark.parametrize("group", [0, *(pytest.param(at, marks=pytest.mark.soak) for at in range(1, 10))])
def test_each_committed_epoch_is_visible_once_and_whole_in_any_order_of_actors(group: int) -> None:
    committed = sum(len(check(EpochRun, 1000 * group + seed).log) for seed in range(200))
    assert committed > 600  # otherwise nothing was checked
