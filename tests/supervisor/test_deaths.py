"""Which ends of a worker are its calls' own fault, and what its next process learns about them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from squall import worker_files
from squall.running_calls import SIZE, CallAtDeath, CallMark, begin_calls
from squall.suspects import MARK_SECS, Suspects, read_suspects
from squall.values import Incarnation
from squall.worker_files import Death, End
from supervisor.deaths import fault_of, hand_on_suspects, record_death
from supervisor.exits import Exit

PID = 4711
KEY = b"k" * 16


@pytest.fixture(autouse=True)
def topology(tmp_path: Path) -> Path:
    folder = tmp_path / "topology"
    folder.mkdir()
    return folder


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
    record_death(tmp_path, Exit(int(signal.SIGSEGV)), PID, tmp_path / "topology", 100.0)
    death = worker_files.read_death(tmp_path)
    assert death is not None and not death.hung and death.reason.startswith("died of SIGSEGV")
    assert death.calls == (CallAtDeath(5, 1, (100, 101)), CallAtDeath(7, 50, (300,)))
    assert (tmp_path / worker_files.DEATH).stat().st_mode & 0o777 == 0o600


def test_the_calls_of_an_earlier_process_name_no_call(tmp_path: Path) -> None:
    write_calls(tmp_path, PID - 1)
    record_death(tmp_path, Exit(3 << 8), PID, tmp_path / "topology", 100.0)
    death = worker_files.read_death(tmp_path)
    assert death is not None and death.calls == ()


def test_an_end_from_outside_leaves_no_record_not_even_an_earlier_one(tmp_path: Path) -> None:
    record_death(tmp_path, Exit(int(signal.SIGSEGV)), PID, tmp_path / "topology", 100.0)
    record_death(tmp_path, Exit(int(signal.SIGKILL), by_kernel=False), PID, tmp_path / "topology", 100.0)
    assert worker_files.read_death(tmp_path) is None


def test_whatever_user_code_leaves_there_names_no_call_and_stops_nothing(tmp_path: Path) -> None:
    calls = tmp_path / worker_files.CALLS
    os.mkfifo(calls)
    record_death(tmp_path, Exit(int(signal.SIGSEGV)), PID, tmp_path / "topology", 100.0)
    calls.unlink(missing_ok=True)
    calls.write_bytes(b"\xff" * SIZE)
    record_death(tmp_path, Exit(int(signal.SIGSEGV)), PID, tmp_path / "topology", 100.0)
    assert worker_files.read_death(tmp_path) == Death(False, worker_files.read_death(tmp_path).reason)  # type: ignore[union-attr]


def write_call(directory: Path, pid: int = PID, task: int = 5) -> None:
    buffer = bytearray(SIZE)
    begin_calls(buffer, pid)
    CallMark(buffer, 0, task).enter(1, [100], KEY)
    (directory / worker_files.CALLS).write_bytes(buffer)


def deaths_in(folder: Path) -> dict[str, int]:
    found = read_suspects(folder)
    return {} if found is None else {each.key: each.deaths for each in found.known}


def test_deaths_in_calls_with_a_tuple_add_up_over_workers_and_other_ends(
    tmp_path: Path, topology: Path
) -> None:
    workers = [tmp_path / "w1", tmp_path / "w2"]
    for directory in workers:
        directory.mkdir()
        write_call(directory)
        record_death(directory, Exit(int(signal.SIGSEGV)), PID, topology, 100.0)
        record_death(directory, Exit(int(signal.SIGTERM)), PID, topology, 101.0)
    assert deaths_in(topology) == {KEY.hex(): 2}
    hand_on_suspects(topology, workers[0], 200.0)
    assert deaths_in(workers[0]) == {KEY.hex(): 2} and deaths_in(workers[1]) == {}
    assert (topology / worker_files.SUSPECTS).stat().st_mode & 0o777 == 0o600


def test_an_end_that_another_supervisor_has_recorded_counts_once(tmp_path: Path, topology: Path) -> None:
    write_call(tmp_path)
    for _ in range(2):
        record_death(tmp_path, ended(worker_files.EXIT_MEMORY), PID, topology, 100.0)
    assert deaths_in(topology) == {KEY.hex(): 1}


def test_a_hung_call_and_a_kill_from_outside_make_no_suspect(tmp_path: Path, topology: Path) -> None:
    for exit in (ended(worker_files.EXIT_HUNG), Exit(int(signal.SIGKILL)), ended(worker_files.EXIT_LEASE)):
        write_call(tmp_path)
        record_death(tmp_path, exit, PID, topology, 100.0)
    assert read_suspects(topology) is None
    hand_on_suspects(topology, tmp_path, 200.0)
    assert not (tmp_path / worker_files.SUSPECTS).exists()


def test_a_damaged_file_of_suspects_is_begun_again(
    tmp_path: Path, topology: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (topology / worker_files.SUSPECTS).write_bytes(b"{")
    hand_on_suspects(topology, tmp_path, 100.0)
    write_call(tmp_path)
    record_death(tmp_path, Exit(3 << 8), PID, topology, 100.0)
    assert deaths_in(topology) == {KEY.hex(): 1}
    assert "not known any more" in caplog.text


def test_a_death_that_names_no_tuple_is_remembered_for_a_while(tmp_path: Path, topology: Path) -> None:
    record_death(tmp_path, Exit(3 << 8), PID, topology, 100.0)
    hand_on_suspects(topology, tmp_path, 100.0 + MARK_SECS)
    assert read_suspects(tmp_path) == Suspects(100.0, MARK_SECS)
