"""A vacuum: what it deletes and what it leaves; killed at each step, two at once, beside leases and a Delta log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from squall_io.spark.delta.following import catch_up, enable, newest_version
from squall_io.spark.delta.log_names import version_path
from squall_io.spark.manifest.entries import BatchEntry, DataFile
from squall_io.spark.manifest.leases import ReaderLease, new_path, put_lease, seen_in
from squall_io.spark.manifest.state import read_state
from squall_io.spark.manifest.tables import RESULTS, ROWS, TableRecord, open_table
from squall_io.spark.manifest.vacuums import read_vacuums, vacuumed_in
from squall_io.spark.retention.vacuum import CannotVacuum, Vacuumed, vacuum
from tests.squall_io.baton import Killed
from tests.squall_io.memory_files import MemoryFiles, Step
from tests.squall_io.test_time_travel import START, put, table

T = TypeVar("T")

DAY = 86_400.0


def now() -> float:
    return START + 30 * DAY


def new(log: bool = False) -> MemoryFiles:
    files = table(log)
    files.store.clock = now()
    return files


def batch(files: MemoryFiles, number: int, *days: str, **more: object) -> BatchEntry:
    """A batch with its files; each has 10 bytes."""
    entry = put(files, number, *days, **more)  # type: ignore[arg-type]
    for path in entry.paths:
        files.store.write(path, b"0123456789")
    return entry


def merged(files: MemoryFiles, number: int, *entries: BatchEntry, age: float = 20 * DAY) -> BatchEntry:
    """A batch that replaces others, and that was committed so long ago."""
    names = tuple(str(entry.batch) for entry in entries)
    return batch(files, number, "1", replaces=names, committed=now() - age)


def run(files: MemoryFiles, retention: float = 7 * DAY, **more: object) -> Vacuumed:
    return vacuum(files, retention, "a test", now, **more)  # type: ignore[arg-type]


def data(files: MemoryFiles) -> set[str]:
    return {path for path in files.store.files if path.startswith("day=")}


def of(*entries: BatchEntry) -> set[str]:
    return {path for entry in entries for path in entry.paths}


def test_files_of_batches_that_were_replaced_long_ago_go_and_no_others() -> None:
    files = new()
    old, young, alone = batch(files, 1, "1", "2"), batch(files, 2, "1"), batch(files, 3, "1")
    first = merged(files, 4, old, age=8 * DAY)
    second = merged(files, 5, young, age=6 * DAY)
    assert run(files) == Vacuumed(1, 2, 20, recent=1, behind=0, held=(), dry=False)
    assert data(files) == of(young, alone, first, second)
    assert run(files) == Vacuumed(0, 0, 0, recent=1, behind=0, held=(), dry=False)
    assert run(files, 5 * DAY).batches == 1
    assert data(files) == of(alone, first, second)
    assert read_state(files).counted.keys() >= {old.batch, young.batch}  # they are still taken


def test_a_dry_run_says_what_would_go_and_changes_nothing() -> None:
    files = new()
    old = batch(files, 1, "1", "2")
    merged(files, 2, old)
    before = dict(files.store.files)
    assert run(files, dry=True) == Vacuumed(1, 2, 20, recent=0, behind=0, held=(), dry=True)
    assert files.store.files == before


def test_a_file_that_the_replacing_batch_keeps_stays_until_that_one_is_replaced_and_old() -> None:
    files = new()
    both = batch(files, 1, "1", "2")
    kept = put(files, 2, files=both.files[1:], replaces=(str(both.batch),), committed=now() - 20 * DAY)
    run(files)
    assert data(files) == of(kept)
    last = merged(files, 3, kept, age=DAY)
    run(files)
    assert data(files) == of(kept, last)
    run(files, DAY)
    assert data(files) == of(last)


def test_what_a_lease_holds_stays_and_is_named() -> None:
    files = new()
    one, two = batch(files, 1, "1"), batch(files, 2, "1")
    first = merged(files, 3, one)
    path = new_path()
    put_lease(files, path, ReaderLease("a reader", 5.0, seen=seen_in(read_state(files).counted.values())))
    second = merged(files, 4, two, first)
    found = run(files)
    assert (found.batches, found.files) == (1, 1)
    assert [(each.holder, each.since, each.batches) for each in found.held] == [("a reader", 5.0, 2)]
    assert data(files) == of(two, first, second)
    assert vacuumed_in(read_vacuums(files).values()) == {first.batch}  # earlier versions can be read on
    files.delete(path)
    run(files)
    assert data(files) == of(second)


def test_a_lease_that_comes_while_the_vacuum_works_finds_the_record_or_is_found() -> None:
    found = set()
    for step in ("read", "leases", "follow", "record", "look", "delete", "done"):
        files = new()
        old = batch(files, 1, "1", "2")
        merged(files, 2, old)
        gone: set[object] = set()

        def reader(at: str, files: MemoryFiles = files, gone: set[object] = gone, step: str = step) -> None:
            if at == step:
                put_lease(files, new_path(), ReaderLease("a reader", 5.0))
                gone |= vacuumed_in(read_vacuums(files).values())

        run(files, at=reader)
        assert gone or of(old) <= data(files), step
        found.add(bool(gone))
    assert found == {True, False}


class Dies:
    """A gate at which its actor dies after a number of steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, step: Step, effect: Callable[[], T]) -> T:
        self.left -= 1
        if self.left < 0:
            raise Killed
        return effect()


