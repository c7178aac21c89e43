"""Each promise of the README about state has its literal tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.repository.readme_promises import FIRST, PROMISES, ReadmePromise

ROOT = Path(__file__).resolve().parents[2]


def promises() -> dict[int, str]:
    """The numbered promises of the README, without line breaks."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = text.partition("## What Squall promises\n\n")[2].partition("\n\n")[0]
    found = re.split(r"^(\d+)\. ", listed, flags=re.MULTILINE)[1:]
    return {int(number): " ".join(each.split()) for number, each in zip(found[::2], found[1::2], strict=True)}


def test_the_promises_are_numbered_and_those_about_state_are_all_listed() -> None:
    assert [*promises()] == [*range(1, PROMISES[-1].number + 1)]
    assert [each.number for each in PROMISES] == [number for number in promises() if number >= FIRST]


@pytest.mark.parametrize("promise", PROMISES, ids=lambda each: str(each.number))
def test_the_readme_promises_it_and_each_test_exists(promise: ReadmePromise) -> None:
    assert promise.says in promises()[promise.number]
    for test in promise.tests:
        path, _, name = test.partition("::")
        tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
        assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, test
