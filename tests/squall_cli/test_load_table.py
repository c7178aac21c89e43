"""What `squall status` shows of the load of components and tasks."""

from __future__ import annotations

from squall.status import ComponentStatus, TaskLoad
from squall_cli.terminal.lines import plain
from squall_cli.terminal.load_table import call_lines, load_lines


def bolt(*loads: TaskLoad) -> ComponentStatus:
    return ComponentStatus(
        "bolt", len(loads), 0, 100, 90, 10, 0, 0, 5, execute_p50=0.0001, execute_p99=0.5, loads=loads
    )


SLOW = bolt(TaskLoad(3, 0.97, 1200, 0.0001, 0.5), TaskLoad(4, 0.02, 3, 0.0001, 0.0002))


def test_a_component_shows_its_busiest_task() -> None:
    lines = [plain(line).split() for line in load_lines({"slow": SLOW}, False, 100)]
    assert lines[1] == ["slow", "97%", "1,203", "0.10ms", "500ms"]


def test_tasks_show_which_task_is_slow() -> None:
    lines = [plain(line).split() for line in load_lines({"slow": SLOW}, True, 100)]
    assert lines[1:] == [
        ["slow", "3", "97%", "1,200", "0.10ms", "500ms"],
        ["slow", "4", "2%", "3", "0.10ms", "0.20ms"],
    ]


def test_workers_of_an_earlier_release_show_no_load() -> None:
    assert load_lines({"old": bolt()}, True, 100) == []


def test_status_names_a_call_that_has_not_returned_for_five_seconds() -> None:
    load = TaskLoad(
        3, 1.0, 7, call_since=1000.0, call_place="app.py:7, in execute", call_tuple="values ['a']"
    )
    hung = {"hung": bolt(load)}
    assert list(call_lines(hung, 100, now=1004.9)) == []
    (line,) = call_lines(hung, 100, now=1012.0)
    assert plain(line) == (
        "hung[3] has been in one call for 12.0 s, at app.py:7, in execute, with values ['a']"
    )
