"""The rules for names."""

from __future__ import annotations

from typing import Any

import pytest

from topology_api.names import field_problem, id_problem, name_problem

BAD_NAMES = [
    "",
    "/",
    "a/b",
    "..",
    ".",
    "a.b",
    "a:b",
    "a\\b",
    "a\0b",
    "a\nb",
    " a",
    "a ",
    "é" * 128,
    "\ud800",
    None,
    3,
    b"a",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused_everywhere(name: Any) -> None:
    assert name_problem(name)
    assert id_problem(name)


@pytest.mark.parametrize("name", ["a", "word-count", "Wörter_2", "a b", "x" * 255, "é" * 127, "_x"])
def test_other_names_are_accepted(name: str) -> None:
    assert name_problem(name) is None
    assert id_problem(name) is None


def test_ids_with_the_reserved_prefix_are_refused() -> None:
    problem = id_problem("__acker")
    assert problem is not None
    assert "reserved" in problem


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 256, 5, None])
def test_a_field_needs_a_text_of_bounded_length(name: Any) -> None:
    assert field_problem(name)


def test_a_field_may_have_dots_and_slashes_since_it_is_no_path() -> None:
    assert field_problem("user.id") is None
    assert field_problem("km/h") is None


def test_a_name_that_is_too_long_is_quoted_in_short() -> None:
    problem = name_problem("x" * 10_000)
    assert problem is not None
    assert "10000 bytes" in problem
    assert len(problem) < 120
