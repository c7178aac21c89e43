"""Remains of ended submissions: found by their age, fenced off first, and deleted except for committed files."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import pytest

from squall.stores.files import Files
from squall_io.spark.manifest.claims import Superseded, list_claims, read_claim, retire, take_over
from squall_io.spark.manifest.ended import Leftovers, find_leftovers, sweep_ended
from squall_io.spark.manifest.layout import TMP, BatchName, WriterId, claim_of, claim_path
from squall_io.spark.manifest.state import UnreadableManifest, checkpoint_if_due, read_state
from squall_io.spark.manifest.sweep import TMP_AGE, sweep_gone
from tests.squall_io.baton import Killed
from tests.squall_io.commit_script import ALL, Play, small_and_in_order
from tests.squall_io.commit_world import OTHERS, SINK, TOPOLOGY, World, writer_id
from tests.squall_io.memory_files import HDFS, LOCAL, S3, Gate, Manners, MemoryFiles, Step

T = TypeVar("T")

DAY = 24 * 3600.0


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `small_and_in_order`."""
    small_and_in_order(monkeypatch)


def memory(world: World) -> MemoryFiles:
    files = world.files()
    assert isinstance(files, MemoryFiles)
    return files


def pass_time(world: World, seconds: float) -> None:
    memory(world).store.clock += seconds


def sweep_all(files: Files, age: float = 0.0) -> Leftovers:
    """The work of `squall table --sweep`."""
    found = find_leftovers(files, age)
    sweep_ended(files, found, "squall table --sweep", 0.0)
    return found


def owner(world: World, incarnation: tuple[int, int] = (1, 0), batches: int = 1) -> Callable[[Gate], None]:
    """A task of the sink."""
    return lambda gate: world.owner(gate, incarnation=incarnation, batches=batches)


def sweeper(world: World) -> Callable[[Gate], None]:
    """A sweeper that presumes every submission ended."""

    def work(gate: Gate) -> None:
        sweep_all(world.files(gate))

    return work


def dies_at(steps: int) -> Gate:
    """A gate at which its actor dies after this many steps."""
    taken = 0

    def gate(step: Step, effect: Callable[[], T]) -> T:
        nonlocal taken
        taken += 1
        if taken > steps:
            raise Killed
        return effect()

    return gate


def staged(world: World, topology: str = TOPOLOGY, index: int = 0) -> BatchName:
    """A batch that a new task of a submission has staged, and not committed."""
    files = world.files()
    of = WriterId.of(topology, SINK, index)
    batch = BatchName(of, take_over(files, of, (1, 0), "host:1", 0.0), 1)
    world.spark(files, batch, 1, "good")
    return batch


@pytest.mark.parametrize("manners", [HDFS, LOCAL, S3], ids=["hdfs", "local", "s3"])
def test_the_remains_of_an_owner_that_died_at_any_step_are_gone_and_committed_files_stay(
    manners: Manners,
) -> None:
    left = 0
    for step in range(200):
        world = World(manners)
        with suppress(Killed):
            world.owner(dies_at(step), batches=2)
            break
        before = read_state(world.files())
        left += len(sweep_all(world.files()).ended)
        assert world.checked_look().entries == before.entries
        for status in world.files().list(TMP):
            if claim_of(status.name.rpartition(".")[0]):  # it is deleted when it is a day old
                world.store.remove(status.path)
        world.check_swept()
        assert sweep_all(world.files()).ended == ()
    assert left > 20


def test_an_owner_frozen_at_any_step_while_presumed_ended_acks_only_batches_that_count() -> None:
    superseded = 0
    for frozen in range(60):
        for begun in (3, 9, 15, 21, ALL):
            play = Play()
            play.add("old", owner(play.world))
            play.add("sweeper", sweeper(play.world))
            play.add("reader", play.world.reader)
            play.run(("old", frozen), ("sweeper", begun), ("old", ALL), ("reader", ALL))
            superseded += not play.world.acked
    assert superseded > 10


