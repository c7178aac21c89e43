"""Which seeds of the simulation are run, and how many.

`pytest tests/simulation --simulation-seed N` runs that seed alone. Otherwise CI=true runs a fixed sequence of seeds, so that a
failure there can be reproduced, and other runs a new sequence each time.
"""

from __future__ import annotations

import os
from random import SystemRandom

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--simulation-seed", type=int, help="run the simulation with this seed alone")


@pytest.fixture
def first_seed(request: pytest.FixtureRequest) -> int | None:
    """The requested seed."""
    found: int | None = request.config.getoption("--simulation-seed", None)
    return found


@pytest.fixture
def seeds(first_seed: int | None) -> range:
    """The seeds of a test that runs many; the test takes as many of them as it has time for."""
    if first_seed is not None:
        return range(first_seed, first_seed + 1)
    begin = 0 if os.environ.get("CI") == "true" else SystemRandom().randrange(10**9)
    return range(begin, begin + 10**6)
