"""What the shell completes: commands without loading them, names out of the cluster, nothing when it is away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.squall_cli.fake_nimbus import FakeNimbus, Refusal, fake_nimbus, topology
from tests.squall_cli.run_process import CAP, environment


@pytest.fixture
def nimbus() -> Iterator[FakeNimbus]:
    with fake_nimbus() as there:
        there.put(topology("word_count"), topology("web_logs"))
        yield there


def complete(line: str, **extra: str) -> list[str]:
    """What bash is told when Tab is pressed at the end of the line."""
    words = line.split(" ")
    process = subprocess.run(
        [sys.executable, "-c", "from squall_cli.main import main; main()"],
        env=environment(
            _SQUALL_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), **extra
        ),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=CAP,
        check=False,
    )
    assert process.stderr == ""
    return [row.partition(",")[2] for row in process.stdout.splitlines() if row]


def test_commands_are_completed() -> None:
    assert complete("squall sta") == ["status"]
    assert {"submit", "supervisor", "supervisors"} <= set(complete("squall su"))


def test_names_of_topologies_are_asked_of_the_cluster(nimbus: FakeNimbus) -> None:
    for command in ("status", "kill", "activate", "deactivate", "rebalance", "errors", "logs"):
        assert complete(f"squall {command} w", SQUALL_NIMBUS=nimbus.url) == ["word_count", "web_logs"]
    assert complete(f"squall status --nimbus {nimbus.url} wo") == ["word_count"]


def test_components_workers_and_hosts_are_too(nimbus: FakeNimbus) -> None:
    where = {"SQUALL_NIMBUS": nimbus.url}
    assert complete("squall logs word_count --component c", **where) == ["count"]
    assert complete("squall logs word_count --worker word_count-w", **where) == [
        "word_count-w1",
        "word_count-w2",
    ]
    assert complete("squall rebalance word_count -e ", **where) == ["words=", "count="]
    assert complete("squall drain host", **where) == ["host-1", "host-2"]


def test_a_cluster_that_is_away_or_refuses_completes_nothing_and_says_nothing(nimbus: FakeNimbus) -> None:
    assert complete("squall status w", SQUALL_NIMBUS="http://127.0.0.1:1") == []
    nimbus.refusal = Refusal(401, "Unauthorized", "no")
    assert complete("squall status w", SQUALL_NIMBUS=nimbus.url) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "squall_cli", "completion", shell],
        env=environment(PATH="/nowhere"),  # click asks bash for its version when there is one
        cwd="/",
        capture_output=True,
        text=True,
        timeout=CAP,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert f"_SQUALL_COMPLETE={shell}_complete" in result.stdout