@pytest.mark.parametrize("group", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_sweepers_may_come_at_any_moment_of_all_others_work(group: int) -> None:
    acked = 0
    for seed in range(120):
        luck = random.Random(1000 * group + seed)
        play = Play(manners=luck.choice([HDFS, LOCAL, S3]))
        world = play.world
        play.add("old", owner(world, batches=2))
        play.add("new", owner(world, (2, 0)))
        play.add("one", sweeper(world))
        play.add("two", sweeper(world))
        play.add("checkpoint", world.checkpoint)
        play.add("reader", world.reader)
        actors = ["old", "new", "one", "two", "checkpoint", "reader"]
        turns = [(luck.choice(actors), luck.randrange(1, 40)) for _ in range(luck.randrange(5, 25))]
        play.run(*turns)
        acked += len(world.acked)
    assert acked > 60


def test_a_submission_with_a_recent_sign_of_activity_is_not_swept() -> None:
    world = World()
    alive, ended = staged(world), staged(world, "words-1-1700000000")
    pass_time(world, DAY)
    staged(world, index=1)
    found = sweep_all(world.files(), DAY / 2)
    assert [each.topology_id for each in found.ended] == ["words-1-1700000000"]
    assert [(each.topology_id, len(each.leftovers)) for each in found.others] == [(TOPOLOGY, 2)]
    assert (world.files().exists(alive.staging), world.files().exists(ended.staging)) == (True, False)
    assert list_claims(world.files()).newest(writer_id()) == 1
    world.commit(world.files(), 1, 1, 2)  # it is not superseded


def started(world: World) -> None:
    take_over(world.files(), writer_id(7), (1, 0), "host:1", 0.0)


def writing(world: World) -> None:
    world.spark(world.files(), BatchName(writer_id(), 1, 7), 1, "good")


def committed(world: World) -> None:
    world.commit(world.files(), 0, 1, 5)


def in_checkpoint(world: World) -> None:
    committed(world)
    memory(world).store.clock += DAY  # its entry is gone, and it reports that itself
    world.time = memory(world).store.clock
    world.commit(world.files(), 0, 1, 6)
    checkpoint_if_due(world.files())


def putting(world: World) -> None:
    world.files().put_if_absent(f"{TMP}/{TOPOLOGY}.sink.0.1.9.json.0123", b"")


@pytest.mark.parametrize("sign", [started, writing, committed, in_checkpoint, putting])
def test_each_action_of_a_task_is_a_sign_of_activity(sign: Callable[[World], object]) -> None:
    world = World()
    staged(world)
    world.time = memory(world).store.clock
    pass_time(world, DAY)
    assert len(find_leftovers(world.files(), DAY / 2).ended) == 1
    sign(world)
    found = find_leftovers(world.files(), DAY / 2)
    assert (found.ended, [each.topology_id for each in found.others]) == ((), [TOPOLOGY])


def test_finding_remains_changes_nothing_and_describes_them() -> None:
    world = World()
    batch = staged(world)
    before = (dict(world.store.files), set(world.store.folders))
    [submission] = find_leftovers(world.files(), 0.0).ended
    assert (world.store.files, set(world.store.folders) - {TMP}) == (before[0], before[1] - {TMP})
    [leftover] = submission.leftovers
    sizes = [len(data) for path, data in before[0].items() if path.startswith(f"{batch.staging}/")]
    assert (leftover.batch, leftover.files, leftover.size) == (batch, 3, sum(sizes))
    assert (leftover.is_open, leftover.entry) == (True, None)


def test_a_retired_writer_id_returns_to_its_task_when_that_restarts() -> None:
    world = World()
    files = world.files()
    take_over(files, writer_id(), (3, 2), "host:1", 0.0)
    world.spark(files, BatchName(writer_id(), 1, 1), 1, "good")
    sweep_all(files)
    claim = read_claim(files, writer_id(), 2)
    assert (claim.incarnation, claim.retired, claim.owner) == ((3, 2), True, "squall table --sweep")
    assert take_over(files, writer_id(), (3, 2), "host:1", 0.0) == 3
    with pytest.raises(Superseded):
        take_over(files, writer_id(), (3, 1), "host:1", 0.0)
    files.replace(claim_path(writer_id(), 3), b"{")
    assert retire(files, writer_id(), 3, "squall table --sweep", 0.0)
    assert not retire(files, writer_id(), 3, "squall table --sweep", 0.0)
    assert read_claim(files, writer_id(), 4).incarnation == (0, 0)


def test_a_killed_sweep_is_continued_by_the_next_one_since_its_claims_are_no_sign_of_activity() -> None:
    world = World()
    batches = [staged(world, index=index) for index in range(3)]
    pass_time(world, DAY)
    with pytest.raises(Killed):
        found = find_leftovers(world.files(), DAY / 2)
        sweep_ended(world.files(dies_at(8)), found, "squall table --sweep", 0.0)
    assert list_claims(world.files()).newest(writer_id()) == 2
    assert len(sweep_all(world.files(), DAY / 2).ended) == 1
    assert not any(world.files().exists(batch.staging) for batch in batches)


def test_the_remains_of_a_committed_batch_are_removed_and_its_task_is_not_superseded() -> None:
    world = World()
    files = world.files()
    take_over(files, writer_id(), (1, 0), "host:1", 0.0)
    entry = world.commit(files, 0, 1, 1)
    world.spark(files, entry.batch, 2, "good")  # like a job that failed and continued
    [submission] = sweep_all(files).ended
    assert submission.leftovers[0].entry is not None
    assert list_claims(files).newest(writer_id()) == 1
    world.commit(files, 0, 1, 2)
    world.check_swept()


def test_staging_folders_without_a_claim_have_no_known_owner_and_stay() -> None:
    world = World()
    assert sweep_all(world.files()) == Leftovers((), ())
    assert {path: world.store.files[path] for path in OTHERS} == OTHERS


def test_temporary_files_are_deleted_when_no_task_can_wait_for_them_any_more() -> None:
    files = MemoryFiles()
    files.put_if_absent(f"{TMP}/table.json.0123", b"")
    files.store.clock += TMP_AGE + 10
    files.put_if_absent(f"{TMP}/1.json.4567", b"")
    assert sweep_all(files).temporary == (f"{TMP}/table.json.0123",)
    assert [status.name for status in files.list(TMP)] == ["1.json.4567"]


def test_nothing_is_swept_while_a_record_is_unreadable() -> None:
    world = World()
    files = world.files()
    staged(world)
    entry = world.commit(files, 0, 1, 2)
    files.replace(entry.batch.commit, b"{")
    before = dict(world.store.files)
    with pytest.raises(UnreadableManifest, match="truncated"):
        sweep_all(files)
    assert world.store.files == before


def test_a_gone_task_is_claimed_once_despite_an_unreadable_record_at_each_start() -> None:
    world = World()
    files = world.files()
    gone = staged(world, index=3)
    entry = world.commit(files, 3, 1, 2)
    kept = files.read(entry.batch.commit)
    files.replace(entry.batch.commit, b"{")
    for restart in range(5):
        assert sweep_gone(files, writer_id(0), 1, (2, restart), "host:1", 0.0) == 0
    assert files.exists(gone.staging)
    assert list_claims(files).newest(writer_id(3)) == 2
    files.replace(entry.batch.commit, kept)
    sweep_gone(files, writer_id(0), 1, (3, 0), "host:1", 0.0)
    assert not files.exists(gone.staging)
    assert list_claims(files).newest(writer_id(3)) == 2
    world.check_swept()
