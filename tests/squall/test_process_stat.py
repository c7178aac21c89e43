"""The facts about a process come from the kernel, whatever the process calls itself."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from squall.daemon.process_stat import Stat, all_processes, stat_of

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
#: Renames its program to a name that looks like the rest of the line, and waits.
ODD_NAME = "open('/proc/self/comm', 'w').write('x) Z 1 (2 3'); print(flush=True); input()"


def refusing(number: int) -> Callable[[Path], bytes]:
    """A reader that fails with this error for every file."""

    def read(path: Path) -> bytes:
        raise OSError(number, os.strerror(number))

    return read


@LINUX
def test_this_process_is_found_with_its_session_and_group() -> None:
    stat = stat_of(os.getpid())
    assert stat is not None and stat.living and stat.started > 0
    assert (stat.pid, stat.group, stat.session) == (os.getpid(), os.getpgid(0), os.getsid(0))
    assert os.getpid() in {found.pid for found in all_processes()}


@LINUX
def test_a_name_with_brackets_causes_no_mistake_and_a_zombie_does_not_live() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ODD_NAME],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        stat = stat_of(process.pid)
        assert stat is not None and stat.living
        assert (stat.group, stat.session) == (process.pid, process.pid)
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        over = stat_of(process.pid)
        assert over == Stat(process.pid, "Z", process.pid, process.pid, stat.started)
        assert not over.living
    assert stat_of(process.pid) is None


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT, errno.ESRCH])
def test_an_ended_or_hidden_process_counts_as_none(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", refusing(number))
    assert stat_of(os.getpid()) is None


def test_without_a_free_descriptor_no_process_is_declared_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Path, "read_bytes", refusing(errno.EMFILE))
    with pytest.raises(OSError, match="open files"):
        stat_of(os.getpid())


def test_a_system_that_lists_no_processes_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: str) -> list[str]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "listdir", missing)
    assert list(all_processes()) == []
