"""Shell completion: commands without loading them, names from the cluster, nothing when it does not answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import squall_cli.terminal.shells  # noqa: F401 - registers the shells with click, like the command's own process
from squall_cli.main import squall
from tests.squall_cli.fake_nimbus import FakeNimbus, Refusal, fake_nimbus, topology
from tests.squall_cli.run_process import CAP, environment


@pytest.fixture
def nimbus() -> Iterator[FakeNimbus]:
    with fake_nimbus() as there:
        there.put(topology("word_count"), topology("web_logs"))
        yield there


def complete(line: str, **extra: str) -> list[str]:
    """The completions of bash when Tab is pressed at the end of the line."""
    return [row.partition(",")[2] for row in script_lines("bash", COMP_WORDS=line, **extra)]


def script_lines(shell: str, **extra: str) -> list[str]:
    """The lines that a shell's script gets. (In a process of its own: `test_bash_inserts_names_in_a_form_that_it_can_read`.)"""
    surroundings: dict[str, str | None] = {name: None for name in os.environ if name.startswith("SQUALL_")}
    variables = {**surroundings, "_SQUALL_COMPLETE": f"{shell}_complete", **extra}
    result = CliRunner().invoke(squall, prog_name="squall", env=variables)
    assert result.stderr == ""
    return [row for row in result.stdout.splitlines() if row]


def test_commands_are_completed() -> None:
    assert complete("squall sta") == ["status", "stack", "state"]
    assert {"submit", "supervisor", "supervisors"} <= set(complete("squall su"))


def test_names_of_topologies_come_from_the_cluster(nimbus: FakeNimbus) -> None:
    for command in ("status", "kill", "activate", "deactivate", "rebalance", "errors", "logs"):
        assert complete(f"squall {command} w", SQUALL_NIMBUS=nimbus.url) == ["word_count", "web_logs"]
    assert complete(f"squall status --nimbus {nimbus.url} wo") == ["word_count"]


def test_a_name_that_would_command_the_terminal_is_not_completed(nimbus: FakeNimbus) -> None:
    nimbus.put(topology("word\x1b]0;owned\x07"), topology("word\nforged"))
    assert complete("squall status w", SQUALL_NIMBUS=nimbus.url) == ["word_count", "web_logs"]


def test_components_workers_and_hosts_come_from_it_too(nimbus: FakeNimbus) -> None:
    where = {"SQUALL_NIMBUS": nimbus.url}
    assert complete("squall logs word_count --component c", **where) == ["count"]
    assert complete("squall logs word_count --worker word_count-w", **where) == [
        "word_count-w1",
        "word_count-w2",
    ]
    assert complete("squall rebalance word_count -e ", **where) == ["words=", "count="]
    assert complete("squall drain host", **where) == ["host-1", "host-2"]


def test_files_are_left_to_the_shell() -> None:
    for line in (
        "submit my_",
        "run my_",
        "submit a.py --resource my_",
        "run a.py -- my_",
        "list --config my_",
    ):
        assert script_lines("bash", COMP_WORDS=f"squall {line}") == ["file,my_"]
    for line in ("submit a.py --wheels ", "dev --state ", "zookeeper --jars "):
        assert script_lines("bash", COMP_WORDS=f"squall {line}") == ["dir,"]


def test_keys_of_settings_are_completed_for_the_topology_and_for_a_component() -> None:
    assert complete("squall submit a.py -o topology.message.t") == ["topology.message.timeout.secs="]
    assert complete("squall run a.py -o topology.on.e") == ["topology.on.error="]
    assert complete("squall config -o count:topology.on.e") == [
        "topology.on.error="
    ]  # bash breaks at the colon
    assert complete("squall config -o count:topology.workers") == []
    assert complete("squall config -o nimbus.") == []


def test_an_option_and_its_value_in_one_word_are_completed_for_each_shell(nimbus: FakeNimbus) -> None:
    line, where = "squall logs word_count --component=co", {"SQUALL_NIMBUS": nimbus.url}
    assert complete(line, **where) == ["count"]
    zsh = script_lines("zsh", COMP_WORDS=line, COMP_CWORD="3", **where)
    assert zsh == ["plain", "--component=count", "_"]
    fish = script_lines("fish", COMP_WORDS=line, COMP_CWORD="--component=co", **where)
    assert fish == ["plain,--component=count"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("typed", "word", "inserted"),
    [
        ("squall status a", "a", r"a\ b"),
        ("squall status 'a", "'a", "a b"),  # bash puts the quotation mark back
        ("squall status it", "it", r"it\'s"),
        ("squall status --nimbus URL wo", "wo", "word_count"),
        ("squall logs word_count --component=co", "co", "count"),
        ("squall rebalance word_count -e co", "co", "count="),
    ],
)
def test_bash_inserts_names_in_a_form_that_it_can_read(
    typed: str, word: str, inserted: str, nimbus: FakeNimbus, tmp_path: Path
) -> None:
    nimbus.put(topology("a b"), topology("it's"))
    command = tmp_path / "squall"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m squall_cli "$@"\n')
    command.chmod(0o755)
    script = """
        compopt() { :; }  # works only where bash itself has called
        source <(squall completion bash)
        COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=(squall "$2") COMP_CWORD=1
        _squall_completion squall "$2" squall
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    process = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", typed.replace("URL", nimbus.url), word],
        env=environment(PATH=f"{tmp_path}:/usr/bin:/bin", SQUALL_NIMBUS=nimbus.url, HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=CAP,
        check=False,
    )
    assert (process.stdout.splitlines(), process.stderr) == ([inserted], "")


def test_an_unavailable_or_refusing_cluster_completes_nothing_silently(nimbus: FakeNimbus) -> None:
    assert complete("squall status w", SQUALL_NIMBUS="http://127.0.0.1:1") == []
    nimbus.refusal = Refusal(401, "Unauthorized", "no")
    assert complete("squall status w", SQUALL_NIMBUS=nimbus.url) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "squall_cli", "completion", shell],
        env=environment(PATH="/nowhere"),  # click asks bash for its version if there is one
        cwd="/",
        capture_output=True,
        text=True,
        timeout=CAP,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert f"_SQUALL_COMPLETE={shell}_complete" in result.stdout
