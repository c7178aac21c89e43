"""A store carries out a call, and the answer is lost: at every call of each operation that writes.

It loses answers to whole calls of `Files`; `test_commit_every_step` does the same for steps within a call, and for calls that
are not carried out, or only much later. `tests/hdfs/test_sink_faults.py` has some of it on HDFS.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from squall.stores.files import Files, FilesUnavailable
from squall.stores.local import LocalFiles
from squall_io.spark.manifest import layout
from squall_io.spark.manifest.layout import COMMITS, SCHEMAS
from squall_io.spark.manifest.tables import (
    RESULTS,
    ROWS,
    TableRecord,
    agree_on_schema,
    open_table,
    read_table,
)
from squall_io.spark.results import publishing, versions
from squall_io.spark.results.publishing import OutputTable, Result, publish_frame
from squall_io.spark.results.versions import Attempt, Run
from squall_io.spark.rows.schema import parse_schema
from tests.squall_io.commit_script import small_and_in_order
from tests.squall_io.commit_world import World, again
from tests.squall_io.disk_world import DiskWorld
from tests.squall_io.lost_answers import Loses, LosingFiles, first_of_each, none, nth
from tests.squall_io.memory_files import Gate, straight

#: The calls that an owner makes to a store.
KINDS = {"list", "walk", "exists", "read", "digest", "put_if_absent", "move_if_absent", "replace", "delete"}


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `small_and_in_order`; the machine does not crash here, so nothing waits for the disk."""
    small_and_in_order(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Dies(BaseException):
    """An owner has died."""


def dies_at(fatal: str, times: int) -> Loses:
    """The caller dies in the last of this many calls before it takes effect."""
    left = itertools.count(1 - times)

    def loses(call: str, path: str, number: int) -> bool:
        if call == fatal and next(left) == 0:
            raise Dies
        return False

    return loses


class LosingWorld(World):
    """A table in memory; some callers lose answers."""

    losing: LosingFiles | None = None

    def files(self, gate: Gate = straight) -> Files:
        losing, self.losing = self.losing, None
        return losing or super().files(gate)

    def loses(self, loses: Loses, meanwhile: Callable[[], None] = lambda: None) -> LosingFiles:
        """The store of the next caller, which loses answers."""
        self.losing = found = LosingFiles(self.files(), loses, meanwhile)
        return found


class LosingDisk(LosingWorld, DiskWorld):
    """The same on this machine's disk."""


def with_leftovers(world: LosingWorld) -> LosingWorld:
    """A table with the remains of two owners that died in the middle of a batch: of a writer id that stays, and of one that is
    gone.
    """
    for index in (0, 1):
        world.loses(dies_at("move_if_absent", 4))
        with pytest.raises(Dies):
            world.owner(straight, index=index, batches=2, parallelism=2)
    assert len(world.acked) == 2
    world.jobs = 0
    return world


def successor(world: LosingWorld, loses: Loses, meanwhile: Callable[[], None] = lambda: None) -> LosingFiles:
    """The next owner of the writer id that stays: it cleans up, and commits batches."""
    files = world.loses(loses, meanwhile)
    world.owner(straight, incarnation=(2, 0), batches=2)
    return files


def acked_by(world: LosingWorld, incarnation: tuple[int, int]) -> list[int]:
    """The numbers of the batches that an owner could ack."""
    return [batch.number for batch, entry in world.acked.items() if entry.incarnation == incarnation]


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """A new folder each time."""
    return (tmp_path / str(number) for number in itertools.count())


@pytest.mark.parametrize("calls", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_an_owner_repeats_any_call_and_each_batch_is_there_once(calls: int) -> None:
    kinds: set[str] = set()
    for number in range(1, successor(with_leftovers(LosingWorld()), none).calls + 1):
        world = with_leftovers(LosingWorld())
        kinds.update(successor(world, nth(number, calls)).lost)
        assert acked_by(world, (2, 0)) == [1, 2], number
        assert world.jobs == 2, "an answer that is lost is no reason to write the rows again"
        world.settle(2)
    assert kinds == KINDS


def test_an_owner_superseded_before_it_repeats_a_call_acks_only_batches_that_count() -> None:
    superseded = 0
    for number in range(1, successor(with_leftovers(LosingWorld()), none).calls + 1):
        world = with_leftovers(LosingWorld())

        def others(world: LosingWorld = world) -> None:
            world.reader(straight)
            world.owner(straight, incarnation=(3, 0))
            world.checkpoint(straight)

        successor(world, nth(number), others)
        assert acked_by(world, (3, 0)) == [1], number
        superseded += acked_by(world, (2, 0)) != [1, 2]
        world.settle(2)
    assert superseded > 20


def test_an_owner_that_loses_the_first_answer_of_each_kind_still_commits(tmp_path: Path) -> None:
    world = with_leftovers(LosingDisk(tmp_path / "table"))
    lost = successor(world, first_of_each()).lost
    assert len(lost) > 20 and set(lost) == KINDS
    assert acked_by(world, (2, 0)) == [1, 2] and world.jobs == 2
    world.settle(2)


@pytest.mark.parametrize("calls", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_a_checkpoint_with_a_lost_answer_at_any_call_changes_nothing_and_is_finished_by_the_next(
    calls: int,
) -> None:
    def ready() -> LosingWorld:
        world = LosingWorld()
        world.owner(straight, batches=3, checkpoint=True)
        world.owner(straight, incarnation=(2, 0), batches=2)
        return world

    def checkpoint(world: LosingWorld, loses: Loses) -> LosingFiles:
        losing = world.loses(loses)
        world.checkpoint(straight)  # once: a sink that gets no answer tries again later
        return losing

    total = checkpoint(ready(), none).calls
    assert total > 10
    for number in range(1, total + 1):
        world = ready()
        checkpoint(world, nth(number, calls))
        entries = world.checked_look().entries
        assert len(entries) == 5, number
        world.checkpoint(straight)
        assert world.checked_look().entries == entries
        world.settle(1)
        assert world.files().list(COMMITS) == []


@pytest.mark.parametrize("calls", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_a_table_is_made_once_and_has_each_schema_once(folders: Iterator[Path], calls: int) -> None:
    table = TableRecord(ROWS, "parquet", ("day",))
    first, second = (
        parse_schema("word string, day string"),
        parse_schema("word string, day string, count int"),
    )

    def open_both(files: Files) -> None:
        for schema in (first, second):
            assert again(partial(open_table, files, table)) == table
            assert again(partial(agree_on_schema, files, schema)).schema == schema

    def losing(loses: Loses) -> LosingFiles:
        files = LosingFiles(LocalFiles(str(next(folders))), loses)
        open_both(files)
        return files

    for number in range(1, losing(none).calls + 1):
        files = losing(nth(number, calls))
        assert read_table(files) == table
        assert [status.name for status in files.list(SCHEMAS)] == ["1.json", "2.json"], number


def make_old(folder: Path) -> None:
    """Existing files were written two days ago."""
    for file in folder.rglob("*"):
        os.utime(file, (file.stat().st_mtime - 2 * 24 * 3600,) * 2)


@pytest.mark.parametrize("calls", [1, 3, 1_000])
def test_a_result_is_published_once_whatever_answers_its_command_got(
    folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """A command does not retry: it ends with the error, and the user repeats it."""
    spark = LocalFiles(str(next(folders)))  # its answers are not to be lost

    def write(frame: Any, schema: Any, output: OutputTable, attempt: Attempt) -> int:
        spark.put_if_absent(f"{attempt.rows}/part-0.parquet", b"rows")
        return 1

    monkeypatch.setattr(publishing, "schema_of", lambda frame, table: "n int")
    monkeypatch.setattr(publishing, "_write", write)

    def publish(folder: Path, job: str, loses: Loses = none) -> LosingFiles:
        nonlocal spark
        spark = LocalFiles(str(folder))
        files = LosingFiles(spark, loses)
        run = Run("reprocess", job, f"sha256:{job}", ())
        output = OutputTable(files, TableRecord(RESULTS, "parquet", ()))
        publish_frame(Result(output, run, lambda: "frame"))  # type: ignore[arg-type,return-value]
        return files

    def ready() -> Path:
        folder = next(folders)
        for job in ("a", "b", "c"):
            publish(folder, job)
        return folder

    total = publish(ready(), "d").calls
    assert total > 20
    told = 0
    for number in range(1, total + 1):
        folder = ready()
        with suppress(FilesUnavailable):
            publish(folder, "d", nth(number, calls))
            told += 1
        publish(folder, "d")
        files = LocalFiles(str(folder))
        found = [versions.read_version(files, each) for each in range(1, versions.newest_number(files) + 1)]
        assert [version.job for version in found] == ["a", "b", "c", "d"], number
        assert all(files.digest(file.path) == file.digest for version in found for file in version.files)
        assert [version.pruned for version in found] == [True, True, False, False]
        # An old one whose record was emptied and whose folder was not deleted yet is removed when it is a day old.
        make_old(folder / layout.RESULTS)
        versions.tidy(files, "")
        live = {version.attempt for version in found[2:]}
        assert {status.name for status in files.list(layout.RESULTS)} == live, number
    assert told < total
