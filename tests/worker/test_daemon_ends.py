"""However a worker process ends, it does nothing afterwards, leaves nothing behind, and reports the reason if it can."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from squall.spare_files import clear_spares
from squall.worker_files import EXIT_HUNG, EXIT_INTERNAL, EXIT_LEASE, EXIT_MEMORY, EXIT_STOPPED
from tests.read_only import read_only
from tests.worker.conftest import Launch
from tests.worker.daemon_components import (
    Aborts,
    Exits,
    Forks,
    HangingSpout,
    Hangs,
    HangsAwaiting,
    HangsInThread,
    HangsPreparing,
    Notes,
    RegistersForTheExit,
    Sabotages,
    SaysSoInThread,
    SaysThatItGoesOn,
    StartsPrograms,
    Unhurried,
    lines,
    lone_spout,
    one_bolt,
)
from tests.worker.fake_supervisor import CAP, FakeSupervisor
from topology_api import Bolt

HANG = {"topology.bolt.hang.secs": 1}


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pid: int) -> bool:
    """Whether a process ends before the cap."""
    deadline = time.monotonic() + CAP
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


def freeze(worker: FakeSupervisor, seconds: float) -> None:
    """Stop a process for a while, as a debugger, a hypervisor or a swapping machine would."""
    worker.process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + CAP
    stat = Path(f"/proc/{worker.pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "T" and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(seconds)  # the length of the stop is what the test is about


# The lease.


def test_a_worker_frozen_for_longer_than_the_lease_does_nothing_any_more(
    launch: Launch, tmp_path: Path
) -> None:
    worker = launch(one_bolt(Notes(tmp_path, 0.002), tmp_path, None, kind=Unhurried), lease_secs=1.0)
    worker.wait(lambda: len(lines(tmp_path / "seen")) > 50, "tuples")
    freeze(worker, 1.3)
    emitted, seen = len(lines(tmp_path / "emitted")), len(lines(tmp_path / "seen"))
    number = worker.heartbeat()
    worker.process.send_signal(signal.SIGCONT)
    assert worker.wait_end() == EXIT_LEASE
    # The run of calls that was in progress when it froze ends; with 2 ms each, it is a run of two at most.
    assert len(lines(tmp_path / "seen")) <= seen + 2
    assert len(lines(tmp_path / "emitted")) <= emitted + 2
    assert len(lines(tmp_path / "acked")) <= seen + 2  # acks may be behind the bolt
    assert worker.heartbeat() == number
    end = worker.end()
    assert end is not None
    assert (end.status, end.incarnation) == (EXIT_LEASE, (1, 0))
    assert "the supervisor test has given no new lease" in end.reason


@pytest.mark.slow
def test_a_worker_frozen_for_less_than_the_lease_goes_on(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, None), HANG, lease_secs=30.0)
    worker.wait(lambda: lines(tmp_path / "acked"), "an ack")
    freeze(worker, 1.5)
    acked = len(lines(tmp_path / "acked"))
    worker.process.send_signal(signal.SIGCONT)
    worker.wait(lambda: len(lines(tmp_path / "acked")) > acked + 10, "more acks")
    heartbeat = worker.heartbeat()
    assert heartbeat is not None
    worker.wait_heartbeat(lambda later: later.number > heartbeat.number + 1)


def test_a_worker_whose_supervisor_is_away_ends_after_the_lease(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, None), lease_secs=1.0)
    worker.wait_opened()
    worker.away.set()
    assert worker.wait_end() == EXIT_LEASE
    assert "has given no new lease" in worker.log()


@pytest.mark.slow
def test_a_worker_whose_directory_turns_read_only_outlives_its_lease_and_stops_as_ordered(
    launch: Launch, tmp_path: Path
) -> None:
    worker = launch(one_bolt(Notes(tmp_path), tmp_path, None), lease_secs=1.5)
    before = worker.wait_opened().number
    with read_only(worker.directory):
        worker.wait_heartbeat(lambda heartbeat: heartbeat.number >= before + 4)
        worker.order("stop")
        assert worker.wait_end() == EXIT_STOPPED
        end = worker.end()
        assert end is not None and "stopped as ordered" in end.reason
    clear_spares(worker.directory)


@pytest.mark.slow
@pytest.mark.parametrize("bolt", [SaysThatItGoesOn, SaysSoInThread])
def test_a_long_call_that_reports_progress_does_not_count_as_hung(
    launch: Launch, tmp_path: Path, bolt: type[Notes]
) -> None:
    worker = launch(one_bolt(bolt(tmp_path), tmp_path, 10), HANG)
    worker.wait(lambda: len(lines(tmp_path / "acked")) == 10, "all acks")
    assert worker.process.poll() is None
    assert worker.end() is None


def test_the_lease_ends_a_worker_whose_loop_is_inside_a_call(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Hangs(tmp_path), tmp_path, 10), lease_secs=1.5)
    worker.wait(lambda: lines(tmp_path / "hangs"), "the call")
    worker.away.set()
    assert worker.wait_end() == EXIT_LEASE


# Calls that hang.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bolt", "function"),
    [(Hangs, "wait_for_ever"), (HangsInThread, "wait_for_ever"), (HangsAwaiting, "select")],
)
def test_a_bolt_that_hangs_ends_the_worker_with_all_stacks_in_the_log(
    launch: Launch, tmp_path: Path, bolt: type[Bolt], function: str
) -> None:
    made: Bolt = bolt(tmp_path)  # type: ignore[call-arg]
    worker = launch(one_bolt(made, tmp_path, 10), HANG)
    assert worker.wait_end() == EXIT_HUNG
    end = worker.end()
    assert end is not None
    assert end.reason.startswith("a call of bolt[2] has not returned for")
    assert "topology.bolt.hang.secs: 1" in end.reason
    assert f"in {function}" in worker.log()
    assert "Thread MainThread" in worker.log()


@pytest.mark.slow
def test_a_hung_spout_and_a_slow_prepare_are_logged_once_and_not_killed(
    launch: Launch, tmp_path: Path
) -> None:
    spout = launch(lone_spout(HangingSpout()), HANG)
    spout.wait(lambda: "a call of spout[1] has been running" in spout.log(), "a line")
    heartbeat = spout.heartbeat()
    assert heartbeat is not None
    spout.wait_heartbeat(lambda later: later.number > heartbeat.number + 2)
    assert spout.log().count("has been running") == 1
    spout.process.kill()
    spout.wait_end()
    bolt = launch(one_bolt(HangsPreparing(tmp_path), tmp_path, 10), HANG)
    bolt.wait(lambda: "a call of bolt[2] has been running" in bolt.log(), "a line")
    before = bolt.heartbeat()
    assert before is not None and not before.opened
    bolt.wait_heartbeat(lambda later: later.number > before.number + 2)


@pytest.mark.slow
def test_a_bolt_with_many_slow_calls_does_not_count_as_hung(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Notes(tmp_path, 0.3), tmp_path, 12), HANG)
    worker.wait_heartbeat(lambda heartbeat: heartbeat.ended)
    assert len(lines(tmp_path / "acked")) == 12


@pytest.mark.slow
def test_without_hang_seconds_any_time_is_allowed(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Hangs(tmp_path), tmp_path, 10), {"topology.bolt.hang.secs": 0})
    worker.wait_heartbeat(lambda heartbeat: heartbeat.executing and heartbeat.executing[2] > 2)
    assert "has been running" not in worker.log()


# User code that ends the process.


def test_os_exit_in_user_code_leaves_its_status_and_no_reason(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Exits(), tmp_path, 10))
    assert worker.wait_end() == 3
    assert worker.end() is None


def test_a_segmentation_fault_leaves_the_stack_in_the_output(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Aborts(), tmp_path, 10))
    assert worker.wait_end() == -signal.SIGSEGV
    assert worker.end() is None
    assert "Fatal Python error: Segmentation fault" in worker.output()
    assert "in execute" in worker.output()


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (RuntimeError, EXIT_INTERNAL, "an internal error of Squall: RuntimeError: sabotaged"),
        (MemoryError, EXIT_MEMORY, "out of memory, outside of any user's call"),
    ],
)
def test_a_squall_error_is_named_and_its_traceback_is_in_the_log(
    launch: Launch, tmp_path: Path, error: type[BaseException], status: int, words: str
) -> None:
    worker = launch(one_bolt(Sabotages(error), tmp_path, 10))
    assert worker.wait_end() == status
    end = worker.end()
    assert end is not None and (end.status, end.reason) == (status, words)
    assert "in broken" in worker.log()


def test_exit_functions_of_libraries_are_run(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(RegistersForTheExit(tmp_path), tmp_path, 10))
    worker.wait_opened()
    worker.order("stop")
    assert worker.wait_end() == EXIT_STOPPED
    assert lines(tmp_path / "exit") == ["handed over"]


# Children.


def test_a_child_forked_by_user_code_is_no_second_worker(launch: Launch, tmp_path: Path) -> None:
    worker = launch(one_bolt(Forks(tmp_path), tmp_path, 2))
    worker.wait_heartbeat(lambda heartbeat: heartbeat.ended)
    assert lines(tmp_path / "children") == ["leaves 5", "returns 0", f"waits {-signal.SIGTERM}"] * 2
    assert lines(tmp_path / "acked") == ["1", "2"]
    assert "bolt[2] a child that leaves" in worker.log()
    assert "SIGTERM" not in worker.log()
    heartbeat = worker.heartbeat()
    assert heartbeat is not None and heartbeat.pid == worker.pid
    worker.order("stop")
    assert worker.wait_end() == EXIT_STOPPED


@pytest.mark.parametrize("how", ["stop", "lease", "hang"])
def test_programs_started_by_user_code_end_with_the_worker(launch: Launch, tmp_path: Path, how: str) -> None:
    bolt = StartsPrograms(tmp_path, "hang" if how == "hang" else "")
    lease = 1.0 if how == "lease" else 30.0
    worker = launch(one_bolt(bolt, tmp_path, 10), HANG, lease_secs=lease)
    worker.wait(lambda: len(lines(tmp_path / "programs")) == 2, "the programs")
    pids = [int(line) for line in lines(tmp_path / "programs")]
    assert all(map(alive, pids))
    if how == "stop":
        worker.wait_opened()
        worker.order("stop")
    elif how == "lease":
        worker.away.set()
    expected = {"stop": EXIT_STOPPED, "lease": EXIT_LEASE, "hang": EXIT_HUNG}
    assert worker.wait_end() == expected[how]
    assert all(map(wait_gone, pids))


def test_a_process_group_that_is_not_the_workers_own_is_not_ended() -> None:
    from worker.process.exit import end_group

    pid = os.fork()
    if pid == 0:  # in the group of the test run, which it must not end
        end_group()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
