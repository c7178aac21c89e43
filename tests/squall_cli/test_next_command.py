"""The command that a message suggests works when it is copied, whatever the topology's name."""

from __future__ import annotations

import shlex

import pytest

from squall_cli.terminal.formats import to_type
from tests.squall_cli.fake_nimbus import FakeNimbus, Squall, topology


@pytest.mark.parametrize("name", ["words", "a b", "-x", "--help", "--", "-", "it's", "x;y", "$(z)", "ä"])
def test_a_copied_command_asks_for_that_name(name: str, nimbus: FakeNimbus, run: Squall) -> None:
    nimbus.put(topology(name, "COMPLETED", workers=[]))
    words = shlex.split(to_type("status", name).strip("`"))
    assert words[0] == "squall"
    assert run("", *words[1:]).stdout.startswith(f"{name}  COMPLETED")


def test_options_come_where_they_are_read_as_such() -> None:
    assert to_type("logs", "words", "--file", "build") == "`squall logs words --file build`"
    assert to_type("logs", "-x", "--file", "build") == "`squall logs --file build -- -x`"


def test_status_suggests_commands_for_names_that_look_like_options(nimbus: FakeNimbus, run: Squall) -> None:
    odd = topology("-x")
    odd["components"]["count"]["errors"] = 1
    nimbus.put(odd)
    assert "`squall errors -- -x` shows them." in run("", "status", "--", "-x").stdout


def test_a_name_that_was_read_as_an_option_is_answered_with_advice(run: Squall) -> None:
    for command in ("status", "kill", "drain", "config"):
        result = run(f"{command} -x")
        assert result.exit_code == 2
        assert "No such option" in result.stderr
        assert "; put names that begin with - after --\n" in result.stderr
    for line in ("status --jsn", "list -x", "submit -x"):
        assert "after --" not in run(line).stderr
