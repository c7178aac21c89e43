"""One Spark session per process: shared, refused to conflicting requests, replaced when Java dies, ended with its last user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from squall_io.spark.session.request import SessionRequest
from squall_io.spark.session.sessions import SessionMismatch, shared_session, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The findings of sessions_script, run in the C locale: the usual one in containers and under cron."""
    folder = tmp_path_factory.mktemp("sessions")
    out = folder / "found.json"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.spark.sessions_script", folder / "table", out],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(out.read_text()), "stdout": done.stdout, "stderr": done.stderr}


@pytest.mark.timeout(400)
def test_a_process_shares_a_session_and_gets_another_when_java_is_killed(found: dict[str, Any]) -> None:
    assert "Invalid maximum heap size" in found["wrong memory"]
    assert (
        "with master local[1]" in found["mismatch"]
        and "the request is for master local[2]" in found["mismatch"]
    )
    assert found["settled"] == [60, 0]
    assert found["numbers"] == list(range(60))  # each once, though Java was killed during the write
    assert not found["same process"] and found["first has ended"] and found["renewed by the sink"]
    assert found["second has ended"] and found["threads"] == []
    assert found["interrupt"]
    assert found["stdout"] == "" and "Traceback" not in found["stderr"]


@pytest.mark.timeout(400)
def test_folders_of_partitions_keep_letters_beyond_ascii_in_the_c_locale(found: dict[str, Any]) -> None:
    assert found["places"] == ["Rome", "Zürich", "東京"]
    assert found["folders"] == ["place=Rome", "place=Zürich", "place=東京"]


def test_a_session_made_by_the_user_is_used_and_not_stopped(spark: SparkSession) -> None:
    with shared_session() as lease:
        assert lease.session is spark
    with shared_session("local[2]", {"squall.webhdfs.address": "host:9870"}) as lease:
        assert lease.session is spark
    assert spark.range(3).count() == 3


def test_a_users_session_with_other_settings_is_refused(spark: SparkSession) -> None:
    with pytest.raises(
        SessionMismatch, match=r"its master is local\[2\], but yarn is requested; spark\.a is not set there"
    ):
        pytest.fail(f"{shared_session('yarn', {'spark.a': 'b'})}")
    with pytest.raises(SessionMismatch, match="there is one Spark driver in a process"):
        start_session(SessionRequest.of("local[2]", None))
    assert spark.range(3).count() == 3
