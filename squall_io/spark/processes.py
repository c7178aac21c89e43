"""Names this process, and tells of another one of the same machine whether it has ended. Only Linux tells enough.

Must not know: tables, why a process matters.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from squall_io.spark.manifest.holders import Holder, Myself

_PROC: Final = Path("/proc")
#: States of a process that has ended: its parent has not asked for its exit status, or it is about to disappear.
_ENDED: Final = ("Z", "X", "x")


def this_process(task: str = "", run: tuple[int, int] = (0, 0)) -> Myself:
    """Return this process, with the task that it runs."""
    return Myself(Holder(name_of_this_process(), task, run), has_ended)


def name_of_this_process() -> str:
    """Return machine since its start, space of process ids, process id, and when the process began; "" if the system does not
    tell."""
    machine, began = _machine(), _began(os.getpid())
    return f"{machine}/{os.getpid()}/{began}" if machine and began else ""


def has_ended(name: str) -> bool:
    """Return whether a process of this machine has ended. Of another machine it is unknown: False."""
    place, _, given = name.rpartition("/")
    machine, _, number = place.rpartition("/")
    if not machine or machine != _machine() or not number.isdecimal():
        return False
    began = _began(int(number))
    if began is None:  # it may be another user's, which the system may hide
        return not _exists(int(number))
    return given != began


def _exists(pid: int) -> bool:
    """Return whether there is a process with this number, of any user."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _began(pid: int) -> str | None:
    """Return when a process began, in ticks since the machine's start; "" if it has ended, None if it is not to be seen."""
    with suppress(OSError, ValueError, IndexError):
        # The name of the program, in parentheses, may have spaces.
        fields = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return "" if fields[0] in _ENDED else str(int(fields[19]))
    return None


@cache
def _machine() -> str:
    """Return what names this machine since its start, and its space of process ids; "" if the system does not tell."""
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink(_PROC / 'self/ns/pid')}"
    return ""
