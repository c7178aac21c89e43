"""Every command of `squall` has a line of help, an exit status, and a reason instead of a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from squall import __version__
from squall_cli.main import COMMANDS, squall
from topology_api.core_choice import choose
from topology_api.errors import InvalidConfig

ROOT = Path(__file__).resolve().parents[2]
IN_THE_CONTRACT = [
    "run", "pipe", "explain", "submit", "list", "status", "kill", "activate", "deactivate", "rebalance", "history", "rollback",
    "errors", "logs", "stack", "dead-letters", "state", "top", "drain", "backup", "restore", "nimbuses", "supervisors",
    "nimbus",
    "supervisor", "dev", "zookeeper", "config", "version", "table", "compact", "vacuum", "reprocess", "replay",
    "completion",
]  # fmt: skip

# All that a user may type, from the API page and the help texts, is understood.
UNDERSTOOD = [
    "list --json",
    "status wc --json --nimbus http://h:1 --config site.yaml",
    "kill wc -w 3 --wait",
    "activate wc",
    "deactivate wc --nimbus http://h:1,http://i:1 -w 2",
    "rebalance wc --workers 3 --parallelism count=4 -e split=2 -w 10 --wait",
    "errors wc --component count",
    "logs wc --follow --component count --worker w1 --lines 5",
    "logs wc -f --file build",
    "top --json --delay 5",
    "drain host-1 --wait",
    "drain host-1 --undo",
    "backup /var/backups/squall/monday.tar",
    "nimbuses --json",
    "supervisors --json",
    "nimbus --zookeeper h:1,i:2 --listen 0.0.0.0:6627 --state here",
    "supervisor --zookeeper h:1 --slots 2 --host me --state here",
    "dev --listen 127.0.0.1:0 --slots 2 --state here",
    "zookeeper --listen 127.0.0.1:0 --state here",
    "config --json",
    "version --nimbus http://h:1",
    "table counts --verify --key word,day --json --master local[2] --conf spark.driver.memory=1g",
    "completion bash",
]
MISUNDERSTOOD = [
    "submit",
    "submit x.py -w 5",
    "submit x.py --wheels wheels",
    "submit no_such_file.py",
    "status",
    "kill wc -w soon",
    "kill wc -w -1",
    "activate",
    "list --jsn",
    "rebalance wc --workers 0",
    "nimbus --listen 6627",
    "supervisor --zookeeper h:1 --slots many",
    "dev --slots 0",
    "zookeeper here",
    "rebalance wc -e count",
    "rebalance wc -e count=0",
    "rebalance wc -e count=2 -e count=3",
    "drain host-1 --undo --wait",
    "logs wc --component count --file output",
    "logs wc --lines -1",
    "dead-letters wc",
    "dead-letters list",
    "dead-letters wc show",
    "state list",
    "state get /state count",
    "state list /state --epoch 0",
    "state list ftp://namenode/state",
    "top --delay 0",
    "completion tcsh",
    "version now",
    "table",
    "table counts --key ,",
    "table counts --conf memory",
    "table s3a:counts",
]


def run(line: str) -> Result:
    return CliRunner().invoke(squall, line.split(), prog_name="squall")


def test_the_commands_are_those_of_the_contract() -> None:
    assert list(COMMANDS) == IN_THE_CONTRACT


def test_the_help_lists_every_command_and_loads_none() -> None:
    code = (
        "import sys; from squall_cli.main import squall\n"
        "try: squall.main(['--help'], prog_name='squall')\n"
        "finally: print([m for m in sys.modules if m.startswith(('squall_cli.', 'topology_api', 'rich'))])"
    )
    result = python("-c", code)
    for name, entry in COMMANDS.items():
        assert f"  {name} " in result.stdout
        assert entry.text in " ".join(result.stdout.split())
    assert result.stdout.splitlines()[-1] == "['squall_cli.main']"


@pytest.mark.parametrize("line", UNDERSTOOD)
def test_the_examples_in_the_help_texts_are_understood(line: str) -> None:
    name, *arguments = line.split()
    context = COMMANDS[name].load().make_context(name, arguments)
    assert context.args == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_begins_with_its_purpose_and_has_examples(name: str) -> None:
    result = run(f"{name} --help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: squall {name} ")
    if name != "completion":
        assert "  squall " + name in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


@pytest.mark.parametrize("line", MISUNDERSTOOD)
def test_wrong_usage_has_a_status_of_its_own(line: str) -> None:
    result = run(line)
    assert result.exit_code == 2
    assert "Usage: squall " + line.split()[0] in result.stderr
    assert result.stdout == ""


def test_an_unknown_command_is_wrong_usage_and_the_nearest_is_suggested() -> None:
    result = run("subnit word_count.py")
    assert result.exit_code == 2
    assert "There is no command 'subnit'; did you mean 'submit'?" in result.stderr


def test_the_version_is_printed_by_command_and_by_option() -> None:
    assert run("version").stdout.startswith(f"squall {__version__} (Python {sys.version.split()[0]}, ")
    assert run("--version").stdout == f"squall {__version__}\n"


def test_the_version_shows_which_core_runs_and_why_it_is_the_plain_one() -> None:
    asked = python("-m", "squall_cli", "version", SQUALL_PURE="1")
    assert asked.stdout.splitlines()[1:] == ["core: plain (SQUALL_PURE is 1)"]
    told = json.loads(python("-m", "squall_cli", "version", "--json", SQUALL_PURE="1").stdout)
    assert (told["core"], told["core_why"]) == ("plain", "SQUALL_PURE is 1")

    left_alone = python("-m", "squall_cli", "version", SQUALL_PURE="")
    assert left_alone.stdout.splitlines()[1:] == [f"core: {choose()}"]
    told = json.loads(python("-m", "squall_cli", "version", "--json", SQUALL_PURE="").stdout)
    assert (told["core"], told["core_why"]) == ("compiled" if choose().compiled else "plain", choose().why)


def test_a_squall_error_is_one_line_and_any_other_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(error: Exception) -> click.Command:
        def callback() -> None:
            raise error

        return click.Command("list", callback=callback)

    errors = [InvalidConfig(["'a' is wrong"]), ZeroDivisionError("a bug")]
    entries = [failing(error) for error in errors]
    monkeypatch.setattr(type(squall), "get_command", lambda self, ctx, name: entries[0])
    ours = run("list")
    assert (ours.exit_code, ours.stdout) == (1, "")
    assert ours.stderr.startswith("squall list: the configuration has 1 problem:")
    monkeypatch.setattr(type(squall), "get_command", lambda self, ctx, name: entries[1])
    assert isinstance(run("list").exception, ZeroDivisionError)


def test_the_command_names_a_package_that_hides_ours(tmp_path: Path) -> None:
    (tmp_path / "supervisor.py").write_text("raise SystemExit('the code of the other package ran')\n")
    result = python("-m", "squall_cli", "version", path=[tmp_path])
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("squall: The package 'supervisor' that Python finds is not Squall's.")
    assert str(tmp_path / "supervisor.py") in result.stderr
    assert "Traceback" not in result.stderr


def test_the_command_runs_as_a_module() -> None:
    result = python("-m", "squall_cli", "version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"squall {__version__} ")


def python(
    *arguments: str, path: list[Path] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(map(str, [*(path or ()), ROOT]))}
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd="/",  # -m puts it first on the path
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
