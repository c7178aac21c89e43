"""Each way in which a process can end has a name, so that users need not guess from a number."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from squall import worker_files
from squall.reports.event_text import cause_text
from squall.values import Incarnation
from squall.worker_files import End
from supervisor.exits import (
    Exit,
    KernelKills,
    cause,
    kernel_kills,
    output_size,
    read_end,
)
from supervisor.log_files import tail
from tests.supervisor.programs import run, until

KILLED = int(signal.SIGKILL)


def text_of(exit: Exit) -> str:
    return cause_text(cause(exit))


def exit_of(directory: Path, text: str) -> Exit:
    """The known facts about a real process that ran this text."""
    before = output_size(directory)
    process = run(directory, text)
    until(process.gone)
    return Exit(
        process.status,
        end=read_end(directory, process.pid),
        tail=tail(directory / worker_files.OUTPUT, before, 4096),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raise SystemExit(3)", "ended with status 3 without giving a reason: sys.exit() or os._exit() in user code"),
        ("import os; os._exit(0)", "ended with status 0 without giving a reason"),
        ("import os; os._exit(71)", "ended with status 71 (its supervisor was away for longer than the lease,"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL (OOM killer: unknown)"),
        ("import os; os.kill(os.getpid(), 15)", "was killed by SIGTERM"),
        ("import os; os.kill(os.getpid(), 11)", "died of SIGSEGV (a segmentation fault"),
        ("import os; os.abort()", "died of SIGABRT (C code or the interpreter called abort()"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 3)", "was killed by signal 3"),
    ],
)  # fmt: skip
def test_every_kind_of_end_has_a_name(tmp_path: Path, text: str, expected: str) -> None:
    assert text_of(exit_of(tmp_path, text)).startswith(expected)


def test_a_python_that_dies_in_c_shows_where_it_was(tmp_path: Path) -> None:
    text = "import ctypes, faulthandler\nfaulthandler.enable()\ndef sick():\n    ctypes.string_at(0)\nsick()"
    what, *lines = text_of(exit_of(tmp_path, text)).splitlines()
    assert what.startswith("died of SIGSEGV")
    assert lines[0] == "  | Fatal Python error: Segmentation fault"
    assert any("in sick" in line for line in lines)
    assert len(lines) <= 8


def test_an_error_at_the_start_shows_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / worker_files.OUTPUT).write_text("of the process before\n")
    text = "print('x' * 1000); import no_such_module"
    what, *lines = text_of(exit_of(tmp_path, text)).splitlines()
    assert what.startswith("ended with status 1 without giving a reason")
    assert lines[-1] == "  | ModuleNotFoundError: No module named 'no_such_module'"
    assert not any("before" in line for line in lines)
    assert max(map(len, lines)) < 210


def test_the_workers_own_report_counts_if_it_is_from_that_process(tmp_path: Path) -> None:
    text = f"""
