"""Every bound that a document promises has its test, and every figure in a document is such a bound or is listed as another."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

from tests.repository.other_figures import OTHER_FIGURES
from tests.repository.promised_bounds import BOUNDS, Bound

ROOT = Path(__file__).resolve().parents[2]
#: Their sources are the code.
GENERATED = ("api.md", "http-api.md", "options.md", "states.md")
PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
WRITTEN = [page for page in PAGES if not page.endswith(GENERATED)]
ROWS = [(page, bound) for page, bounds in BOUNDS.items() for bound in bounds]

WORDS = {
    "a": 1, "an": 1, "one": 1, "second": 2, "two": 2, "three": 3, "third": 3, "four": 4, "five": 5, "ten": 10, "tenth": 0.1,
    "minute": 1, "day": 24,
}  # fmt: skip
NUMBER = r"\d[\d.,]*|half an?|one|two|three|four|five|ten|thirty"
UNIT = r"ms|s|min|seconds?|minutes?|hours?|days?|[KMG]i?B|kB"
#: A time or a size, or a limit of anything.
FIGURE = re.compile(
    rf"\b(?:{NUMBER})[ -](?:{UNIT})\b|\bat most (?:\d|one|two|three)"
    r"|\b(?:about|every|for|least|once|than|within) (?:an? )?(?:second|minute|hour|day)\b"
)
HIDDEN = re.compile(r"^```.*?^```$|<!--.*?-->", re.MULTILINE | re.DOTALL)


@cache
def prose(page: str) -> str:
    """A document without code blocks and line breaks."""
    return " ".join(HIDDEN.sub("", (ROOT / page).read_text(encoding="utf-8")).split())


def numbers_in(text: str) -> set[float]:
    """The numbers in a text, in digits or in words."""
    digits = {float(each.replace(",", "").rstrip(".")) for each in re.findall(r"\d[\d,]*(?:\.\d+)?", text)}
    return digits | {WORDS[word] for word in re.findall(r"[a-z]+", text.lower()) if word in WORDS}


def named(bounds: list[tuple[str, Bound]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("page", "bound"), bounds, ids=[f"{page}: {each.says[:40]}" for page, each in bounds]
    )


@named(ROWS)
def test_the_document_promises_it_with_this_number(page: str, bound: Bound) -> None:
    assert bound.says in prose(page), (
        f"{page} does not say {bound.says!r} any more: change the row and its test, too"
    )
    option = re.search(r"OPTIONS\['([\w.]+)'\]", bound.held_by)
    assert bound.number in numbers_in(bound.says) or (option is not None and option[1] in bound.says)


@named([(page, bound) for page, bound in ROWS if bound.held_by])
def test_the_code_has_the_promised_number(page: str, bound: Bound) -> None:
    module, _, expression = bound.held_by.partition(":")
    found = eval(expression, dict(vars(importlib.import_module(module))))
    assert found == pytest.approx(bound.number), (
        f"{page} promises {bound.number:g}, {bound.held_by} is {found:g}"
    )


@cache
def source_of(path: str) -> str:
    return (ROOT / "tests" / path).read_text(encoding="utf-8")


@cache
def functions_of(path: str) -> frozenset[str]:
    return frozenset(
        node.name for node in ast.walk(ast.parse(source_of(path))) if isinstance(node, ast.FunctionDef)
    )


@named(ROWS)
def test_the_test_exists_and_uses_the_stated_factor(page: str, bound: Bound) -> None:
    path, _, function = bound.test.partition("::")
    assert function in functions_of(path), f"{path} has no {function}"
    assert (bound.factor > 1) == bool(bound.name)
    if bound.name:
        assert f'allowed("{bound.name}")' in source_of(path), (
            f"{path} does not ask for allowed({bound.name!r})"
        )


def spans(page: str, texts: list[str]) -> list[tuple[int, int]]:
    return [(at.start(), at.end()) for text in texts for at in re.finditer(re.escape(text), prose(page))]


@pytest.mark.parametrize("page", WRITTEN)
def test_every_figure_of_a_document_is_a_promised_bound_or_known_as_none(page: str) -> None:
    others = OTHER_FIGURES.get(page, ())
    known = spans(page, [*(bound.says for bound in BOUNDS.get(page, ())), *others])
    unknown = [
        prose(page)[max(0, figure.start() - 60) : figure.end() + 30]
        for figure in FIGURE.finditer(prose(page))
        if not any(begin <= figure.start() and figure.end() <= end for begin, end in known)
    ]
    assert not unknown, (
        "promised: add rows to promised_bounds.py; otherwise to other_figures.py:\n" + "\n".join(unknown)
    )
    assert [text for text in others if text not in prose(page)] == []
