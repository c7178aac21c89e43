"""The end of a worker process: why it ended goes into its log and into end.json, its group goes with it.

The same from every thread, and at once: a user's call that hangs, a lock that somebody holds or a full disk keep no process
alive that has to end.
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

from squall.process_stat import all_processes
from squall.worker_files import END, EXIT_STOPPED, EXIT_UNOPENED, End, Incarnation, write
from worker.logs import close_log, tell_stderr
from worker.open_files import OpenFiles

_log = logging.getLogger(__name__)

#: Statuses whose reason is told elsewhere already, or is none to worry about.
QUIET: Final = (EXIT_STOPPED, EXIT_UNOPENED)
#: Seconds that the last words may take (the log's lock may be held), and what libraries do at the exit.
LONGEST_WORDS: Final = 2.0
LONGEST_EXIT: Final = 5.0


class LastWords:
    """Ends the process, once."""

    def __init__(self, directory: str, incarnation: Incarnation, open_files: OpenFiles) -> None:
        self.directory = directory
        self.incarnation = incarnation
        self.open_files = open_files
        self.process = os.getpid()
        self.said = threading.Lock()

    def end(self, status: int, reason: str, details: str = "", orderly: bool = False) -> NoReturn:
        """End the process with a status and a reason; `details` are for the log alone. Orderly: what libraries registered
        for the exit is run."""
        if os.getpid() != self.process:
            os._exit(status)
        if not self.said.acquire(blocking=False):
            while True:  # another thread is ending the process
                sleep(LONGEST_WORDS)
        threading.Thread(target=end_late, args=(status, orderly), daemon=True).start()
        self.open_files.give_up_kept()
        try:
            write(self.directory, END, End(self.process, self.incarnation, status, reason))
        except OSError as error:
            tell_stderr(f"end.json cannot be written: {error}; status {status}: {reason}")
        _log.log(logging.INFO if status in QUIET else logging.ERROR, "ends (status %d): %s", status, reason)
        if details:
            _log.error("%s", details)
        if orderly:
            with suppress(BaseException):  # it prints what goes wrong by itself
                atexit._run_exitfuncs()
        try:
            close_log()
            end_group()
        finally:  # whatever user code has done to this process: no file to be had, functions replaced
            os._exit(status)


def end_late(status: int, orderly: bool) -> None:
    """The last words take too long."""
    try:
        sleep(LONGEST_EXIT if orderly else LONGEST_WORDS)
        end_group()
    finally:
        os._exit(status)


def end_group() -> None:
    """Kill the other processes of this one's group, if the group is its own: children that user code has started.

    More than once, since one that is just being forked is in no list yet.
    """
    if os.getpgid(0) != os.getpid():
        return
    for _ in range(3):
        try:
            others = others_of_group(os.getpid())
        except OSError:  # no descriptor to be had, say: then all of the group, this process with it
            os.killpg(0, signal.SIGKILL)
        for pid in others:
            with suppress(OSError):  # it has ended by itself
                os.kill(pid, signal.SIGKILL)
        if not others:
            return


def others_of_group(group: int) -> list[int]:
    """The living processes of a process group without its leader; none where the system does not list processes."""
    return [stat.pid for stat in all_processes() if stat.group == group != stat.pid and stat.living]
