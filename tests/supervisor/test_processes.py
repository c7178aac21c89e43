"""Processes are identified by pid and start time, end with all their children, and leave no zombie."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.daemon.process_stat import stat_of
from squall.worker_files import OUTPUT
from supervisor.processes import (
    MARK,
    WorkerProcess,
    kill_left_over,
    marked,
    session_members,
    worker_command,
    worker_environment,
)
from tests.supervisor.programs import pid_in, run, runs, until

SLEEP = "import time; time.sleep(1000)"
# Reports that it runs, so that no signal comes before its handler.
STUBBORN = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/dev/null").write_text(f"{os.getpid()}\\n")
time.sleep(1000)
"""


@pytest.fixture
def started() -> Iterator[list[WorkerProcess]]:
    """All processes added here are ended with the test."""
    processes: list[WorkerProcess] = []
    yield processes
    for process in processes:
        process.kill()
        until(process.gone)


def test_a_process_leads_a_session_of_its_own_with_empty_input(
    tmp_path: Path, started: list[WorkerProcess]
) -> None:
    text = "import os, sys; print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()), flush=True)"
    process = run(tmp_path, text)
    started.append(process)
    until(process.gone)
    assert process.status == 0
    assert (tmp_path / OUTPUT).read_text() == "True ''\n"


def test_its_output_is_appended_to_that_of_earlier_ones(tmp_path: Path) -> None:
    for word in ("first", "second"):
        process = run(tmp_path, f"import sys; print('{word}', file=sys.stderr)")
        until(process.gone)
    assert (tmp_path / OUTPUT).read_text() == "first\nsecond\n"
    assert (tmp_path / OUTPUT).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "status"),
    [("pass", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)],
)
def test_its_wait_status_is_known_and_no_zombie_is_left(tmp_path: Path, text: str, status: int) -> None:
    process = run(tmp_path, text)
    until(process.gone)
    assert process.status is not None
    assert os.waitstatus_to_exitcode(process.status) == status
    assert stat_of(process.pid) is None
    assert process.gone() and process.ended()


def test_it_gets_the_umask_that_is_asked_for_whatever_the_supervisors_is(tmp_path: Path) -> None:
    text = [sys.executable, "-c", "import os; print(f'{os.umask(0):o}')"]
    for umask in (0o027, -1):
        until(WorkerProcess.start(text, tmp_path, dict(os.environ), umask=umask).gone)
    own = os.umask(0)
    os.umask(own)
    assert (tmp_path / OUTPUT).read_text() == f"27\n{own:o}\n"


def test_a_missing_program_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no-such-program"):
        WorkerProcess.start(["/no-such-program"], tmp_path, {})


def test_a_process_whose_start_time_cannot_be_read_is_not_left_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def no_file(pid: int) -> None:
        begun.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("supervisor.processes.stat_of", no_file)
    with pytest.raises(OSError, match="Too many open files"):
        run(tmp_path, SLEEP)
    assert not runs(begun[0])
    with pytest.raises(ChildProcessError):
        os.waitpid(begun[0], 0)


def test_a_running_process_is_neither_ended_nor_gone(tmp_path: Path, started: list[WorkerProcess]) -> None:
    process = run(tmp_path, SLEEP)
    started.append(process)
    assert not process.ended()
    assert not process.gone()
    assert process.status is None


def test_a_frozen_process_is_alive_and_can_be_killed(tmp_path: Path) -> None:
    process = run(tmp_path, SLEEP)
    assert process.signal(signal.SIGSTOP)
    until(lambda: (stat := stat_of(process.pid)) is not None and stat.state == "T")
    assert not process.ended()
    process.kill()
    until(process.gone)
    assert process.status == signal.SIGKILL


@pytest.mark.parametrize("group", ["", ", process_group=0"] if sys.version_info >= (3, 11) else [""])
def test_a_process_that_dies_takes_its_children_with_it(tmp_path: Path, group: str) -> None:
    child = tmp_path / "child"
    text = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {STUBBORN!r}, {str(child)!r}]{group})\n"
        "import time; time.sleep(1000)\n"
    )
    process = run(tmp_path, text)
    pid = pid_in(child)
    assert runs(pid)
    os.kill(process.pid, signal.SIGKILL)
    until(process.gone)
    assert not runs(pid)
    assert session_members(process.pid) == []


def test_a_process_that_ends_in_good_order_takes_its_children_with_it_too(tmp_path: Path) -> None:
    child = tmp_path / "child"
    text = (
        "import pathlib, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {STUBBORN!r}, {str(child)!r}])\n"
        f"while not pathlib.Path({str(child)!r}).exists(): time.sleep(0.01)\n"
    )
    process = run(tmp_path, text)
    pid = pid_in(child)
    until(process.gone)
    assert process.status == 0
    assert not runs(pid)


def test_kill_ends_a_process_and_its_children_at_once(tmp_path: Path) -> None:
    child = tmp_path / "child"
    text = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {STUBBORN!r}, {str(child)!r}])\n"
        "import time; time.sleep(1000)\n"
    )
    process = run(tmp_path, text)
    pid = pid_in(child)
    process.kill()
    until(process.gone)
    assert not runs(pid)


