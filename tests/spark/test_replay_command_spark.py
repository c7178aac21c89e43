"""squall replay with Spark: from files and tables to tables, once per state of the input. One session for all tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from squall.stores.files import FilesUnavailable
from squall_cli.main import squall
from squall_io.spark import read_committed
from squall_io.spark.results import versions
from squall_io.spark.stores import open_files
from tests.spark.batches import SinkTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TOPOLOGY = """
from replayed_bolts import Count, Lines, Split
from topology_api import TopologyBuilder

def topology():
    builder = TopologyBuilder("words")
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", "word")
    return builder.build()
"""
BOLTS = """
from topology_api import Bolt, FailTuple, Fields, Spout

class Lines(Spout):
    outputs = Fields("line")
    def next_tuple(self):
        self.finish()

class Split(Bolt):
    outputs = Fields("word")
    def execute(self, tup):
        for word in tup["line"].split():
            if word == "bad":
                raise ValueError("a bad word")
            self.emit((word,))

class Count(Bolt):
    outputs = Fields("word", "count")
    def prepare(self, context):
        self.counts = {}
    def execute(self, tup):
        self.counts[tup["word"]] = self.counts.get(tup["word"], 0) + 1
    def end_of_input(self):
        for word, count in self.counts.items():
            self.emit((word, count))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a topology, its bolts in a module beside it, and lines."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "replayed.py").write_text(TOPOLOGY)
    (tmp_path / "replayed_bolts.py").write_text(BOLTS)
    (tmp_path / "lines.txt").write_text("a b\nbad line\na c a\n")
    yield tmp_path
    for name in ("replayed", "replayed_bolts"):
        sys.modules.pop(name, None)


def run(*arguments: str) -> Result:
    """Run the command, with the user's modules imported again as in a process of its own."""
    for name in ("replayed", "replayed_bolts"):
        sys.modules.pop(name, None)
    return CliRunner().invoke(squall, ["replay", "replayed.py", *arguments], prog_name="squall")


def outcome(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in read_committed(spark, str(path)).collect()), key=repr)


def test_lines_become_tables_and_a_table_is_replayed_once(spark: SparkSession, folder: Path) -> None:
    too_many = run("--source", "lines=lines.txt", "--output", "split=words")
    assert too_many.exit_code == 1
    assert "stopped after 1 error, of at most 0 (max_errors):" in too_many.output
    assert "execute of ('bad line',): ValueError: a bad word" in too_many.output

    first = run(
        *("--source", "lines=lines.txt", "--output", "split=words", "--output", "count=counts"),
        *("--max-errors", "1", "--errors", "failed"),
    )
    assert first.exit_code == 0, first.output
    assert f"split: 5 rows published as version 1 of {folder}/words" in first.stdout
    assert f"count: 3 rows published as version 1 of {folder}/counts" in first.stdout
    assert f"errors: 1 row published as version 1 of {folder}/failed" in first.stdout
    assert "1 error (of at most 1)\n" in first.stdout
    assert rows(spark, folder / "counts") == [("a", 3), ("b", 1), ("c", 1)]
    [failed] = read_committed(spark, str(folder / "failed")).collect()
    assert (failed.component, failed.error, failed.sources[0].row) == ("split", "ValueError: a bad word", 1)

    from_words = (
        "--source",
        "split=words",
        "--output",
        "count=recounted",
        "--schema",
        "count=count int, word string",
    )
    again = outcome(*from_words)["outputs"]["count"]
    assert (again["published"], again["version"], again["schema"]) == (True, 1, "word string, count int")
    assert rows(spark, folder / "recounted") == rows(spark, folder / "counts")
    assert "already, as version 1" in run(*from_words).stdout

    module = folder / "replayed_bolts.py"
    module.write_text(BOLTS.replace("count))", "10 * count))"))
    changed = outcome(*from_words)["outputs"]["count"]
    assert (changed["published"], changed["version"]) == (True, 2), "the code is another one"


def test_when_one_output_cannot_be_written_none_is_published(spark: SparkSession, folder: Path) -> None:
    arguments = ("--source", "lines=lines.txt", "--max-errors", "1", "--output", "count=counts")
    refused = run(*arguments, "--output", "split=words", "--format", "csv", "--partition-by", "count")
    assert refused.exit_code == 1
    assert (
        "the result cannot be written as csv" in refused.output and "Published before" not in refused.output
    )
    assert versions.newest_version(open_files(str(folder / "counts"))) is None
    assert list((folder / "counts" / "_squall" / "results").glob("*-*")) == [], "nothing is left"


def test_when_storage_fails_between_two_outputs_the_published_ones_are_named(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, calls = versions.publish, []

    def once(*arguments: Any, **others: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            raise FilesUnavailable("the NameNode is away")
        return publish(*arguments, **others)

    arguments = ("--source", "lines=lines.txt", "--max-errors", "1", "--output", "split=words")
    monkeypatch.setattr(versions, "publish", once)
    failed = run(*arguments, "--output", "count=counts")
    assert failed.exit_code == 1
    assert "the NameNode is away" in failed.output
    assert f"Published before that: version 1 of {folder}/words\n" in failed.output
    assert len(rows(spark, folder / "words")) == 5
    assert versions.newest_version(open_files(str(folder / "counts"))) is None


def test_the_errors_of_a_replay_are_recorded_with_its_version_and_judged_again(
    spark: SparkSession, folder: Path
) -> None:
    with open_files(str(folder / "table")) as files:
        data = b'{"line": "a bad"}\n{"line": "b"}\n'
        SinkTask(files, "line string", file_format="json").put({"part-0.json": data}, rows=2)
    arguments = ("--source", "lines=table", "--output", "count=counts")
    made = outcome(*arguments, "--max-errors", "1")
    assert (made["outputs"]["count"]["published"], made["errors"], made["unsettled"]) == (True, 1, 0)
    there = outcome(*arguments, "--max-errors", "1")
    assert (there["outputs"]["count"]["published"], there["errors"], there["unsettled"]) == (False, 1, 0)
    assert "1 error (of at most 1)" in run(*arguments, "--max-errors", "1").stdout
    strict = run(*arguments)
    assert strict.exit_code == 1
    assert "with 1 error; --max-errors allows 0" in strict.output


def test_files_are_read_by_their_suffixes_and_missing_ones_are_reported(
    spark: SparkSession, folder: Path
) -> None:
    spark.createDataFrame([("a",), ("a",)], "word string").write.json(str(folder / "words.json"))
    assert run("--source", "split=words.json", "--output", "count=counts").exit_code == 0
    assert rows(spark, folder / "counts") == [("a", 2)]
    other = run("--source", "split=counts", "--output", "count=again")
    assert other.exit_code == 0, "a table of results has the columns that it was given"
    spark.createDataFrame([("a",)], "wrod string").write.json(str(folder / "wrong.json"))
    wrong = run("--source", "split=wrong.json", "--output", "count=wrong")
    assert (wrong.exit_code, "toDF" in wrong.output) == (1, False), wrong.output
    assert "source 'split' has no column 'word'" in wrong.output and "(it has 'wrod')" in wrong.output
    assert "give files with these columns" in wrong.output
    from_table = run("--source", "lines=counts", "--output", "count=wrong")
    assert "source 'lines' has no column 'line'" in from_table.output
    assert f"--sql 'select ... as line, ... from rows' --input {folder}/counts" in from_table.output
    lost = run("--source", "lines=nothing.txt", "--output", "count=counts")
    assert lost.exit_code == 1
    assert "nothing.txt" in lost.output and "Traceback" not in lost.output and "org.apache" not in lost.output
    assert "starting Spark" not in lost.output
