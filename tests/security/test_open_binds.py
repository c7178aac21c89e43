"""Daemons that would listen to other machines without TLS do not start, and give advice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_ZOOKEEPER = "127.0.0.1:1"


def started(daemon: str, tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """A daemon that finds no ZooKeeper, if it gets that far."""
    state = ("--zookeeper", NO_ZOOKEEPER, "--insecure-zookeeper", "--state", str(tmp_path / "state"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SQUALL_")}
    return subprocess.Popen(
        [sys.executable, "-m", "squall_cli", daemon, *state, *arguments],
        env={**kept, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("daemon", ["nimbus", "supervisor"])
def test_listening_to_all_machines_requires_a_certificate(daemon: str, tmp_path: Path) -> None:
    process = started(daemon, tmp_path, "--listen", "0.0.0.0:0")
    _, text = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "squall.tls.certificate" in text and "--insecure" in text and "Traceback" not in text


@pytest.mark.slow
@pytest.mark.parametrize("daemon", ["nimbus", "supervisor"])
def test_insecure_starts_and_warns(daemon: str, tmp_path: Path) -> None:
    process = started(daemon, tmp_path, "--listen", "0.0.0.0:0", "--insecure")
    try:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        warned = next((line for line in lines if "in the clear" in line), "")
        assert "WARNING" in warned and "--insecure" in warned
    finally:
        process.kill()
        process.communicate()
