"""Of whom it is known that he has ended: processes of this machine, and earlier runs of a task."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from squall_io.spark.manifest import holders
from squall_io.spark.manifest.holders import Holder, this_process

ME = this_process("words-1.store.0", (2, 1))


def child() -> tuple[subprocess.Popen[bytes], Holder]:
    """A process that waits, as it names itself."""
    say = (
        "from squall_io.spark.manifest.holders import this_process; print(this_process().process, flush=True)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", f"{say}; input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    return process, Holder(process.stdout.readline().decode().strip())


def test_a_process_of_this_machine_is_gone_when_it_has_ended_also_if_its_parent_does_not_know() -> None:
    process, holder = child()
    assert f"/{process.pid}/" in holder.process and not holder.is_known_to_be_gone(ME)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert holder.is_known_to_be_gone(ME)
    process.communicate()
    assert holder.is_known_to_be_gone(ME)


def test_another_process_with_the_same_number_is_another_one() -> None:
    machine, pid, began = ME.process.rsplit("/", 2)
    assert not Holder(f"{machine}/{pid}/{began}").is_known_to_be_gone(ME)
    assert Holder(f"{machine}/{pid}/{int(began) - 1}").is_known_to_be_gone(ME)


@pytest.mark.parametrize("process", ["", "x", "a/b/1/2", "another boot/pid:[1]/999999999/5", "//"])
def test_of_a_process_elsewhere_nothing_is_known(process: str) -> None:
    assert not Holder(process).is_known_to_be_gone(ME)
    assert not Holder(process).is_known_to_be_gone(Holder())


def test_a_process_that_the_system_hides_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    process, holder = child()
    monkeypatch.setattr(holders, "_began", lambda pid: None)
    assert not holder.is_known_to_be_gone(ME)
    process.kill()
    process.communicate()
    assert holder.is_known_to_be_gone(ME)


def test_an_earlier_run_of_the_same_task_is_gone_and_no_other() -> None:
    for task, run, gone in (
        (ME.task, (2, 0), True),
        (ME.task, (1, 9), True),
        (ME.task, (2, 1), False),
        (ME.task, (2, 2), False),
        ("words-1.store.1", (1, 0), False),
        ("", (1, 0), False),
    ):
        assert Holder("", task, run).is_known_to_be_gone(ME) is gone


def test_where_the_system_does_not_tell_it_names_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "_began", lambda pid: None)
    assert this_process("a task", (1, 2)) == Holder("", "a task", (1, 2))
