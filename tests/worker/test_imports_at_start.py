"""What a worker process imports before it has work: a user waits for it after each restart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: What marks calls after a death.
MARKS = ("lone_calls", "marked_calls", "tuple_keys")
ROOT = Path(__file__).resolve().parents[2]


def test_a_worker_without_a_state_path_imports_nothing_of_epochs() -> None:
    program = "import sys, worker.process.assemble; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.split())
    assert "worker.loop.worker" in imported
    of_epochs = {
        name
        for name in imported
        if name.startswith(("worker.epochs", "worker.tasks.epoch_", "asyncio", "ssl"))
    }
    assert of_epochs - {"worker.tasks.epoch_emitter"} == set()
    after_deaths = {"squall.suspects", "worker.loop.call_marks", *(f"worker.tasks.{name}" for name in MARKS)}
    assert not imported & after_deaths, "no process has died in a call"
