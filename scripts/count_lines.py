"""Counts the product's lines of code: without docstrings, comments and blank lines, after `ruff format`.

    python scripts/count_lines.py              a line for each package, and the sum
    python scripts/count_lines.py worker       a line for each folder given

A line counts once if it holds any token of code; a text over several lines counts each of them, unless it is a docstring.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "topology_api", "squall", "nimbus", "supervisor", "worker", "squall_io", "local_cluster", "squall_cli",
)  # fmt: skip
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(source: bytes) -> int:
    """Return how many lines of a module are code."""
    lines: set[int] = set()
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines.difference(docstring_lines(ast.parse(source))))


def docstring_lines(tree: ast.Module) -> Iterator[int]:
    """The numbers of the lines of all docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            text = first.value if isinstance(first, ast.Expr) else None
            if first and isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def main(folders: list[str]) -> None:
    """Print the table."""
    total = 0
    for folder in folders or PACKAGES:
        lines = sum(code_lines(path.read_bytes()) for path in (ROOT / folder).rglob("*.py"))
        total += lines
        print(f"{lines:7,}  {folder}")
    print(f"{total:7,}  all")


if __name__ == "__main__":
    main(sys.argv[1:])
