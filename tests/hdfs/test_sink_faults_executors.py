"""Spark runs the task that writes a batch again, by a retry or speculatively: the table gets the same rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def test_spark_tasks_that_are_run_twice_put_each_batch_into_the_table_once(hdfs_path: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.hdfs.executor_faults", hdfs_path],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4000:]
    assert done.stdout.decode().splitlines()[-1] == str([(batch, 1) for batch in range(1, 4)])
