"""The end of a worker process: writes the reason to its log and to end.json, and kills its process group.

It works from every thread, and at once: no user call that hangs, no lock that is held and no full disk keeps a process alive
that has to end. One descriptor is reserved for end.json: each peer takes several, and so do strangers until they are refused;
user code that does not close what it opens, or lowers the limit, leaves a worker that cannot even write its heartbeat.
Must not know: what causes an exit.
"""

from __future__ import annotations

import atexit
import logging
import os
import resource
import signal
import threading
from contextlib import suppress
from time import sleep
from typing import Final, NoReturn

from squall.daemon.process_stat import all_processes
from squall.values import Incarnation
from squall.worker_files import END, EXIT_STOPPED, EXIT_UNOPENED, End, write
from worker.process.logs import close_log, write_stderr

_log = logging.getLogger(__name__)

#: Statuses whose reason is reported elsewhere, or is no cause for concern.
QUIET: Final = (EXIT_STOPPED, EXIT_UNOPENED)
#: Seconds that writing the reason may take (the log's lock may be held), and what libraries do at the exit.
LONGEST_WRITE: Final = 2.0
LONGEST_EXIT: Final = 5.0


class OpenFiles:
    """The limit on open files. Made before anything else is opened: the reserved descriptor must be below any later limit."""

    def __init__(self) -> None:
        self._reserved: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(ValueError, OSError):  # a kernel may refuse its own maximum
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    def release_reserved(self) -> None:
        """Close the reserved descriptor, so that end.json can be written."""
        reserved, self._reserved = self._reserved, None
        if reserved is not None:
            with suppress(OSError):  # user code has closed it, with all others
                os.close(reserved)

    def why_none(self) -> str:
        """Say why no more files can be opened, once the system has refused one."""
        now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if now < self.allowed:
            why = f"user code has lowered RLIMIT_NOFILE from {self.allowed} to {now}"
        else:
            why = f"all {now} that RLIMIT_NOFILE allows are in use (by user code that does not close what it opens?)"
        return f"it cannot open any more files: {why}"


class ProcessExit:
    """Ends the process, once."""

    def __init__(self, directory: str, incarnation: Incarnation, open_files: OpenFiles) -> None:
        self.directory = directory
        self.incarnation = incarnation
        self.open_files = open_files
        self.process = os.getpid()
        self.ending = threading.Lock()

    def end(self, status: int, reason: str, details: str = "", orderly: bool = False) -> NoReturn:
        """End the process with a status and a reason; `details` go to the log only.

        `orderly`: run what libraries registered for the exit.
        """
        if os.getpid() != self.process:
            os._exit(status)
        if not self.ending.acquire(blocking=False):
            while True:  # another thread is ending the process
                sleep(LONGEST_WRITE)
        threading.Thread(target=end_late, args=(status, orderly), daemon=True).start()
        self.open_files.release_reserved()
        try:
            write(self.directory, END, End(self.process, self.incarnation, status, reason))
        except OSError as error:
            write_stderr(f"end.json cannot be written: {error}; status {status}: {reason}")
        _log.log(logging.INFO if status in QUIET else logging.ERROR, "ends (status %d): %s", status, reason)
        if details:
            _log.error("%s", details)
        if orderly:
            with suppress(BaseException):  # it prints what goes wrong by itself
                atexit._run_exitfuncs()
        try:
            close_log()
            end_group()
        finally:  # whatever user code has done to this process: no descriptors left, functions replaced
            os._exit(status)


def end_late(status: int, orderly: bool) -> None:
    """End the process when writing the reason takes too long."""
    try:
        sleep(LONGEST_EXIT if orderly else LONGEST_WRITE)
        end_group()
    finally:
        os._exit(status)


def end_group() -> None:
    """Kill the other processes of this one's group, if the group is its own: children that user code has started.

    Repeated, since a process that is just being forked is not listed yet.
    """
    if os.getpgid(0) != os.getpid():
        return
    for _ in range(3):
        try:
            others = others_of_group(os.getpid())
        except OSError:  # no descriptors left, say: kill the whole group, this process included
            os.killpg(0, signal.SIGKILL)
        for pid in others:
            with suppress(OSError):  # it has ended by itself
                os.kill(pid, signal.SIGKILL)
        if not others:
            return


def others_of_group(group: int) -> list[int]:
    """Return the living processes of a group without its leader; none where the system does not list processes."""
    return [stat.pid for stat in all_processes() if stat.group == group != stat.pid and stat.living]
