"""`squall run --workers N`: the topology in worker processes, reported and ended as inside the command's own process."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.processes import MARK
from tests.squall_cli import run_process
from tests.squall_cli.run_process import running, squall_run, topology


@pytest.fixture(autouse=True)
def leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every run has this folder for its files, and must leave neither files nor processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield
    assert list(tmp_path.iterdir()) == []
    assert workers_below(tmp_path) == []


def workers_below(folder: Path) -> list[int]:
    """The processes that run in a directory below this one."""
    mark = f"{MARK}={folder}/".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if any(entry.startswith(mark) for entry in path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
        except OSError:
            continue  # it has ended, or belongs to another user
    return found


def test_a_topology_completes_in_worker_processes_and_their_output_is_shown() -> None:
    result = squall_run(topology("finite"), "--workers", "2")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "numbers: 2 components, 3 tasks, 2 worker processes; Ctrl-C drains"
    assert any(line.split()[:5] == ["source", "spout", "1", "100", "100"] for line in lines)
    assert any(line.split()[:6] == ["work", "bolt", "2", "0", "100", "100"] for line in lines)
    assert "100 trees acked, 0 failed" in result.stdout
    texts = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in lines]
    for task in (2, 3):
        assert texts.count(f"work[{task}]: it has begun") == 1
        assert texts.count(f"work[{task}]: printed by a bolt") == 1
        assert texts.count(f"work[{task}]: the bolt is cleaned up") == 1
    assert texts.count("source[1]: the spout is closed") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--workers", "2"], True), (["--workers", "2", "-o", "topology.state.path=null"], False), ([], False)],
)
def test_state_that_ends_with_a_worker_is_named_where_there_are_workers(
    arguments: list[str], told: bool
) -> None:
    result = squall_run(topology("counts"), *arguments)
    said = "the state of 'count' is in memory and ends with its worker: set topology.state.path"
    assert (result.returncode, said in result.stderr) == (0, told), result.stderr


def test_with_json_stdout_is_one_object_whatever_the_components_write() -> None:
    result = squall_run(topology("writes"), "--json", "--workers", "2")
    summary = json.loads(result.stdout)
    assert (result.returncode, summary["outcome"], summary["state"]) == (0, "completed", "COMPLETED")
    assert summary["trees"] == {"acked": 1, "failed": 0, "left": 0, "replayed": 0}
    assert (summary["components"]["work"]["executed"], summary["notes"]) == (1, [])
    for way in ("by print", "by write", "by the file's number", "by a child"):
        assert way in result.stderr


def test_errors_of_workers_are_shown_and_failed_trees_make_the_run_fail() -> None:
    result = squall_run(topology("refuses"), "--workers", "7")  # of 3 tasks
    assert result.returncode == 1
    assert "27 trees acked, 3 failed (3 replays)" in result.stdout
    assert "  3 dead letters, kept until the end of this run:\n" in result.stdout
    assert result.stderr.count("execute() raised ValueError: ") == 1, "each place is shown once"
    assert "run_topologies.py:" in result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("squall run: 3 trees failed for good; the first: spout 'source', message id ")


def test_a_topology_that_crashes_exits_with_1_and_its_report() -> None:
    result = squall_run(topology("crashes"), "--workers", "2", "--json")
    summary = json.loads(result.stdout)
    assert (result.returncode, summary["outcome"], summary["state"]) == (1, "failed", "FAILED")
    assert "execute() raised ValueError: 7 is refused" in summary["error"]
    assert len(summary["error"].splitlines()) <= 15
    assert result.stderr.splitlines()[-3] == "squall run: topology 'numbers' failed:"


@pytest.mark.slow
def test_a_component_that_cannot_be_opened_ends_the_run_with_its_error_shown_once() -> None:
    result = squall_run(topology("cannot_open"), "--workers", "2")
    assert result.returncode == 1
    assert "numbers failed after" in result.stdout
    before, _, ending = result.stderr.partition("squall run: topology 'numbers' failed:")
    assert (
        before.count("source[1] of topology 'numbers': open() raised ConnectionError: the source is down")
        == 1
    )
    assert before.count("cannot start: open() raised ConnectionError: the source is down") == 1
    assert "open() raised ConnectionError: the source is down" in ending


@pytest.mark.slow
def test_a_component_that_opens_at_last_is_waited_for(tmp_path: Path) -> None:
    mark = tmp_path / "tried"
    result = squall_run(topology("opens_late"), "--workers", "2", "--", str(mark))
    mark.unlink()
    assert (result.returncode, "100 trees acked, 0 failed" in result.stdout) == (0, True)
    assert "open() raised ConnectionError: the source is down" in result.stderr


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGHUP,
        *(pytest.param(each, marks=pytest.mark.soak) for each in (signal.SIGINT, signal.SIGTERM)),
    ],
)
def test_a_first_signal_drains(number: signal.Signals) -> None:
    with running(topology("endless"), "--workers", "2") as process:
        process.wait_for("printed by a bolt")
        process.signal(number)
        process.wait_for("draining")
        assert process.end() == 0
        assert "source[1]: the spout is closed" in process.text
        assert "numbers interrupted after" in process.text
        assert " 0 failed\n" in process.text


def test_a_second_signal_ends_it_though_a_call_hangs_and_more_signals_do_not_cut_that_short() -> None:
    with running(topology("hangs"), "--workers", "2", "--", "1000") as process:
        process.wait_for("hanging")
        process.signal(signal.SIGINT)
        process.wait_for("draining")
        while process.process.poll() is None:
            process.signal(signal.SIGINT)
            process.signal(signal.SIGTERM)
            time.sleep(0.01)
        assert process.end() == 1
        assert "1 tree had not been acked or failed when the topology was cut off" in process.lines[-1]


@pytest.mark.slow
def test_a_call_that_hangs_is_killed_with_its_worker_after_the_drain() -> None:
    with running(topology("hangs"), "--workers", "2", "--", "0.3") as process:
        process.wait_for("hanging")
        process.signal(signal.SIGINT)
        assert process.end() == 1
        killed = r"it did not stop within 5 s; at its last heartbeat it was in a call of work\[[23]\]"
        assert re.search(killed, process.text)
        assert "1 tree had not been acked or failed when the topology was stopped" in process.lines[-1]


@pytest.mark.slow
def test_a_killed_worker_is_reported_and_the_run_goes_on(tmp_path: Path) -> None:
    with running(topology("endless"), "--workers", "2") as process:
        process.wait_for("printed by a bolt")
        workers = workers_below(tmp_path)
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        process.wait_for(f"(pid {workers[0]}) of topology 'numbers' was killed by SIGKILL")
        process.wait_for("printed by a bolt")  # by its successor
        process.signal(signal.SIGINT)
        assert process.end() in (0, 1)  # 1: the spout's replays are used up within milliseconds
        assert "numbers interrupted after" in process.text


def test_one_worker_runs_in_this_process() -> None:
    result = squall_run(topology("finite"), "--workers", "1")
    assert result.returncode == 0
    assert "1 worker; Ctrl-C drains" in result.stdout
    assert "\nprinted by a bolt\n" in result.stdout


def test_workers_find_a_module_run_by_its_name() -> None:
    folder = run_process.TOPOLOGIES.parent
    result = squall_run("run_topologies:finite", "--workers", "2", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert "100 trees acked, 0 failed" in result.stdout


def test_after_its_seconds_a_topology_is_drained_and_done() -> None:
    result = squall_run(topology("endless"), "--workers", "2", "--seconds", "1.5", "--json")
    summary = json.loads(result.stdout)
    assert (result.returncode, summary["outcome"], summary["trees"]["left"]) == (0, "drained", 0)
    assert summary["trees"]["acked"] == summary["components"]["source"]["emitted"]
