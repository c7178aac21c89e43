"""`squall reprocess` with Spark: a result is published completely and once; errors of the job name the user's line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from squall.stores.files import OpenStore
from squall_cli.main import squall
from squall_io.spark.manifest.tables import NoTable
from squall_io.spark.reading.committed import read_committed
from squall_io.spark.results import versions
from squall_io.spark.results.progress import JobProgress, watch
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask
from tests.spark_classes import small_java
from tests.squall_cli.run_process import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a session may take a minute to start

TOTALS = """
from pyspark.sql import functions as F

def reprocess(spark, rows):
    return rows.groupBy("word").agg(F.sum("count").alias("total"))
"""
#: Longer than any step here takes; a wait of this length is a failure.
CAP = 300.0


class Place:
    """An input table, an output, and jobs, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.input, self.output = str(folder / "in"), str(folder / "out")
        self.files: OpenStore = open_files(self.input)
        self.results: OpenStore = open_files(self.output)
        self.task = SinkTask(self.files, "word string, count bigint", file_format="json")
        self.jobs = 0

    def commit(self, rows: list[tuple[str, int]], at: float = 0.0) -> None:
        """Commit a batch of the stream, without Spark."""
        text = "".join(json.dumps({"word": word, "count": count}) + "\n" for word, count in rows)
        self.task.put({"part-0.json": text.encode()}, rows=len(rows), committed=at)

    def job(self, text: str) -> str:
        """Write the file of a job; each has a name of its own, since Python has imported the others."""
        self.jobs += 1
        path = self.folder / f"job_{self.folder.name.replace('-', '_')}_{self.jobs}.py"
        path.write_text(text)
        return str(path)

    def run(self, *arguments: str) -> Result:
        """Run the command in this process: it uses the tests' session."""
        tables = ["--input", self.input, "--output", self.output]
        return CliRunner().invoke(squall, ["reprocess", *arguments, *tables], prog_name="squall")

    def outcome(self, *arguments: str) -> dict[str, Any]:
        """Its --json output, if it ends well."""
        done = self.run(*arguments, "--json")
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def left(self) -> list[str]:
        """The content of the results folder."""
        return [status.name for status in self.results.list("_squall/results")]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    made = Place(tmp_path)
    made.commit([("a", 1), ("b", 2), ("a", 3)], at=100.0)
    yield made
    made.files.close()
    made.results.close()


def rows(spark: SparkSession, path: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in read_committed(spark, path).collect()), key=repr)


def test_a_job_is_published_once_per_state_of_its_input(spark: SparkSession, place: Place) -> None:
    job = place.job(TOTALS)
    done = place.run(job)
    assert done.exit_code == 0, done.output
    assert f"{Path(job).name}: 3 rows in, 2 rows out" in done.stdout
    assert f"published as version 1 of {place.output}: " in done.stdout
    assert rows(spark, place.output) == [("a", 4), ("b", 2)]

    assert "published already, as version 1" in place.run(job).stdout

    place.commit([("b", 5)])
    outcome = place.outcome(job)
    assert (outcome["published"], outcome["version"]) == (True, 2)
    assert (outcome["rows_in"], outcome["rows_out"], outcome["schema"]) == (4, 2, "word string, total bigint")
    assert rows(spark, place.output) == [("a", 4), ("b", 7)]
    assert len(place.left()) == 2, "the previous version stays for its readers"
    assert place.outcome(job, "--again")["version"] == 3
    assert len(place.left()) == 2


def test_sql_spans_and_keys_choose_the_rows(spark: SparkSession, place: Place) -> None:
    place.commit([("a", 1), ("c", 9)], at=200.0)

    def counted(*arguments: str) -> int:
        outcome = place.outcome("--sql", "select count(*) as n from rows", *arguments)
        assert outcome["rows_out"] == 1
        [(number,)] = rows(spark, place.output)
        return int(number)

    assert counted() == 5
    assert counted("--since", "150") == 2
    assert counted("--until", "1970-01-01T00:03:20Z") == 3
    assert counted("--key", "word,count") == 4
    assert counted("--since", "150", "--key", "word,count") == 1, "one of them is a replay of an earlier row"


def test_results_are_partitioned_in_any_format_and_may_be_reprocessed_too(
    spark: SparkSession, place: Place
) -> None:
    query = "select word, case when count > 1 then count end as count, 'x,\"y' as text from rows"
    place.outcome("--sql", query, "--format", "csv", "--partition-by", "word")
    expected = [("a", 'x,"y', "a", 3), ("a", 'x,"y', "a", None), ("b", 'x,"y', "b", 2)]
    assert rows(spark, place.output) == sorted([(w, c, t) for w, t, _, c in expected], key=repr)
    [version] = versions.kept_versions(place.results)
    assert {file.path.split("/")[-2] for file in version.files} == {"word=a", "word=b"}

    place.outcome("--sql", "select 'c' as word, 1 as other from rows limit 1")  # format and partitions stay
    assert rows(spark, place.output) == [("c", 1)]
    wrong = place.run("--sql", "select 1 as n from rows", "--format", "orc")
    assert wrong.exit_code == 1 and "is already a different table" in wrong.output

    second = str(place.folder / "second")
    arguments = [
        "reprocess",
        "--sql",
        "select count(*) n from rows",
        "--input",
        place.output,
        "--output",
        second,
    ]
    done = CliRunner().invoke(squall, arguments)
    assert done.exit_code == 0, done.output
    assert rows(spark, second) == [(1,)]


