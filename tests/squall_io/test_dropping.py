"""Old partitions are dropped: whose rows are gone then, what stays, and what a kill at any step leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest

from squall.stores.local import LocalFiles
from squall_io.spark.delta.delta_log import DeltaLog
from squall_io.spark.delta.following import catch_up, enable
from squall_io.spark.delta.history import log_at
from squall_io.spark.delta.log_names import version_path
from squall_io.spark.manifest import rewriting
from squall_io.spark.manifest.claims import Superseded
from squall_io.spark.manifest.entries import BatchEntry, DataFile
from squall_io.spark.manifest.envelopes import FORMAT
from squall_io.spark.manifest.rewriting import RewriterBusy
from squall_io.spark.manifest.state import checkpoint_if_due, read_state
from squall_io.spark.manifest.tables import RESULTS, ROWS, TableRecord, agree_on_schema, open_table
from squall_io.spark.retention import dropping
from squall_io.spark.retention.counting import counter
from squall_io.spark.retention.dropping import CannotDrop, OldDays, day_column, days_before, drop
from squall_io.spark.retention.vacuum import vacuum
from squall_io.spark.rows.schema import parse_schema
from tests.squall_io.baton import Killed
from tests.squall_io.commit_script import small_and_in_order
from tests.squall_io.memory_files import MemoryFiles
from tests.squall_io.test_time_travel import put
from tests.squall_io.test_vacuum import Dies

DAY = 86_400.0
#: 2026-03-31, at noon.
NOW = 1_774_958_400.0
OLD, YOUNG, FIRST = "2026-02-28", "2026-03-30", "2026-03-01"


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `small_and_in_order`."""
    small_and_in_order(monkeypatch)


def now() -> float:
    return NOW


def new(log: bool = False, days: str = "day date") -> MemoryFiles:
    files = MemoryFiles()
    files.store.clock = NOW
    open_table(files, TableRecord(ROWS, "parquet", ("day",)))
    agree_on_schema(files, parse_schema(f"n bigint, {days}"))
    if log:
        enable(files, now)
    return files


def batch(files: MemoryFiles, number: int, *days: str, rows: int = 2) -> BatchEntry:
    """A batch with a file for each day; each file has one row, as `counted` says."""
    entry = put(files, number, *days, rows=rows)
    for path in entry.paths:
        files.store.write(path, b"0123456789")
    return entry


def counted(files: Sequence[DataFile]) -> dict[str, int]:
    return {file.path: 1 for file in files}


def run(files: MemoryFiles, age: float = 30 * DAY, **more: object) -> dropping.DroppedDays:
    return drop(files, age, "a test", now, counted, **more)  # type: ignore[arg-type]


def paths(files: MemoryFiles) -> set[str]:
    return {path for entry in read_state(files).entries for path in entry.paths}


def test_a_day_is_old_when_all_of_it_is() -> None:
    assert days_before(NOW, 30 * DAY) == date(2026, 3, 1)
    assert days_before(NOW, 30.5 * DAY) == date(2026, 3, 1)
    assert days_before(NOW, 30.6 * DAY) == date(2026, 2, 28)
    old = OldDays("Day", date(2026, 3, 1))
    assert old.has("data/day=2026-02-28/x.parquet") and not old.has("data/day=2026-03-01/x.parquet")
    assert not old.has("data/day=__HIVE_DEFAULT_PARTITION__/x.parquet") and not old.has("data/x.parquet")


def test_rows_of_old_days_are_gone_and_all_others_of_the_same_batches_stay() -> None:
    files = new()
    old, mixed, young = batch(files, 1, OLD, rows=7), batch(files, 2, OLD, YOUNG), batch(files, 3, YOUNG)
    empty = batch(files, 4, "__HIVE_DEFAULT_PARTITION__")
    done = run(files)
    assert (done.column, done.before, done.days) == ("day", date(2026, 3, 1), (date(2026, 2, 28),))
    assert (done.files, done.size, done.rows) == (2, 20, 8)
    assert paths(files) == {mixed.files[1].path, *young.paths, *empty.paths}
    state = read_state(files)
    assert sum(entry.rows for entry in state.entries) == 1 + 2 + 2
    assert state.counted.keys() >= {old.batch, mixed.batch}  # they are still taken
    [entry] = [entry for entry in state.entries if entry.replaces]
    assert entry.dropped == ((old.files[0].name, 7), (mixed.files[0].name, 1)) and entry.format > FORMAT
    assert old.files[0].path in files.store.files  # until a vacuum
    assert vacuum(files, 0.0, "a test", lambda: NOW + 1).files == 2
    assert run(files).files == 0


def test_a_dry_run_changes_nothing() -> None:
    files = new()
    batch(files, 1, OLD, YOUNG)
    before = dict(files.store.files)
    done = run(files, dry=True)
    assert (done.files, done.rows, done.days) == (1, None, (date(2026, 2, 28),))
    assert files.store.files == before


def test_the_delta_log_says_that_data_has_changed() -> None:
    files = new(log=True)
    mixed, whole = batch(files, 1, OLD, YOUNG), batch(files, 2, OLD)
    catch_up(files, now)
    run(files)
    lines = [json.loads(line) for line in files.read(version_path(2)).splitlines()]
    removed = {line["remove"]["path"]: line["remove"]["dataChange"] for line in lines if "remove" in line}
    assert removed == {mixed.files[0].path: True, whole.files[0].path: True}
    assert log_at(files, 2).live.keys() == {mixed.files[1].path}
    [info] = [line["commitInfo"] for line in lines if "commitInfo" in line]
    assert info["operation"] == "DELETE" and set(info["replaces"]) == {str(mixed.batch), str(whole.batch)}
    assert catch_up(files, now).version == 2


