"""Which frames of a user's error its report shows."""

from __future__ import annotations

from worker.reports import make_report


def test_the_import_systems_own_frames_are_left_out() -> None:
    try:
        __import__("a_module_that_nobody_has.inner")
    except ImportError as error:
        direct = error
    try:
        exec("import importlib\nimportlib.import_module('a_module_that_nobody_has')")
    except ImportError as error:
        indirect = error
    for raised in (direct, indirect):
        report = make_report("t", "count", 1, "prepare", raised, None, 0.0)
        assert "No module named 'a_module_that_nobody_has'" in report.text
        assert any(__file__ in frame for frame in report.frames)
        assert not any("<frozen importlib" in frame for frame in report.frames)