def test_an_empty_result_is_a_version_too(spark: SparkSession, place: Place) -> None:
    place.outcome("--sql", "select * from rows", "--partition-by", "word")
    outcome = place.outcome("--sql", "select * from rows where count > 100")

    assert (outcome["version"], outcome["rows_out"], outcome["files"]) == (2, 0, 0)
    assert rows(spark, place.output) == []
    with open_files(place.output) as files:
        assert versions.newest_number(files) == 2


def test_the_previous_version_is_read_until_the_new_one_is_complete(
    spark: SparkSession, place: Place
) -> None:
    place.outcome("--sql", "select 'old' as word, 0L as total from rows limit 1")
    text = (
        TOTALS
        + f"""
from squall_io.spark import read_committed
aggregate = reprocess

def reprocess(spark, rows):
    print("SEEN", [tuple(row) for row in read_committed(spark, {place.output!r}).collect()])
    return aggregate(spark, rows)
"""
    )
    done = place.run(place.job(text))

    assert done.exit_code == 0, done.output
    assert "SEEN [('old', 0)]" in done.stdout
    assert rows(spark, place.output) == [("a", 4), ("b", 2)]


def test_of_two_equal_runs_at_once_one_publishes_and_the_other_reports_it(
    spark: SparkSession, place: Place
) -> None:
    """The job starts the whole command again in the middle; that one's publication sweeps the files of the outer one."""
    text = (
        TOTALS
        + f"""
import sys
from click.testing import CliRunner
from squall_cli.main import squall
aggregate = reprocess

def reprocess(spark, rows):
    if not hasattr(sys, "squall_test_inner"):
        sys.squall_test_inner = True
        tables = ["--input", {place.input!r}, "--output", {place.output!r}]
        inner = CliRunner().invoke(squall, ["reprocess", __file__, *tables])
        sys.squall_test_inner = inner.output
    return aggregate(spark, rows)
"""
    )
    try:
        done = place.run(place.job(text))
        inner = sys.squall_test_inner  # type: ignore[attr-defined]
    finally:
        del sys.squall_test_inner  # type: ignore[attr-defined]

    assert "published as version 1" in inner
    assert done.exit_code == 0, done.output
    assert "published already, as version 1" in done.stdout
    assert rows(spark, place.output) == [("a", 4), ("b", 2)]
    assert len(place.left()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def reprocess(spark, rows):\n    raise ValueError('no luck')\n", ["ValueError: no luck", ":2, in reprocess"]),
        ("def reprocess(spark, rows):\n    rows.count()\n", ["it returned None", "is there a 'return'"]),
        ("def reprocess(spark, rows):\n    return [1]\n", ["it returned", "must return a DataFrame"]),
        (
            "def reprocess(spark, rows):\n    return rows.select('wrod')\n",
            ["[UNRESOLVED_COLUMN.WITH_SUGGESTION]", "`word`", ":2, in reprocess"],
        ),
        (
            "from pyspark.sql import functions as F\n\ndef half(count):\n    return count // 0\n\n"
            "def reprocess(spark, rows):\n    return rows.select(F.udf(half, 'bigint')('count').alias('n'))\n",
            ["ZeroDivisionError: integer division or modulo by zero", ":4, in half"],
        ),
        (
            "def reprocess(spark, rows):\n    return rows.selectExpr('interval 1 day as step', 'count')\n",
            ["step", "INTERVAL"],
        ),
        (
            "def reprocess(spark, rows):\n    return rows.join(rows.withColumnRenamed('count', 'n'), on=rows.word != '')\n",
            ["word"],
        ),
    ],
    ids=["raises", "returns-none", "returns-a-list", "no-such-column", "in-a-worker", "type", "columns-twice"],
)  # fmt: skip
def test_mistakes_in_a_job_are_reported_with_its_line_and_nothing_is_published(
    spark: SparkSession, place: Place, text: str, said: list[str]
) -> None:
    job = place.job(text)
    done = place.run(job)

    assert (done.exit_code, "Traceback" in done.output) == (1, False), done.output
    assert done.stderr.count("\n") < 15, done.stderr
    for each in said:
        where = f"{job}{each}" if each.startswith(":") else each
        assert where in done.stderr
    assert place.left() == []
    with pytest.raises(NoTable):
        read_committed(spark, place.output)


def test_sql_that_spark_refuses_is_reported_in_its_words(spark: SparkSession, place: Place) -> None:
    for query in ("selekt 1", "select nothing from rows", "select 1/0 as x from rows"):
        done = place.run("--sql", query)
        assert (done.exit_code, "Traceback" in done.output, "py4j" in done.output) == (1, False, False), (
            done.output
        )
        assert done.stderr.splitlines()[-2].startswith("squall reprocess: "), done.stderr
        assert "[" in done.stderr and "Nothing was published" in done.stderr
    assert place.left() == []


