"""The commit protocol, stopped at every step while others go on.

A test of two actors goes through a third of the pairs of their steps, in which each step of both occurs; with --soak through
all pairs. `squall_io.spark.manifest.commit` has the promises, and `commit_world` the checks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import pytest

from squall_io.spark.manifest.layout import STAGING, BatchName
from tests.squall_io.commit_script import ALL, DIES, LOST, Play, small_and_in_order
from tests.squall_io.commit_world import World, writer_id
from tests.squall_io.memory_files import HDFS, LOCAL, S3, Gate, Manners

MANNERS = (HDFS, LOCAL, S3)


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `small_and_in_order`."""
    small_and_in_order(monkeypatch)


Pairs = Callable[[Iterable[int], Iterable[int]], Iterator[tuple[int, int]]]


@pytest.fixture
def pairs(request: pytest.FixtureRequest) -> Pairs:
    """The pairs of two actors' steps that a test goes through."""
    all_of_them = request.config.getoption("--soak") is not None

    def chosen(first: Iterable[int], second: Iterable[int]) -> Iterator[tuple[int, int]]:
        for one, other in itertools.product(first, second):
            if all_of_them or one == other or (one + other) % 3 == 0:
                yield one, other

    return chosen


def old(world: World) -> Callable[[Gate], None]:
    """The owner that is stopped."""
    return lambda gate: world.owner(gate, incarnation=(1, 0))


def new(world: World) -> Callable[[Gate], None]:
    """The owner that comes after it."""
    return lambda gate: world.owner(gate, incarnation=(2, 0))


def look(world: World, may_write: bool = True) -> Callable[[Gate], None]:
    """A reader."""
    return lambda gate: world.reader(gate, 1, may_write)


def alone() -> Play:
    """An owner that takes over and commits one batch, undisturbed."""
    play = Play()
    play.add("old", old(play.world))
    return play.run()


def steps_of_an_owner() -> range:
    """After how many of its steps an owner can be stopped."""
    return range(alone().steps["old"] + 1)


def steps_of_a_batch() -> range:
    """The same, once its batch has begun."""
    first = next(number for number, line in enumerate(alone().story) if "/_temporary/" in line)
    return range(first, len(steps_of_an_owner()))


#: Steps after which a new owner has taken over and swept, at the latest.
TAKEN_OVER = 45


@pytest.mark.slow
@pytest.mark.parametrize("manners", MANNERS, ids=["hdfs", "local", "s3"])
def test_an_owner_frozen_at_any_step_while_a_new_one_is_at_any_step(manners: Manners, pairs: Pairs) -> None:
    superseded = 0
    for frozen, begun in pairs(steps_of_a_batch(), range(TAKEN_OVER)):
        play = Play(manners=manners)
        for name, work in (("old", old), ("new", new), ("reader", look)):
            play.add(name, work(play.world))
        play.run(("old", frozen), ("new", begun), ("old", ALL), ("reader", ALL))
        superseded += len(play.world.acked) == 1
        assert any(entry.incarnation == (2, 0) for entry in play.world.acked.values())
    assert superseded > 30


def test_an_owner_frozen_at_any_step_while_a_new_one_does_all_of_its_work() -> None:
    for frozen in steps_of_an_owner():
        play = Play()
        for name, work in (("old", old), ("new", new), ("reader", look)):
            play.add(name, work(play.world))
        play.run(("old", frozen), ("new", ALL), ("reader", ALL))
        assert any(entry.incarnation == (2, 0) for entry in play.world.acked.values())


@pytest.mark.slow
def test_an_owner_frozen_at_any_step_while_a_new_one_dies_at_any_step(pairs: Pairs) -> None:
    for frozen, dies in pairs(steps_of_a_batch(), range(1, TAKEN_OVER)):
        play = Play({("new", dies): DIES})
        play.add("old", old(play.world))
        play.add("new", new(play.world))
        play.run(("old", frozen), ("new", ALL))


def test_an_owner_that_dies_at_any_step_leaves_nothing_that_does_not_count() -> None:
    for dies in steps_of_an_owner():
        for manners in MANNERS:
            play = Play({("old", dies): DIES}, manners)
            play.add("old", old(play.world))
            play.run()


