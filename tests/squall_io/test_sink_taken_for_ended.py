"""A sink's task that lives while `squall table --sweep` presumes it ended: each batch is there once, and acked."""

from __future__ import annotations

import itertools
import logging
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from squall.stores.files import Files, FilesRefused, FilesUnavailable
from squall_io.spark.manifest.claims import Superseded, list_claims, retire, take_over
from squall_io.spark.manifest.ended import find_leftovers, sweep_ended
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.layout import WriterId, fence_path
from squall_io.spark.manifest.state import checkpoint_if_due, read_state
from squall_io.spark.sink.errors import NotCommitted
from squall_io.spark.sink.sink_writer import SinkWriter
from tests.squall_io.commit_script import ALL, LOST, Play, small_and_in_order
from tests.squall_io.memory_files import Gate, MemoryFiles, Step, straight
from tests.squall_io.sink_world import SinkWorld, gated

WRITER_ID = WriterId.of("words-1", "store", 0)


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `small_and_in_order`."""
    small_and_in_order(monkeypatch)


def opened(world: SinkWorld, incarnation: tuple[int, int] = (1, 0)) -> SinkWriter:
    life = world.life(incarnation)
    life.open()
    return life


def sweep_all(files: Files) -> None:
    """The work of `squall table --sweep`; all existing files are old enough."""
    sweep_ended(files, find_leftovers(files, -1e9), "squall table --sweep", 0.0)


def sweep_by(world: SinkWorld, gate: Gate) -> None:
    sweep_all(MemoryFiles(world.store, gate))


def newest(world: SinkWorld) -> int:
    return list_claims(MemoryFiles(world.store)).newest(WRITER_ID)


def contents(world: SinkWorld) -> Counter[str]:
    """The content of the committed files."""
    files = [file for entry in world.state().entries for file in entry.files]
    return Counter(world.store.files[file.path].decode() for file in files)


def check_once(world: SinkWorld, *texts: str) -> None:
    """Check that these batches are there once, and that no remains are left."""
    assert contents(world) == Counter(texts)
    opened(world, (9, 0))
    assert world.left() == set()
    assert contents(world) == Counter(texts)


def swept_at(world: SinkWorld, number: int) -> tuple[Callable[..., Any], list[int]]:
    """A gate that sweeps everything before the call of this number; and the number of calls."""
    calls = [0]

    def gate(step: Step, effect: Callable[[], Any]) -> Any:
        calls[0] += 1
        if calls[0] == number:
            sweep_all(MemoryFiles(world.store))
        return effect()

    return gate, calls


def test_a_task_presumed_ended_at_any_step_commits_its_batch_once_and_acks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken_back, number = 0, 0
    while True:
        number += 1
        world = SinkWorld(monkeypatch)
        life = opened(world)
        gate, calls = swept_at(world, number)
        with gated(world, gate):
            life.tidy(life.commit(world.rows(2, "one")))
            life.tidy(life.commit(world.rows(3, "two")))
        if calls[0] < number:
            break
        taken_back += newest(world) > 2
        check_once(world, "one", "two")
    assert 10 < taken_back < number


def test_sweeps_checkpoints_and_lost_answers_at_any_moment_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken_back = 0
    for seed in range(100):
        luck = random.Random(seed)
        world = SinkWorld(monkeypatch)
        life = opened(world)
        texts = [f"batch {number}" for number in range(3)]
        fates = {("task", luck.randrange(1, 90)): luck.choice(LOST) for _ in range(luck.randrange(4))}
        play = Play(fates)

        def task(
            gate: Gate, world: SinkWorld = world, life: SinkWriter = life, texts: list[str] = texts
        ) -> None:
            with gated(world, gate):
                for text in texts:
                    life.tidy(life.commit(world.rows(1, text)))

        def sweeper(gate: Gate, world: SinkWorld = world) -> None:
            for _ in range(2):
                with suppress(FilesUnavailable):  # the other one swept its unfinished put
                    sweep_all(MemoryFiles(world.store, gate))

        def upkeep(gate: Gate, world: SinkWorld = world) -> None:
            with suppress(FilesUnavailable):
                checkpoint_if_due(MemoryFiles(world.store, gate))
                read_state(MemoryFiles(world.store, gate))

        actors = {"task": task, "one": sweeper, "two": sweeper, "upkeep": upkeep}
        for name, work in actors.items():
            play.add(name, work)
        turns = [(luck.choice(list(actors)), luck.randrange(1, 30)) for _ in range(luck.randrange(5, 25))]
        play.run(("task", luck.randrange(1, 25)), ("one", luck.randrange(8, 60)), *turns)
        taken_back += newest(world) > 2
        check_once(world, *texts)
    assert taken_back > 33


def test_a_task_held_up_between_any_two_steps_of_a_sweep_commits_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for frozen in range(4, 40, 2):
        for begun in (3, 7, 10, 13, 16, 20, 26, ALL):
            world = SinkWorld(monkeypatch)
            life = opened(world)
            play = Play()

            def task(gate: Gate, world: SinkWorld = world, life: SinkWriter = life) -> None:
                with gated(world, gate):
                    life.tidy(life.commit(world.rows(1, "one")))

            play.add("task", task)
            play.add("sweeper", partial(sweep_by, world))
            play.run(("task", frozen), ("sweeper", begun), ("task", ALL))
            check_once(world, "one")


def test_reclaiming_a_writer_id_is_logged_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = SinkWorld(monkeypatch)
    life = opened(world)
    retire(MemoryFiles(world.store), WRITER_ID, 1, "squall table --sweep", 0.0)
    life.commit(world.rows(1))
    [record] = [record for record in caplog.records if "squall table --sweep" in record.message]
    assert record.levelno == logging.WARNING
    assert "epoch 1 of words-1.store.0 was ended" in record.message and "epoch 3" in record.message


def test_a_writer_id_that_another_task_has_had_since_is_not_reclaimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for incarnation in ((1, 0), (2, 0)):
        world = SinkWorld(monkeypatch)
        life = opened(world)
        files = MemoryFiles(world.store)
        retire(files, WRITER_ID, 1, "squall table --sweep", 0.0)
        epoch = take_over(files, WRITER_ID, incarnation, "another", 0.0)
        retire(files, WRITER_ID, epoch, "squall table --sweep", 0.0)
        for _ in range(2):
            with pytest.raises(Superseded, match="taken over by another, incarnation"):
                life.commit(world.rows(1))
        assert newest(world) == 4


def test_an_unavailable_store_is_waited_for_while_a_writer_id_is_reclaimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for done in (False, True):
        for after in range(25):
            world = SinkWorld(monkeypatch)
            life = opened(world)
            calls = [0]

            def gate(
                step: Step,
                effect: Callable[[], Any],
                calls: list[int] = calls,
                after: int = after,
                done: bool = done,
            ) -> Any:
                calls[0] += 1
                if calls[0] == after:
                    if done:
                        effect()
                    raise FilesUnavailable("away")
                return effect()

            def at(step: str, world: SinkWorld = world, gate: Gate = gate) -> None:
                if step == "look":
                    world.at = lambda step: None
                    sweep_all(MemoryFiles(world.store))
                    world.gate = gate

            world.at = at
            life.tidy(life.commit(world.rows(1, "one")))
            check_once(world, "one")


def test_a_store_that_cannot_tell_for_a_moment_what_counts_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in itertools.count(1):
        world = SinkWorld(monkeypatch)
        life = opened(world)
        reads = [0]

        def gate(
            step: Step, effect: Callable[[], Any], reads: list[int] = reads, number: int = number
        ) -> Any:
            reads[0] += step.call == "read"
            if step.call == "read" and reads[0] == number:
                raise FilesRefused("the host's name is not known")
            return effect()

        def at(step: str, world: SinkWorld = world, gate: Gate = gate) -> None:
            if step == "publish":  # the entry comes after the fence: it does not count
                world.at = lambda step: None
                sweep_all(MemoryFiles(world.store))
                world.gate = gate

        world.at = at
        acked = []
        with suppress(NotCommitted):  # as if it was already known that the batch does not count
            life.commit(world.rows(1, "one"))
            acked.append("one")
        world.gate = straight
        check_once(world, *acked)
        if reads[0] < number:
            break
    assert number > 4


def test_a_worker_that_ends_reclaims_no_writer_id(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SinkWorld(monkeypatch)
    life = opened(world)

    def at(step: str) -> None:
        if step == "check":
            sweep_all(MemoryFiles(world.store))
            world.context.stopped = True

    world.at = at
    with pytest.raises(NotCommitted, match="its worker ends"):
        life.commit(world.rows(1))
    assert newest(world) == 2


def test_a_batch_with_an_unknown_outcome_is_not_acked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = SinkWorld(monkeypatch)
    life = opened(world)

    def at(step: str) -> None:
        if step == "look":
            world.at = lambda step: None
            files = MemoryFiles(world.store)
            retire(files, WRITER_ID, 1, "squall table --sweep", 0.0)
            files.put_if_absent(fence_path(WRITER_ID, 2), b"{")

    world.at = at
    with pytest.raises(NotCommitted, match="truncated or damaged") as raised:
        life.commit(world.rows(1))
    assert isinstance(raised.value.__cause__, UnreadableRecord)
