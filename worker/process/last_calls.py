"""The file of running calls of a worker process (`squall.running_calls`), and the end of a process without memory.

The file is mapped into memory only after a process of this worker has died in a call; otherwise it is written when a call ends
the process in a way that the process itself notices. Without the file, no tuple is charged for the death.
Must not know: trackers, what follows from a death.
"""

from __future__ import annotations

import logging
import mmap
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from squall import worker_files
from squall.running_calls import SIZE, CallMark, begin_calls
from squall.worker_files import CALLS, DEATH, BadFile, Death
from topology_api.tuples import Tuple
from worker.errors.reports import ErrorReport, short_line
from worker.loop.call_marks import CallMarks
from worker.loop.worker import Worker
from worker.process.call_watch import task_name
from worker.process.exit import ProcessExit
from worker.process.heartbeat import Heartbeat
from worker.tasks.bolt import trees_of
from worker.tasks.task import Task

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
        death = take_death(self.directory)
        if death is None:
            return
        _log.info("the previous process %s; running calls are marked", death.reason)
        try:
            self.buffer = map_file(path)
        except OSError as error:
            _log.warning("running calls cannot be marked: %s", error)
        self.marks = self.worker.environment.marks = CallMarks(death, self.buffer, self.worker.now())

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

    def leave_call(self, task: int, size: int, roots: list[int]) -> None:
        """Leave behind that the process ends in this call, and in no other."""
        data = bytearray(SIZE)
        begin_calls(data, os.getpid())
        if size:
            CallMark(data, 0, task).enter(size, roots)
        try:
            worker_files.write_bytes(self.directory, CALLS, bytes(data), 0o600)
        except OSError as error:
            _log.warning("the call in which this process ends cannot be recorded: %s", error)

    def leave_hung_call(self, task: Task, tups: list[Tuple]) -> None:
        """Leave behind in which call the process hangs."""
        self.leave_call(task.id, len(tups), trees_of(tups[0]) if tups else [])

    def end_without_memory(self, task: Task, report: ErrorReport, size: int, roots: list[int]) -> None:
        """End the process after a MemoryError in a call of user code. Does not return."""
        with suppress(BaseException):  # what follows needs memory, and the reason matters more
            self.leave_call(task.id, size, roots)
            self.worker.take_reports([report])
            if self.heartbeat is not None:
                self.heartbeat.write_heartbeat(None)
        at = f" ({report.place})" if report.place else ""
        reason = f"out of memory: {task_name(task)}: {report.call}() raised {short_line(report.text)}{at}"
        self.process_exit.end(worker_files.EXIT_MEMORY, reason)


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
