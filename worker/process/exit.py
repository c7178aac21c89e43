"""The end of a worker process: writes the reason to its log and to end.json, and kills its process group.

An exit works from every thread, and at once: a process that has to end is not kept alive by a hanging user call, a held lock or
a full disk. One descriptor is reserved for end.json, because descriptors may run out: each peer takes several, each stranger
takes some until it is refused, and user code may leave files open or lower the limit. Without a free descriptor, a worker
cannot even write its heartbeat.
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
from squall.transport.carriers.admission import PortAdmission
from squall.values import Incarnation
from squall.worker_files import END, EXIT_STOPPED, EXIT_UNOPENED, MOST_REASON, End, write
from worker.errors.reports import shortened
from worker.process.logs import close_log, write_stderr

_log = logging.getLogger(__name__)

#: Statuses whose reason is reported elsewhere or is harmless. The reason is therefore logged as information, not as an error.
QUIET: Final = (EXIT_STOPPED, EXIT_UNOPENED)
#: The most seconds for writing the reason: the log's lock may be held.
LONGEST_WRITE: Final = 2.0
#: The most seconds for writing the reason and running the exit functions of libraries.
LONGEST_EXIT: Final = 5.0


class OpenFiles:
    """The limit on open files, and a reserved descriptor. Create this object before any other file is opened: the reserved
    descriptor must be below any later limit."""

    def __init__(self) -> None:
        self._reserved: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(ValueError, OSError):  # a kernel may refuse its own maximum
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        #: The connections at the worker's ports; None until it listens.
        self.admission: PortAdmission | None = None

    def release_reserved(self) -> None:
        """Close the reserved descriptor, so that end.json can be written."""
        reserved, self._reserved = self._reserved, None
        if reserved is not None:
            with suppress(OSError):  # user code has closed all descriptors, including this one
                os.close(reserved)

    def make_room(self) -> bool:
        """After the system has refused to open a file, close connections of strangers; return whether there were any."""
        return self.admission is not None and self.admission.make_room() > 0

    def why_none(self) -> str:
        """Return why no more files can be opened, after the system has refused to open one."""
        now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        strangers = 0 if self.admission is None else self.admission.count()
        if strangers * 2 > now:
            why = (
                f"{strangers} of the {now} that RLIMIT_NOFILE allows are connections to this worker's ports that have not shown"
                " the topology's key; close these ports to strangers by a firewall"
            )
        elif now < self.allowed:
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

        `orderly`: run the exit functions that libraries registered.
        """
        if os.getpid() != self.process:
            os._exit(status)
        if not self.ending.acquire(blocking=False):
            while True:  # another thread is ending the process
                sleep(LONGEST_WRITE)
        threading.Thread(target=end_late, args=(status, orderly), daemon=True).start()
        self.open_files.release_reserved()
        try:
            said = shortened(reason, MOST_REASON)  # a longer file would not be read
            write(self.directory, END, End(self.process, self.incarnation, status, said))
        except OSError as error:
            write_stderr(f"end.json cannot be written: {error}; status {status}: {reason}")
        _log.log(logging.INFO if status in QUIET else logging.ERROR, "ends (status %d): %s", status, reason)
        if details:
            _log.error("%s", details)
        if orderly:
            with suppress(BaseException):  # `atexit` prints errors by itself
                atexit._run_exitfuncs()
        try:
            close_log()
            end_group()
        finally:  # even if user code has used up all descriptors, or replaced functions
            os._exit(status)


def end_late(status: int, orderly: bool) -> None:
    """End the process if writing the reason takes too long."""
    try:
        sleep(LONGEST_EXIT if orderly else LONGEST_WRITE)
        end_group()
    finally:
        os._exit(status)


def end_group() -> None:
    """Kill the other processes of this process's group, which are children of user code, if this process leads the group.

    The search is repeated, since a process that is just being forked is not listed yet.
    """
    if os.getpgid(0) != os.getpid():
        return
    for _ in range(3):
        try:
            others = others_of_group(os.getpid())
        except OSError:  # for example, no descriptors are left: kill the whole group, including this process
            os.killpg(0, signal.SIGKILL)
        for pid in others:
            with suppress(OSError):  # the process has ended by itself
                os.kill(pid, signal.SIGKILL)
        if not others:
            return


def others_of_group(group: int) -> list[int]:
    """Return the living processes of a group, except its leader; none if the system does not list processes."""
    return [stat.pid for stat in all_processes() if stat.group == group != stat.pid and stat.living]
