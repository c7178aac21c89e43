"""squall replay: mistakes that are refused before Spark is started. tests/spark/test_replay_command_spark.py tests its work."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall_cli.main import squall

TOPOLOGY = """
from topology_api import Bolt, Fields, Spout, TopologyBuilder

class Lines(Spout):
    outputs = Fields("line")
    def next_tuple(self):
        self.finish()

class Split(Bolt):
    outputs = Fields("word")
    def execute(self, tup):
        for word in tup["line"].split():
            self.emit((word,))

def topology(name="words"):
    builder = TopologyBuilder(name)
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    return builder.build()
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A topology's file, whose module is unloaded afterwards."""
    path = tmp_path / "replayed_words.py"
    path.write_text(TOPOLOGY)
    before = list(sys.path)
    yield path
    sys.path[:] = before
    sys.modules.pop("replayed_words", None)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(squall, ["replay", *map(str, arguments)], prog_name="squall")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--source", "lines"], "'lines': write COMPONENT=PATH"),
        (["--source", "lines=/a", "--source", "lines=/b"], "'lines' is given twice"),
        (["--source", "lines=hdfs://nn:9000"], "the root of a file system"),
        (["--max-errors", "-1"], "whole number"),
        (["--parallelism", "split=none"], "N must be a whole number, 1 or more"),
        (["--schema", "split"], "write OUTPUT=DDL"),
        (["--since", "yesterday"], "yesterday"),
        (["--output", "split=/data/lines/deeper"], "sources and results must be in separate places"),
        (["--errors", "/data/out"], "both are /data/out"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_to_write(file: Path, options: list[str], said: str) -> None:
    source = [] if options[0] == "--source" else ["--source", "lines=/data/lines"]
    target = [] if options[0] == "--output" else ["--output", "split=/data/out"]
    done = run(file, *source, *target, *options)
    assert done.exit_code == 2, done.output
    assert said in done.output


def test_a_missing_file_is_wrong_usage(tmp_path: Path) -> None:
    done = run(tmp_path / "nothing.py", "--source", "lines=/a", "--output", "split=/b")
    assert (done.exit_code, "there is no file" in done.output) == (2, True)


def test_a_topology_that_cannot_be_replayed_is_reported_before_spark_is_started(file: Path) -> None:
    done = run(
        file, "--source", "line=/data/lines", "--output", "split=/data/out", "--output", "lines=/data/o"
    )
    assert done.exit_code == 1
    assert "squall replay: topology 'words' cannot be replayed in this way:" in done.output
    assert "did you mean 'lines'?" in done.output and "'lines' is a spout" in done.output
    assert "starting Spark" not in done.output


def test_a_number_of_tasks_for_an_unknown_component_is_reported(file: Path) -> None:
    done = run(file, "--source", "lines=/a", "--output", "split=/b", "--parallelism", "splti=3")
    assert (done.exit_code, "splti" in done.output) == (1, True)


def test_since_is_refused_for_files_that_are_no_table(file: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a b\n")
    out = tmp_path / "out"
    done = run(
        file, "--source", f"lines={lines}", "--output", f"split={out}", "--since", "2026-01-01T00:00:00Z"
    )
    assert done.exit_code == 1
    assert f"{lines} is not a Squall table" in done.output
    assert not out.exists()


def test_when_one_output_has_foreign_files_nothing_is_written_to_any(file: Path, tmp_path: Path) -> None:
    lines, out, errors = tmp_path / "lines.txt", tmp_path / "out", tmp_path / "errors"
    lines.write_text("a b\n")
    errors.mkdir()
    (errors / "notes.txt").write_text("theirs")
    done = run(file, "--source", f"lines={lines}", "--output", f"split={out}", "--errors", errors)
    assert done.exit_code == 1
    assert f"file://{errors} is not a Squall table and already has files (notes.txt)" in done.output
    assert not out.exists() and "starting Spark" not in done.output
