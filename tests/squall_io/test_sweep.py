"""Remains: files that do not count are deleted, and none that count, belong to another writer, or are in progress."""

from __future__ import annotations

import pytest

from squall.stores.files import Files
from squall_io.spark.manifest.claims import Superseded, list_claims, take_over
from squall_io.spark.manifest.commit import BatchCommit, Owner
from squall_io.spark.manifest.envelopes import seal
from squall_io.spark.manifest.layout import TMP, BatchName, WriterId, claim_path
from squall_io.spark.manifest.sweep import TMP_AGE, delete_leftovers, sweep, sweep_gone
from tests.squall_io.commit_script import small_and_in_order
from tests.squall_io.commit_world import OTHERS, SINK, TOPOLOGY, Broken, World, writer_id
from tests.squall_io.memory_files import MemoryFiles


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `small_and_in_order`."""
    small_and_in_order(monkeypatch)


def own(files: Files, incarnation: tuple[int, int] = (1, 0), index: int = 0) -> int:
    """Take a writer id over."""
    return take_over(files, writer_id(index), incarnation, "host:1", 0.0)


def half_done(world: World, batch: BatchName, attempt: int = 1) -> BatchCommit:
    """A batch whose files are all in their places, and which is not published."""
    files = world.files()
    world.spark(files, batch, attempt, "good")
    owner = Owner(batch.writer_id, batch.epoch, "counts", TOPOLOGY, SINK, (1, 0))

    def stop(step: str) -> None:
        if step == "publish":
            raise Broken

    commit = BatchCommit(files, owner, batch, 2, 1, attempt, at=stop, data=world.data, wall=world.wall)
    with pytest.raises(Broken):
        commit.run()
    commit.at = lambda step: None
    return commit


def data_files(world: World) -> list[str]:
    """The content of the table's directories."""
    return sorted(
        path for path in world.store.files if not path.startswith("_squall/") and path not in OTHERS
    )


def test_moved_unpublished_files_are_deleted_with_unmoved_ones() -> None:
    world = World()
    files = world.files()
    own(files)
    half_done(world, BatchName(writer_id(), 1, 1))
    world.spark(files, BatchName(writer_id(), 1, 2), 1, "good")
    assert len(data_files(world)) == 2
    assert sweep(files, writer_id(), own(files)) == 2
    world.settle(1)
    assert data_files(world) == []


def test_files_without_partition_directories_are_found_too() -> None:
    files = MemoryFiles()
    own(files)
    batch = BatchName(writer_id(), 1, 1)
    files.put_if_absent(f"{batch.attempt(1)}/_SUCCESS", b"")
    files.put_if_absent(batch.data_file(1, 0, ".parquet"), b"rows")
    files.put_if_absent(f"a=1/b=2/{batch.data_file(1, 1, '.parquet')}", b"rows")
    files.put_if_absent(f"{batch.attempt(1)}/a=1/b=2/_x", b"")
    assert sweep(files, writer_id(), own(files)) == 2
    assert [
        status.path for status in files.walk("") if not status.is_folder and "claims" not in status.path
    ] == []


def test_committed_batches_stay_with_all_their_files_whatever_else_their_owner_has_left() -> None:
    world = World()
    files = world.files()
    own(files)
    half_done(world, BatchName(writer_id(), 1, 1), attempt=1)
    second = half_done(world, BatchName(writer_id(), 1, 1), attempt=2)
    entry = second.run()
    assert len(data_files(world)) == 4
    assert sweep(files, writer_id(), own(files)) == 2
    assert data_files(world) == sorted(file.path for file in entry.files)
    world.settle(1)


def test_an_owner_that_wrote_a_batch_again_deletes_the_files_that_its_first_attempt_moved() -> None:
    world = World()
    own(world.files())
    half_done(world, BatchName(writer_id(), 1, 1), attempt=1)
    second = half_done(world, BatchName(writer_id(), 1, 1), attempt=2)
    entry = second.run()
    second.clear()
    assert data_files(world) == sorted(file.path for file in entry.files)
    world.settle(1)


def test_a_staging_folder_that_a_zombie_recreates_is_found_by_the_next_owner() -> None:
    world = World()
    files = world.files()
    own(files)
    batch = BatchName(writer_id(), 1, 1)
    world.spark(files, batch, 1, "good")
    sweep(files, writer_id(), own(files))
    world.spark(files, batch, 1, "good")
    assert files.exists(batch.staging)
    sweep(files, writer_id(), own(files))
    assert not files.exists(batch.staging)


