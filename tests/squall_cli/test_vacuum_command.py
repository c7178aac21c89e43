"""`squall vacuum` says what it deletes, keeps and drops, and refuses a retention that is too short."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner, Result

from squall.stores.files import OpenStore
from squall_cli.main import squall
from squall_io.spark.manifest.entries import BatchEntry, encode_entry
from squall_io.spark.manifest.state import read_state
from squall_io.spark.retention.holding import held
from tests.spark.batches import SinkTask

DAY = 86_400.0


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(squall, ["vacuum", "counts", *arguments], prog_name="squall")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def merged(files: OpenStore, task: SinkTask, *entries: BatchEntry, age: float) -> BatchEntry:
    """A batch that replaces others since so long."""
    new = replace(
        task.put({"m.parquet": b"rows"}, rows=2), replaces=tuple(str(each.batch) for each in entries)
    )
    new = replace(new, committed=time.time() - age)
    files.replace(new.batch.commit, encode_entry(new))
    return new


def test_files_that_were_replaced_long_ago_are_deleted_and_the_others_counted(files: OpenStore) -> None:
    task = SinkTask(files, "word string")
    one, two, three = (task.put({"a.parquet": b"rows!"}) for _ in range(3))
    merged(files, task, one, two, age=8 * DAY)
    merged(files, task, three, age=DAY)
    dry = run("--dry-run")
    assert "would be deleted: 2 files of 2 batches, 10 bytes (--dry-run)" in dry.output
    assert all(files.exists(entry.files[0].path) for entry in (one, two, three))
    done = run()
    assert done.exit_code == 0 and "deleted: 2 files of 2 batches, 10 bytes" in done.output
    assert "kept: the files of 1 batch, replaced less than 7d00h ago" in done.output
    assert [files.exists(entry.files[0].path) for entry in (one, two, three)] == [False, False, True]
    with held(files, "a job"):
        shown = run("--retention", "2h")
        assert (
            "nothing to delete" in shown.output and "held: the files of 1 batch, by a job on" in shown.output
        )
    found = json.loads(run("--retention", "2h", "--json").stdout)
    assert (found["batches"], found["files"], found["bytes"], found["held"]) == (1, 1, 5, [])
    assert "nothing to delete" in run().output


def test_a_retention_below_an_hour_needs_a_flag_and_says_why(files: OpenStore) -> None:
    task = SinkTask(files, "word string")
    merged(files, task, task.put({"a.parquet": b"rows"}), age=60.0)
    refused = run("--retention", "30")
    assert refused.exit_code == 2
    assert "a reader without a lease" in refused.stderr and "--allow-short" in refused.stderr
    assert "deleted: 1 file" in run("--retention", "30", "--allow-short").output
    for wrong in ("soon", "-1", "5w", "nan"):
        assert run("--retention", wrong).exit_code == 2


def test_old_partitions_are_dropped(files: OpenStore) -> None:
    task = SinkTask(files, "n bigint, day date", partition_by=["day"])
    task.put({"day=2020-01-01/a.parquet": b"old", "day=2999-01-01/a.parquet": b"young"}, rows=3)
    task.put({"day=2020-01-02/a.parquet": b"old"}, rows=4)
    dry = run("--drop-older-than", "30d", "--dry-run")
    assert "would be dropped: 2 files of 2 days, 2020-01-01 to 2020-01-02 (--dry-run)" in dry.output
    broken = run("--drop-older-than", "30d")  # its files are no Parquet, so that the rows cannot be counted
    assert broken.exit_code == 1 and "day=2020-01-01/squall-" in broken.stderr
    assert "cannot be counted, so nothing of its batch was dropped" in broken.stderr
    assert run("--by", "day").exit_code == 2
    refused = run("--drop-older-than", "30d", "--by", "n")
    assert refused.exit_code == 1 and "no partition column n of type date or string" in refused.stderr


def test_rows_of_dropped_days_are_counted(files: OpenStore, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "rows.parquet")
    data = (tmp_path / "rows.parquet").read_bytes()
    task = SinkTask(files, "n bigint, day date", partition_by=["day"])
    task.put({"day=2020-01-01/a.parquet": data, "day=2999-01-01/a.parquet": data}, rows=6)
    found = json.loads(run("--drop-older-than", "30d", "--json").stdout)
    assert found["dropped"] == {
        "column": "day",
        "before": found["dropped"]["before"],
        "days": ["2020-01-01"],
        "files": 1,
        "bytes": len(data),
        "rows": 3,
    }
    assert [entry.rows for entry in read_state(files).entries] == [3]
    task.put({"day=2020-01-02/a.parquet": data, "day=2999-01-01/a.parquet": data}, rows=6)
    done = run("--drop-older-than", "30d")
    assert "of 1 day, 2020-01-02; a vacuum deletes the files after 7d00h\n" in done.output
    task.put({"day=2020-01-03/a.parquet": data}, rows=3)
    done = run("--drop-older-than", "30d", "--retention", "0", "--allow-short")
    assert "dropped: 3 rows in 1 file of 1 day, 2020-01-03\ndeleted: 3 files of 3 batches" in done.output
    folders = sorted(path.name for path in (tmp_path / "counts" / "data").iterdir())
    assert folders == ["day=2999-01-01"], "empty folders go with the files"
    assert "nothing to drop: no row has a day before" in run("--drop-older-than", "30d").output