def test_a_process_started_by_another_is_adopted_by_pid_and_start(tmp_path: Path) -> None:
    mother = run(tmp_path, SLEEP)
    adopted = WorkerProcess.adopt(mother.pid, mother.started)
    assert adopted is not None
    assert not adopted.ended()
    adopted.kill()
    until(adopted.ended)
    until(mother.gone)
    assert adopted.gone()
    assert adopted.status is None, "it was not ours to wait for"


def test_a_process_with_another_start_time_is_neither_adopted_nor_signalled(
    tmp_path: Path, started: list[WorkerProcess]
) -> None:
    process = run(tmp_path, SLEEP)
    started.append(process)
    assert WorkerProcess.adopt(process.pid, process.started + 1) is None
    stranger = WorkerProcess(process.pid, process.started + 1, child=False)
    assert stranger.ended()
    assert stranger.gone()
    assert not stranger.signal(signal.SIGKILL)
    stranger.kill()
    assert runs(process.pid)


def test_a_dead_process_is_not_adopted(tmp_path: Path) -> None:
    process = run(tmp_path, "pass")
    until(process.ended)
    assert WorkerProcess.adopt(process.pid, process.started) is None  # it is a zombie now
    until(process.gone)
    assert WorkerProcess.adopt(process.pid, process.started) is None


def test_a_child_that_was_already_reaped_is_gone_with_unknown_status(tmp_path: Path) -> None:
    process = run(tmp_path, "raise SystemExit(3)")
    os.waitpid(process.pid, 0)
    until(process.gone)
    assert process.status is None


def test_signals_arrive(tmp_path: Path) -> None:
    text = """
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))
print("ready", flush=True)
time.sleep(1000)
"""
    process = run(tmp_path, text)
    until(lambda: (tmp_path / OUTPUT).read_text() == "ready\n")
    assert process.signal(signal.SIGUSR1)
    until(process.gone)
    assert process.status is not None
    assert os.waitstatus_to_exitcode(process.status) == 7
    assert not process.signal(signal.SIGUSR1)


def test_the_name_of_a_program_cannot_confuse_the_kernels_report(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to(os.path.realpath("/bin/sleep"))
    process = WorkerProcess.start([str(program), "1000"], tmp_path, {})
    stat = stat_of(process.pid)
    assert stat is not None
    assert stat.session == process.pid
    assert stat.started == process.started
    process.kill()
    until(process.gone)


# Remains of an earlier supervisor


def orphan(tmp_path: Path, marked: bool) -> tuple[int, int]:
    """A process whose session leader is gone; the session, and the pid."""
    child = tmp_path / "child"
    text = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}, {str(child)!r}])"
    environment = {**os.environ, MARK: str(tmp_path)} if marked else dict(os.environ)
    leader = subprocess.Popen([sys.executable, "-c", text], env=environment, start_new_session=True)
    leader.wait()
    return leader.pid, pid_in(child)


def test_children_of_a_worker_that_died_without_a_supervisor_are_killed(tmp_path: Path) -> None:
    session, pid = orphan(tmp_path, marked=True)
    kill_left_over(session, tmp_path)
    until(lambda: not runs(pid))
    assert session_members(session) == []


def test_processes_without_the_mark_of_the_worker_are_not_touched(tmp_path: Path) -> None:
    session, pid = orphan(tmp_path, marked=False)
    try:
        kill_left_over(session, tmp_path)
        assert runs(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        until(lambda: not runs(pid))


# Command and environment


def test_a_process_that_is_just_starting_another_program_is_found(tmp_path: Path) -> None:
    script = tmp_path / "again.sh"
    script.write_text('#!/bin/sh\nexec "$0"\n')
    script.chmod(0o755)
    again = subprocess.Popen([str(script)], env={MARK: str(tmp_path)}, start_new_session=True)
    try:
        stat = stat_of(again.pid)
        assert stat is not None
        missed = [at for at in range(500) if not list(marked([stat], MARK, tmp_path))]
        assert missed == []
    finally:
        again.kill()
        again.wait()


def test_a_worker_finds_the_same_modules_and_not_those_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = worker_environment(
        tmp_path / "w1", ["/one", "", "two", "/one", "/odd:name"], {"HOME": "/h"}
    )
    assert environment == {
        "HOME": "/h",
        "PYTHONPATH": f"/one:{tmp_path}:{tmp_path}/two",
        MARK: str(tmp_path / "w1"),
    }
    command = worker_command(tmp_path / "w1")
    assert command[0] == sys.executable
    assert command[-3:] == ["-m", "worker", str(tmp_path / "w1")]
    assert ("-P" in command) is (sys.version_info >= (3, 11))


def test_a_python_without_a_path_to_itself_cannot_start_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(RuntimeError, match="does not know its own executable"):
        worker_command(tmp_path)
