"""A reprocessed result is published once, by one step, completely, whatever dies, freezes or interferes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from squall.stores.files import Files, FilesUnavailable
from squall_io.spark.manifest.envelopes import UnreadableRecord
from squall_io.spark.manifest.layout import RESULTS, TABLE, VERSIONS, numbered
from squall_io.spark.manifest.tables import RESULTS as HOLDS_VERSIONS
from squall_io.spark.manifest.tables import ROWS, TableMismatch, TableRecord, open_table, read_table
from squall_io.spark.results import versions
from squall_io.spark.results.versions import Attempt, AttemptLost, Published, Run, RunInput, Version
from tests.squall_io.versions_world import Disk, Killed, Stepping, interleaved, steps_of

DAY = 24 * 3600.0


def run_of(job: str) -> Run:
    return Run("reprocess", job, f"code of {job}", (RunInput("/in", "a snapshot", 10),))


RUN, OTHER = run_of("recount.py"), run_of("other.py")
AS_CSV = replace(OTHER, table=TableRecord(HOLDS_VERSIONS, "csv", ("day",)))


def write(files: Files, run: Run, attempt: Attempt) -> None:
    """Stands in for Spark."""
    for part in range(2):
        data = f"{run.job} {attempt.name} {part}".encode()
        files.put_if_absent(f"{attempt.rows}/day={part}/part-{part}.parquet", data)


def go(files: Files, run: Run) -> Published:
    """A run from its beginning to its end, as the command does it."""
    start = versions.begin(files, run)
    if isinstance(start, Version):
        published = Published(start, False)
    else:
        write(files, run, start)
        published = versions.publish(files, start, run, 2, "n int", wall=lambda: 7.0)
    versions.tidy(files, run.id)
    return published


def check_whole(disk: Disk) -> list[Version]:
    """Check that every remaining version has all its files; return the versions, the oldest first."""
    newest = versions.newest_number(disk)
    found = [versions.read_version(disk, number) for number in range(1, newest + 1)]
    for version in found:
        assert version.pruned or len(version.files) == 2
        for file in version.files:
            assert disk.digest(file.path) == file.digest and len(disk.read(file.path)) == file.size
    assert not newest or not found[-1].pruned
    return found


def go_all(disk: Disk, runs: tuple[Run, ...]) -> None:
    for run in runs:
        go(disk, run)


def begun(files: Files, run: Run) -> Attempt:
    """An attempt of a run whose result does not exist."""
    attempt = versions.begin(files, run)
    assert isinstance(attempt, Attempt)
    return attempt


def check_nothing_is_left(disk: Disk) -> None:
    live = {version.attempt for version in versions.kept_versions(disk)}
    assert {status.name for status in disk.list(RESULTS)} == live


def test_a_run_becomes_a_version_with_its_rows_files_and_origin() -> None:
    disk = Disk()
    published = go(disk, RUN)

    assert published.ours and published.version == versions.newest_version(disk)
    version = published.version
    assert (version.number, version.run, version.rows, version.schema) == (1, RUN.id, 2, "n int")
    assert (version.job, version.inputs, version.published) == ("recount.py", RUN.inputs, 7.0)
    assert [file.path for file in version.files] == [
        f"{version.folder}/day={part}/part-{part}.parquet" for part in (0, 1)
    ]
    check_whole(disk)
    check_nothing_is_left(disk)


def test_the_same_run_again_publishes_nothing_and_another_one_does() -> None:
    disk = Disk()
    first = go(disk, RUN)

    assert go(disk, RUN) == Published(first.version, False)
    assert go(disk, OTHER).version.number == 2
    assert go(disk, RUN).version.number == 3, "it is not the newest any more"


@pytest.mark.parametrize(
    "changed",
    [
        {"code": "new code"},
        {"inputs": (RunInput("/in", "more rows", 11),)},
        {"inputs": (RunInput("/elsewhere", "a snapshot", 10),)},
        {"settings": {"key": ["word"]}},
        {"command": "replay"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_runs_differ_when_their_results_may(changed: dict[str, Any]) -> None:
    assert replace(RUN, **changed).id != RUN.id
    assert replace(RUN, job="/elsewhere/recount.py").id == RUN.id
    until_now = RunInput("/in", "a snapshot", 10, until=3.0)
    assert replace(RUN, inputs=(until_now,)).id == RUN.id, "the same batches"


def test_the_newest_two_versions_stay_and_older_ones_leave_only_a_record() -> None:
    disk = Disk()
    for number in range(5):
        go(disk, run_of(f"job {number}"))

    found = check_whole(disk)
    assert [version.pruned for version in found] == [True, True, True, False, False]
    assert [version.job for version in found] == [f"job {number}" for number in range(5)]
    check_nothing_is_left(disk)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_run_killed_at_any_call_is_finished_or_replaced_by_the_next_one(before: bool) -> None:
    def kill() -> None:
        raise Killed

    def ready() -> Disk:
        disk = Disk()
        for number in range(3):
            go(disk, run_of(f"job {number}"))
        return disk

    for step in range(1, steps_of(ready, lambda files: go(files, RUN)) + 1):
        disk = ready()
        with pytest.raises(Killed):
            go(Stepping(disk, step, kill, before), RUN)
        found = check_whole(disk)
        assert [version.run for version in found].count(RUN.id) <= 1

        published = go(disk, RUN)
        found = check_whole(disk)
        assert [version.run for version in found].count(RUN.id) == 1, step
        assert published.version == found[-1] and published.version.number == 4
        disk.clock += DAY + 1
        versions.tidy(disk, "")
        check_nothing_is_left(disk)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_publishing_continues_after_any_call_whose_answer_was_lost(before: bool) -> None:
    def lose() -> None:
        raise FilesUnavailable("no answer")

    def publish(files: Files, attempt: Attempt) -> Published:
        return versions.publish(files, attempt, RUN, 2, "n int", wall=lambda: 7.0)

    def ready() -> tuple[Disk, Attempt]:
        disk = Disk()
        attempt = begun(disk, RUN)
        write(disk, RUN, attempt)
        return disk, attempt

    whole = ready()
    for step in range(1, steps_of(lambda: whole[0], lambda files: publish(files, whole[1])) + 1):
        disk, attempt = ready()
        with pytest.raises(FilesUnavailable):
            publish(Stepping(disk, step, lose, before), attempt)
        versions.settle(disk)  # another run may publish it before the retry
        published = publish(disk, attempt)
        assert published.ours
        assert [version.run for version in check_whole(disk)] == [RUN.id], step
        versions.tidy(disk, RUN.id)
        check_nothing_is_left(disk)


@pytest.mark.parametrize(
    "others",
    [(RUN,), (OTHER,), (RUN, OTHER), (OTHER, RUN)],
    ids=["same", "other", "same-other", "other-same"],
)
def test_two_at_once_publish_each_run_once_and_both_get_a_version(others: tuple[Run, ...]) -> None:
    steps = steps_of(Disk, lambda files: go(files, RUN))
    for step in range(1, steps + 1):
        disk = Disk()
        files = Stepping(disk, step, partial(go_all, disk, others))
        assert go(files, RUN).version.run == RUN.id
        runs = [version.run for version in check_whole(disk)]
        assert runs.count(OTHER.id) == (OTHER in others), step
        assert all(one != next_one for one, next_one in itertools.pairwise(runs)), (step, "published twice")
        versions.tidy(disk, "")
        disk.clock += DAY + 1
        versions.tidy(disk, "")
        check_nothing_is_left(disk)


def test_a_run_frozen_for_days_at_any_call_is_published_completely_or_reported_as_lost() -> None:
    lost = 0
    for step in range(1, steps_of(Disk, lambda files: go(files, RUN)) + 1):
        disk = Disk()

        def days_pass(disk: Disk = disk) -> None:
            disk.clock += DAY + 1
            for number in range(4):
                go(disk, run_of(f"job {number}"))

        try:
            published = go(Stepping(disk, step, days_pass), RUN)
        except AttemptLost:
            lost += 1
            assert RUN.id not in [version.run for version in check_whole(disk)]
        else:
            found = check_whole(disk)
            assert [version.run for version in found].count(RUN.id) == 1, step
            assert found[published.version.number - 1].run == RUN.id
        disk.clock += DAY + 1
        go(disk, run_of("the last one"))
        check_nothing_is_left(disk)
    assert lost > 0


def test_a_forced_run_killed_at_any_call_and_forced_again_becomes_one_version() -> None:
    def forced(files: Files) -> None:
        go(files, versions.again(files, RUN))

    def ready() -> Disk:
        disk = Disk()
        go(disk, RUN)
        return disk

    def kill() -> None:
        raise Killed

    for after in (False, True):
        for step in range(1, (steps := steps_of(ready, forced)) + 1):
            disk = ready()
            with pytest.raises(Killed):
                forced(Stepping(disk, step, kill, before=not after))
            if after and step == steps:
                continue  # nothing was left to do: it has ended
            forced(disk)
            assert len(check_whole(disk)) == 2, (step, after)
            check_nothing_is_left(disk)
            forced(disk)
            assert len(check_whole(disk)) == 3, "a command that has ended may be repeated"


def test_a_sweeper_killed_at_any_call_leaves_nothing_permanent_and_harms_nothing() -> None:
    def kill() -> None:
        raise Killed

    def ready() -> Disk:
        disk = Disk()
        go(disk, RUN)
        write(disk, OTHER, begun(disk, OTHER))  # ... and was killed
        disk.clock += DAY + 1
        return disk

    assert steps_of(ready, lambda files: versions.tidy(files, "")) > 5
    for step in range(1, steps_of(ready, lambda files: versions.tidy(files, "")) + 1):
        disk = ready()
        with pytest.raises(Killed):
            versions.tidy(Stepping(disk, step, kill), "")
        check_whole(disk)
        versions.settle(disk)
        versions.tidy(disk, "")
        assert [version.run for version in check_whole(disk)] == [RUN.id]
        check_nothing_is_left(disk)


@pytest.mark.parametrize("publisher_first", [True, False], ids=["publisher-first", "sweeper-first"])
def test_a_sweeper_and_a_publisher_that_it_presumes_dead_never_both_win(publisher_first: bool) -> None:
    def ready() -> tuple[Disk, Callable[[Any], object], Callable[[Any], object]]:
        disk = Disk()
        go(disk, RUN)
        attempt = begun(disk, OTHER)
        write(disk, OTHER, attempt)
        disk.clock += DAY + 1

        def publish(files: Any) -> object:
            return versions.publish(files, attempt, OTHER, 2, "n int")

        def sweep(files: Any) -> object:
            versions.settle(files)
            return versions.tidy(files, "")

        return (disk, publish, sweep) if publisher_first else (disk, sweep, publish)

    lost = 0
    for how, disk, one, two in interleaved(ready):
        published = one if publisher_first else two
        there = [version.run for version in check_whole(disk)]
        if isinstance(published, AttemptLost):
            lost += 1
            assert there == [RUN.id], how
        else:
            assert isinstance(published, Published) and there == [RUN.id, OTHER.id], how
        versions.settle(disk)
        versions.tidy(disk, "")
        check_nothing_is_left(disk)
    assert lost > 0


def test_two_attempts_of_a_run_at_once_publish_one_version() -> None:
    def ready() -> tuple[Disk, Callable[[Any], object], Callable[[Any], object]]:
        disk = Disk()
        return disk, lambda files: go(files, RUN), lambda files: go(files, RUN)

    for how, disk, one, two in interleaved(ready):
        assert isinstance(one, Published) and isinstance(two, Published), how
        assert [version.run for version in check_whole(disk)] == [RUN.id], how
        assert one.version == two.version, how
        check_nothing_is_left(disk)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_giving_up_at_any_call_keeps_published_results_and_those_in_progress(before: bool) -> None:
    def fail() -> None:
        raise FilesUnavailable("no answer")

    for step in range(1, steps_of(Disk, lambda files: go(files, RUN)) + 1):
        disk = Disk()
        attempt = begun(disk, RUN)
        write(disk, RUN, attempt)
        with suppress(FilesUnavailable):
            versions.publish(Stepping(disk, step, fail, before), attempt, RUN, 2, "n int")
        versions.give_up(disk, attempt)
        versions.settle(disk)
        there = check_whole(disk)
        assert disk.exists(attempt.folder) == bool(there), step
        go(disk, RUN)
        assert [version.run for version in check_whole(disk)] == [RUN.id], step
        check_nothing_is_left(disk)


def test_an_attempt_with_a_recent_sign_of_activity_is_not_swept() -> None:
    disk = Disk()
    attempt = begun(disk, OTHER)
    write(disk, OTHER, attempt)
    for _ in range(3):
        disk.clock += DAY - 1
        versions.keep_alive(disk, attempt)
        go(disk, RUN)

    assert versions.publish(disk, attempt, OTHER, 2, "n int").version.number == 2
    check_whole(disk)


def test_missing_rows_are_not_published() -> None:
    disk = Disk()
    attempt = begun(disk, RUN)

    with pytest.raises(AttemptLost, match="Nothing was published: run it again"):
        versions.publish(disk, attempt, RUN, 2, "n int")
    assert versions.publish(disk, attempt, RUN, 0, "n int").version.files == (), "a result may be empty"


def test_a_damaged_or_newer_newest_version_is_named() -> None:
    disk = Disk()
    go(disk, RUN)
    path = numbered(VERSIONS, 1)
    whole = disk.content[path]

    disk.content[path] = whole[: len(whole) // 2]
    with pytest.raises(UnreadableRecord, match=f"{path} is truncated or damaged"):
        versions.newest_version(disk)
    disk.content[path] = whole.replace(b'"format": 1', b'"format": 2')
    with pytest.raises(UnreadableRecord, match="read it with a newer Squall"):
        versions.newest_version(disk)
    disk.replace(numbered(VERSIONS, 2), whole)
    with pytest.raises(
        UnreadableRecord, match=r"versions/2.json is damaged: it holds the record of version 1"
    ):
        versions.newest_version(disk)


def test_a_damaged_seal_of_another_run_stops_no_run() -> None:
    disk = Disk()
    disk.put_if_absent(f"{RESULTS}/{OTHER.id}-{'0' * 16}.seal.json", b"{")

    assert go(disk, RUN).ours


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_first_run_killed_at_any_call_binds_nothing_unless_its_result_is_published(before: bool) -> None:
    def kill() -> None:
        raise Killed

    bound = 0
    steps = steps_of(Disk, lambda files: go(files, RUN))
    for step in range(1, steps + 1):
        disk = Disk()
        with pytest.raises(Killed):
            go(Stepping(disk, step, kill, before), RUN)
        versions.settle(disk)
        if versions.newest_number(disk):
            bound += 1
            with pytest.raises(TableMismatch, match="is already a different table"):
                go(disk, AS_CSV)
        else:
            assert go(disk, AS_CSV).version.number == 1, step
            assert read_table(disk) == AS_CSV.table
        [first] = check_whole(disk)
        assert first.table == read_table(disk), step
    assert 0 < bound < steps


def test_of_two_first_runs_at_once_with_two_formats_one_is_published_and_the_other_fails() -> None:
    def ready() -> tuple[Disk, Callable[[Any], object], Callable[[Any], object]]:
        disk = Disk()
        return disk, partial(go_or_give_up, run=RUN), partial(go_or_give_up, run=AS_CSV)

    won = set()
    for how, disk, one, two in interleaved(ready):
        [lost] = [each for each in (one, two) if isinstance(each, TableMismatch)]
        [published] = [each for each in (one, two) if each is not lost]
        assert isinstance(published, Published), (how, published)
        assert check_whole(disk) == [published.version], how
        assert read_table(disk) == published.version.table, how
        check_nothing_is_left(disk)
        won.add(published.version.run)
    assert won == {RUN.id, AS_CSV.id}


def go_or_give_up(files: Files, run: Run) -> Published:
    """As in the command: a run that fails deletes the files it has written."""
    start = versions.begin(files, run)
    assert isinstance(start, Attempt)
    write(files, run, start)
    try:
        published = versions.publish(files, start, run, 2, "n int")
    except TableMismatch:
        versions.give_up(files, start)
        raise
    versions.tidy(files, run.id)
    return published


def test_no_version_is_added_to_a_table_that_a_stream_has_made_meanwhile() -> None:
    disk = Disk()
    attempt = begun(disk, RUN)
    write(disk, RUN, attempt)
    stream = open_table(disk, TableRecord(ROWS, "parquet", ()))
    with pytest.raises(TableMismatch, match="batches of a stream"):
        versions.publish(disk, attempt, RUN, 2, "n int")
    versions.give_up(disk, attempt)
    assert list(disk.content) == [TABLE] and read_table(disk) == stream


def test_a_run_that_gives_up_before_anything_is_published_leaves_no_file() -> None:
    disk = Disk()
    attempt = begun(disk, RUN)
    write(disk, RUN, attempt)
    versions.give_up(disk, attempt)
    assert disk.content == {}