def test_a_reader_at_any_step_while_an_owner_is_superseded_at_any_step(pairs: Pairs) -> None:
    for frozen, reads in pairs(steps_of_a_batch(), range(12)):
        play = Play()
        for name, work in (("old", old), ("new", new), ("reader", look)):
            play.add(name, work(play.world))
        play.run(("old", frozen), ("reader", reads), ("new", ALL), ("old", ALL), ("reader", ALL))


def test_a_reader_at_any_step_while_a_checkpoint_is_at_any_step_and_the_owner_is_superseded(
    pairs: Pairs,
) -> None:
    for reads, made in pairs(range(14), range(18)):
        play = Play()
        play.add("old", old(play.world))
        play.add("reader", look(play.world))
        play.add("checkpoint", play.world.checkpoint)
        play.add("new", new(play.world))
        turns = (("old", ALL), ("reader", reads), ("checkpoint", made), ("new", ALL), ("checkpoint", ALL))
        play.run(*turns)
        assert len(play.world.acked) == 2


def test_a_read_only_reader_sees_acked_batches_while_a_new_owner_is_at_any_step() -> None:
    for begun in steps_of_an_owner():
        play = Play()
        play.add("old", old(play.world))
        play.add("new", new(play.world))
        play.add("reader", look(play.world, may_write=False))
        play.run(("old", ALL), ("new", begun), ("reader", ALL))


def test_two_checkpoints_at_any_step_each(pairs: Pairs) -> None:
    def two_batches(world: World) -> Callable[[Gate], None]:
        return lambda gate: world.owner(gate, batches=2)

    first_batch = len(steps_of_an_owner()) - 1
    for first, second in pairs(range(16), range(16)):
        play = Play()
        play.add("old", two_batches(play.world))
        play.add("one", play.world.checkpoint)
        play.add("two", play.world.checkpoint)
        play.add("reader", look(play.world))
        play.run(("old", first_batch), ("one", first), ("old", ALL), ("two", second), ("one", ALL))
        assert len(play.world.acked) == 2


@pytest.mark.parametrize("lost", LOST)
def test_a_lost_answer_at_any_step_of_an_owner_is_requested_again(lost: str) -> None:
    for step in steps_of_an_owner():
        play = Play({("old", step): lost})
        play.add("old", old(play.world))
        play.run()
        assert len(play.world.acked) == 1


@pytest.mark.parametrize("lost", LOST)
def test_a_lost_answer_at_any_step_with_a_checkpoint_at_any_later_one(lost: str, pairs: Pairs) -> None:
    steps = steps_of_a_batch()
    for step, later in pairs(steps, steps):
        if later < step:
            continue
        play = Play({("old", step): lost})
        play.add("old", old(play.world))
        play.add("checkpoint", play.world.checkpoint)
        play.add("reader", look(play.world))
        play.run(("old", later), ("checkpoint", ALL))
        assert len(play.world.acked) == 1
        assert play.world.jobs == 1  # a lost answer is no reason to write the rows again


@pytest.mark.parametrize("lost", LOST)
def test_a_lost_answer_at_any_step_with_a_checkpoint_and_a_new_owner_at_any_later_one(
    lost: str, pairs: Pairs
) -> None:
    steps = steps_of_a_batch()
    for step, later in pairs(steps, steps):
        if not step <= later < step + 8:
            continue
        play = Play({("old", step): lost})
        play.add("old", old(play.world))
        play.add("checkpoint", play.world.checkpoint)
        play.add("new", new(play.world))
        play.add("reader", look(play.world))
        play.run(("old", later), ("checkpoint", ALL), ("new", ALL))
        assert play.world.acked


@pytest.mark.parametrize("directory", ["day=1", "day=2"])
def test_a_batch_that_loses_a_file_of_spark_at_any_step_is_written_again(directory: str) -> None:
    again = 0
    for step in steps_of_a_batch():
        play = Play()
        folder = f"{STAGING}/{BatchName(writer_id(), 1, 1)}/1/{directory}"

        def vandal(gate: Gate, play: Play = play, folder: str = folder) -> None:
            if any(" exists " in line for line in play.story):  # the files were listed: all were there
                play.world.store.remove(f"{folder}/part-00000-1-c000.snappy.parquet")

        play.add("old", old(play.world))
        play.add("vandal", vandal)
        play.run(("old", step), ("vandal", ALL))
        assert len(play.world.acked) == 1
        again += play.world.jobs - 1
    assert again > 2
