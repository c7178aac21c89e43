"""`squall reprocess` reports mistakes before it starts Spark, and starts none when there is nothing to do."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from squall.stores.paths import overlap
from squall_cli.main import squall
from squall_cli.packing.reprocess_job import load_job
from squall_io.spark.reading.committed import choose
from squall_io.spark.results.publishing import open_output
from squall_io.spark.results.reprocess import Job, run_of
from squall_io.spark.results.versions import Attempt, begin, newest_number, publish
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask
from tests.squall_cli.run_process import environment
from topology_api import SquallError

JOB = "def reprocess(spark, rows):\n    return rows\n"


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table with five committed rows, written without Spark."""
    path = str(tmp_path / "in")
    with open_files(path) as files:
        SinkTask(files, "word string, count bigint", file_format="json").put({"part-0.json": b"..."}, rows=5)
    return path


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Write a job's file, under a name that no other test has; return its path."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(text: str = JOB, name: str = "job_of_a_test", **beside: str) -> str:
        for each in (name, *beside):
            sys.modules.pop(each, None)
        for neighbour, content in beside.items():
            (tmp_path / f"{neighbour}.py").write_text(content)
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        importlib.invalidate_caches()
        return str(path)

    yield write
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def no_byte_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of one length that change within a second would be taken for the earlier ones."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark is not installed."""
    for name in ("pyspark", "py4j", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)


def reprocess(*arguments: str) -> Result:
    return CliRunner().invoke(squall, ["reprocess", *arguments], prog_name="squall")


def run_in(table: str, target: str, job: Job) -> tuple[Any, Any]:
    """The run that the command would make, and where it publishes."""
    with open_files(table) as files:
        choice = choose(files)
    output = open_output(open_files(target), None, None)
    return run_of(job, choice, output), output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give a job: either JOB.py or --sql TEXT"),
        (["job.py", "--sql", "select 1"], "give a job: either JOB.py or --sql TEXT"),
        (["--sql", " "], "--sql is empty"),
        (["no_such_job.py"], "there is no file 'no_such_job.py'"),
        (["/"], "'/' is a folder: give the file in it"),
        (["--sql", "select 1", "--since", "yesterday"], "since is 'yesterday', which is not a moment"),
        (["--sql", "select 1", "--since", "2026-03-01"], "which has no time zone"),
        (["--sql", "select 1", "--conf", "spark.driver.memory"], "write KEY=VALUE"),
        (
            ["--sql", "select 1", "--conf", "driver.memory=2g"],
            "conf has 'driver.memory' (str): its names begin with",
        ),
        (["--sql", "select 1", "--master", "lcoal[2]"], "did you mean 'local[2]'?"),
        (["--sql", "select 1", "--key", ","], "name one column or more"),
        (["--sql", "select 1", "--keep", "0"], "give a whole number from 1 on"),
        (["--sql", "select 1", "--format", "avro"], "'avro' is not one of"),
    ],
    ids=[
        *("no-job", "two-jobs", "empty-sql", "no-file", "folder", "since", "zone", "conf", "conf-name"),
        *("master", "key", "keep", "format"),
    ],
)
def test_wrong_usage_is_reported_in_a_sentence_with_status_2(
    table: str, tmp_path: Path, arguments: list[str], said: str, no_spark: None
) -> None:
    done = reprocess(*arguments, "--input", table, "--output", str(tmp_path / "out"))

    assert (done.exit_code, "Traceback" in done.output) == (2, False)
    assert said in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("/t/in", "/t/in", "both are /t/in"),
        ("/t/in", "file:///t/in/", "both are /t/in"),
        ("/t/in", "/t/in/out", "/t/in/out lies in /t/in"),
        ("hdfs://nn:9000/t/a", "hdfs://nn:9000/t", "hdfs://nn:9000/t/a lies in hdfs://nn:9000/t"),
        ("/t/in", "/t/input", None),
        ("hdfs://one/t", "hdfs://other/t", None),
        ("/t", "hdfs://nn/t", None),
    ],
)
def test_tables_inside_each_other_are_refused(one: str, other: str, said: str | None) -> None:
    assert overlap(one, other) == said


