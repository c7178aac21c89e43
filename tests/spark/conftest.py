"""Tests that need Spark are skipped if there is none, and fail in CI. The session is that of tests/spark_session.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark_session import require_spark_here

#: Seconds for one of these tests, with the start of the session if it is the first one.
_LIMIT = 400


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark is slow on a machine under load."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_LIMIT))


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Skips where Java or PySpark is missing, but not in CI."""
    require_spark_here()
