"""A sink's task waits for unavailable storage, gives up on permanent errors, and never has a batch in the table twice."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from squall.stores.files import FilesRefused, FilesUnavailable
from squall.stores.java.jvm import JavaFailed
from squall_io.spark.manifest.claims import Superseded
from squall_io.spark.manifest.commit import BatchConflict
from squall_io.spark.manifest.layout import STAGING
from squall_io.spark.manifest.state import DUE
from squall_io.spark.manifest.tables import TableMismatch
from squall_io.spark.session.request import NoConnectServer
from squall_io.spark.sink.errors import UNKNOWN_TRIES, NotCommitted
from squall_io.spark.sink.sink_table import START_SECONDS
from squall_io.spark.sink.sink_writer import SinkWriter
from tests.squall_io.memory_files import Step
from tests.squall_io.sink_world import Killed, SinkWorld, gated

#: The steps of a batch, in order.
STEPS = ["write", "list", "check", "move", "publish", "look"]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SinkWorld:
    return SinkWorld(monkeypatch)


def opened(world: SinkWorld, **requests: Any) -> SinkWriter:
    life = world.life(**requests)
    life.open()
    world.steps.clear()
    return life


def away(calls: int, after: int, done: bool, error: type[Exception] = FilesUnavailable) -> Callable[..., Any]:
    """A gate that lets `after` calls through, and then fails this many; `done`: they were done, and the answers are lost."""
    count = [0]

    def gate(step: Step, effect: Callable[[], Any]) -> Any:
        count[0] += 1
        if after < count[0] <= after + calls:
            if done:
                effect()
            raise error(f"{step.call} {step.path}: away")
        return effect()

    return gate


def calls_of_a_batch(world: SinkWorld, life: SinkWriter) -> int:
    count = [0]

    def gate(step: Step, effect: Callable[[], Any]) -> Any:
        count[0] += 1
        return effect()

    with gated(world, gate):
        life.commit(world.rows(1))
    return count[0]


def test_a_batch_goes_through_its_steps_and_leaves_nothing_else(world: SinkWorld) -> None:
    life = opened(world)
    life.tidy(life.commit(world.rows(3)))
    assert world.steps == [*STEPS, "clear"]
    assert [(entry.rows, entry.schema) for entry in world.state().entries] == [(3, 1)]
    assert world.left() == set()
    assert not any(path.startswith(STAGING) for path in world.store.folders - {STAGING})


@pytest.mark.parametrize("done", [False, True], ids=["not done", "answer lost"])
@pytest.mark.parametrize("calls", [1, 5])
def test_an_unavailable_store_at_any_call_of_a_batch_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, done: bool, calls: int
) -> None:
    world = SinkWorld(monkeypatch)
    for after in range(calls_of_a_batch(world, opened(world))):
        world = SinkWorld(monkeypatch)
        life = opened(world)
        waited_from = world.time
        with gated(world, away(calls, after, done)):
            commit = life.commit(world.rows(2))
        life.tidy(commit)
        assert [entry.rows for entry in world.state().entries] == [2], f"away after {after} calls"
        assert world.time > waited_from and world.progress > 1
        # Temporary files of a write whose answer was lost are for the next owner to delete; see below.
        assert {path for path in world.left() if not path.startswith("_squall/tmp/")} == set()
        opened(world, incarnation=(1, 1))
        assert world.left() == set()


def test_a_sink_that_opens_reports_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SinkWorld(monkeypatch)
    said: dict[str, str] = {}
    world.at = lambda step: said.update({step: world.waits_for})
    opened(world)
    assert (said["open"], said["claim"], said["warm"]) == (
        "the table is opened",
        "the table is opened",
        "Spark's first write",
    )


def test_a_wait_and_its_duration_are_reported_until_it_is_over(world: SinkWorld) -> None:
    life = opened(world)
    said: list[str] = []
    fails = away(5, 1, False)

    def gate(step: Step, effect: Callable[[], Any]) -> Any:
        said.append(world.waits_for)
        return fails(step, effect)

    with gated(world, gate):
        life.commit(world.rows(2))
    while_away = [each for each in dict.fromkeys(said) if each]
    assert all(re.fullmatch(r"waiting for storage for \d+ s: .*: away", each) for each in while_away)
    seconds = [int(each.split()[4]) for each in while_away]
    assert seconds == sorted(set(seconds)) and seconds[-1] > 1
    assert world.waits_for == "", "it is there again"


@pytest.mark.parametrize("step", ["write", "list", "check", "move"])
def test_a_batch_refused_before_it_is_published_is_given_up_and_leaves_nothing(
    world: SinkWorld, step: str
) -> None:
    life = opened(world)

    def at(now: str) -> None:
        if now == step:
            raise FilesRefused("cannot rename it: no permission")

    world.at = at
    with pytest.raises(
        NotCommitted, match=r"of 2 rows is not in memory://store/table: cannot rename it: no permission"
    ):
        life.commit(world.rows(2))
    world.at = lambda step: None
    assert world.left() == set()
    life.tidy(life.commit(world.rows(5)))
    assert [entry.rows for entry in world.state().entries] == [5]


@pytest.mark.parametrize("step", ["publish", "look"])
@pytest.mark.parametrize("error", [FilesRefused, ValueError, FilesUnavailable])
def test_a_batch_that_may_be_in_the_table_is_never_given_up(
    world: SinkWorld, step: str, error: type[Exception]
) -> None:
    life = opened(world)
    left = [50]

    def at(now: str) -> None:
        if now == step and left[0]:
            left[0] -= 1
            raise error("not now")

    world.at = at
    life.tidy(life.commit(world.rows(2)))
    assert left == [0]
    assert [entry.rows for entry in world.state().entries] == [2]


def test_an_unknown_error_is_retried_a_few_times(world: SinkWorld) -> None:
    life = opened(world)
    world.spark_trouble = [RuntimeError("odd")] * UNKNOWN_TRIES
    with pytest.raises(NotCommitted, match=rf"tried {UNKNOWN_TRIES} times.*RuntimeError: odd"):
        life.commit(world.rows(2))
    assert world.left() == set()
    world.spark_trouble = [RuntimeError("odd")] * (UNKNOWN_TRIES - 1)
    life.tidy(life.commit(world.rows(3)))
    assert [entry.rows for entry in world.state().entries] == [3]


def test_the_remains_of_a_failed_job_are_not_taken_for_the_batch(world: SinkWorld) -> None:
    life = opened(world)
    world.spark_trouble = [ConnectionError("an executor is gone")] * 2
    life.tidy(life.commit(world.rows(2)))
    (entry,) = world.state().entries
    assert len(entry.files) == 1
    assert world.left() == set()
    assert len(set(world.written[-3:])) == 3  # each job has a folder of its own


def test_a_dead_spark_is_replaced_and_the_batch_is_there_once(world: SinkWorld) -> None:
    life = opened(world)
    life.tidy(life.commit(world.rows(1)))
    for step in STEPS:
        before = len(world.sessions)

        def at(now: str, step: str = step) -> None:
            if now == step:
                world.at = lambda step: None
                world.dead.add(world.sessions[-1])

        world.at = at
        life.tidy(life.commit(world.rows(2)))
        world.at = lambda step: None
        assert len(world.sessions) == before + 1, step
    assert [entry.rows for entry in world.state().entries] == [1] + [2] * len(STEPS)
    assert all(files.closed for files in world.opened[:-1]) and not world.opened[-1].closed
    assert world.left() == set()


def test_a_writers_session_that_a_server_has_forgotten_is_replaced_alone(world: SinkWorld) -> None:
    life = world.life()
    life.open()
    world.dead.add(world.writers[-1].session)
    life.tidy(life.commit(world.rows(3)))
    life.close()
    assert [entry.rows for entry in world.state().entries] == [3]
    assert len(world.sessions) == 1
    assert [writer.closed for writer in world.writers] == [True, True]


def test_opening_waits_for_a_session_server_and_not_for_a_java_that_does_not_start(
    world: SinkWorld,
) -> None:
    world.no_session = [NoConnectServer("it does not answer"), NoConnectServer("it does not answer")]
    world.life().open()
    assert world.steps.count("open") == 1
    world.no_session = [JavaFailed("no such memory"), JavaFailed("no such memory")]
    with pytest.raises(JavaFailed):
        world.life().open()
    assert len(world.no_session) == 1


def test_lost_files_are_written_again(world: SinkWorld) -> None:
    life = opened(world)

    def at(step: str) -> None:
        if step == "move":
            world.at = lambda step: None
            world.store.remove_below(STAGING)

    world.at = at
    life.tidy(life.commit(world.rows(2)))
    assert [entry.rows for entry in world.state().entries] == [2]
    assert world.left() == set()


def test_a_spark_that_writes_to_another_file_system_is_refused_at_the_start(world: SinkWorld) -> None:
    world.elsewhere = True
    started = world.time
    with pytest.raises(
        NotCommitted, match=r"master local\[\*\].*_squall/staging.*to a different file system"
    ):
        world.life().open()
    assert world.time == started
    assert world.leases[-1].released and world.opened[-1].closed


def test_a_start_whose_first_row_was_swept_by_a_new_owner_is_superseded(
    world: SinkWorld,
) -> None:
    def at(step: str) -> None:
        if step == "warm":
            world.at = lambda step: None
            world.life(incarnation=(2, 0)).open()
            world.elsewhere = True

    world.at = at
    with pytest.raises(Superseded, match="was taken over"):
        world.life().open()


def test_a_batch_without_any_file_is_given_up_with_the_reason(world: SinkWorld) -> None:
    life = opened(world)
    world.elsewhere = True
    tries = rf"tried {UNKNOWN_TRIES} times.*Spark has left no file in memory://store/table/_squall/staging"
    with pytest.raises(NotCommitted, match=tries):
        life.commit(world.rows(2))
    world.elsewhere = False
    assert world.left() == set()
    life.tidy(life.commit(world.rows(3)))
    assert [entry.rows for entry in world.state().entries] == [3]


def test_odd_errors_between_those_of_an_unavailable_store_are_not_added_up(world: SinkWorld) -> None:
    life = opened(world)
    away_or_odd: list[Exception] = [RuntimeError("odd"), FilesUnavailable("away")]
    world.spark_trouble = away_or_odd * (2 * UNKNOWN_TRIES)
    life.tidy(life.commit(world.rows(2)))
    assert [entry.rows for entry in world.state().entries] == [2]


@pytest.mark.parametrize("step", STEPS)
def test_a_task_superseded_at_any_step_acks_only_batches_that_count(
    world: SinkWorld, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    life = opened(world)

    def at(now: str) -> None:
        if now == step:
            world.at = lambda step: None
            world.life(incarnation=(2, 0)).open()

    world.at = at
    with pytest.raises(Superseded, match="was taken over"):
        life.commit(world.rows(2))
    jobs = len(world.written)
    with pytest.raises(Superseded):
        life.commit(world.rows(3))
    assert len(world.written) == jobs  # nothing is tried any more
    assert sum("was taken over" in record.message for record in caplog.records) == 1
    opened(world, incarnation=(3, 0))
    assert world.left() == set()


@pytest.mark.parametrize("step", ["write", "list", "check", "move", "publish", "look"])
def test_a_worker_that_ends_before_a_batch_is_published_omits_it_and_later_keeps_it(
    world: SinkWorld, step: str
) -> None:
    life = opened(world)

    def at(now: str) -> None:
        world.context.stopped |= now == step

    world.at = at
    if step in ("publish", "look"):  # its publication has begun
        life.tidy(life.commit(world.rows(2)))
    else:
        with pytest.raises(NotCommitted, match=r"batch .* of 2 rows is not in .*: its worker ends"):
            life.commit(world.rows(2))
    assert len(world.state().entries) == (step in ("publish", "look"))
    assert world.left() == set()


@pytest.mark.parametrize("step", ["write", "move", "publish", "look"])
def test_a_worker_that_ends_stops_waiting_for_storage(world: SinkWorld, step: str) -> None:
    life = opened(world)
    ends: list[float] = []

    def at(now: str) -> None:
        if now == step:
            if len(world.steps) > 40 and not ends:
                world.context.stopped = True
                ends.append(world.time)
            raise FilesUnavailable("away")

    world.at = at
    with pytest.raises(NotCommitted, match="its worker ends"):
        life.commit(world.rows(2))
    assert world.time == ends[0]
    assert len(world.state().entries) == (step == "look")


def test_a_start_that_waits_ends_with_its_worker(world: SinkWorld) -> None:
    def at(step: str) -> None:
        world.context.stopped = True
        raise FilesUnavailable("away")

    world.at = at
    started = world.time
    with pytest.raises(NotCommitted, match="cannot be opened: away; its worker ends"):
        world.life().open()
    assert world.time == started
    assert world.leases[-1].released


def test_a_foreign_file_under_a_batchs_name_is_reported_and_not_awaited(world: SinkWorld) -> None:
    life = opened(world)

    def at(step: str) -> None:
        if step == "publish":
            world.store.files.setdefault("_squall/commits/words-1.store.0.1.2.json", b"no record")

    life.tidy(life.commit(world.rows(1)))
    world.at = at
    with pytest.raises(NotCommitted, match=r"words-1\.store\.0\.1\.2\.json is truncated or damaged"):
        life.commit(world.rows(2))


def test_opening_waits_for_a_store_that_comes_back(world: SinkWorld) -> None:
    with gated(world, away(6, 4, done=True)):
        life = world.life()
        life.open()
    life.tidy(life.commit(world.rows(2)))
    assert [entry.rows for entry in world.state().entries] == [2]


def test_opening_gives_up_after_a_while_and_releases_everything(
    world: SinkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    started = world.time
    with (
        caplog.at_level(logging.WARNING),
        gated(world, away(10**9, 0, done=False)),
        pytest.raises(NotCommitted, match=r"the table /table cannot be opened \(tried .*: away"),
    ):
        world.life().open()
    assert START_SECONDS <= world.time - started < START_SECONDS + 10
    assert len(caplog.records) == 1  # not one line per attempt
    assert world.leases[-1].released and world.opened[-1].closed


def test_another_kind_of_table_is_reported_at_once(world: SinkWorld) -> None:
    opened(world)
    started = world.time
    with pytest.raises(
        TableMismatch, match=r"(?s)column 'count' is bigint, and string is wanted.*word string, count string"
    ):
        world.life(index=1, schema="word string, count string").open()
    assert world.time == started
    assert world.leases[-1].released and world.opened[-1].closed


def test_a_problem_is_reported_while_it_lasts_and_when_it_is_over(
    world: SinkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    life = opened(world)
    troubles: list[float] = []
    world.at = lambda step: troubles.append(life.trouble)
    with caplog.at_level(logging.INFO), gated(world, away(40, 2, done=False)):
        life.commit(world.rows(2))
    assert troubles[0] == 0.0 and max(troubles) > 100
    assert life.trouble == 0.0
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert 2 <= len(warnings) <= 5  # the first, and one a minute
    assert "batch words-1.store.0.1.1 of 2 rows is not in memory://store/table" in warnings[0]
    assert "is in memory://store/table after 40 failures" in caplog.text


def test_a_failed_cleanup_is_logged_and_the_next_owner_does_it(
    world: SinkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    life = opened(world)
    commit = life.commit(world.rows(2))
    with gated(world, away(10**9, 0, done=False)):
        life.tidy(commit)
    assert "is committed, but clearing up after it failed" in caplog.text
    opened(world, incarnation=(1, 1))
    assert [entry.rows for entry in world.state().entries] == [2]
    assert not any(path.startswith(f"{STAGING}/") for path in world.store.folders)


def test_the_remains_of_a_killed_task_are_removed_by_its_next_owner(world: SinkWorld) -> None:
    counted = 0
    for number, step in enumerate(STEPS):
        life = opened(world, incarnation=(1, number))

        def at(now: str, step: str = step) -> None:
            if now == step:
                raise Killed

        world.at = at
        with pytest.raises(Killed):
            life.commit(world.rows(2))
        world.at = lambda step: None
        opened(world, incarnation=(1, number))
        counted += step == "look"
        assert len(world.state().entries) == counted
        assert world.left() == set()


def test_the_remains_of_a_removed_task_are_swept_by_another_one(world: SinkWorld) -> None:
    gone = opened(world, index=1, parallelism=2)

    def at(step: str) -> None:
        if step == "publish":
            raise Killed

    world.at = at
    with pytest.raises(Killed):
        gone.commit(world.rows(2))
    world.at = lambda step: None
    assert world.left() != set()
    opened(world, incarnation=(2, 0), parallelism=1)
    assert world.left() == set()


def test_conflicts_end_a_batch_even_when_its_publication_has_begun(world: SinkWorld) -> None:
    life = opened(world)

    def at(step: str) -> None:
        if step == "publish":
            raise BatchConflict("another writes here")

    world.at = at
    with pytest.raises(NotCommitted, match="another writes here"):
        life.commit(world.rows(2))
    # Its entry may be in the table, so its files stay.
    assert any(path.startswith("data/squall-words-1.store.0.1.1-") for path in world.left())


def test_many_batches_are_merged_into_a_checkpoint(world: SinkWorld) -> None:
    life = opened(world)
    for _ in range(DUE + 20):
        life.tidy(life.commit(world.rows(1)))
    state = world.state()
    assert state.checkpoint.number == 1
    assert len(state.entries) == DUE + 20 and len(state.uncovered) <= 20