def test_work_in_progress_in_the_own_epoch_stays() -> None:
    world = World()
    files = world.files()
    own(files)
    epoch = own(files)
    under_way = half_done(world, BatchName(writer_id(), epoch, 1))
    files.put_if_absent(f"{TMP}/{under_way.name}.json.0123", b"")
    assert sweep(files, writer_id(), epoch) == 0
    assert len(data_files(world)) == 2
    assert files.exists(f"{TMP}/{under_way.name}.json.0123")
    under_way.run()


def test_removed_tasks_are_taken_over_and_swept_and_others_are_left_alone() -> None:
    world = World()
    files = world.files()
    for index in range(4):
        own(files, index=index)
        half_done(world, BatchName(writer_id(index), 1, 1))
    assert sweep_gone(files, writer_id(0), 2, (2, 0), "host:1", 0.0) == 4
    assert [list_claims(files).newest(writer_id(index)) for index in range(4)] == [1, 1, 2, 2]
    kept = {path.split(".sink.")[1][0] for path in data_files(world)}
    assert kept == {"0", "1"}


def test_a_task_removed_only_for_an_old_worker_is_left_to_the_newer_one() -> None:
    world = World()
    files = world.files()
    own(files, (5, 0), index=3)
    half_done(world, BatchName(writer_id(3), 1, 1))
    assert sweep_gone(files, writer_id(0), 2, (4, 0), "host:1", 0.0) == 0
    assert len(data_files(world)) == 2


def test_removed_tasks_without_remains_are_not_claimed_repeatedly() -> None:
    files = MemoryFiles()
    own(files, index=3)
    for _ in range(3):
        sweep_gone(files, writer_id(0), 1, (2, 0), "host:1", 0.0)
    assert list_claims(files).newest(writer_id(3)) == 1


def test_a_removed_task_that_is_already_claimed_is_fenced_before_it_is_swept() -> None:
    world = World()
    files = world.files()
    own(files, index=3)
    zombie = half_done(world, BatchName(writer_id(3), 1, 1))
    record = {"incarnation": [2, 0], "owner": "who died before its fence", "since": 0}
    files.put_if_absent(claim_path(writer_id(3), 2), seal("claim", record))
    assert sweep_gone(files, writer_id(0), 1, (3, 0), "host:1", 0.0) == 2
    with pytest.raises(Superseded):
        zombie.run()
    assert world.checked_look().counted == {}
    assert list_claims(files).newest(writer_id(3)) == 2


@pytest.mark.parametrize("other", [("other-1", SINK), (TOPOLOGY, "sink2"), (TOPOLOGY + "0", SINK)])
def test_other_topologies_and_other_components_are_never_touched(other: tuple[str, str]) -> None:
    world = World()
    files = world.files()
    theirs = WriterId.of(*other, 7)
    take_over(files, theirs, (1, 0), "host:2", 0.0)
    world.spark(files, BatchName(theirs, 1, 1), 1, "good")
    before = dict(world.store.files)
    sweep_gone(files, writer_id(0), 1, (9, 0), "host:1", 0.0)
    assert world.store.files == before


def test_temporary_files_of_earlier_epochs_and_old_ones_without_an_owner_are_deleted() -> None:
    files = MemoryFiles()
    ours = [
        f"{BatchName(writer_id(), 1, 4)}.json.aa",
        f"{writer_id()}.1.claim.json.aa",
        f"{writer_id()}.2.fence.json.aa",
        "3.json.aa",
        "part-3-0123.json.gz.aa",
    ]
    for name in ours:
        files.put_if_absent(f"{TMP}/{name}", b"")
    files.store.clock += TMP_AGE + 10
    stays = [
        f"{BatchName(writer_id(), 2, 1)}.json.bb",
        f"{BatchName(writer_id(1), 1, 1)}.json.bb",
        f"{writer_id(1)}.1.claim.json.bb",
        "4.json.bb",
    ]
    for name in stays:
        files.put_if_absent(f"{TMP}/{name}", b"")
    own(files)
    sweep(files, writer_id(), own(files))
    assert [status.name for status in files.list(TMP)] == sorted(stays)


def test_a_batch_without_a_staging_folder_has_no_remains() -> None:
    world = World()
    before = dict(world.store.files)
    assert delete_leftovers(world.files(), BatchName(writer_id(), 1, 1), ()) == 0
    assert world.store.files == before
