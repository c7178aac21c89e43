"""One batch on its way into the table: its steps, how it continues after an error, and its message when it cannot."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import pytest

from squall.stores.files import Files, FilesUnavailable
from squall_io.spark.manifest.claims import Superseded, take_over
from squall_io.spark.manifest.commit import BatchCommit, BatchConflict, BatchLost, Owner, suffix_of
from squall_io.spark.manifest.entries import decode_entry, encode_entry
from squall_io.spark.manifest.layout import BatchName
from squall_io.spark.manifest.state import read_state
from tests.squall_io.commit_world import DIRECTORIES, SINK, TOPOLOGY, World, writer_id
from tests.squall_io.memory_files import ROOT, Step

T = TypeVar("T")

NAME = BatchName(writer_id(), 1, 1)
STEPS = ["list", "check", "move", "publish", "look"]


class Batch:
    """A batch that Spark has written, of an owner that has taken over."""

    def __init__(self, gate: Callable[[Step], None] = lambda step: None) -> None:
        self.world = World()
        take_over(self.world.files(), writer_id(), (1, 0), "host:1", 0.0)
        self.world.spark(self.world.files(), NAME, 1, "good")
        self.gate = gate
        self.calls: list[Step] = []
        self.steps: list[str] = []

    def _gate(self, step: Step, effect: Callable[[], T]) -> T:
        self.gate(step)
        self.calls.append(step)
        return effect()

    def commit(self, attempt: int = 1) -> BatchCommit:
        """Its commit."""
        owner = Owner(writer_id(), 1, "counts", TOPOLOGY, SINK, (1, 0))
        files = self.world.files(self._gate)
        world = self.world
        return BatchCommit(
            files, owner, NAME, 2, 1, attempt, at=self.steps.append, data=world.data, wall=world.wall
        )

    @property
    def writes(self) -> list[str]:
        """The operations on the store."""
        return [call.call for call in self.calls if call.writes]

    @property
    def plain(self) -> Files:
        """The store as others see it."""
        return self.world.files()


def test_a_batch_is_in_the_table_with_its_files_in_their_directories() -> None:
    batch = Batch()
    commit = batch.commit()
    entry = commit.run()
    assert batch.steps == STEPS
    assert read_state(batch.plain).entries == (entry,)
    assert [file.path for file in entry.files] == [
        f"data/{directory}/squall-{NAME}-1-0000{number}.snappy.parquet"
        for number, directory in enumerate(DIRECTORIES)
    ]
    assert (entry.rows, entry.schema, entry.batch, entry.topology) == (2, 1, NAME, "counts")
    commit.clear()
    assert batch.steps == [*STEPS, "clear"]
    assert not batch.plain.exists(NAME.staging)
    batch.world.acked[NAME] = entry
    batch.world.checked_look()


@pytest.mark.parametrize("step", STEPS)
def test_after_an_error_it_continues_where_it_was(step: str) -> None:
    batch = Batch()
    commit = batch.commit()

    def away(reached: str) -> None:
        batch.steps.append(reached)
        if reached == step and batch.steps.count(step) < 3:
            raise FilesUnavailable("not reachable")

    commit.at = away
    for _ in range(2):
        with pytest.raises(FilesUnavailable):
            commit.run()
    entry = commit.run()
    assert read_state(batch.plain).entries == (entry,)
    assert sorted(batch.writes) == ["move_if_absent"] * 2 + [
        "put_if_absent: rename",
        "put_if_absent: write",
    ]


def test_the_time_of_an_entry_is_that_of_the_attempt_that_put_it() -> None:
    batch = Batch()
    commit = batch.commit()

    def away(step: Step) -> None:
        if step.path == NAME.commit and step.writes and batch.world.time < 1_700_000_003:
            raise FilesUnavailable("not reachable")

    batch.gate = away
    for _ in range(2):
        with pytest.raises(FilesUnavailable):
            commit.run()
    assert commit.run().committed == batch.world.time == 1_700_000_003


def test_a_batch_of_a_superseded_owner_moves_nothing_and_names_the_new_one() -> None:
    batch = Batch()
    take_over(batch.plain, writer_id(), (2, 1), "host-b:99", 0.0)
    with pytest.raises(
        Superseded, match=rf"{writer_id()} was taken over by host-b:99, incarnation 2\.1"
    ) as caught:
        batch.commit().run()
    assert (caught.value.writer_id, caught.value.epoch) == (writer_id(), 2)
    assert batch.writes == []
    assert batch.steps == ["list", "check"]


def test_a_batch_without_any_file_of_spark_is_lost() -> None:
    batch = Batch()
    with pytest.raises(BatchLost, match=f"batch {NAME}: Spark has left no file in {ROOT}/{NAME.attempt(2)}"):
        batch.commit(attempt=2).run()
    batch.plain.delete(NAME.staging)
    with pytest.raises(BatchLost):
        batch.commit().run()


@pytest.mark.parametrize("call", ["digest", "move_if_absent"])
def test_a_batch_whose_files_disappear_is_lost(call: str) -> None:
    batch = Batch()

    def gone(step: Step) -> None:
        if step.call == call:
            batch.plain.delete(NAME.staging)

    batch.gate = gone
    with pytest.raises(BatchLost, match=f"batch {NAME}: {ROOT}/{NAME.staging}.* is gone"):
        batch.commit().run()
    assert not read_state(batch.plain).entries


@pytest.mark.parametrize("call", ["digest", "move_if_absent"])
def test_a_batch_whose_files_disappear_under_a_new_owner_is_superseded(call: str) -> None:
    batch = Batch()

    def swept(step: Step) -> None:
        if step.call == call and batch.plain.exists(NAME.staging):
            take_over(batch.plain, writer_id(), (2, 0), "host:2", 0.0)
            batch.plain.delete(NAME.staging)

    batch.gate = swept
    with pytest.raises(Superseded):
        batch.commit().run()


def test_a_data_file_of_the_same_name_with_other_content_is_a_conflict() -> None:
    batch = Batch()
    path = f"data/day=1/squall-{NAME}-1-00000.snappy.parquet"
    batch.plain.put_if_absent(path, b"another's")
    with pytest.raises(
        BatchConflict, match=f"batch {NAME}: {ROOT}/{path} is there already, with other content"
    ):
        batch.commit().run()
    assert batch.plain.read(path) == b"another's"


def test_an_entry_of_the_same_name_with_other_content_is_a_conflict() -> None:
    batch = Batch()
    entry = batch.commit().run()
    other = dataclasses.replace(entry, rows=3)
    batch.plain.replace(NAME.commit, encode_entry(other))
    batch.world.spark(batch.plain, NAME, 1, "good")  # the same attempt again: its files are in their places
    with pytest.raises(
        BatchConflict, match=rf"batch {NAME}: its entry {ROOT}/{NAME.commit} is there already"
    ):
        batch.commit().run()
    assert decode_entry(batch.plain.read(NAME.commit), NAME.commit) == other


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("part-00000-8c2-c000.snappy.parquet", ".snappy.parquet"),
        ("part-00000-8c2-c000.json", ".json"),
        ("part-00000-8c2-c000.csv.gz", ".csv.gz"),
        ("part-00000", ""),
    ],
)
def test_a_data_file_keeps_the_suffix_that_tells_readers_its_format(name: str, suffix: str) -> None:
    assert suffix_of(name) == suffix