def test_a_result_among_the_rows_is_refused_also_through_a_link(table: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(table)
    done = reprocess("--sql", "select 1", "--input", table, "--output", str(tmp_path / "link" / "out"))

    assert done.exit_code == 2
    assert "--input and --output must be separate tables" in " ".join(done.output.split())


def test_an_invalid_table_and_one_of_another_kind_are_named(table: str, tmp_path: Path) -> None:
    missing = reprocess(
        "--sql", "select 1", "--input", str(tmp_path / "none"), "--output", str(tmp_path / "out")
    )
    assert missing.exit_code == 1
    assert f"squall reprocess: there is no Squall table at file://{tmp_path}/none" in missing.output

    with open_files(str(tmp_path / "other")) as files:
        SinkTask(files, "n int")
    stream = reprocess("--sql", "select 1", "--input", table, "--output", str(tmp_path / "other"))
    assert stream.exit_code == 1
    assert "is already a different table" in stream.output


def test_no_result_goes_into_a_folder_with_foreign_files(table: str, tmp_path: Path, no_spark: None) -> None:
    (tmp_path / "out" / "day=1").mkdir(parents=True)
    (tmp_path / "out" / "day=1" / "part-0.parquet").write_bytes(b"theirs")
    done = reprocess("--sql", "select 1", "--input", table, "--output", str(tmp_path / "out"))
    assert (done.exit_code, done.stderr) == (
        1,
        f"squall reprocess: file://{tmp_path}/out is not a Squall table and already has files (day=1/part-0.parquet), which"
        " readers of the folder would take for rows of the table: give another path, or move them away\n",
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["day=1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def recount(spark, rows):\n    return rows\n", "has no function 'reprocess'"),
        ("def reproces(spark, rows):\n    return rows\n", "did you mean 'reproces'"),
        ("reprocess = 7\n", "is 7 (int), and must be a function"),
        ("def reprocess(rows):\n    return rows\n", "must be  def reprocess(spark, rows)"),
        ("import no_such_module_of_a_test\n", "job_of_a_test.py:1"),
        ("def reprocess(spark, rows)\n    return rows\n", "job_of_a_test.py:1"),
    ],
    ids=["none", "misspelt", "no-function", "arguments", "import", "syntax"],
)
def test_a_file_without_a_job_is_reported_with_its_place(
    table: str, tmp_path: Path, job: Callable[..., str], text: str, said: str, no_spark: None
) -> None:
    done = reprocess(job(text), "--input", table, "--output", str(tmp_path / "out"))

    assert (done.exit_code, "Traceback" in done.output) == (1, False)
    assert said in done.output
    assert not (tmp_path / "out").exists()


def test_an_error_in_the_import_of_a_job_shows_its_line_once(
    table: str, tmp_path: Path, job: Callable[..., str], no_spark: None
) -> None:
    file = job("number = 1 + 'x'\n")
    done = reprocess(file, "--input", table, "--output", str(tmp_path / "out"))

    first, *rest = done.stderr.splitlines()
    assert "cannot be imported: TypeError: unsupported operand" in first
    assert rest[-2:] == ["    number = 1 + 'x'", f"  at {file}:1, in <module>"]
    assert not any(file in line for line in rest[:-2]), "the frames before it are those of pytest's importer"


@pytest.mark.parametrize(
    "line",
    [
        "raise RuntimeError('[SESSION_OR_CONTEXT_NOT_EXISTS] A session should be created first.')",
        "exec('assert False', {'__name__': 'pyspark.sql.functions'})",
    ],
    ids=["udf", "column"],
)
def test_a_job_that_uses_spark_at_its_import_fails_with_a_hint_that_spark_starts_later(
    table: str, tmp_path: Path, job: Callable[..., str], no_spark: None, line: str
) -> None:
    file = job(f"{line}  # as PySpark does there\n")
    done = reprocess(file, "--input", table, "--output", str(tmp_path / "out"))

    first, advice, *rest = done.stderr.splitlines()
    assert (
        first == f"squall reprocess: {file} cannot be imported: it uses Spark, which starts after the import"
    )
    assert "@udf(LongType()), not @udf('long')" in advice
    assert rest == [f"  at {file}:1, in <module>"]
    assert (done.exit_code, (tmp_path / "out").exists()) == (1, False)


