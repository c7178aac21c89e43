"""How long the faults last: `pytest tests/faults --soak 10` makes them ten times as long."""

from __future__ import annotations

import pytest

from tests.soak import soak_of

#: Seconds that a test of this folder may take with faults of the usual length, unless it says more itself.
TIMEOUT = 120.0


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by `-m`
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("faults"):
            item.add_marker(pytest.mark.slow)
            own = item.get_closest_marker("timeout")
            least = own.args[0] if own else TIMEOUT
            item.add_marker(pytest.mark.timeout(max(least, TIMEOUT * max(1.0, soak_of(config)))))


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> float:
    """How many times as long as usual the faults last."""
    return soak_of(request.config)
