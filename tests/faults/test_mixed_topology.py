"""The check of the mixed topology finds every kind of problem, and none where all is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.mixed_topology import mixed_problems
from tests.faults.test_ledger import write

RIGHT = {
    "spout": ["E 1 1", "A 1 1", "E 2 1"],
    "each-0": ["S 1"],
    "each-1": ["S 1", "S 2"],
    "once": ["S 0 a", "S 8 a", "S 1 a", "S 0 b"],
}


def problems(folder: Path, **changed: list[str]) -> list[str]:
    lines = {**RIGHT, **{name.replace("_", "-"): given for name, given in changed.items()}}
    write(folder, "spout", 0, 100, lines["spout"])
    write(folder, "each", 0, 90, lines["each-0"])
    write(folder, "each", 1, 90, lines["each-1"])
    write(folder, "once", 0, 90, lines["once"])
    return mixed_problems(folder)


def test_right_files_have_no_problem(tmp_path: Path) -> None:
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"each_1": ["S 2"]}, "acked but never seen by each[1]: 1"),
        ({"once": ["S 8 a", "S 0 a"]}, "out of order in once[0], of a: 0 after 8"),
        ({"once": []}, "once has seen: nothing"),
        ({"once": ["S 0 a", "S 1 a", "S 0 a"]}, "untracked tuples that came twice: ('a', 0)"),
    ],
)
def test_each_problem_is_found(tmp_path: Path, changed: dict[str, list[str]], problem: str) -> None:
    assert problem in problems(tmp_path, **changed)
