"""What a table held at a version of its log, or at a moment: what `read_committed` chooses then, without Spark."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from squall_io.spark.delta import following
from squall_io.spark.delta.actions import ForeignLog
from squall_io.spark.delta.following import catch_up, enable
from squall_io.spark.delta.history import KeptVersions, NoVersion, kept_versions, last_versions
from squall_io.spark.delta.log_names import version_path
from squall_io.spark.manifest.entries import BatchEntry, DataFile, encode_entry
from squall_io.spark.manifest.layout import BatchName, WriterId
from squall_io.spark.manifest.state import read_state
from squall_io.spark.manifest.tables import RESULTS, ROWS, TableRecord, agree_on_schema, open_table
from squall_io.spark.manifest.vacuums import VacuumRecord, put_vacuum, read_vacuums
from squall_io.spark.reading.committed import choose
from squall_io.spark.reading.moments import ALWAYS, Span, WrongMoment
from squall_io.spark.reading.points import NOW, Point, originals_at
from squall_io.spark.results.versions import Attempt, Run, begin, publish, tidy
from squall_io.spark.rows.schema import parse_schema
from tests.squall_io.memory_files import MemoryFiles

WRITER = WriterId.of("words-1", "sink", 0)
START = 1_700_000_000.0


def table(log: bool = True) -> MemoryFiles:
    files = MemoryFiles()
    open_table(files, TableRecord(ROWS, "parquet", ("day",)))
    agree_on_schema(files, parse_schema("n bigint, day string"))
    if log:
        enable(files, lambda: START)
    return files


def put(store: MemoryFiles, number: int, *days: str, rows: int = 1, **more: object) -> BatchEntry:
    """A batch that is committed `number` seconds after the start, with a file in the folder of each day."""
    batch = BatchName(WRITER, 1, number)
    data = tuple(
        DataFile(f"day={day}/{batch.data_file(1, at, '.parquet')}", 10, "sha256:0")
        for at, day in enumerate(days)
    )
    entry = BatchEntry(batch, "words", "words-1", "sink", (1, 0), 1, rows, data, START + number)
    entry = replace(entry, **more)  # type: ignore[arg-type]
    assert store.put_if_absent(batch.commit, encode_entry(entry))
    return entry


def paths(files: MemoryFiles, point: Point = NOW) -> set[str]:
    """The files that a reader reads."""
    return {part.path for batch in choose(files, point=point).inside for part in batch.parts}


def wall() -> Callable[[], float]:
    moments = itertools.count(1_700_000_100)
    return lambda: float(next(moments))


def history() -> tuple[MemoryFiles, list[BatchEntry]]:
    """Version 1 has two batches; 2 a third one; in 3 a compaction has replaced the first two; in 4 day 2 is dropped of it, by
    an entry that keeps the file of day 1; 5 has one more batch."""
    files = table()
    one, two = put(files, 1, "1", "2"), put(files, 2, "2", rows=10)
    catch_up(files, wall())
    three = put(files, 3, "3", rows=100)
    catch_up(files, wall())
    merged = put(files, 4, "1", "2", rows=11, replaces=(str(one.batch), str(two.batch)))
    catch_up(files, wall())
    dropped = ((merged.files[1].name, 10),)
    kept = put(files, 5, rows=1, files=merged.files[:1], replaces=(str(merged.batch),), dropped=dropped)
    catch_up(files, wall())
    last = put(files, 6, "1", rows=1000)
    catch_up(files, wall())
    return files, [one, two, three, merged, kept, last]


def of(*entries: BatchEntry) -> set[str]:
    return {path for entry in entries for path in entry.paths}


def test_each_version_is_read_as_the_log_had_it() -> None:
    files, [one, two, three, merged, kept, last] = history()
    held = [
        set(),
        of(one, two),
        of(one, two, three),
        of(three, merged),
        of(three, kept),
        of(three, kept, last),
    ]
    for version, wanted in enumerate(held):
        assert paths(files, Point(version)) == wanted, version
    assert paths(files) == held[-1]


def test_each_moment_is_read_as_the_table_was_then() -> None:
    files, [one, two, three, merged, kept, last] = history()
    held = [
        of(one),
        of(one, two),
        of(one, two, three),
        of(three, merged),
        of(three, kept),
        of(three, kept, last),
    ]
    for number, wanted in enumerate(held, start=1):
        assert paths(files, Point(timestamp=START + number)) == wanted, number
        assert paths(files, Point(timestamp=START + number + 0.5)) == wanted, number
    with pytest.raises(
        NoVersion, match=r"had no rows yet at 1700000000\.5 .* its first batch is from 1700000001\.0"
    ):
        paths(files, Point(timestamp=START + 0.5))


def test_the_last_versions_are_shown_with_what_they_did() -> None:
    files, _ = history()
    shown = last_versions(files, 3, lambda: read_state(files).counted)
    assert [(each.number, each.batches, each.replaced, each.rows, each.files) for each in shown] == [
        (5, 1, 0, 1101, 3),
        (4, 1, 1, 101, 2),
        (3, 1, 2, 111, 3),
    ]
    assert [each.operation for each in last_versions(files, 99, lambda: read_state(files).counted)] == [
        "WRITE",
        "DELETE",
        "OPTIMIZE",
        *["WRITE"] * 2,
        "CREATE TABLE",
    ]


def test_a_version_that_is_not_there_is_refused_and_the_others_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, _ = history()
    with pytest.raises(
        NoVersion, match=r"version 6 of .* is not there yet: the newest version is 5, .* kept is 0"
    ):
        paths(files, Point(6))
    monkeypatch.setattr(following, "CHECKPOINT_EVERY", 3)
    files.store.clock += following.RETAINED + 100
    last = put(files, 7, "9")
    catch_up(files, time.time)
    assert kept_versions(files) == KeptVersions(6, 6)
    assert last.paths <= paths(files, Point(6))
    with pytest.raises(
        NoVersion, match=r"version 5 of .* is not kept any more: the newest .* is 6, .* kept is 6"
    ):
        paths(files, Point(5))
    [shown] = last_versions(files, 5, lambda: read_state(files).counted)
    assert (shown.number, shown.rows) == (6, 1102)


def test_a_table_without_a_log_has_moments_and_says_that_it_has_no_versions() -> None:
    files = table(log=False)
    one = put(files, 1, "1")
    put(files, 2, "1")
    assert paths(files, Point(timestamp=START + 1)) == of(one)
    with pytest.raises(
        NoVersion, match="has no Delta log, so it has no versions: give a timestamp, or `squall table"
    ):
        paths(files, Point(0))


def test_a_version_with_files_that_the_manifest_lacks_is_not_read_in_part() -> None:
    files, [_, _, three, *_] = history()
    files.store.remove(three.batch.commit)
    with pytest.raises(ForeignLog, match=r"version 2 of .* has files of no committed batch, such as day=3/"):
        paths(files, Point(2))
    assert not three.paths & paths(files, Point(1))


def test_a_log_of_which_old_versions_are_gone_only_in_part_begins_behind_the_gap() -> None:
    files, _ = history()
    files.store.remove(version_path(2))
    with pytest.raises(NoVersion, match="oldest that is kept is 6"):  # it has no checkpoint to begin with
        paths(files, Point(4))


def test_of_a_table_of_results_a_kept_version_is_read() -> None:
    files = MemoryFiles()
    open_table(files, TableRecord(RESULTS, "parquet", ()))
    for number in (1, 2, 3):
        run = Run("reprocess", f"job{number}.py", f"sha256:{number}", ())
        attempt = begin(files, run)
        assert isinstance(attempt, Attempt)
        files.put_if_absent(f"{attempt.rows}/part-0.parquet", b"123")
        published = publish(files, attempt, run, number, "n int", wall=partial(float, number))
        tidy(files, published.version.run)

    def rows(point: Point) -> list[int]:
        return [batch.rows for batch in choose(files, point=point).inside]

    assert (rows(NOW), rows(Point(2)), rows(Point(3))) == ([3], [2], [3])
    assert (rows(Point(timestamp=2.5)), rows(Point(timestamp=9.0))) == ([2], [3])
    for version, why in ((1, "is not kept any more"), (4, "is not there yet")):
        with pytest.raises(
            NoVersion, match=f"version {version} of .* {why}: the newest version is 3, .* kept is 2"
        ):
            rows(Point(version))
    with pytest.raises(
        NoVersion, match=r"no version of .* from 1\.5 .* or earlier: the newest .* published at 2\.0"
    ):
        rows(Point(timestamp=1.5))


def test_a_point_is_one_of_version_and_timestamp_and_stands_alone() -> None:
    assert Point.of(None, None, Span(1.0)) == NOW
    assert Point.of(3, None, ALWAYS) == Point(3)
    assert Point.of(None, "1970-01-01T00:01:00Z", ALWAYS) == Point(timestamp=60.0)
    with pytest.raises(WrongMoment, match=r"version .3. and timestamp .5. are given: .* give one"):
        Point.of(3, 5, ALWAYS)
    with pytest.raises(WrongMoment, match="version chooses a state of the table, and since and until"):
        Point.of(3, None, Span(1.0))
    for wrong in (-1, True, "3"):
        with pytest.raises(
            WrongMoment, match=f"version is {wrong!r}: give the number of a version, such as 17"
        ):
            Point.of(wrong, None, ALWAYS)  # type: ignore[arg-type]
    with pytest.raises(WrongMoment, match="timestamp is '2026-03-01', which has no time zone"):
        Point.of(None, "2026-03-01", ALWAYS)


def vacuumed(files: MemoryFiles, *rewrites: BatchEntry) -> None:
    """A vacuum has deleted the files of what these replace."""
    number = len(read_vacuums(files)) + 1
    put_vacuum(files, number, VacuumRecord(tuple(str(entry.batch) for entry in rewrites), "a test", 0.0))


def compacted() -> tuple[MemoryFiles, list[BatchEntry]]:
    """Two batches, in version 1; a compaction has moved the rows of day 2 into one file, and has kept the file of day 1."""
    files = table()
    one, two = put(files, 1, "1", "2", rows=7), put(files, 2, "2", rows=10)
    catch_up(files, wall())
    file = DataFile(
        f"day=2/{BatchName(WRITER, 1, 3).data_file(1, 0, '.parquet')}", 10, "sha256:0",
        ((one.files[1].name, 4), (two.files[0].name, 10)),
    )  # fmt: skip
    both = (str(one.batch), str(two.batch))
    moved = put(files, 3, rows=17, files=(file, one.files[0]), replaces=both)
    catch_up(files, wall())
    return files, [one, two, moved]


def places(files: MemoryFiles, point: Point) -> list[tuple[int, list[tuple[str, int, int | None]]]]:
    """By batch: where its rows are."""
    _, found = originals_at(files, point)
    return [
        (each.entry.batch.number, [(at.file.path, at.first, at.rows) for at in each.ranges]) for each in found
    ]


def test_rows_that_were_moved_are_read_from_where_they_are_once_a_vacuum_has_deleted_their_files() -> None:
    files, [one, two, moved] = compacted()
    first, second, new = one.files[0].path, one.files[1].path, moved.files[0].path
    here = [(1, [(first, 0, None), (second, 0, None)]), (2, [(two.files[0].path, 0, None)])]
    there = [(1, [(first, 0, None), (new, 0, 4)]), (2, [(new, 4, 10)])]
    for point in (Point(1), Point(timestamp=START + 2)):
        assert places(files, point) == here
    assert places(files, Point(2)) == places(files, NOW) == there
    vacuumed(files, moved)
    for point in (Point(1), Point(2), Point(timestamp=START + 2), NOW):
        assert places(files, point) == there


def test_rows_that_were_dropped_can_be_read_until_a_vacuum_and_then_the_oldest_moment_is_named() -> None:
    files, [one, _, moved] = compacted()
    dropped = put(
        files, 4, rows=3, files=(one.files[0],), replaces=(str(moved.batch),), dropped=moved.files[0].parts
    )
    catch_up(files, wall())
    there = [(1, [(one.files[0].path, 0, None)])]
    assert places(files, Point(3)) == places(files, NOW) == there
    vacuumed(files, moved)
    assert [number for number, _ in places(files, Point(1))] == [
        1,
        2,
    ]  # the rows are in the file of the compaction
    vacuumed(files, dropped)
    for point in (Point(1), Point(2), Point(timestamp=START + 3)):
        with pytest.raises(
            NoVersion, match=r"rows of it were dropped, .* oldest moment that can be read is 1700000004\.0"
        ):
            places(files, point)
    assert places(files, Point(timestamp=START + 4)) == places(files, Point(3)) == there
