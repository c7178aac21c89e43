"""What `squall status` shows of the load of components and tasks."""

from __future__ import annotations

from squall.api.answers import WorkerEntry
from squall.status import ComponentStatus, TaskLoad
from squall.values import Incarnation, TaskRow
from squall_cli.terminal.lines import plain
from squall_cli.terminal.load_table import call_lines, load_lines, memory_lines


def bolt(*loads: TaskLoad) -> ComponentStatus:
    return ComponentStatus(
        "bolt", len(loads), 0, 100, 90, 10, 0, 0, 5, execute_p50=0.0001, execute_p99=0.5, loads=loads
    )


NOW = 1_000_000.0
SLOW = bolt(TaskLoad(3, 0.97, 1200, 0.0001, 0.5), TaskLoad(4, 0.02, 3, 0.0001, 0.0002))


def test_a_component_shows_its_busiest_task() -> None:
    lines = [plain(line).split() for line in load_lines({"slow": SLOW}, False, 100, NOW)]
    assert lines[1] == ["slow", "97%", "1,203", "0.10ms", "500ms"]


def test_tasks_show_which_task_is_slow() -> None:
    lines = [plain(line).split() for line in load_lines({"slow": SLOW}, True, 100, NOW)]
    assert lines[1:] == [
        ["slow", "3", "97%", "1,200", "0.10ms", "500ms"],
        ["slow", "4", "2%", "3", "0.10ms", "0.20ms"],
    ]


def test_workers_of_an_earlier_release_show_no_load() -> None:
    assert load_lines({"old": bolt()}, True, 100, NOW) == []


def test_status_names_a_call_that_has_not_returned_for_five_seconds() -> None:
    load = TaskLoad(3, 1.0, 7, None, None, 1000.0, "execute", "app.py:7, in look_up", "values ['a']")
    hung = {"hung": bolt(load)}
    assert list(call_lines(hung, 100, now=1004.9)) == []
    (line,) = call_lines(hung, 100, now=1012.0)
    assert plain(line) == (
        "hung[3] has been in one call of execute() for 12.0 s, at app.py:7, in look_up, with values ['a']"
    )


def test_a_call_of_which_only_the_method_is_known_is_named_as_early() -> None:
    hung = {"hung": bolt(TaskLoad(3, 1.0, call_since=1000.0, call_name="prepare"))}
    (line,) = call_lines(hung, 100, now=1005.0)
    assert plain(line) == "hung[3] has been in one call of prepare() for 5.00 s"


def test_a_call_is_timed_by_the_clock_of_nimbus() -> None:
    load = TaskLoad(3, 1.0, call_since=1000.0)
    (_, line) = load_lines({"hung": bolt(load)}, False, 100, 1012.0)
    assert plain(line).split()[-1] == "12s"


def test_a_call_of_which_nothing_is_known_yet_is_named_a_little_later() -> None:
    hung = {"hung": bolt(TaskLoad(3, 1.0, call_since=1000.0))}
    assert list(call_lines(hung, 100, now=1007.0)) == []
    (line,) = call_lines(hung, 100, now=1010.0)
    assert plain(line) == "hung[3] has been in one call for 10.0 s"


def test_the_task_that_leaks_is_marked() -> None:
    leaking = bolt(TaskLoad(3, 0.1, grew=212 * 2**20), TaskLoad(4, 0.1, grew=0))
    _, third, fourth = load_lines({"leaking": leaking}, True, 100, NOW)
    assert ("212M", "warn") in third and "M" not in plain(fourth)
    (_, line) = load_lines({"leaking": leaking}, False, 100, NOW)
    assert "212M" in plain(line)


def test_a_worker_near_its_limit_of_memory_is_named_with_the_task_that_grew() -> None:
    tasks = [TaskRow(1, "healthy", 0), TaskRow(4, "leaking", 0)]
    worker = WorkerEntry(
        "w1",
        "s",
        "host",
        0,
        Incarnation(1, 0),
        tasks,
        True,
        "RUNNING",
        rss=96_000_000,
        memory_limit=120_000_000,
    )
    grown = {"healthy": bolt(TaskLoad(1, grew=2**20)), "leaking": bolt(TaskLoad(4, grew=60 * 2**20))}
    (line,) = memory_lines([worker], grown)
    assert plain(line) == (
        "w1 uses 96 of 120 MB (topology.worker.memory.mb); 63 MB of the growth are from calls of leaking[4]"
    )
    (line,) = memory_lines([worker], {})
    assert plain(line) == "w1 uses 96 of 120 MB (topology.worker.memory.mb)"
