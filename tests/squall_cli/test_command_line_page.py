"""docs/command-line.md has every command with every option, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from squall_cli.main import COMMANDS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### squall ([\w-]+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
#: Options of all commands, or explained on the page to which the section refers.
SAID_ELSEWHERE = {"--help", "-h", "--nimbus", "--config", "--json", "-o", "--insecure", "--wait-secs"}


def params_of(name: str) -> list[click.Parameter]:
    """The parameters of a command, and of the commands that it has."""
    command = COMMANDS[name].load()
    inside = command.commands.values() if isinstance(command, click.Group) else ()
    return [each for one in (command, *inside) for each in one.params]


def test_the_page_has_a_section_for_each_command_and_the_table_links_to_it() -> None:
    assert sorted(SECTIONS) == sorted(COMMANDS)
    assert sorted(re.findall(r"\]\(#squall-(\w+(?:-\w+)*)\)", PAGE)) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_has_all_options_of_its_command(name: str) -> None:
    options = {
        each for parameter in params_of(name) for each in parameter.opts if each.startswith("--")
    } - SAID_ELSEWHERE
    missing = [each for each in sorted(options) if not re.search(rf"{each}\b", SECTIONS[name])]
    short = {
        short
        for parameter in params_of(name)
        for short in parameter.opts
        if len(short) == 2 and {each for each in parameter.opts if each.startswith("--")} & set(missing)
    }
    assert all(re.search(rf"(?<!\w){each}\b", SECTIONS[name]) for each in short)
    assert [each for each in missing if not short] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_names_no_unknown_option(name: str) -> None:
    there = {each for parameter in params_of(name) for each in parameter.opts} | {"--help"}
    typed = {
        option
        for line in re.findall(rf"^\$ squall {name} (.*)$", SECTIONS[name], re.MULTILINE)
        for option in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", line.partition(" -- ")[0].partition(" | ")[0])
    }
    assert typed - there == set()
