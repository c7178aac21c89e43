"""The table of a run's times: by folder, with the long tests that have no reason."""

from __future__ import annotations

from pathlib import Path

from tests.gate_times import LONG_SECS, reason_for, table
from tests.long_tests import LONG_TESTS

ROOT = Path(__file__).resolve().parents[2]


def test_times_are_summed_by_folder_and_long_tests_without_a_reason_are_listed() -> None:
    seconds = {
        "tests/worker/test_ids.py::test_one[a]": 1.0,
        "tests/worker/test_ids.py::test_two": 2.5,
        "tests/faults/test_x.py::test_three": LONG_SECS * 3,
        "tests/nimbus/test_y.py::test_four": LONG_SECS + 1,
    }
    lines = table(seconds, {"tests/worker/test_ids.py::test_two": 0.5})
    assert "    3.5       0.5      2  tests/worker" in lines
    assert lines[-1] == "   11.0  tests/nimbus/test_y.py::test_four"
    assert reason_for("tests/faults/test_x.py::test_three") == LONG_TESTS["tests/faults"]


def test_each_long_test_exists() -> None:
    gone = [name for name in LONG_TESTS if not (ROOT / name.partition("::")[0]).exists()]
    assert not gone