def test_a_batch_that_the_log_lacked_is_added_before_its_rows_are_dropped() -> None:
    files = new(log=True)
    one = batch(files, 1, OLD, YOUNG)
    catch_up(files, now)
    two = batch(files, 2, OLD, YOUNG)
    run(files)
    log = DeltaLog(files)
    log.refresh()
    assert log.live.keys() == {one.files[1].path, two.files[1].path}
    assert two.files[0].path in log_at(files, 2).live


def test_a_log_that_squall_did_not_write_is_named_after_the_rows_are_gone() -> None:
    files = new(log=True)
    batch(files, 1, OLD)
    files.put_if_absent(version_path(1), b'{"cdc": {}}\n')
    with pytest.raises(CannotDrop, match="the rows were dropped, but readers of the Delta log see them on"):
        run(files)
    assert paths(files) == set()


def test_many_files_are_dropped_in_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropping, "MOST_FILES", 4)
    files = new()
    for number in range(1, 6):
        batch(files, number, OLD, YOUNG)
    assert run(files).rows == 5
    made = [entry for entry in read_state(files).entries if entry.replaces]
    assert [len(entry.replaces) for entry in made] == [2, 2, 1] and len(paths(files)) == 5


@pytest.mark.parametrize("checkpoint", [False, True])
def test_killed_at_any_step_rows_are_there_or_gone_and_the_next_one_drops_the_rest(checkpoint: bool) -> None:
    for steps in range(500):
        files = new(log=True)
        entries = [batch(files, number, OLD, YOUNG) for number in (1, 2)]
        if checkpoint:
            assert checkpoint_if_due(files)
        catch_up(files, now)
        young = {entry.files[1].path for entry in entries}
        both = {path for entry in entries for path in entry.paths}
        try:
            drop(MemoryFiles(files.store, Dies(steps)), 30 * DAY, "a test", now, counted)
        except Killed:
            assert paths(files) in (both, young), steps
            files.store.clock += rewriting.QUIET + 1  # the dead one is quiet
            run(files)
            catch_up(files, now)
        else:
            break
        finally:
            assert steps == 0 or paths(files) == young
            log = DeltaLog(files)
            log.refresh()
            assert steps == 0 or log.live.keys() == young
    assert steps > 50


def test_a_second_one_is_refused_while_the_first_shows_signs_of_life_and_the_older_loses() -> None:
    files = new()
    batch(files, 1, OLD, YOUNG)
    found: list[Exception] = []

    def second(step: str) -> None:
        if step == "publish" and not found:
            try:
                run(files)
            except RewriterBusy as error:
                found.append(error)
            files.store.clock += rewriting.QUIET + 1
            run(files)

    with pytest.raises(Superseded):
        run(files, at=second)
    assert found and paths(files) == {path for path in paths(files) if YOUNG in path} != set()


def test_the_only_date_column_has_the_day_or_the_one_that_is_named() -> None:
    record = TableRecord(ROWS, "parquet", ("day", "Due", "country"))
    files = MemoryFiles()
    open_table(files, record)
    agree_on_schema(files, parse_schema("n bigint, day date, Due date, country string"))
    assert day_column(files, record, "due") == "Due"
    with pytest.raises(CannotDrop, match="several partition columns of type date: give one of 'day', 'Due'"):
        day_column(files, record, None)
    assert day_column(files, record, "COUNTRY") == "country"
    with pytest.raises(
        CannotDrop, match=r"no partition column n of type date or string, .* are 'day', 'Due', 'country'"
    ):
        day_column(files, record, "n")
    with pytest.raises(
        CannotDrop, match=r"no partition column of type date, so the age .* unknown: .* by --by day"
    ):
        run(new(days="day string"))
    with pytest.raises(CannotDrop, match=r"no partition column of type date, .* are 'day'$"):
        run(new(days="day int"))
    results = MemoryFiles()
    open_table(results, TableRecord(RESULTS, "parquet", ()))
    with pytest.raises(CannotDrop, match="holds versions of a result"):
        run(results)


def test_a_text_column_that_is_named_has_days_in_iso_form_or_nothing_is_dropped() -> None:
    files = new(days="day string")
    old, mixed = batch(files, 1, OLD), batch(files, 2, OLD, YOUNG, "__HIVE_DEFAULT_PARTITION__")
    assert run(files, column="day").files == 2
    assert paths(files) == {file.path for file in mixed.files[1:]} and old.files[0].path not in paths(files)
    for number, text in enumerate(("2026-2-28", "20260228", "yesterday", "2026-02-30", "2026-02-28%2013"), 3):
        files = new(days="day string")
        batch(files, 1, OLD)
        wrong = batch(files, number, text)
        before = dict(files.store.files)
        with pytest.raises(CannotDrop, match=f"the day of {wrong.files[0].path} is .*, which is no day as"):
            run(files, column="day")
        assert files.store.files == before


def test_rows_of_parquet_are_counted_by_the_end_of_each_file(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = LocalFiles(str(tmp_path))
    wanted = []
    for rows in (0, 3, 70_000):
        pq.write_table(pa.table({"n": list(range(rows))}), tmp_path / f"{rows}.parquet")
        wanted.append(DataFile(f"{rows}.parquet", (tmp_path / f"{rows}.parquet").stat().st_size, ""))

    def no_spark() -> None:
        raise AssertionError

    count = counter(files, TableRecord(ROWS, "parquet", ()), no_spark)  # type: ignore[arg-type]
    assert count(wanted) == {"0.parquet": 0, "3.parquet": 3, "70000.parquet": 70_000}