def test_killed_at_any_step_the_next_one_finishes_whatever_its_retention() -> None:
    recorded = 0
    for steps in range(500):
        files = new(log=True)
        old, alone = batch(files, 1, "1", "2"), batch(files, 2, "1")
        last = merged(files, 3, old)
        catch_up(files, now)
        try:
            vacuum(MemoryFiles(files.store, Dies(steps)), 7 * DAY, "a test", now)
        except Killed:
            assert of(last, alone) <= data(files)
            recorded += bool(read_vacuums(files))
            assert read_vacuums(files) or of(old) <= data(files)
            if not read_vacuums(files):
                run(files)
            else:
                run(files, 1000 * DAY)
            assert data(files) == of(last, alone), steps
            assert all(record.done for record in read_vacuums(files).values())
        else:
            break
    assert recorded > 5 and data(files) == of(last, alone)


def test_two_at_once_delete_the_same_once_and_both_end() -> None:
    for step in ("read", "leases", "follow", "record", "look", "delete", "deleted", "done"):
        files = new(log=True)
        old = batch(files, 1, "1", "2")
        last = merged(files, 2, old)
        catch_up(files, now)
        other: list[Vacuumed] = []

        def between(
            at: str, files: MemoryFiles = files, step: str = step, other: list[Vacuumed] = other
        ) -> None:
            if at == step and not other:
                other.append(run(files))

        run(files, at=between)
        assert other and data(files) == of(last), step
        assert all(record.done for record in read_vacuums(files).values())


def test_what_the_delta_log_still_has_stays_until_the_log_has_followed() -> None:
    files = new(log=True)
    one, two = batch(files, 1, "1"), batch(files, 2, "1")
    first = merged(files, 3, one)
    catch_up(files, now)
    second = batch(files, 4, "1")
    catch_up(files, now)
    late = merged(files, 5, two, second)
    version = newest_version(files)
    shown = run(files, dry=True)
    assert (shown.batches, shown.behind) == (1, 2) and newest_version(files) == version
    found = run(files)
    assert (found.batches, found.files, found.behind) == (1, 1, 2)
    assert data(files) == of(two, first, second, late)
    assert run(files) == Vacuumed(2, 2, 20, recent=0, behind=0, held=(), dry=False)


def test_a_log_that_squall_did_not_write_is_named_and_nothing_goes() -> None:
    files = new(log=True)
    old = batch(files, 1, "1")
    merged(files, 2, old)
    catch_up(files, now)
    files.put_if_absent(version_path(newest_version(files) + 1), b'{"cdc": {}}\n')
    with pytest.raises(
        CannotVacuum, match=r"nothing was deleted, .* the Delta log .*\.json .* --rebuild-delta"
    ):
        run(files)
    assert of(old) <= data(files) and not read_vacuums(files)


def test_a_table_without_replaced_batches_and_one_of_results_have_nothing_to_vacuum() -> None:
    files = new()
    enable(files, now)
    batch(files, 1, "1")
    assert run(files) == Vacuumed(0, 0, 0, recent=0, behind=0, held=(), dry=False)
    results = MemoryFiles()
    open_table(results, TableRecord(RESULTS, "parquet", ()))
    with pytest.raises(CannotVacuum, match="holds versions of a result, of which each run deletes old ones"):
        run(results)


def test_progress_is_reported_as_files_go(monkeypatch: pytest.MonkeyPatch) -> None:
    from squall_io.spark.retention import vacuum as module

    monkeypatch.setattr(module, "_AT_ONCE", 2)
    files = new()
    merged(files, 2, batch(files, 1, "1", "2", "3"))
    seen: list[tuple[int, int, int]] = []
    run(files, progress=lambda done, total, size: seen.append((done, total, size)))
    assert seen == [(2, 3, 20), (3, 3, 30)]


@pytest.mark.parametrize("layout", [1, 2])
def test_folders_of_partitions_go_when_nothing_is_left_in_them(layout: int) -> None:
    files = new()
    if layout == 2:
        files = MemoryFiles()
        files.store.clock = now()
        open_table(files, TableRecord(ROWS, "parquet", ("day",), layout=2))
    below = "data/" if layout == 2 else ""
    name = "squall-words-1.sink.0.1.1-1-00000.parquet"
    paths = [f"{below}day=1/hour=7/{name}", f"{below}day=1/hour=8/{name}", f"{below}day=2/hour=7/{name}"]
    old = put(files, 1, files=tuple(DataFile(path, 10, "sha256:00") for path in paths))
    for path in (*paths, f"{below}day=1/hour=8/of another batch"):
        files.store.write(path, b"0123456789")
    put(files, 2, files=(), replaces=(str(old.batch),), committed=now() - 20 * DAY)
    assert run(files).files == 3
    left = {folder for folder in files.store.folders if "day=" in folder}
    assert left == {f"{below}day=1", f"{below}day=1/hour=8"}
    assert ("data" in files.store.folders) == (layout == 2)
