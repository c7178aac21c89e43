"""Texts of a server, and of code that others submitted, are printed without the characters that a terminal obeys."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import squall_cli
from squall_cli.terminal.lines import harmless, in_json, painted
from tests.squall_cli.fake_nimbus import FakeNimbus, Refusal, Squall, reported

#: Sets the title of the window, moves the cursor, begins a sequence (7 and 8 bits), deletes, reverses the direction of writing.
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e"
LINES = [
    "list",
    "status word_count",
    "errors word_count",
    "logs word_count",
    "kill word_count",
    "activate word_count",
    "deactivate word_count",
    "rebalance word_count -n 2",
    "drain host-1",
    "supervisors",
    "top",
    "config word_count",
]


def assert_harmless(text: str) -> None:
    assert [char for char in text if not char.isprintable() and char not in "\n\t"] == []


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("status", [400, 404, 409, 500])
def test_a_refusal_cannot_command_the_terminal(
    run: Squall, nimbus: FakeNimbus, line: str, status: int
) -> None:
    nimbus.refusal = Refusal(status, "Odd", f"refused {EVIL}")
    result = run(line)
    assert result.exit_code == 1
    assert "refused \\x1b]0;owned\\x07" in result.stderr
    assert_harmless(result.stdout + result.stderr)


def spoilt(value: Any) -> Any:
    """The same answer, with the evil text behind each text that is no key and no state."""
    if isinstance(value, dict):
        return {key: inner if key in ("state", "kind") else spoilt(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [spoilt(inner) for inner in value]
    return value + EVIL if isinstance(value, str) else value


@pytest.mark.parametrize("more", ["", " --json"])
@pytest.mark.parametrize("line", ["list", "status word_count", "errors word_count", "supervisors", "top"])
def test_an_answer_cannot_command_the_terminal(run: Squall, nimbus: FakeNimbus, line: str, more: str) -> None:
    nimbus.topologies["word_count"] |= {"error": "broken", "notes": ["a note"], "note_times": [1.0]}
    nimbus.errors.append(reported("count", "broken", 1.0, 1))
    real = nimbus.answer
    nimbus.answer = lambda *request: spoilt(real(*request))  # type: ignore[method-assign]
    result = run(line + more)
    assert_harmless(result.stdout + result.stderr)
    if result.exit_code == 0 and not more:
        assert "\\x1b" in result.stdout
    elif result.exit_code == 0:
        assert "owned" in result.stdout
        json.loads(result.stdout)


def test_styles_are_the_only_sequences_of_a_line() -> None:
    assert (
        painted(((EVIL, "bad"), (EVIL, "")), {"bad": "1"})
        == f"\x1b[1m{harmless(EVIL)}\x1b[0m{harmless(EVIL)}"
    )
    assert harmless(EVIL) == "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\x7f\\x202e"
    assert json.loads(in_json(EVIL)) == EVIL
    assert_harmless(in_json(EVIL))


def test_spaces_of_all_widths_are_kept() -> None:
    spaces = "10\xa0000\u202f€\u3000\u2009end"
    assert harmless(spaces) == spaces
    assert harmless("\u2028\x85\u200b") == "\\x2028\\x85\\x200b", (
        "line breaks, and what has no width, are escaped"
    )


def calls_of_echo() -> Iterator[str]:
    """The places in `squall_cli` that print past `terminal/lines.py`."""
    root = Path(squall_cli.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "print"):
                yield path.relative_to(root).as_posix()


def test_there_is_one_place_that_prints() -> None:
    assert sorted(set(calls_of_echo())) == [
        "cluster/cluster_client.py",  # JSON, by `in_json`
        "commands/completion.py",  # code for the shell
        "commands/logs.py",  # JSON, in one line
        "main.py",  # an error of the installation, before anything is asked
        "terminal/lines.py",
    ]
