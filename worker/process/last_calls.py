"""The file of running calls of a worker process (`squall.running_calls`), and the end of a process without memory.

The file is mapped into memory only after a process of this worker has died in a call, or while tuples in whose calls others
died are known; otherwise it is written when a call ends the process in a way that the process itself notices. Without the file,
no tuple is charged for the death. At a start with nothing of the kind, nothing that follows from it is imported.
Must not know: trackers, what follows from a death.
"""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from squall import worker_files
from squall.running_calls import NO_KEY, SIZE, CallMark, begin_calls
from squall.worker_files import CALLS, DEATH, SUSPECTS, BadFile, Death
from topology_api.tuples import Tuple
from worker.errors.reports import ErrorReport, short_line
from worker.loop.worker import Worker
from worker.process.call_watch import task_name
from worker.process.exit import ProcessExit
from worker.process.heartbeat import Heartbeat
from worker.tasks.bolt import trees_of
from worker.tasks.task import Task

if TYPE_CHECKING:
    from squall.suspects import Suspects
    from worker.loop.call_marks import CallMarks

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class LastCalls:
    """The file of one process."""

    directory: str
    worker: Worker
    process_exit: ProcessExit
    heartbeat: Heartbeat | None = None
    buffer: Any = field(default=None)
    marks: CallMarks | None = None

    def __post_init__(self) -> None:
        path = os.path.join(self.directory, CALLS)
        with suppress(OSError):
            os.unlink(path)
        self.worker.environment.on_out_of_memory = self.end_without_memory
        death, suspects = take_death(self.directory), known_suspects(self.directory)
        if death is None and suspects is None:
            return
        why = "an earlier process died in a call" if death is None else f"the previous process {death.reason}"
        _log.info("%s; running calls are marked", why)
        try:
            self.buffer = map_file(path)
        except OSError as error:
            _log.warning("running calls cannot be marked: %s", error)
        from worker.loop.call_marks import CallMarks

        marks = CallMarks(death, self.buffer, self.worker.now(), suspects)
        self.marks = self.worker.environment.marks = marks

    def begin(self) -> None:
        """Report in which calls the previous process died, once the tasks exist."""
        worker = self.worker
        if self.marks is not None:
            self.marks.report(worker.ack_router, worker.tasks, worker.plan.component_of)
            worker.send_controls()  # before the first call, which may hang as well

    def end_if_due(self, now: float) -> None:
        """Mark no more calls when nothing has died for long."""
        marks = self.marks
        if marks is not None and now >= marks.until:
            self.marks = self.worker.environment.marks = None
            marks.end(self.worker.tasks.values())

    def leave_call(self, task: Task, tups: Sequence[Tuple], key: bytes = NO_KEY) -> None:
        """Leave behind that the process ends in a call with these tuples, and in no other. `key`: of the only one, if this
        death counts against it."""
        data = bytearray(SIZE)
        begin_calls(data, os.getpid())
        if tups:
            CallMark(data, 0, task.id).enter(len(tups), trees_of(tups[0]), key)
        try:
            worker_files.write_bytes(self.directory, CALLS, bytes(data), 0o600)
        except OSError as error:
            _log.warning("the call in which this process ends cannot be recorded: %s", error)

    def end_without_memory(self, task: Task, report: ErrorReport, tups: Sequence[Tuple]) -> None:
        """End the process after a MemoryError in a call of user code. Does not return."""
        with suppress(BaseException):  # what follows needs memory, and the reason matters more
            self.leave_call(task, tups, key_at_end(task, tups))
            self.worker.take_reports([report])
            if self.heartbeat is not None:
                self.heartbeat.write_heartbeat(None)
        at = f" ({report.place})" if report.place else ""
        reason = f"out of memory: {task_name(task)}: {report.call}() raised {short_line(report.text)}{at}"
        self.process_exit.end(worker_files.EXIT_MEMORY, reason)


def key_at_end(task: Task, tups: Sequence[Tuple]) -> bytes:
    """Return the key of the only tuple of the call in which the process ends."""
    if len(tups) == 1:
        with suppress(Exception):  # without memory, the module may be unreadable
            from worker.tasks.tuple_keys import key_of

            return key_of(task.spec.id, tups[0])
    return NO_KEY


def known_suspects(directory: str) -> Suspects | None:
    """Return the tuples in whose calls processes of the topology have died on this host; None: there are none."""
    if not os.path.lexists(os.path.join(directory, SUSPECTS)):
        return None
    from squall.suspects import read_suspects

    try:
        return read_suspects(directory)
    except (BadFile, OSError) as error:
        _log.warning("the tuples that ended earlier processes are unknown: %s", error)
        return None


def take_death(directory: str) -> Death | None:
    """Return the death of the previous process, once."""
    try:
        death = worker_files.read_death(directory)
    except (BadFile, OSError) as error:
        _log.warning("the death of the previous process is unknown: %s", error)
        death = None
    with suppress(OSError):
        os.unlink(os.path.join(directory, DEATH))
    return death


def map_file(path: str) -> mmap.mmap:
    """Make the file of running calls and map it into memory. Its space is allocated: on a full disk, a write to the mapping
    would end the process. Raises `OSError`."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, SIZE)
        buffer = mmap.mmap(descriptor, SIZE)
    finally:
        os.close(descriptor)
    begin_calls(buffer, os.getpid())
    return buffer
