"""Workers come up in any order, each later than the one before: nothing is lost while one is absent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults.running import Surroundings, ledger_run

pytestmark = pytest.mark.faults

#: Seconds between one worker and the next.
APART = 2.0
#: Run by each Python that starts with this folder on its path: a worker first waits.
LATE = """
import os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
command = open("/proc/self/cmdline", "rb").read().decode().split("\\0")
if "-m" in command and "worker" in command:
    for entry in os.listdir(here):
        if entry.startswith("late-") and command[-2].rstrip("/").endswith("/" + entry.split("-")[1]):
            time.sleep(float(entry.split("-")[2]))
"""


@pytest.mark.parametrize(
    "order", [(2, 1, 0), *(pytest.param(order, marks=pytest.mark.soak) for order in ((0, 1, 2), (1, 2, 0)))]
)
def test_workers_that_start_late_and_in_any_order_lose_nothing(
    tmp_path: Path, order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "late"
    folder.mkdir()
    Path(folder, "sitecustomize.py").write_text(LATE)
    for place, number in enumerate(order):
        Path(folder, f"late-w{number + 1}-{place * APART}").touch()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    with ledger_run(tmp_path, Surroundings(supervisors=3, slots=1), spouts=3, bolts=3, workers=3) as run:
        assert {one.worker for one in run.workers()} == {"w1", "w2", "w3"}
        total = run.drain()
        assert not total.failed, "tuples for a starting worker are not lost"
        assert not total.duplicates
