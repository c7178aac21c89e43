"""Which seeds of the simulation of epochs are run.

`pytest tests/epochs --epoch-seed N` runs that seed alone. Otherwise CI=true runs a fixed sequence of seeds, so that a failure
there can be reproduced, and other runs a new sequence each time.
"""

from __future__ import annotations

import os
from random import SystemRandom

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--epoch-seed", type=int, help="run the simulation of epochs with this seed alone")


@pytest.fixture
def epoch_seeds(request: pytest.FixtureRequest) -> range:
    """The seeds of a test that runs many; the test takes as many of them as it has time for."""
    wanted: int | None = request.config.getoption("--epoch-seed", None)
    if wanted is not None:
        return range(wanted, wanted + 1)
    begin = 0 if os.environ.get("CI") == "true" else SystemRandom().randrange(10**9)
    return range(begin, begin + 10**6)
