"""The thread of a sink that keeps the Delta log: its rounds, played without the thread."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from squall.stores.files import FilesUnavailable
from squall_io.spark.delta import following
from squall_io.spark.delta.comparing import LogState, compare_log
from squall_io.spark.delta.following import enable, newest_version
from squall_io.spark.delta.log_names import version_path
from squall_io.spark.sink import delta_follower
from squall_io.spark.sink.delta_follower import COMPARE, LOOK, DeltaFollower
from tests.squall_io.memory_files import MemoryFiles
from tests.squall_io.sink_world import SinkWorld
from tests.squall_io.test_delta_log import commit, lines, only, table, wall

LOG = logging.getLogger("test")


def follower(files: MemoryFiles, now: float = 1_700_000_100.0) -> DeltaFollower:
    """A follower that has begun, without its thread."""
    made = DeltaFollower(lambda: files, ("day",), LOG, lambda: now)
    made.begin(newest_version(files))
    return made


def test_batches_of_a_round_are_one_version_and_the_lag_says_how_old_the_oldest_is() -> None:
    files = table()
    enable(files, wall())
    kept = follower(files)
    kept.round(0.0)
    assert newest_version(files) == 0
    for number in (1, 2):
        kept.add(commit(files, number, "day=1"))
    kept.round(5.0)
    assert newest_version(files) == 1 and len(only(lines(files, 1), "add")) == 2
    assert (kept.lag, compare_log(files)) == (0.0, LogState(1))


def test_what_others_left_out_is_found_by_comparing_now_and_then() -> None:
    files = table()
    enable(files, wall())
    commit(files, 1, "day=1")  # of a task that was killed
    kept = follower(files)
    kept.round(0.0)  # a task that begins compares
    assert len(only(lines(files, 1), "add")) == 1
    kept.add(commit(files, 2, "day=1"))
    kept.round(5.0)
    commit(files, 3, "day=1")
    kept.round(10.0)
    assert compare_log(files) == LogState(2, 1, 1_700_000_003.0)
    kept.round(COMPARE)
    assert compare_log(files) == LogState(3)


def test_what_a_killed_task_left_out_is_in_the_log_within_a_minute_though_all_is_idle() -> None:
    files = table()
    enable(files, wall())
    kept = follower(files)
    kept.round(0.0)
    commit(files, 1, "day=1")  # of a task that was killed
    for now in range(5, 61, 5):
        kept.round(float(now))
    assert compare_log(files) == LogState(1)


def test_what_other_tasks_add_themselves_is_compared_by_none(monkeypatch: pytest.MonkeyPatch) -> None:
    files = table()
    enable(files, wall())
    kept, other = follower(files), follower(files)
    for each in (kept, other):
        each.round(0.0)
    monkeypatch.setattr(delta_follower, "catch_up", lambda *args: pytest.fail("compared"))
    for number in range(1, 30):
        other.add(commit(files, number, "day=1"))
        for each in (kept, other):
            each.round(5.0 * number)
    assert compare_log(files) == LogState(29)


def test_a_batch_that_counts_without_a_known_entry_is_found_at_once() -> None:
    files = table()
    enable(files, wall())
    kept = follower(files)
    kept.round(0.0)
    commit(files, 1, "day=1")
    kept.add(None)
    kept.round(5.0)
    assert compare_log(files) == LogState(1)


def test_a_table_that_gets_a_log_later_is_followed_from_then_on() -> None:
    files = table()
    kept = follower(files)
    kept.add(commit(files, 1, "day=1"))
    kept.round(0.0)
    enable(files, wall())
    kept.round(LOOK - 1)
    assert newest_version(files) == 0
    kept.round(LOOK)
    assert compare_log(files) == LogState(1)


def test_while_the_store_is_away_batches_wait_and_none_is_lost_or_doubled() -> None:
    files = table()
    enable(files, wall())
    away = {"put_if_absent: rename"}

    def gate(step, effect):  # type: ignore[no-untyped-def]
        if step.call in away and "_delta_log" in step.path:
            effect()
            raise FilesUnavailable("no answer")
        return effect()

    kept = DeltaFollower(lambda: MemoryFiles(files.store, gate), ("day",), LOG, lambda: 1_700_000_100.0)
    kept.begin(0)
    kept.round(0.0)
    kept.add(commit(files, 1, "day=1"))
    with pytest.raises(FilesUnavailable):
        kept.round(5.0)
    assert kept.lag == 99.0
    away.clear()
    kept.add(commit(files, 2, "day=1"))
    kept.round(10.0)
    added = [add["path"] for version in (1, 2) for add in only(lines(files, version), "add")]
    assert len(added) == len(set(added)) == 2 and kept.lag == 0.0


def test_a_task_makes_checkpoints_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "CHECKPOINT_EVERY", 4)
    monkeypatch.setattr(delta_follower, "CHECKPOINT_EVERY", 4)
    files = table()
    enable(files, wall())
    kept = follower(files)
    for number in range(1, 12):
        kept.add(commit(files, number, "day=1"))
        kept.round(float(number))
    assert files.exists("_delta_log/_last_checkpoint")


def test_a_log_that_is_not_ours_ends_the_thread_with_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    files = table()
    enable(files, wall())
    files.put_if_absent(version_path(1), b'{"domainMetadata":{}}')
    kept = DeltaFollower(lambda: files, ("day",), LOG)
    kept.open()
    kept.close()  # which lets the thread make its last round
    assert "the Delta log is left as it is" in caplog.text and "00001.json" in caplog.text


def test_a_sink_of_default_settings_adds_its_batches_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    files = table()
    enable(files, wall())
    kept = DeltaFollower(lambda: files, ("day",), LOG)
    pauses: list[float | None] = []

    def wait(pause: float | None) -> bool:
        """The thread's pause; a batch is committed during the second one."""
        pauses.append(pause)
        if len(pauses) == 2:
            kept.add(commit(files, 1, "day=1"))
        return len(pauses) > 2

    monkeypatch.setattr(kept, "_stop", SimpleNamespace(wait=wait, set=lambda: None))
    kept.open()
    kept.close()
    assert pauses == [5.0] * 3 and compare_log(files) == LogState(1)


def test_a_sink_that_ends_has_told_the_log_of_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SinkWorld(monkeypatch)
    for incarnation in ((1, 0), (1, 1)):
        writer = world.life(incarnation)
        writer.open()
        writer.tidy(writer.commit(world.rows(2)))
        assert writer.behind == 0.0
        writer.close()
    assert compare_log(MemoryFiles(world.store)) == LogState(2)


def test_a_log_that_another_program_has_begun_does_not_keep_a_sink_from_its_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = SinkWorld(monkeypatch)
    world.store.write(version_path(0), b'{"domainMetadata":{}}')
    writer = world.life()
    writer.open()
    writer.tidy(writer.commit(world.rows(2)))
    writer.close()
    assert len(world.state().entries) == 1
    assert world.store.files[version_path(0)] == b'{"domainMetadata":{}}'
    assert "does not follow the table" in caplog.text
