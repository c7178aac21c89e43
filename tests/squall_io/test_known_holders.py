"""Of which holders it is known that they have ended: processes of this machine, and earlier runs of a task."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from squall_io.spark import processes
from squall_io.spark.manifest.holders import Holder, Myself
from squall_io.spark.processes import has_ended, name_of_this_process, this_process


def child() -> tuple[subprocess.Popen[bytes], str]:
    """A process that waits, and its name as it says it."""
    say = "from squall_io.spark.processes import name_of_this_process as name; print(name(), flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{say}; input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    return process, process.stdout.readline().decode().strip()


def test_a_process_of_this_machine_has_ended_also_if_its_parent_does_not_know() -> None:
    process, name = child()
    assert f"/{process.pid}/" in name and not has_ended(name)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(name)
    process.communicate()
    assert has_ended(name)


def test_another_process_with_the_same_number_is_another_one() -> None:
    machine, pid, began = name_of_this_process().rsplit("/", 2)
    assert not has_ended(f"{machine}/{pid}/{began}")
    assert has_ended(f"{machine}/{pid}/{int(began) - 1}")


@pytest.mark.parametrize("name", ["", "x", "a/b/1/2", "another boot/pid:[1]/999999999/5", "//", "///"])
def test_of_a_process_elsewhere_nothing_is_known(name: str) -> None:
    assert not has_ended(name)


def test_a_process_that_the_system_hides_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    process, name = child()
    monkeypatch.setattr(processes, "_began", lambda pid: None)
    assert not has_ended(name)
    process.kill()
    process.communicate()
    assert has_ended(name)


def test_an_earlier_run_of_the_same_task_is_gone_and_no_other() -> None:
    me = Myself(Holder("", "words-1.store.0", (2, 1)))
    for task, run, gone in (
        ("words-1.store.0", (2, 0), True),
        ("words-1.store.0", (1, 9), True),
        ("words-1.store.0", (2, 1), False),
        ("words-1.store.0", (2, 2), False),
        ("words-1.store.1", (1, 0), False),
        ("", (1, 0), False),
    ):
        assert me.knows_to_be_gone(Holder("", task, run)) is gone


def test_where_the_system_does_not_tell_it_names_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_began", lambda pid: None)
    assert this_process("a task", (1, 2)).holder == Holder("", "a task", (1, 2))
