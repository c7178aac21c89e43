"""One Spark session in a process: shared, refused to who wants another, replaced when Java dies, ended with its last user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from squall_io.spark.sessions import SessionMismatch, shared_session, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(400)
def test_a_process_shares_a_session_and_gets_another_when_java_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.spark.sessions_script", tmp_path / "table", out],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert "Invalid maximum heap size" in found.pop("wrong memory")
    mismatch = found.pop("mismatch")
    assert "with master local[1]" in mismatch and "wanted was master local[2]" in mismatch
    assert found == {
        "settled": [60, 0],
        "same process": False,
        "first has ended": True,
        "renewed by the sink": True,
        "numbers": list(range(60)),  # each once, though Java was killed as they were written
        "second has ended": True,
        "interrupt": True,
        "threads": [],
    }
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_session_that_the_user_has_made_is_used_and_not_stopped(spark: SparkSession) -> None:
    with shared_session() as lease:
        assert lease.session is spark
    with shared_session("local[2]", {"squall.webhdfs.address": "host:9870"}) as lease:
        assert lease.session is spark
    assert spark.range(3).count() == 3


def test_a_session_that_the_user_has_made_with_other_settings_is_refused(spark: SparkSession) -> None:
    with pytest.raises(
        SessionMismatch, match=r"its master is local\[2\], wanted was yarn; spark\.a is not set there"
    ):
        pytest.fail(f"{shared_session('yarn', {'spark.a': 'b'})}")
    with pytest.raises(SessionMismatch, match="there is one Spark driver in a process"):
        start_session("local[2]")
    assert spark.range(3).count() == 3
