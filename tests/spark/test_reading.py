"""`read_committed` gives the rows of committed batches, completely, in the newest schema, and replayed rows once."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from squall.stores.files import Files, OpenStore
from squall_io.spark.manifest.checkpoints import write_next
from squall_io.spark.manifest.state import UnreadableManifest, read_state
from squall_io.spark.manifest.tables import RESULTS, NoTable, TableRecord, open_table
from squall_io.spark.reading.committed import CannotRead, KeyCounts, count_keys, read_committed
from squall_io.spark.reading.moments import WrongMoment
from squall_io.spark.results.versions import Attempt, Run, RunInput, begin, publish
from squall_io.spark.rows.formats import FORMATS
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

WORDS = "word string, count bigint"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[OpenStore]:
    with open_files(str(tmp_path / "a table")) as opened:
        yield opened


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The content of a frame, sorted as text."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def on_disk(files: Files, path: str) -> Path:
    return Path(files.root.removeprefix("file://")) / path


def test_rows_are_visible_once_their_batch_is_committed_and_not_before(
    spark: SparkSession, files: OpenStore
) -> None:
    task = SinkTask(files, WORDS)
    task.write(spark, [("a", 1), ("b", 2)])
    name = task.next_name()
    task.stage(spark, name, [("c", 3)])
    commit = task.commit_of(name, rows=1)
    seen = []
    commit.at = lambda step: seen.append((step, read_committed(spark, files.root).count()))
    commit.run()
    assert seen == [("list", 2), ("check", 2), ("move", 2), ("publish", 2), ("look", 3)]
    assert rows(read_committed(spark, files.root)) == [("a", 1), ("b", 2), ("c", 3)]


def test_a_relative_path_is_on_this_machine_and_swapped_arguments_are_reported(
    spark: SparkSession, files: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SinkTask(files, WORDS).write(spark, [("a", 1)])
    monkeypatch.chdir(tmp_path)
    for path in ("a table", "./a table", Path("a table")):
        assert rows(read_committed(spark, path)) == [("a", 1)]
    assert count_keys(spark, "a table", ["word"]).rows == 1
    with pytest.raises(
        CannotRead, match=r"the session is 'a table' \(str\): give a SparkSession, then the path"
    ):
        read_committed("a table", spark)  # type: ignore[arg-type]
    with pytest.raises(CannotRead, match=r"the session is None"):
        read_committed(None, "a table")  # type: ignore[arg-type]
    with pytest.raises(CannotRead, match=r"the path is None \(NoneType\)"):
        read_committed(spark, None)  # type: ignore[arg-type]


def test_a_frame_shows_the_table_at_the_moment_it_was_made(spark: SparkSession, files: OpenStore) -> None:
    task = SinkTask(files, WORDS)
    task.write(spark, [("a", 1)])
    before = read_committed(spark, files.root)
    task.write(spark, [("b", 2)])
    assert rows(before) == [("a", 1)]


def test_entries_in_a_checkpoint_are_read_like_the_others(spark: SparkSession, files: OpenStore) -> None:
    task = SinkTask(files, WORDS)
    task.write(spark, [("a", 1)])
    state = read_state(files)
    assert write_next(files, state.checkpoint, state.uncovered)
    task.write(spark, [("b", 2)])
    assert rows(read_committed(spark, files.root)) == [("a", 1), ("b", 2)]


def test_a_table_without_a_batch_is_an_empty_frame_with_its_columns(
    spark: SparkSession, files: OpenStore
) -> None:
    SinkTask(files, "word string NOT NULL, day date", partition_by=["day"])
    for key in (None, ["word"]):
        frame = read_committed(spark, files.root, key=key)
        assert (frame.dtypes, frame.collect()) == ([("word", "string"), ("day", "date")], [])
    assert count_keys(spark, files.root, ["word"]) == KeyCounts(("word",), 0, 0, 0)


def test_a_missing_or_unfinished_table_is_reported(spark: SparkSession, files: OpenStore) -> None:
    with pytest.raises(NoTable, match="there is no Squall table at file:///"):
        read_committed(spark, files.root)
    open_table(files, TableRecord("rows", "parquet", ()))
    with pytest.raises(CannotRead, match="has no schema yet"):
        read_committed(spark, files.root)


@pytest.mark.parametrize("file_format", FORMATS)
def test_added_columns_are_null_in_earlier_rows_and_columns_keep_their_order(
    spark: SparkSession, files: OpenStore, file_format: str
) -> None:
    """Twice, so that there are three schemas; a column of the partition directories is in the middle."""

    def task(schema: str) -> SinkTask:
        return SinkTask(files, schema, file_format=file_format, partition_by=["day"])

    first, second, third = "word string, day string, count int", "`the size` double", "late boolean"
    task(first).write(spark, [("a", "1", 10), (None, "2", None)])
    task(f"{first}, {second}").write(spark, [("b", "1", 20, 0.5)])
    task(f"{first}, {second}, {third}").write(
        spark, [("c", "1", 30, None, True), ("d", None, None, 1.5, False)]
    )
    frame = read_committed(spark, files.root)
    assert frame.columns == ["word", "day", "count", "the size", "late"]
    assert rows(frame) == [
        ("a", "1", 10, None, None),
        ("b", "1", 20, 0.5, None),
        ("c", "1", 30, None, True),
        ("d", None, None, 1.5, False),
        (None, "2", None, None, None),
    ]
    assert rows(frame.where("late").select("word")) == [("c",)]


def test_values_of_partitions_are_read_unchanged(spark: SparkSession, files: OpenStore) -> None:
    """Not as Spark would guess them: numbers and dates."""
    task = SinkTask(files, "n int, name string", partition_by=["name"])
    odd = ["007", "1e3", "2026-03-01", "a/b=c%d", "ä {x} [y]", "null", " ", None]
    task.write(spark, list(enumerate(odd)))
    assert dict(read_committed(spark, files.root).collect()) == dict(enumerate(odd))


def test_a_span_includes_batches_from_since_until_before_until(spark: SparkSession, files: OpenStore) -> None:
    task = SinkTask(files, WORDS)
    for number in (100, 200, 300):
        task.write(spark, [("a", number)], committed=float(number))

    def counts(since: Any = None, until: Any = None) -> list[int]:
        return [count for _, count in rows(read_committed(spark, files.root, since, until))]

    assert counts(since=200) == [200, 300]
    assert counts(until=200) == [100]
    assert counts(since=100, until="300") == [100, 200]
    assert counts("1970-01-01T00:03:00Z", datetime(1970, 1, 1, 0, 5, tzinfo=timezone.utc)) == [200]
    assert counts(since=301) == []
    with pytest.raises(WrongMoment, match="has no time zone"):
        read_committed(spark, files.root, since="2026-03-01")


@pytest.mark.parametrize("file_format", ["parquet", "csv"])  # the others find a row's place as CSV does
def test_of_rows_with_one_key_the_first_committed_one_stays(
    spark: SparkSession, files: OpenStore, file_format: str
) -> None:
    """Whatever the order of the batches' names, and within a batch the row that was written first."""
    later = SinkTask(files, WORDS, file_format=file_format, index=0)
    first = SinkTask(files, WORDS, file_format=file_format, index=1)
    later.write(spark, [("a", 3), ("b", 4)], committed=200.0)
    first.write(spark, [("a", 1), ("a", 2), ("c", 9), ("c", 8)], committed=100.0)
    assert rows(read_committed(spark, files.root, key=["word"])) == [("a", 1), ("b", 4), ("c", 9)]
    assert rows(read_committed(spark, files.root, key="WORD")) == [("a", 1), ("b", 4), ("c", 9)]
    assert read_committed(spark, files.root, key=["word", "count"]).count() == 6
    assert read_committed(spark, files.root, key=["word"]).columns == ["word", "count"]