def test_after_a_failed_first_run_the_next_one_may_use_another_format(
    spark: SparkSession, place: Place
) -> None:
    wrong = place.run("--sql", "select nothing from rows", "--format", "csv")
    assert wrong.exit_code == 1, wrong.output
    assert [path for path in Path(place.output).rglob("*") if path.is_file()] == []

    right = place.outcome("--sql", "select * from rows", "--format", "json", "--partition-by", "word")
    assert right["version"] == 1
    assert rows(spark, place.output) == [("a", 1), ("a", 3), ("b", 2)]
    refused = place.run("--sql", "select * from rows", "--format", "csv")
    assert "is already a different table" in refused.stderr, "a published result fixes the format"


def test_an_interrupted_job_leaves_nothing(spark: SparkSession, place: Place) -> None:
    done = place.run(place.job("def reprocess(spark, rows):\n    raise KeyboardInterrupt\n"))

    assert done.exit_code == 1
    assert "squall reprocess: interrupted" in done.stderr
    assert place.left() == []


def waiting_job(place: Place, waits: Path) -> str:
    """A job whose function, in a module beside it, waits in Spark's workers until the file `waits`/go on exists."""
    (place.folder / "a_module_beside_a_job.py").write_text("def one_more(number):\n    return number + 1\n")
    waits.mkdir()
    return place.job(f"""
import os, time
from pyspark.sql import functions as F
import a_module_beside_a_job

def slowly(number):
    while not os.path.exists({str(waits) + "/go on"!r}):
        open({str(waits)!r} + "/here", "w").close()
        time.sleep(0.05)
    return a_module_beside_a_job.one_more(number)

def reprocess(spark, rows):
    return rows.select("word", F.udf(slowly, "bigint")("count").alias("total"))
""")


def begin(job: str, place: Place) -> subprocess.Popen[str]:
    """The command as a process of its own."""
    arguments = [job, "--input", place.input, "--output", place.output, "--master", "local[1]"]
    settings = [
        "--conf",
        "spark.driver.memory=512m",
        "--conf",
        f"spark.driver.extraJavaOptions={small_java()}",
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "squall_cli", "reprocess", *arguments, *settings],
        env=environment(SPARK_LOCAL_IP="127.0.0.1"),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.soak)],
    ids=["killed", "interrupted"],
)
def test_a_killed_run_is_published_once_by_the_next_one(
    spark: SparkSession, place: Place, number: signal.Signals
) -> None:
    """The command as a process of its own: its functions travel to Spark's workers, and a kill leaves the previous version."""
    place.outcome("--sql", "select 'old' as word, 0L as total from rows limit 1")
    waits = place.folder / "it waits"
    job = waiting_job(place, waits)
    process = begin(job, place)
    guard = threading.Timer(CAP, process.kill)
    guard.start()
    try:
        while not (waits / "here").exists():
            assert process.poll() is None, process.communicate()[0]
            threading.Event().wait(0.05)
        os.kill(process.pid, number)
        said, _ = process.communicate()
    finally:
        guard.cancel()
        process.kill()
    assert rows(spark, place.output) == [("old", 0)]
    if number == signal.SIGKILL:
        assert len(place.left()) == 2, "its remains"
    else:
        assert (process.returncode, len(place.left())) == (1, 1)
        assert "squall reprocess: interrupted" in said and "Traceback" not in said, said

    (waits / "go on").touch()
    outcome = place.outcome(job)
    assert (outcome["published"], outcome["version"]) == (True, 2)
    assert rows(spark, place.output) == [("a", 2), ("a", 4), ("b", 3)]
    assert len(place.left()) == 2, "both versions, and nothing of the killed run"
    assert place.outcome(job)["published"] is False


def test_progress_follows_sparks_tasks(spark: SparkSession, tmp_path: Path) -> None:
    here, go_on = str(tmp_path / "here"), str(tmp_path / "go on")

    def slowly(numbers: Iterable[int]) -> Iterable[int]:
        import os
        import time

        for number in numbers:
            open(here, "w").close()
            while not os.path.exists(go_on):
                time.sleep(0.02)
            yield number

    seen = watch(spark)
    assert seen.poll() == JobProgress()
    results: list[int] = []
    job = spark.sparkContext.parallelize(range(4), 4).mapPartitions(slowly)
    thread = threading.Thread(target=lambda: results.append(job.count()))
    thread.start()
    try:
        wait_until(lambda: seen.poll().running == 2)
        assert str(seen.poll()) == "stage 1 of 1, 0 of 4 tasks, 2 running"
    finally:
        Path(go_on).touch()
        thread.join(CAP)
    wait_until(lambda: seen.poll() == JobProgress(stages=1, stages_done=1, tasks=4, tasks_done=4))
    assert results == [4]
    seen.close()


def wait_until(condition: Callable[[], bool]) -> None:
    done = threading.Event()
    for _ in range(int(CAP / 0.05)):
        if condition():
            return
        done.wait(0.05)
    raise AssertionError("it did not come true")
