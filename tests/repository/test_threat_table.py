"""Each promise of docs/security.md names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
#: A test's cell: a file with its folder, then files of the same folder, or functions of the last file.
NAMED = re.compile(r"`((?:tests/[\w/]*)?test_\w+(?:\.py)?)`")


def rows() -> list[tuple[str, str]]:
    """Return each row of the table of what is tested: the promise, and the cell with its tests."""
    table = PAGE.partition("### Tested")[2].partition("\n## ")[0]
    cells = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return [(" ".join(row[:2]), row[2]) for row in cells if not row[0].startswith("| who")]


@pytest.mark.parametrize(("promise", "cell"), rows(), ids=lambda text: text[:60])
def test_each_promise_names_tests_that_exist(promise: str, cell: str) -> None:
    named = NAMED.findall(cell)
    assert named, "a row without a test"
    folder, functions = "", set[str]()
    for name in named:
        if name.endswith(".py"):
            folder = name.rpartition("/")[0] or folder
            path = ROOT / folder / name.rpartition("/")[2]
            tree = ast.parse(path.read_text(encoding="utf-8"))
            functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        else:
            assert name in functions, f"{folder}: there is no {name}"


def test_the_table_was_read() -> None:
    assert len(rows()) > 25
