"""The end of a worker process: writes the reason to its log and to end.json, and kills its process group.

It works from every thread, and at once: no user call that hangs, no lock that is held and no full disk keeps a process alive
that has to end.
Must not know: what leads to an end.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
from contextlib import suppress
from time import sleep
from typing import Final, NoReturn

from squall.daemon.process_stat import all_processes
from squall.values import Incarnation
from squall.worker_files import END, EXIT_STOPPED, EXIT_UNOPENED, End, write
from worker.process.logs import close_log, write_stderr
from worker.process.open_files import OpenFiles

_log = logging.getLogger(__name__)

#: Statuses whose reason is reported elsewhere, or is no cause for concern.
QUIET: Final = (EXIT_STOPPED, EXIT_UNOPENED)
#: Seconds that writing the reason may take (the log's lock may be held), and what libraries do at the exit.
LONGEST_WRITE: Final = 2.0
LONGEST_EXIT: Final = 5.0


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
