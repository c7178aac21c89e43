"""Which ends of a worker are its calls' own fault, and what its next process learns about them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from squall import worker_files
from squall.running_calls import SIZE, CallAtDeath, CallMark, begin_calls
from squall.values import Incarnation
from squall.worker_files import Death, End
from supervisor.deaths import fault_of, record_death
from supervisor.exits import Exit

PID = 4711


def ended(status: int) -> Exit:
    return Exit(status << 8, end=End(PID, Incarnation(1, 0), status, "because"))


@pytest.mark.parametrize(
    ("exit", "fault"),
    [
        (Exit(int(signal.SIGSEGV)), "died"),
        (Exit(int(signal.SIGABRT) | 0x80), "died"),
        (Exit(3 << 8), "died"),
        (Exit(0), "died"),
        (ended(worker_files.EXIT_MEMORY), "died"),
        (ended(worker_files.EXIT_HUNG), "hung"),
        (Exit(int(signal.SIGKILL), by_kernel=True), "died"),
        (Exit(int(signal.SIGKILL), by_kernel=False), None),
        (Exit(int(signal.SIGKILL)), None),
        (Exit(int(signal.SIGKILL), killed_because="it sent no heartbeat"), None),
        (Exit(int(signal.SIGTERM)), None),
        (Exit(int(signal.SIGHUP)), None),
        (ended(worker_files.EXIT_LEASE), None),
        (ended(worker_files.EXIT_DRAINED), None),
        (ended(worker_files.EXIT_FILES), None),
        (Exit(None), None),
    ],
)
def test_only_what_a_call_can_do_to_its_process_is_its_fault(exit: Exit, fault: str | None) -> None:
    assert fault_of(exit) == fault


def write_calls(directory: Path, pid: int) -> None:
    buffer = bytearray(SIZE)
    begin_calls(buffer, pid)
    first, second, third = (CallMark(buffer, at, task) for at, task in enumerate((5, 6, 7)))
    first.enter(1, [100, 101])
    second.enter(1, [200])
    second.leave()
    third.enter(50, [300])
    (directory / worker_files.CALLS).write_bytes(buffer)


def test_the_next_process_learns_which_calls_were_running(tmp_path: Path) -> None:
    write_calls(tmp_path, PID)
    record_death(tmp_path, Exit(int(signal.SIGSEGV)), PID)
    death = worker_files.read_death(tmp_path)
    assert death is not None and not death.hung and death.reason.startswith("died of SIGSEGV")
    assert death.calls == (CallAtDeath(5, 1, (100, 101)), CallAtDeath(7, 50, (300,)))
    assert (tmp_path / worker_files.DEATH).stat().st_mode & 0o777 == 0o600


def test_the_calls_of_an_earlier_process_name_no_call(tmp_path: Path) -> None:
    write_calls(tmp_path, PID - 1)
    record_death(tmp_path, Exit(3 << 8), PID)
    death = worker_files.read_death(tmp_path)
    assert death is not None and death.calls == ()


def test_an_end_from_outside_leaves_no_record_not_even_an_earlier_one(tmp_path: Path) -> None:
    record_death(tmp_path, Exit(int(signal.SIGSEGV)), PID)
    record_death(tmp_path, Exit(int(signal.SIGKILL), by_kernel=False), PID)
    assert worker_files.read_death(tmp_path) is None


def test_whatever_user_code_leaves_there_names_no_call_and_stops_nothing(tmp_path: Path) -> None:
    calls = tmp_path / worker_files.CALLS
    os.mkfifo(calls)
    record_death(tmp_path, Exit(int(signal.SIGSEGV)), PID)
    calls.unlink()
    calls.write_bytes(b"\xff" * SIZE)
    record_death(tmp_path, Exit(int(signal.SIGSEGV)), PID)
    assert worker_files.read_death(tmp_path) == Death(False, worker_files.read_death(tmp_path).reason)  # type: ignore[union-attr]
