"""`squall table` shows the content of a table, and by its exit status whether all of it is as committed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall.stores.files import OpenStore
from squall_cli.main import squall
from squall_io.spark.manifest.tables import RESULTS, TableRecord, open_table
from squall_io.spark.results.versions import Attempt, Run, RunInput, begin, publish
from tests.spark.batches import SinkTask
from tests.squall_cli.run_process import environment

SCHEMA = "word string, count bigint, day string"
MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture
def folder(files: OpenStore, tmp_path: Path) -> Path:
    """The folder of a table with two batches; commands run beside it."""
    task = SinkTask(files, SCHEMA, partition_by=["day"])
    task.put({"day=1/a.txt": b"x" * 1500, "day=2/a.txt": b"x" * 500}, rows=1200, committed=1e9)
    task.put({"day=2/a.txt": b"x"}, rows=34, committed=1.1e9)
    return tmp_path / "counts"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(squall, ["table", *arguments], prog_name="squall")


def test_a_table_is_reported_with_its_writers_and_partitions(folder: Path) -> None:
    result = run("counts")
    assert (result.exit_code, result.stderr) == (0, "")
    told = re.sub(r"\d+d ago", "AGO", re.sub(MOMENT, "MOMENT", result.stdout))
    assert told.splitlines() == [
        f"file://{folder}: batches of a stream, parquet, partitioned by day",
        f"schema 1: {SCHEMA}",
        "",
        "1,234 rows in 2 batches, 3 files, 2.0 kB; committed last on MOMENT, AGO",
        "",
        "TOPOLOGY  COMPONENT  BATCHES   ROWS    SIZE  LAST COMMIT",
        "words     store            2  1,234  2.0 kB  MOMENT",
        "",
        "PARTITION  FILES       SIZE",
        "day=1          1     1.5 kB",
        "day=2          2  501 bytes",
    ]


def test_ignored_and_unfinished_files_are_reported_below(files: OpenStore, folder: Path) -> None:
    old = SinkTask(files, SCHEMA, partition_by=["day"], incarnation=(2, 0))
    files.put_if_absent(f"{old.next_name().attempt(1)}/part", b"left")
    new = SinkTask(files, SCHEMA, partition_by=["day"], incarnation=(3, 0))
    files.put_if_absent(f"{new.next_name().attempt(1)}/part", b"on its way")
    assert run("counts").stdout.splitlines()[-2:] == [
        "1 batch is being written, or was when its topology ended (--sweep)",
        "0 batches do not count, since the tasks that wrote them had been replaced; 1 folder of leftovers will be swept"
        " by the next start of their task, or by --sweep",
    ]


def test_of_many_partitions_the_last_are_shown_and_json_has_all(files: OpenStore, tmp_path: Path) -> None:
    SinkTask(files, SCHEMA, partition_by=["day"]).put({f"day={day:03}/a.txt": b"x" for day in range(30)})
    shown = run(str(tmp_path / "counts")).stdout
    assert "day=029" in shown and "day=010" in shown and "day=009" not in shown
    assert "and 10 partitions before them (--json has all)" in shown
    assert len(json.loads(run(str(tmp_path / "counts"), "--json").stdout)["partitions"]) == 30


def test_a_table_without_rows_is_reported_too(files: OpenStore, tmp_path: Path) -> None:
    SinkTask(files, SCHEMA)
    result = run(str(tmp_path / "counts"), "--verify")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:] == [
        f"schema 1: {SCHEMA}",
        "",
        "Nothing has been committed yet.",
        "",
        "verified 0 files, 0 bytes: all as committed",
    ]


def test_a_reprocessed_table_is_reported_by_its_versions(files: OpenStore, tmp_path: Path) -> None:
    open_table(files, TableRecord(RESULTS, "orc", ()))
    assert run(str(tmp_path / "counts")).stdout.endswith("\nNothing has been published yet.\n")
    for number in (1, 2):
        reads = (RunInput("/in", "sha256:0"),)
        as_orc = TableRecord(RESULTS, "orc", ())
        run_of = Run("reprocess", f"job{number}.py", f"sha256:{number}", reads, table=as_orc)
        attempt = begin(files, run_of)
        assert isinstance(attempt, Attempt)
        files.put_if_absent(f"{attempt.rows}/part-0.orc", b"123")
        publish(files, attempt, run_of, rows=number * 10, schema="n int")
    told = re.sub(MOMENT, "MOMENT", run(str(tmp_path / "counts")).stdout).splitlines()
    assert told[0].endswith(": versions of a result, orc, not partitioned")
    assert told[1] == "schema: n int"
    assert told[3].startswith("20 rows in 1 file, 3 bytes; published on MOMENT, ")
    assert [line.split() for line in told[5:]] == [
        ["VERSION", "MADE", "BY", "ROWS", "FILES", "SIZE", "PUBLISHED"],
        ["2", "job2.py", "20", "1", "3", "bytes", "MOMENT"],
        ["1", "job1.py", "10", "1", "3", "bytes", "MOMENT"],
    ]
    versions = json.loads(run(str(tmp_path / "counts"), "--json").stdout)["versions"]
    assert [each["version"] for each in versions] == [2, 1]


def test_unchanged_files_are_verified(folder: Path) -> None:
    result = run("counts", "--verify")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("\n\nverified 3 files, 2.0 kB: all as committed\n")


def test_a_file_that_differs_from_its_commit_is_named_and_the_exit_status_is_1(
    files: OpenStore, folder: Path
) -> None:
    gone, changed = sorted(folder.glob("data/day=*/squall-*"))[:2]
    gone.unlink()
    changed.write_bytes(b"y" + changed.read_bytes()[1:])
    (folder / "data" / "squall-stray.parquet").write_bytes(b"")
    result = run("counts", "--verify")
    assert result.exit_code == 1
    assert "verified 3 files, 2.0 kB: 1 as committed\n" in result.stdout
    assert result.stdout.endswith(
        "1 file of no committed batch, seen only by readers that ignore the manifest:\n  - data/squall-stray.parquet\n"
    )
    first, *named = result.stderr.splitlines()
    assert first == "squall table: 2 files not as committed:"
    assert sorted(named) == sorted(
        [
            f"  - {gone.relative_to(folder)} is missing (batch words-1.store.0.1.1)",
            f"  - {changed.relative_to(folder)} has other content: its digest does not fit (batch"
            f" {changed.name.removeprefix('squall-').rpartition('-1-')[0]})",
        ]
    )
    assert run("counts").exit_code == 0


def test_of_very_many_problems_the_first_are_named_and_json_has_all(files: OpenStore, tmp_path: Path) -> None:
    SinkTask(files, SCHEMA).put({f"{number:03}.txt": b"x" for number in range(60)})
    for path in (tmp_path / "counts" / "data").glob("squall-*"):
        path.unlink()
    result = run(str(tmp_path / "counts"), "--verify")
    assert result.stderr.splitlines()[-1] == "  - and 10 more (--json has all)"
    as_json = run(str(tmp_path / "counts"), "--verify", "--json")
    assert (as_json.exit_code, len(json.loads(as_json.stdout)["verified"]["problems"])) == (1, 60)


def test_an_unreadable_record_is_named_and_the_rest_is_reported(folder: Path) -> None:
    broken = sorted((folder / "_squall" / "commits").iterdir())[0]
    broken.write_bytes(broken.read_bytes()[:40])
    result = run("counts")
    assert result.exit_code == 1
    assert "34 rows in 1 batch, 1 file" in result.stdout
    assert result.stderr.startswith(
        f"squall table: the manifest of file://{folder} has 1 record that cannot be read:\n"
        f"  - _squall/commits/{broken.name} is truncated or damaged"
    )
    [problem] = json.loads(run("counts", "--json").stdout)["unreadable"]
    assert problem["path"] == f"_squall/commits/{broken.name}"


def test_a_table_of_a_newer_squall_is_refused_by_its_record(folder: Path) -> None:
    (folder / "_squall" / "table.json").write_text('{"kind": "table", "format": 99, "digest": ""}')
    result = run("counts")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"squall table: the manifest of file://{folder} has 1 record that cannot be read:\n"
        "  - _squall/table.json has format 99; this Squall reads formats up to 2: read it with a newer Squall\n"
    )


def test_a_missing_table_is_reported(tmp_path: Path) -> None:
    result = run(str(tmp_path / "nothing"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"squall table: there is no Squall table at file://{tmp_path}/nothing: ")
    assert not (tmp_path / "nothing").exists()


def test_names_that_are_escape_sequences_do_nothing(files: OpenStore, tmp_path: Path) -> None:
    SinkTask(files, "`a\x1b[2J` int", topology="t\x1b[2J").put({"a.txt": b"1"})
    assert "\x1b" not in run(str(tmp_path / "counts"), "--verify").stdout


def test_json_has_the_content_of_the_tables(folder: Path) -> None:
    answer = json.loads(run("counts", "--json", "--verify").stdout)
    assert answer["partitions"] == [
        {"path": "day=1", "files": 1, "bytes": 1500},
        {"path": "day=2", "files": 2, "bytes": 501},
    ]
    assert answer["writers"] == [
        {
            "topology": "words",
            "component": "store",
            "batches": 2,
            "rows": 1234,
            "bytes": 2001,
            "last_commit": 1.1e9,
        }
    ]
    assert answer["verified"] == {"files": 3, "bytes": 2001, "problems": [], "strays": []}
    expected = {
        "path": f"file://{folder}",
        "holds": "rows",
        "format": "parquet",
        "partition_by": ["day"],
        "schema": SCHEMA,
        "rows": 1234,
        "batches": 2,
        "files": 3,
        "bytes": 2001,
        "first_commit": 1e9,
        "last_commit": 1.1e9,
        "checkpoint": 0,
        "loose": 2,
        "leftover": 0,
        "unreadable": [],
    }
    assert {name: answer[name] for name in expected} == expected


def test_a_table_on_this_machine_needs_no_spark(folder: Path) -> None:
    """Also where PySpark is not installed: it is not even searched for."""
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = sys.modules['pyarrow'] = None\n"
        "from squall_cli.main import main; main(['table', sys.argv[1], '--verify'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env=environment(JAVA_HOME="/nowhere"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "all as committed" in done.stdout


def test_a_key_that_is_no_column_is_refused_before_spark_is_started(folder: Path) -> None:
    result = run("counts", "--key", "words")
    assert result.exit_code == 1
    assert result.stderr == ("squall table: key names 'words', but the columns are word, count, day\n")