def test_rows_with_a_null_in_the_key_are_all_kept(spark: SparkSession, files: OpenStore) -> None:
    task = SinkTask(files, WORDS)
    task.write(spark, [(None, 1), (None, 1), ("a", None), ("a", 1)], committed=100.0)
    task.write(spark, [(None, 1), ("a", None), ("a", 1)], committed=200.0)
    assert rows(read_committed(spark, files.root, key=["word", "count"])) == [
        ("a", 1),
        ("a", None),
        ("a", None),
        (None, 1),
        (None, 1),
        (None, 1),
    ]
    assert rows(read_committed(spark, files.root, since=150, key=["word", "count"])) == [
        ("a", None),
        (None, 1),
    ]
    counts = count_keys(spark, files.root, ["word", "count"])
    assert counts == KeyCounts(("word", "count"), rows=7, keys=1, without_key=5)
    assert counts.duplicates == 1


def test_a_key_that_was_committed_before_since_is_a_replay_too(spark: SparkSession, files: OpenStore) -> None:
    task = SinkTask(files, WORDS)
    task.write(spark, [("a", 1)], committed=100.0)
    task.write(spark, [("a", 2), ("b", 2)], committed=200.0)
    task.write(spark, [("b", 3), ("c", 3)], committed=300.0)

    def of(**span: Any) -> list[tuple[Any, ...]]:
        return rows(read_committed(spark, files.root, key=["word"], **span))

    assert of(since=200) == [("b", 2), ("c", 3)]
    assert of(since=200, until=300) == [("b", 2)]
    assert of(until=200) + of(since=200, until=300) + of(since=300) == of()


