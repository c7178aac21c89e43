"""Which deaths of a worker its own calls caused, and the record of these calls for the worker's next process.

A call is at fault when its process ended by a signal of its own doing (such as SIGSEGV), by an exit without Squall's record
(`os._exit`), or for lack of memory: a MemoryError, or a kill by the kernel's OOM killer. A kill by anybody else, a lease that
ran out or an order to stop says nothing about the calls that were running. A death that counts is also kept with the topology's
suspects (`squall.suspects`), for all its workers on this host.
Must not know: trees, what a tracker makes of a death.
"""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from squall import worker_files
from squall.reports.event_text import cause_text
from squall.running_calls import calls_in, is_of
from squall.suspects import Suspects, after_death, for_next_process, read_suspects, write_suspects
from squall.worker_files import BadFile, Death
from supervisor.exits import Exit, cause

_log = logging.getLogger(__name__)

#: Signals that a process causes itself.
_OWN_SIGNALS: Final = frozenset(
    (
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGABRT,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSYS,
        signal.SIGTRAP,
        signal.SIGXCPU,
        signal.SIGXFSZ,
    )
)


def fault_of(exit: Exit) -> Literal["died", "hung"] | None:
    """Return whether a call is at fault for the end of its process; None: no call is, as far as is known."""
    if exit.killed_because is not None:
        return None
    if exit.end is not None:
        known: dict[int, Literal["died", "hung"]] = {
            worker_files.EXIT_MEMORY: "died",
            worker_files.EXIT_HUNG: "hung",
        }
        return known.get(exit.end.status)
    if exit.status is None:
        return None
    if not os.WIFSIGNALED(exit.status):
        return "died"
    number = os.WTERMSIG(exit.status)
    return "died" if number in _OWN_SIGNALS or (number == signal.SIGKILL and exit.by_kernel) else None


def record_death(directory: Path, exit: Exit, pid: int, topology: Path, now: float) -> None:
    """Record a death by the worker's own fault for its next process; remove an earlier record after any other end.

    `topology`: the directory that keeps the suspects; `now`: by the wall clock. Raises `OSError`.
    """
    fault = fault_of(exit)
    if fault is None:
        (directory / worker_files.DEATH).unlink(missing_ok=True)
        return
    try:
        data = worker_files.read_bytes(directory, worker_files.CALLS) or b""
    except BadFile:
        data = b""
    calls = calls_in(data, pid)
    reason = cause_text(cause(exit)).partition("\n")[0]
    between_calls = exit.end is None and not calls and is_of(data, pid)
    death = Death(fault == "hung", reason, tuple(calls), between_calls)
    worker_files.write(directory, worker_files.DEATH, death, 0o600)
    if fault == "died":
        write_suspects(topology, after_death(kept_suspects(topology), calls, reason, now))
        # A supervisor that dies now finds the same end again after its restart: it does not count twice.
        with suppress(OSError):
            (directory / worker_files.CALLS).unlink(missing_ok=True)


def hand_on_suspects(topology: Path, directory: Path, now: float) -> None:
    """Give the suspects to the next process in a worker's directory, which has none yet. Raises `OSError`."""
    kept = kept_suspects(topology)
    known = None if kept is None else for_next_process(kept, now)
    if known is not None:
        write_suspects(directory, known)


def kept_suspects(topology: Path) -> Suspects | None:
    """Return the suspects in the directory of a topology; None: none, as far as can be read."""
    try:
        return read_suspects(topology)
    except BadFile as error:
        _log.warning("tuples that may end their worker are not known any more: %s", error)
        return None
