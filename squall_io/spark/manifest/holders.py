"""Who holds the right to replace batches, so precisely that another process may know that it is gone.

It is known of a process of the same machine, and of an earlier run of the same task. Of all others it is not: they are given
time. A wrong answer does no harm to a table (see `rewriting`); it would end the work of a process that is alive.
Must not know: tables, what is held.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from squall_io.spark.manifest.envelopes import build_type_info

_PROC: Final = Path("/proc")
#: States of a process that has ended: its parent has not asked for its exit status, or it is about to disappear.
_ENDED: Final = ("Z", "X", "x")


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process, and the task that it runs; each may be unknown."""

    #: Machine since its start, space of process ids, process id, and when the process began, each as Linux tells it.
    process: str = ""
    #: The writer id of a sink's task, and its incarnation.
    task: str = ""
    run: tuple[int, int] = (0, 0)

    def is_known_to_be_gone(self, me: Holder) -> bool:
        """Return whether this holder has surely ended, as far as the process `me` can know."""
        if self.task and self.task == me.task and self.run < me.run:
            return True
        return _has_ended(self.process, me.process)


def this_process(task: str = "", run: tuple[int, int] = (0, 0)) -> Holder:
    """Return this process, with the task that it runs."""
    began = _began(os.getpid())
    process = f"{_machine()}/{os.getpid()}/{began}" if began and _machine() else ""
    return Holder(process, task, run)


def _has_ended(process: str, mine: str) -> bool:
    """Return whether a process of the machine of `mine` has ended. Of another machine it is unknown."""
    machine, _, rest = process.rpartition("/")[0].rpartition("/")
    if not rest.isdecimal() or not mine.startswith(f"{machine}/"):
        return False
    began = _began(int(rest))
    if began is None:  # it may be another user's, which the system may hide
        return not _exists(int(rest))
    return process.rpartition("/")[2] != began


def _exists(pid: int) -> bool:
    """Return whether there is a process with this number, whoever owns it."""
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


build_type_info(Holder)