def test_replays_are_removed_as_by_a_plain_loop_over_all_commits(
    spark: SparkSession, files: OpenStore
) -> None:
    """Keys of all odd kinds, from two tasks whose commits are mixed, in every span."""
    draw = random.Random(6)
    tasks = [SinkTask(files, "k double, l string, n int", index=index) for index in (0, 1)]
    written: list[tuple[float, list[Any]]] = []
    for committed in draw.sample(range(8), 8):
        batch = [
            (draw.choice([None, math.nan, 0.0, -0.0, math.inf]), draw.choice([None, "", "é"]), number)
            for number in range(committed * 10, committed * 10 + 10)
        ]
        draw.choice(tasks).write(spark, batch, committed=float(committed))
        written.append((float(committed), batch))
    for since, until in ((None, None), (3.0, None), (None, 4.0), (2.0, 6.0)):
        expected: list[int] = []
        seen: set[Any] = set()
        for moment, batch in sorted(written, key=lambda each: each[0]):
            for k, text, n in batch if until is None or moment < until else ():
                key = ("NaN" if k is not None and math.isnan(k) else k, text)
                if (None in key or key not in seen) and (since is None or moment >= since):
                    expected.append(n)
                seen.add(key)
        frame = read_committed(spark, files.root, since, until, key=["k", "l"])
        assert sorted(row.n for row in frame.select("n").collect()) == expected, (since, until)


def test_a_key_may_have_a_partition_column_and_an_added_one(spark: SparkSession, files: OpenStore) -> None:
    SinkTask(files, "n int, day string", partition_by=["day"]).write(spark, [(1, "x")], committed=1.0)
    task = SinkTask(files, "n int, day string, `odd ``name` struct<a: int>", partition_by=["day"])
    task.write(spark, [(2, "x", (7,)), (3, "x", (7,)), (4, "y", (7,)), (5, "x", None)], committed=2.0)
    found = read_committed(spark, files.root, key=["day", "odd `name"])
    assert sorted(row.n for row in found.collect()) == [1, 2, 4, 5]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ([], "key is empty"),
        (["word", "words"], "key names 'words', but the columns are word, tags"),
        (["tags"], "which is array<map<string, int>>: Spark cannot compare maps"),
    ],
)
def test_an_unusable_key_is_refused_by_name(
    spark: SparkSession, files: OpenStore, key: list[str], said: str
) -> None:
    SinkTask(files, "word string, tags array<map<string,int>>")
    for ask in (
        lambda: read_committed(spark, files.root, key=key),
        lambda: count_keys(spark, files.root, key),
    ):
        with pytest.raises(CannotRead) as told:
            ask()
        assert said in str(told.value)