import os
from squall.worker_files import END, End, write
write({str(tmp_path)!r}, END, End(os.getpid(), (1, 0), 72, "split[3] hung for 61 s"))
os._exit(72)
"""
    exit = exit_of(tmp_path, text)
    assert text_of(exit) == "ended by itself with status 72: split[3] hung for 61 s"
    assert not exit.innocent
    worker_files.write(tmp_path, worker_files.END, End(1, Incarnation(1, 0), 72, "of another process"))
    assert read_end(tmp_path, 2) is None
    (tmp_path / worker_files.END).write_text("{")
    assert read_end(tmp_path, 1) is None


@pytest.mark.parametrize(
    ("exit", "expected"),
    [
        (Exit(KILLED, by_kernel=True), "was killed by SIGKILL (OOM killer: yes)"),
        (Exit(KILLED, by_kernel=False), "was killed by SIGKILL (OOM killer: no)"),
        (
            Exit(KILLED, killed_because="it did not stop within 10 s", tail="many words"),
            "was killed by its supervisor: it did not stop within 10 s",
        ),
        (
            Exit(None, killed_because="it did not stop within 10 s"),
            "was killed by its supervisor: it did not stop within 10 s",
        ),
        # It was faster than the kill.
        (
            Exit(0, killed_because="it did not stop", end=End(1, Incarnation(1, 0), 0, "stopped")),
            "ended by itself with status 0: stopped",
        ),
        # Its handler was already gone when it was signalled about new orders.
        (
            Exit(int(signal.SIGUSR1), end=End(1, Incarnation(1, 0), 72, "it hung")),
            "ended by itself with status 72: it hung",
        ),
        (
            Exit(None, end=End(1, Incarnation(1, 0), 71, "no lease")),
            "ended by itself with status 71: no lease",
        ),
        (
            Exit(None),
            "is gone, and its exit status is unknown (another supervisor had started it)",
        ),
        (Exit(int(signal.SIGSEGV) | 0x80), None),
    ],
)
def test_a_cause_is_one_line_where_that_suffices(exit: Exit, expected: str | None) -> None:
    text = text_of(exit)
    if expected is None:
        assert text.endswith(", core dumped)")
    else:
        assert text == expected


@pytest.mark.parametrize(("status", "innocent"), [(0, True), (71, True), (73, False), (75, False)])
def test_an_orderly_end_and_a_lost_lease_are_no_fault_of_the_worker(status: int, innocent: bool) -> None:
    assert Exit(status << 8, end=End(1, Incarnation(1, 0), status, "")).innocent is innocent
    assert not Exit(status << 8).innocent


# The output


def test_output_that_was_truncated_meanwhile_is_read_from_its_beginning(tmp_path: Path) -> None:
    assert output_size(tmp_path) == 0
    output = tmp_path / worker_files.OUTPUT
    assert tail(output, 0, 4096) == ""
    output.write_bytes(b"\xff new\n")
    assert tail(output, 10_000, 4096) == "� new\n"


def test_only_the_end_of_much_output_is_read(tmp_path: Path) -> None:
    (tmp_path / worker_files.OUTPUT).write_text("a" * 1_000_000 + "z")
    read = tail(tmp_path / worker_files.OUTPUT, 0, 4096)
    assert len(read) == 4096
    assert read.endswith("az")


# Kills by the kernel


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/", {"proc/vmstat": "nr_free 12\noom_kill 7\n"}, 7),
        ("0::/a/b\n", {"cg/a/b/memory.events": "oom 1\noom_kill 2\noom_group_kill 9\n", "proc/vmstat": "oom_kill 7"}, 2),
        ("4:memory:/x\n0::/\n", {"cg/memory/x/memory.oom_control": "under_oom 0\noom_kill 3\n"}, 3),
        ("4:cpu,memory:/x\n", {"cg/memory/memory.oom_control": "oom_kill 4\n"}, 4),
        ("4:memory:/x\n", {"cg/memory/x/memory.oom_control": "under_oom 0\n", "proc/vmstat": "oom_kill 5"}, 5),
        ("garbage", {}, None),
    ],
)  # fmt: skip
def test_the_narrowest_existing_counter_is_read(
    tmp_path: Path, groups: str, files: dict[str, str], expected: int | None
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert kernel_kills(tmp_path / "proc", tmp_path / "cg") == expected


def test_reading_the_counter_of_this_machine_does_not_fail() -> None:
    count = kernel_kills()
    assert count is None or count >= 0


class Counter:
    def __init__(self) -> None:
        self.count: int | None = 5

    def read(self) -> int | None:
        return self.count


KILL = Exit(KILLED)


def test_one_kill_by_the_kernel_explains_one_death() -> None:
    counter = Counter()
    kills = KernelKills(counter.read)
    assert kills.explain(KILL).by_kernel is False
    counter.count = 6
    assert kills.explain(KILL).by_kernel is True
    assert kills.explain(KILL).by_kernel is False


def test_a_death_noticed_after_a_reading_is_still_explained() -> None:
    counter = Counter()
    kills = KernelKills(counter.read)
    kills.forget_old(10.0)
    counter.count = 6
    kills.forget_old(12.0)  # the kill came just before this
    assert kills.explain(KILL).by_kernel is True


def test_an_old_kill_explains_no_death() -> None:
    counter = Counter()
    kills = KernelKills(counter.read)
    counter.count = 6
    for now in (10.0, 11.0, 12.0, 13.0, 14.0, 16.0):
        kills.forget_old(now)
    assert kills.explain(KILL).by_kernel is False


def test_other_deaths_use_up_no_kill_and_without_a_counter_nothing_is_known() -> None:
    counter = Counter()
    kills = KernelKills(counter.read)
    counter.count = 6
    kills.explain(Exit(int(signal.SIGSEGV)))
    kills.explain(Exit(KILLED, killed_because="it hung"))
    assert kills.explain(KILL).by_kernel is True
    counter.count = None
    assert KernelKills(counter.read).explain(KILL).by_kernel is None


def test_a_fatal_error_shows_the_thread_at_fault() -> None:
    lines = ["noise", "Fatal Python error: Segmentation fault", "", "Thread 0x1 (most recent call first):"]
    lines += [f'  File "heartbeat.py", line {line}' for line in range(20)]
    lines += ["Current thread 0x2 (most recent call first):", '  File "user.py", line 7 in execute']
    tail = "\n".join(lines)
    text = text_of(Exit(signal.SIGSEGV, tail=tail))
    assert "user.py" in text and "Segmentation fault" in text
    assert "heartbeat.py" not in text