def test_an_assertion_of_the_jobs_own_at_its_import_is_reported_unchanged(
    table: str, tmp_path: Path, job: Callable[..., str], no_spark: None
) -> None:
    done = reprocess(job("assert 1 > 2, 'theirs'\n"), "--input", table, "--output", str(tmp_path / "out"))
    assert "cannot be imported: AssertionError: theirs" in done.stderr


def test_a_run_that_ends_before_it_has_a_session_leaves_no_file_and_binds_no_format(
    table: str, tmp_path: Path, job: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from squall_cli.spark.started_spark import StartedSpark

    def no_session(self: StartedSpark) -> Any:
        raise SquallError("there is no Java")

    monkeypatch.setattr(StartedSpark, "session", no_session)
    for wanted in ("csv", "orc"):
        done = reprocess(
            "--sql", "select 1", "--input", table, "--output", str(tmp_path / "out"), "--format", wanted
        )
        assert (done.exit_code, done.stderr) == (1, "squall reprocess: there is no Java\n")
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


def test_a_changed_job_or_module_beside_it_is_another_job(job: Callable[..., str]) -> None:
    text = "import beside_a_job\n" + JOB
    first = load_job(job(text, beside_a_job="x = 1\n"))
    assert [module.__name__ for module in first.modules] == ["job_of_a_test", "beside_a_job"]

    assert load_job(job(text, beside_a_job="x = 1\n")).code == first.code
    assert load_job(job(text, beside_a_job="x = 2\n")).code != first.code
    assert load_job(job(text + "# more\n", beside_a_job="x = 1\n")).code != first.code


def test_an_existing_result_needs_no_spark(
    table: str, tmp_path: Path, job: Callable[..., str], no_spark: None
) -> None:
    target = str(tmp_path / "out")
    file = job()
    run, output = run_in(table, target, load_job(file))
    attempt = begin(output.files, run)
    assert isinstance(attempt, Attempt)
    output.files.put_if_absent(f"{attempt.rows}/part-0.parquet", b"...")
    publish(output.files, attempt, run, rows=3, schema="word string")
    sys.modules.pop("job_of_a_test")

    done = reprocess(file, "--input", table, "--output", target)
    assert done.exit_code == 0, done.output
    assert "job_of_a_test.py: 5 rows in, 3 rows out" in done.output
    assert f"published already, as version 1 of {target}" in done.output

    sys.modules.pop("job_of_a_test")
    outcome = json.loads(reprocess(file, "--input", table, "--output", target, "--json").stdout)
    assert (outcome["published"], outcome["version"], outcome["run"]) == (False, 1, run.id)
    assert (outcome["rows_in"], outcome["rows_out"], outcome["files"]) == (5, 3, 1)


def test_without_pyspark_it_says_what_to_install(table: str, tmp_path: Path, job: Callable[..., str]) -> None:
    # In a Python of its own: earlier tests may have imported PySpark here, and left a session.
    code = (
        "import sys\nfrom importlib import metadata\nfind = metadata.version\n"
        "def version(name):\n"
        "    if name == 'pyspark': raise metadata.PackageNotFoundError(name)\n"
        "    return find(name)\n"
        "metadata.version = version\n"
        "from squall_cli.main import squall\nsquall(['reprocess', *sys.argv[1:]])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, job(), "--input", table, "--output", str(tmp_path / "out")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (1, "", False)
    assert "PySpark is not installed" in done.stderr and "pip install '.[spark]'" in done.stderr
    with open_files(str(tmp_path / "out")) as files:
        assert (newest_number(files), files.list("_squall/results")) == (0, [])


def test_asking_for_help_imports_no_spark() -> None:
    code = (
        "import sys\nfrom squall_cli.main import squall\n"
        "try:\n    squall(['reprocess', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert not {'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "--output PATH" in done.stdout