def test_unreadable_parts_are_named_and_the_rest_is_available(
    spark: SparkSession, files: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    task = SinkTask(files, WORDS)
    broken = task.write(spark, [("a", 1)])
    task.write(spark, [("b", 2)])
    on_disk(files, broken.batch.commit).write_bytes(b'{"kind": "comm')
    with pytest.raises(UnreadableManifest, match=f"{broken.batch}.json is truncated or damaged"):
        read_committed(spark, files.root)
    with caplog.at_level(logging.WARNING, "squall_io.spark"):
        assert rows(read_committed(spark, files.root, unreadable="skip")) == [("b", 2)]
    assert f"rows are missing, since {broken.batch.commit} is truncated" in caplog.text
    with pytest.raises(CannotRead, match="unreadable is 'ignore': give 'refuse' or 'skip'"):
        read_committed(spark, files.root, unreadable="ignore")  # type: ignore[arg-type]


def test_a_missing_or_damaged_committed_file_is_never_omitted_silently(
    spark: SparkSession, files: OpenStore
) -> None:
    """Whatever the session's own settings are."""
    from py4j.protocol import Py4JJavaError

    settings = {"spark.sql.files.ignoreMissingFiles": "true", "spark.sql.files.ignoreCorruptFiles": "true"}
    task = SinkTask(files, WORDS)
    task.write(spark, [("a", 1)])
    [file] = task.write(spark, [("b", 2)]).files
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        on_disk(files, file.path).write_bytes(b"PAR1 and nothing of it PAR1")
        with pytest.raises(Py4JJavaError, match="FAILED_READ_FILE"):
            read_committed(spark, files.root).collect()
        on_disk(files, file.path).unlink()
        with pytest.raises(
            CannotRead, match=f"(?s)a file of a committed batch is gone.*{file.path}.*--verify"
        ):
            read_committed(spark, files.root)
    finally:
        for name in settings:
            spark.conf.unset(name)


def test_many_files_are_read_completely_and_the_session_keeps_its_settings(
    spark: SparkSession, files: OpenStore
) -> None:
    discovery = "spark.sql.sources.parallelPartitionDiscovery"
    settings = [f"{discovery}.parallelism", f"{discovery}.threshold"]
    before = [spark.conf.get(setting) for setting in settings]
    task = SinkTask(files, WORDS)
    name = task.next_name()
    task.stage(spark, name, [("a", 1)])
    [written] = [status for status in files.walk(name.attempt(1)) if status.path.endswith(".parquet")]
    data = files.read(written.path)
    many = 300
    task.put({f"{number}.parquet": data for number in range(many)}, rows=many)
    assert rows(read_committed(spark, files.root)) == [("a", 1)] * many
    assert rows(read_committed(spark, files.root, key=["word"])) == [("a", 1)]
    assert [spark.conf.get(setting) for setting in settings] == before


def test_of_a_reprocessed_table_the_newest_version_is_read_completely(
    spark: SparkSession, files: OpenStore
) -> None:
    """Its rows are in a folder that is hidden from plain readers, and that the next version does not touch."""
    open_table(files, TableRecord(RESULTS, "parquet", ("day",)))
    with pytest.raises(CannotRead, match="has no version yet"):
        read_committed(spark, files.root)
    for number in (1, 2):
        by_day = TableRecord(RESULTS, "parquet", ("day",))
        run = Run("reprocess", "job.py", f"sha256:{number}", (RunInput("/in", "sha256:0"),), table=by_day)
        attempt = begin(files, run)
        assert isinstance(attempt, Attempt)
        made = spark.createDataFrame([(number, "x"), (number, "y"), (number, None)], "n int, day string")
        made.coalesce(1).write.partitionBy("day").parquet(f"{files.root}/{attempt.rows}")
        publish(files, attempt, run, rows=3, schema="n int, day string")
        assert rows(read_committed(spark, files.root)) == [(number, "x"), (number, "y"), (number, None)]
    assert count_keys(spark, files.root, ["n"]) == KeyCounts(("n",), rows=3, keys=1, without_key=0)
    for asked in ({"since": 1}, {"until": 1}, {"key": "n"}):
        with pytest.raises(CannotRead, match="holds versions of a result, which is read whole"):
            read_committed(spark, files.root, **asked)


def test_a_table_can_be_registered_and_its_readers_see_files_instead_of_batches(
    spark: SparkSession, files: OpenStore
) -> None:
    """In Hive's layout: nothing of `_squall` is visible, but replays and moved files of a batch that is not
    committed yet are.
    """
    task = SinkTask(files, f"{WORDS}, day string", partition_by=["day"])
    task.write(spark, [("a", 1, "x"), ("b", 2, "y")])
    spark.sql(
        "CREATE TABLE counts (word string, count bigint, day string) USING parquet"
        f" PARTITIONED BY (day) LOCATION '{files.root}/data'"
    )
    try:
        spark.sql("MSCK REPAIR TABLE counts")
        assert rows(spark.table("counts")) == [("a", 1, "x"), ("b", 2, "y")]
        name = task.next_name()
        task.stage(spark, name, [("c", 3, "x"), ("d", 4, "z")])
        commit = task.commit_of(name, rows=2)
        seen: list[list[tuple[Any, ...]]] = []

        def look(step: str) -> None:
            spark.catalog.refreshTable("counts")
            if step in ("move", "publish"):
                seen.append(rows(spark.sql("select word from counts where day = 'x'")))

        commit.at = look
        commit.run()
        assert seen == [[("a",)], [("a",), ("c",)]]
        spark.catalog.refreshTable("counts")
        assert ("d", 4, "z") not in rows(
            spark.table("counts")
        )  # a new partition is visible after a search for it
        spark.sql("MSCK REPAIR TABLE counts")
        assert rows(spark.table("counts")) == rows(read_committed(spark, files.root))
    finally:
        spark.sql("DROP TABLE counts")
