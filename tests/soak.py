"""`--soak N`: faults last N times as long, and the tests marked `soak` run too.

Those complete a matrix of which the usual run has one row of each kind: they repeat a promise, with other values, that
another test shows. `tests/conftest.py` calls what is here.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--soak`."""
    parser.addoption(
        "--soak",
        type=float,
        metavar="N",
        help="run the tests marked `soak` too, and let the faults of tests/faults last N times as long",
    )


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `soak` without the option."""
    if config.getoption("--soak") is None:
        left_out = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def soak_of(config: pytest.Config) -> float:
    """How many times as long as usual faults last."""
    factor: float | None = config.getoption("--soak")
    return factor or 1.0
