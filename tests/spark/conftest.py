"""What needs Spark is skipped where there is none, and fails in CI. The session is that of tests/spark_session.py."""

from __future__ import annotations

import pytest

from tests.spark_session import require_spark_here


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Skips where Java or PySpark is missing, but not in CI."""
    require_spark_here()
