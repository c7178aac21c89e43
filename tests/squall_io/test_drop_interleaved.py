"""Old days are dropped in any order of owners, compactions, checkpoints, vacuums and each other, with deaths and lost answers.

Of the two directories of a batch, the first is an old day.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date
from functools import partial

import pytest

from squall.stores.files import AbsentFile, FilesUnavailable
from squall_io.spark.manifest import rewriting
from squall_io.spark.manifest.claims import Superseded
from squall_io.spark.manifest.originals import originals
from squall_io.spark.manifest.state import TableState
from squall_io.spark.manifest.tables import ROWS, TableRecord, agree_on_schema, open_table
from squall_io.spark.retention import dropping
from squall_io.spark.retention.dropping import OldDays, drop
from squall_io.spark.retention.vacuum import vacuum
from squall_io.spark.rows.schema import parse_schema
from tests.squall_io import toy_compaction
from tests.squall_io.commit_script import small_and_in_order
from tests.squall_io.commit_world import DIRECTORIES, Broken, World
from tests.squall_io.memory_files import Gate, MemoryStore, any_manners, straight
from tests.squall_io.random_order import RandomOrder, check
from tests.squall_io.toy_compaction import rows_of

WRITER_IDS = 1
OLD, YOUNG = DIRECTORIES


def day_of(self: OldDays, path: str) -> date:
    return date(2020, 1, 1) if f"{OLD}/" in path else date(2999, 1, 1)


def wrong_rows(state: TableState, store: Mapping[str, bytes], directories: tuple[str, ...]) -> str:
    """As that of `toy_compaction`, of batches whose rows of the old day may be gone."""
    found = originals(state)
    names = [original.entry.batch for original in found]
    committed = {batch for batch, entry in state.counted.items() if not entry.replaces and entry.files}
    if len(set(names)) != len(names) or set(names) != committed:
        return f"the batches are {sorted(map(str, names))}, and {sorted(map(str, committed))} were committed"
    for original in found:
        rows = [row["directory"] for row in rows_of(original, store)]
        wanted = list(directories) if original.is_whole else [YOUNG]
        if rows != wanted or original.rows != len(wanted):
            return f"{original.entry.batch} has the rows {rows}, and {original.rows} by its entries"
    return ""


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See `small_and_in_order`; no rewriter is polite, and several entries are needed."""
    small_and_in_order(monkeypatch)
    monkeypatch.setattr(rewriting, "QUIET", float("-inf"))
    monkeypatch.setattr(dropping, "MOST_FILES", 3)
    monkeypatch.setattr(dropping, "day_column", lambda *arguments: "day")
    monkeypatch.setattr(OldDays, "day_of", day_of)
    monkeypatch.setattr(toy_compaction, "wrong_rows", wrong_rows)
    yield


class DropWorld(World):
    """A table of which an old day is dropped."""

    dropped = 0

    def furnish(self) -> None:
        """A table, and what is there before any actor."""
        files = self.files()
        open_table(files, TableRecord(ROWS, "parquet", ("day",), layout=2))
        agree_on_schema(files, parse_schema("n bigint, day int"))
        assert isinstance(self.store, MemoryStore)
        self.store.clock = 2e9
        super().furnish()

    def dropper(self, gate: Gate) -> None:
        """Drop the old day."""
        with suppress(FilesUnavailable, Superseded):  # the command reports it, and the user repeats it
            done = drop(
                self.files(gate), 0.0, "a drop", self.wall, lambda files: {file.path: 1 for file in files}
            )
            self.dropped += done.rows or 0

    def vacuuming(self, gate: Gate) -> None:
        """A vacuum that keeps nothing."""
        self.vacuumed = True
        with suppress(FilesUnavailable):
            vacuum(self.files(gate), 0.0, "a vacuum", lambda: self.time + 1e6)

    def compactor(self, gate: Gate, target: int = 1_000, insists: bool = True) -> None:
        """As in `World`; a vacuum may have deleted what another rewriter has replaced."""
        with suppress(AbsentFile):
            super().compactor(gate, target, insists)

    def settle(self, writer_ids: int) -> None:
        """As in `World`; and after a last drop and a vacuum, exactly the young rows of each batch are there."""
        self.dropper(straight)
        super().settle(writer_ids)
        self.vacuuming(straight)
        state = self.checked_look()
        if {batch for batch in self.acked if batch not in state.counted}:
            raise Broken("a batch of which rows were dropped is not taken any more")
        if any(original.is_whole for original in originals(state)):
            raise Broken("rows of the old day are left")
        if left := [path for path in self.store.files if path.startswith(f"data/{OLD}/")]:
            raise Broken(f"files of the old day are left: {left}")


class DropRun(RandomOrder):
    """One run."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world = DropWorld(any_manners(self.random))

    def play(self) -> DropWorld:
        """Run all actors in some order, and check."""
        luck, world = self.random, self.world
        world.owner(straight, 0, batches=luck.randrange(0, 3))
        for number in range(luck.randrange(0, 3)):
            incarnation = (luck.randrange(2, 4), 0)
            owner = partial(world.owner, self.gate, 0, incarnation, luck.randrange(1, 3))
            self.add(f"owner {number} {incarnation}", owner)
        for number in range(luck.randrange(1, 3)):
            self.add(f"drop {number}", lambda: world.dropper(self.gate))
        for number in range(luck.randrange(0, 3)):
            self.add(f"compaction {number}", lambda: world.compactor(self.gate, insists=False))
        for number in range(luck.randrange(0, 2)):
            self.add(f"vacuum {number}", lambda: world.vacuuming(self.gate))
        for number in range(luck.randrange(0, 2)):
            self.add(f"checkpoint {number}", lambda: world.checkpoint(self.gate))
        self.baton.run()
        self.deliver()
        for write in world.orphans:
            write()
        world.settle(WRITER_IDS)
        return world


@pytest.mark.parametrize("group", [0, *(pytest.param(at, marks=pytest.mark.soak) for at in (1, 2, 3))])
def test_rows_of_old_days_are_dropped_and_no_others(group: int) -> None:
    worlds = [check(DropRun, 1000 * group + seed) for seed in range(100)]
    assert sum(world.dropped for world in worlds) > 50  # otherwise nothing was checked
    assert sum(world.merged for world in worlds) > 10
