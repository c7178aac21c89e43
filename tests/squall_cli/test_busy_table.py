"""What `squall top` shows of the components, tasks and workers of a cluster."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from squall.api.answers import WorkerEntry
from squall.api.cluster_answers import ClusterAnswer, SlotCounts, StoreState
from squall.status import ComponentStatus, DownTask, TaskLoad
from squall.values import Incarnation, TaskRow
from squall_cli.commands.top import ClusterMoment, picture
from squall_cli.main import squall
from squall_cli.terminal import formats
from squall_cli.terminal.busy_table import Busy, BusyWorker, busiest, tasks_of, trouble_lines
from squall_cli.terminal.formats import columns_of
from squall_cli.terminal.lines import plain
from tests.squall_cli.fake_nimbus import component, fake_nimbus, topology, worker

NOW = 1_790_000_000.0
CLUSTER = ClusterAnswer(
    None, "3.11", "3", "0.1", None, [], 1, SlotCounts(4, 2, 2), 1, 4, 1.0, StoreState("memory", True)
)


def bolt(*loads: TaskLoad, down: tuple[DownTask, ...] = ()) -> ComponentStatus:
    return ComponentStatus(
        "bolt", len(loads), 0, 99, 90, 9, 0, 0, 5, execute_p50=0.001, execute_p99=0.3, loads=loads, down=down
    )


HUNG = bolt(
    TaskLoad(3, 0.1, 5),
    TaskLoad(4, 1.0, 70, None, None, NOW - 38, "execute", "orders.py:7, in execute", "<Tuple a>"),
)
LEAKING = bolt(TaskLoad(5, 0.2, 3, 0.001, 0.3, grew=212 * 2**20), TaskLoad(6, 0.3))
DOWN = bolt(
    TaskLoad(7, 0.0),
    down=(DownTask(7, NOW - 600, f"ConnectionError: no (/state/code/{'0' * 64}/orders.py:17, in execute)"),),
)
BUSY = tuple(
    Busy("orders", name, each, 10.0, NOW, lambda text: text.replace("/state/code/" + "0" * 64 + "/", ""))
    for name, each in (("hung", HUNG), ("leaking", LEAKING), ("store", DOWN))
)
ROWS = [TaskRow(4, "hung", 1), TaskRow(5, "leaking", 0)]
WORKERS = tuple(
    BusyWorker(
        "orders",
        WorkerEntry(
            name, "s", "host-1", 0, Incarnation(1, restarts), tasks,
            True, "RUNNING", 4711, cpu, 535 * 2**20, 7, restarts, 560_000_000,
        ),
    )
    for name, cpu, restarts, tasks in (("w1", 0.01, 0, ROWS), ("w2", 0.97, 2, []))
)  # fmt: skip
MOMENT = ClusterMoment(CLUSTER, BUSY, tuple(busiest(WORKERS)))


def drawn(width: int, height: int = 40, tasks: bool = False) -> list[str]:
    lines = [plain(line) for line in picture(MOMENT, "", width, height, tasks)]
    assert len(lines) <= height and all(columns_of(line.rstrip()) <= width for line in lines)
    return lines


@pytest.mark.parametrize("tasks", [False, True])
@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_bolt_that_hangs_is_named_in_every_window(width: int, tasks: bool) -> None:
    lines = drawn(width, tasks=tasks)
    (row,) = [line for line in lines if line.startswith("orders") and " hung " in line and " 38s" in line]
    assert "IN ONE CALL" in next(line for line in lines if "COMPONENT" in line)
    assert any(
        "hung[4] has been in one call of execute() for 38.0 s, at orders.py:7" in line for line in lines
    )
    assert "100%" in row


def test_a_wide_window_says_why_in_the_row() -> None:
    head = next(line for line in drawn(200) if "COMPONENT" in line)
    assert "EXEC p50  EXEC p99  IN ONE CALL" in head and "WHY IDLE" in head
    text = "\n".join(drawn(200))
    assert "in one call of execute() for 38s, at orders.py:7, in execute" in text
    assert f"down since {formats.clock(NOW - 600, NOW)}: ConnectionError: no (orders.py:17, in ex" in text
    assert "/state/code" not in text


def test_the_task_in_a_long_call_comes_first_then_the_busiest() -> None:
    rows = tasks_of(BUSY, WORKERS)
    assert [(each.load.task, each.worker) for each in rows] == [
        (4, "w1"),
        (6, "-"),
        (5, "w1"),
        (3, "-"),
        (7, "-"),
    ]
    row = next(line for line in drawn(80, tasks=True) if "leaking       5" in line)
    assert "212M" in row


@pytest.mark.parametrize("width", [80, 120])
def test_workers_are_shown_with_what_their_processes_use(width: int) -> None:
    lines = drawn(width)
    head, first, second = next(lines[at : at + 3] for at, line in enumerate(lines) if "WORKER" in line)
    assert head.split() == ["TOPOLOGY", "WORKER", "HOST", "RESTARTS", "PID", "CPU", "RSS", "THREADS"]
    assert first.split() == ["orders", "w2", "host-1", "2", "4711", "97%", "535M", "7"]
    assert second.split()[1] == "w1"
    assert [each.worker.worker for each in busiest(WORKERS)] == ["w2", "w1"]


def test_a_low_window_keeps_the_components() -> None:
    text = "\n".join(drawn(80, 10))
    assert "RESTARTS" not in text and "leaking" in text


def test_lines_below_name_topology_and_task() -> None:
    lines = [plain(line) for line in trouble_lines(BUSY, WORKERS[:1], 200, {})]
    assert lines[0].startswith("orders: store has been down since ")
    assert lines[1].startswith("orders: hung[4] has been in one call of execute() for 38.0 s")
    assert lines[2].startswith(
        "orders: w1 uses 561 of 560 MB (topology.worker.memory.mb); 222 MB of the growth"
    )


def test_json_has_the_workers() -> None:
    with fake_nimbus() as nimbus:
        parts = {"count": component("bolt", loads=[{"task": 2, "busy": 0.5, "execute_p50": 0.25}])}
        nimbus.put(topology("words", workers=[worker("w1", restarts=3, pid=7, rss=2**20)], components=parts))
        arguments = ["top", "--delay", "0.2", "--json"]
        done = CliRunner().invoke(squall, arguments, env={"SQUALL_NIMBUS": nimbus.url})
        found = json.loads(done.stdout)
        (of_w1,) = found["workers"]
        assert (of_w1["topology"], of_w1["worker"], of_w1["restarts"], of_w1["pid"]) == ("words", "w1", 3, 7)
        assert found["components"][0]["loads"][0]["execute_p50"] == 0.25
        done = CliRunner().invoke(squall, [*arguments[:3], "--tasks"], env={"SQUALL_NIMBUS": nimbus.url})
        assert "TASK  WORKER" in done.stdout and "250ms" in done.stdout and "THREADS" in done.stdout
