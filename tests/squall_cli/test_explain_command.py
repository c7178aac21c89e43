"""`squall explain FILE` shows what a topology guarantees, and `squall run` refuses one that gives less than is required."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from squall_cli.main import squall

FILE = """
from topology_api import (
    Bolt, Fields, RewindableSpout, StatefulBolt, TokenSink, TopologyBuilder, ValueState,
)

class Lines(RewindableSpout):
    outputs = Fields("word")
    def next_tuple(self):
        self.finish()
    def position(self):
        return 0
    def rewind(self, position):
        pass

class Count(StatefulBolt):
    key = "word"
    outputs = Fields("word", "times")
    times = ValueState(int, default=0)
    def execute(self, tup):
        self.times.value += 1

class Write(Bolt):
    def execute(self, tup):
        pass

class Rows(TokenSink):
    def read_token(self, token):
        return 0
    def write(self, epoch, rows, expected, token):
        return True

def topology(kind="plain"):
    print("loading")
    builder = TopologyBuilder("words")
    builder.set_spout("lines", Lines())
    builder.set_bolt("count", Count()).fields_grouping("lines", "word")
    builder.set_bolt("write", Rows() if kind == "rows" else Write()).shuffle_grouping("count")
    return builder.build()

def empty():
    builder = TopologyBuilder("empty")
    builder.set_spout("lines", Lines())
    return builder.build()
"""
REQUIRED = "topology.require=exactly-once"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path, modules = list(sys.path), set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "words_explained.py").write_text(FILE)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def called(command: str, *arguments: str) -> Result:
    return CliRunner().invoke(squall, [command, *arguments], prog_name="squall")


def explain(*arguments: str, source: str = "words_explained.py") -> Result:
    return called("explain", source, *arguments)


def test_the_table_names_the_pair_and_the_sentences_what_lowers_it() -> None:
    result = explain("-o", "topology.state.path=null")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:5] == [
        "loading",
        "words: at least once",
        "",
        "SPOUT  THROUGH  SINK   WRITTEN OUTSIDE  COUNTED IN STATE",
        "lines  count    write  at least once    replays twice, ends with its worker",
    ]
    assert "  Lowered by topology.state.path, bolt 'write'." in lines
    assert any(line.startswith("  - bolt 'write' is no TokenSink") for line in lines)
    assert any(line.startswith("  - topology.state.path is not set") for line in lines)
    assert any(line.startswith("  - Attributes of components are not state") for line in lines)
    assert "topology.state.path is auto" not in result.stdout


def test_a_topology_that_names_no_path_is_judged_as_on_a_cluster_and_told_where_its_state_is() -> None:
    result = explain("-o", REQUIRED, "--", "rows")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "words: exactly once\n" in result.stdout
    assert (
        "  - topology.state.path is auto, and the topology keeps state ('count', 'write'): on a cluster of one host in a "
        "folder of its supervisor. On a cluster of several hosts, `squall submit` wants -o "
        "topology.state.path=hdfs://host:port/folder, or file:///folder of a file system that all hosts have, or null, for "
        "memory. `squall run` keeps it in memory.\n"
    ) in result.stdout


def test_a_topology_that_is_exactly_once_has_nothing_to_change(tmp_path: Path) -> None:
    result = explain("-o", f"topology.state.path=file://{tmp_path}/state", "-o", REQUIRED, "--", "rows")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "words: exactly once\n" in result.stdout
    assert "the state of 'count' counts each tuple of 'lines' once." in result.stdout
    assert "For exactly once" not in result.stdout
    assert not (tmp_path / "state").exists()  # nothing was started


def test_json_is_alone_on_stdout_and_has_the_sentences() -> None:
    found = subprocess_json("--json")
    assert (found["topology"], found["require"], found["refused"]) == ("words", None, [])
    (pair,) = found["pairs"]
    assert (pair["spout"], pair["through"], pair["sink"]) == ("lines", ["count"], "write")
    assert pair["level"] == "at-least-once"
    assert [each["component"] for each in pair["obstacles"]] == ["write"]
    assert found["notes"][0].startswith("topology.state.path is auto")
    assert pair["obstacles"][0]["text"].endswith(": derive from one of them")
    assert [each["bolt"] for each in pair["states"]] == ["count"]


def subprocess_json(*arguments: str) -> Any:
    """The command's stdout, from a process of its own: it keeps stdout for JSON."""
    import subprocess

    from tests.squall_cli.run_process import environment

    done = subprocess.run(
        [sys.executable, "-m", "squall_cli", "explain", "words_explained.py", *arguments],
        env=environment(), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stderr == "loading\n"
    return json.loads(done.stdout)


def test_less_than_is_required_is_shown_and_ends_with_1() -> None:
    result = explain("-o", REQUIRED)
    assert result.exit_code == 1
    assert "For exactly once:" in result.stdout
    assert result.stderr == (
        "squall explain: topology.require is exactly-once, and the topology gives less\n"
    )


def test_what_a_state_path_refuses_is_shown_and_ends_with_1() -> None:
    result = explain("-o", "topology.state.path=file:///state", "-o", "topology.acking=false")
    assert result.exit_code == 1
    assert "words: at most once" in result.stdout
    assert "refused, since topology.acking is false" in result.stderr


def test_a_topology_without_bolts_writes_nothing() -> None:
    result = explain(source="words_explained.py:empty")
    assert (result.exit_code, result.stdout) == (
        0,
        "empty: no spout reaches a bolt, so nothing is written and nothing is counted.\n",
    )


def test_a_wrong_file_or_setting_is_reported_as_by_run(tmp_path: Path) -> None:
    (tmp_path / "broken_file.py").write_text("1 / 0\n")
    for source in ("no_such_file.py", "broken_file.py", "words_explained.py:missing"):
        ours, theirs = explain(source=source), called("run", source)
        assert (ours.exit_code, ours.stdout) == (theirs.exit_code, "") and ours.exit_code
        assert (
            ours.stderr.replace("squall explain", "squall run").splitlines()[-1]
            == theirs.stderr.splitlines()[-1]
        )
    wrong = explain("-o", "topology.requires=exactly-once")
    assert wrong.exit_code == 2 and "did you mean 'topology.require'" in wrong.stderr


def test_run_refuses_a_topology_that_gives_less_than_is_required() -> None:
    result = called("run", "words_explained.py", "-o", REQUIRED)
    assert result.exit_code == 1
    assert "topology.require is exactly-once, but bolt 'write' is no TokenSink" in result.stderr
    assert "topology.require is exactly-once, but topology.state.path is not set" in result.stderr
