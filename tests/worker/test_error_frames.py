"""The frames of a user's error that its report shows."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable

import pytest

from squall.reports.error_reports import ErrorReport
from topology_api.errors import SquallError
from worker.errors.error_lines import ErrorLines
from worker.errors.reports import (
    MOST_MESSAGE,
    MOST_MESSAGE_LINES,
    MOST_TEXT,
    OUR_COMPONENTS,
    OURS,
    ErrorLog,
    describe,
    make_report,
)


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


def made(code: str, file: str) -> Callable[..., None]:
    """The function `call` of code in a file of this name."""
    names: dict[str, object] = {}
    exec(compile(code, file, "exec"), names)
    return names["call"]  # type: ignore[return-value]


def report_of(act: Callable[[], object]) -> ErrorReport:
    """The report of a call's exception, as made by the runtime: the frame of this file does not count as user code here."""
    given = made("def call(act):\n act()\n", os.path.join(OURS[0], "task.py"))
    try:
        given(act)
    except Exception as error:
        assert error.__traceback__ is not None
        error.__traceback__ = error.__traceback__.tb_next
        return make_report("t", "store", 1, "prepare", error, None, 0.0)
    raise AssertionError("nothing was raised")


THROUGH_CONTEXTLIB = """
import contextlib
@contextlib.contextmanager
def refusing():
    yield
    raise OSError("a file lies there")
def call():
    with refusing():
        pass
"""


def test_neither_pythons_library_nor_an_installed_package_is_the_place_of_an_error_in_our_own_component() -> (
    None
):
    sink = os.path.join(OUR_COMPONENTS, "spark", "sink.py")
    report = report_of(made(THROUGH_CONTEXTLIB, sink))
    assert (report.text, report.place, report.frames) == ("OSError: a file lies there", "", ())
    inner = made("def call():\n raise OSError('no')\n", "/opt/lib/site-packages/pyspark/sql.py")
    outer = made("def call(inner):\n inner()\n", sink)
    report = report_of(lambda: outer(inner))
    assert f"{__file__}:" in report.place, (
        "the user's own line, if there is one, and nothing below our component"
    )
    assert not any("pyspark" in frame for frame in report.frames)


def test_a_component_in_an_installed_package_has_a_place_and_one_run_only_by_pythons_library_has_none() -> (
    None
):
    report = report_of(made("def call():\n raise OSError('no')\n", "/opt/lib/site-packages/company/bolts.py"))
    assert report.place == "/opt/lib/site-packages/company/bolts.py:2, in call"
    report = report_of(made("def call():\n raise OSError('no')\n", contextlib.__file__))
    assert (report.place, report.frames) == ("", ())


def test_a_folder_whose_name_only_contains_that_of_installed_packages_is_the_users() -> None:
    installed = made("def call():\n raise OSError('no')\n", "/opt/lib/site-packages/company/bolts.py")
    own = made("def call(inner):\n inner()\n", "/home/me/my-site-packages-demo/bolts.py")
    assert report_of(lambda: own(installed)).place == "/home/me/my-site-packages-demo/bolts.py:2, in call"


def test_frames_of_pythons_library_follow_the_users_line_which_is_the_place() -> None:
    report = report_of(lambda: json.loads("{"))
    assert report.place.startswith(f"{__file__}:")
    assert any("decoder.py" in frame for frame in report.frames)


def refuse(error: Exception) -> None:
    raise error


def test_squalls_messages_keep_their_lines_and_a_users_is_one_short_line() -> None:
    lines = ["another table:", "- column a\x1b", "Write elsewhere."]
    ours = report_of(lambda: refuse(SquallError("\n".join(lines))))
    assert ours.text == "SquallError: another table:\n- column a?\nWrite elsewhere."
    many = report_of(lambda: refuse(SquallError("\n".join([*map(str, range(100)), "Do this."])))).text
    assert len(many.splitlines()) == MOST_MESSAGE_LINES and many.endswith("\nDo this.")
    assert "... 82 more lines ..." in many
    long = report_of(lambda: refuse(SquallError("x" * 10_000 + " Do this."))).text
    assert len(long) == MOST_MESSAGE and long.endswith(" Do this.")
    users = describe(ValueError("\n".join(["x" * 10_000, "Do this."])))
    assert len(users) == MOST_TEXT and users.endswith("x Do this.")


def test_alternating_errors_are_kept_once_each_and_written_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, lines = ErrorLog(), ErrorLines()
    with caplog.at_level(logging.INFO):
        for number in range(6):
            error = SquallError(f"nn{number % 2} is away")
            log.add(make_report("t", "store", 1, "prepare", error, None, float(number)))
            lines.write_new({"store": log}, float(number))
    assert [(each.text, each.times) for each in log.kept] == [
        ("SquallError: nn0 is away", 3),
        ("SquallError: nn1 is away", 3),
    ]
    assert log.count == 6
    assert [record.getMessage().count("is away") for record in caplog.records] == [1, 1]
