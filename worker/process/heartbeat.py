"""The worker's heartbeat: a thread that shows the supervisor that the worker lives, whatever its loop is doing.

Every second, and at once when the loop reports a change, the thread checks the lease, finds hanging calls, and writes the
counters and the heartbeat. While the loop is inside a user's call, this thread sends the keep-alives to the peers.
The thread also ends a worker that hangs or has to end at once, since the worker's loop may never return.
Must not know: sockets, what orders say.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from squall import worker_files
from squall.cluster.counters import WorkerCounters
from squall.daemon.process_stat import stat_of
from squall.values import Address
from squall.worker_files import Orders, WorkerHeartbeat
from topology_api.tuples import Tuple
from worker.errors.reports import short_line
from worker.process.call_watch import CallWatch, UserCall, all_stacks, task_name
from worker.process.exit import ProcessExit
from worker.process.lease import Lease
from worker.process.letter_files import Letters
from worker.process.long_calls import LongCalls, tuples_of_call
from worker.process.memory_limit import MemoryLimit
from worker.process.stacks import StackAnswers
from worker.process.state_answers import StateAnswers
from worker.tasks.task import Task

_log = logging.getLogger(__name__)

#: Seconds between two heartbeats.
HEARTBEAT_SECONDS: Final = 1.0
#: Seconds between two checks for new orders, and for a loop that is inside a long call.
CHECK_SECONDS: Final = 0.5
#: Minimum seconds between heartbeats whose only news is further errors of user code.
ERROR_SECONDS: Final = 0.3
#: Minimum seconds between heartbeats: changes arrive in bursts, so they are coalesced.
SHORTEST_PAUSE: Final = 0.05
#: Seconds without a free file descriptor after which the process ends: these, or a third of the worker's timeout. After the
#: whole timeout the supervisor would kill the process for its silence, and the reason would be lost.
FILES_SECONDS: Final = 3.0
#: The size in bytes at which the process's own stdout and stderr are moved aside.
MOST_OUTPUT: Final = 10_000_000


class Flags(msgspec.Struct, frozen=True):
    """The loop's report on the worker at one moment."""

    orders: int
    asked: str
    version: int
    opened: bool = False
    ended: bool = False
    drained: bool = False
    stopped: bool = False
    crash: str | None = None
    finished: tuple[int, ...] = ()
    #: The number of errors reported so far. Users see an error within a second.
    errors: int = 0


class WatchedLoop(Protocol):
    """The parts of the loop that the heartbeat's thread uses."""

    directory: str
    #: The present orders. Their incarnation never changes.
    orders: Orders
    lease: Lease
    process_exit: ProcessExit
    #: Seconds between keep-alives of the trees that wait in the worker.
    keep_alive_every: float
    #: The time at which the current round began; None: the loop waits.
    round_began: float | None
    #: The time by which the process has to end, after a second SIGTERM; None: there was no second SIGTERM.
    must_end_by: float | None

    def on_new_orders(self) -> None:
        """Read the orders in the next round (the signal may have been lost)."""

    def counters(self) -> WorkerCounters:
        """Return the worker's counters."""

    def leave_because(self, reason: str) -> None:
        """Drain and end in the next rounds, for lack of memory."""

    def send_keep_alives(self, trees: bool) -> None:
        """Show the peers that the worker lives; with `trees`, also keep alive the trees that wait in this worker."""


@dataclass(eq=False, repr=False)
class Heartbeat:
    """The heartbeat's thread, and its work."""

    loop: WatchedLoop
    address: Address | None
    calls: CallWatch
    flags: Flags
    number: int = 0
    counters_number: int = 0
    #: The counters that were written last, with 0 as their sequence number.
    counted: bytes = b""
    last_heartbeat: float = 0.0
    next_heartbeat: float = 0.0
    next_keep_alive: float = 0.0
    ending: bool = False
    failed_writes: int = 0
    #: The time since which this process has been unable to open files.
    no_files_since: float | None = None
    #: Leaves behind the call with which the process is about to end.
    leave_hung_call: Callable[[Task, list[Tuple]], None] | None = None

    #: Answers questions about the state of the tasks here; None in simulations.
    state_answers: StateAnswers | None = None
    #: The dead letters of this process; None: they are in memory.
    letters: Letters | None = None

    def __post_init__(self) -> None:
        self.process = os.getpid()
        self.long_calls = LongCalls(self.calls.worker.plan.topology.name)
        stat = stat_of(self.process)
        self.began = 0 if stat is None else stat.started
        self.memory = MemoryLimit(self.loop.orders.conf.get("topology.worker.memory.mb"))
        self.stacks = StackAnswers(self.loop.directory, self.calls)
        self.orders_file = worker_files.mark_of(self.loop.directory, worker_files.ORDERS)
        self.woken = threading.Event()
        #: Calls that the log has warned about. A spout's call may take any time, so a warning is enough.
        self.warned: set[object] = set()
        self.thread = threading.Thread(target=self.serve, name="squall-heartbeat", daemon=True)

    def start(self) -> None:
        """Write the first heartbeat, and start the thread."""
        self.publish()
        self.thread.start()

    def update(self, flags: Flags) -> None:
        """Publish the flags of the loop: at once, or soon if only the number of errors has changed."""
        before, self.flags = self.flags, flags
        if msgspec.structs.replace(flags, errors=0) == msgspec.structs.replace(before, errors=0):
            self.next_heartbeat = min(self.next_heartbeat, self.last_heartbeat + ERROR_SECONDS)
            return
        self.next_heartbeat = 0.0
        self.woken.set()

    def stop(self, flags: Flags) -> None:
        """Write the last heartbeat."""
        self.ending = True
        self.woken.set()
        if self.thread.is_alive():
            self.thread.join(HEARTBEAT_SECONDS)
        self.flags = flags
        self.write_heartbeat(None)

    def serve(self) -> None:
        """Run the thread."""
        while not self.ending:
            self.woken.wait(min(CHECK_SECONDS, self.loop.keep_alive_every))
            self.woken.clear()
            if self.ending:
                return
            try:
                self.check()
                if self.loop.lease.clock() >= self.next_heartbeat:
                    self.publish()
            except BaseException:  # also an error of a user's gauge
                _log.exception("the heartbeat failed; it goes on")
            threading.Event().wait(SHORTEST_PAUSE)

    # Checks, twice a second; more often if a short message timeout needs more keep-alives.

    def check(self) -> None:
        """Do the checks that cannot wait for the next heartbeat."""
        loop = self.loop
        loop.lease.renew()
        now = loop.lease.now()
        if loop.must_end_by is not None and now >= loop.must_end_by:
            loop.process_exit.end(
                worker_files.EXIT_STOPPED,
                "a second SIGTERM came while a call was still running",
                all_stacks(),
            )
        mark = worker_files.mark_of(loop.directory, worker_files.ORDERS)
        if mark != self.orders_file:
            self.orders_file = mark
            loop.on_new_orders()
        self.stacks.answer(now)
        if self.state_answers is not None:
            self.state_answers.check(now)
        if self.letters is not None:
            self.letters.find_resends()
        began, every = loop.round_began, loop.keep_alive_every
        if began is not None and now - began >= min(CHECK_SECONDS, every):
            due = now - began >= every and now >= self.next_keep_alive
            if due:
                self.next_keep_alive = now + every
            loop.send_keep_alives(due)

    # A heartbeat, every second.

    def publish(self) -> None:
        """Write a heartbeat, after a check for calls that hang."""
        now = self.loop.lease.now()
        self.last_heartbeat, self.next_heartbeat = now, now + HEARTBEAT_SECONDS
        running = self.calls.watch(now)
        self.long_calls.check(running, self.calls.frames)
        self.end_if_hung(running)
        self.write_heartbeat(running[0] if running else None)
        bound_output(self.loop.directory)

    def end_if_hung(self, running: list[UserCall]) -> None:
        """End the process if a bolt's call hangs. For a call of a spout, or a call that opens or closes a task, only log one
        warning."""
        hanging = [call for call in running if call.hangs]
        self.warned &= {(call.task.id, call.since) for call in hanging}
        for call in hanging:
            task = call.task
            if task.spec.kind == "bolt" and task.opened and not task.closed:
                reason = (
                    f"a call of {task_name(task)} has not returned for {call.seconds:.0f} s"
                    f" (topology.bolt.hang.secs: {task.hang_secs:g})"
                )
                if self.leave_hung_call is not None:
                    self.leave_hung_call(task, tuples_of_call(call, self.calls.frames()))
                self.loop.process_exit.end(worker_files.EXIT_HUNG, reason, all_stacks())
            key = task.id, call.since
            if key not in self.warned:
                self.warned.add(key)
                _log.warning(
                    "a call of %s has been running for %.0f s\n%s",
                    task_name(task),
                    call.seconds,
                    all_stacks(),
                )

    def write_heartbeat(self, call: UserCall | None) -> None:
        """Write the counters and the heartbeat. The flags are read first, so that the counters cover what the flags report."""
        flags = self.flags
        counters = self.long_calls.add_to(self.loop.counters())
        if counters.process is not None and not self.ending:
            self.watch_memory(counters.process.rss)
        counted = msgspec.structs.replace(counters, number=0).to_bytes()
        executing = None if call is None else (call.task.spec.id, call.task.id, round(call.seconds, 3))
        self.number += 1
        failed: OSError | None = None
        if counted != self.counted:
            try:
                worker_files.write_bytes(self.loop.directory, worker_files.COUNTERS, counters.to_bytes())
                self.counted = counted
                self.counters_number += 1
            except OSError as error:
                # Even on a full disk the heartbeat can be written. But it must not report `ended` before the counters are
                # written.
                failed = error
                flags = msgspec.structs.replace(flags, ended=False)
        try:
            worker_files.write(self.loop.directory, worker_files.HEARTBEAT, self.heartbeat(flags, executing))
        except OSError as error:
            failed = error
        if failed is not None:
            self.failed_writes += 1
            if self.failed_writes == 1:
                _log.error(
                    "the heartbeat or its counters cannot be written (%s): without heartbeats the supervisor will take"
                    " this worker for dead",
                    failed,
                )
            self.end_without_files(failed)
            return
        if self.failed_writes:
            _log.warning("heartbeats can be written again; %d could not be written", self.failed_writes)
            self.failed_writes = 0
            self.no_files_since = None

    def watch_memory(self, used: int) -> None:
        """Warn of the memory that the process uses, or end the process."""
        step = self.memory.step(used, self.loop.lease.now())
        if step is None:
            return
        worker = self.calls.worker
        tasks = dict(worker.tasks)
        growth = worker.environment.growth
        most = None if growth is None else growth.most()
        grew = None if most is None or most[0] not in tasks else (task_name(tasks[most[0]]), most[1])
        text = self.memory.text(used, short_line(", ".join(map(task_name, tasks.values()))), grew)
        if step == "warn":
            _log.warning("%s", text)
        elif step == "drain":
            self.loop.leave_because(text)
        else:
            self.loop.process_exit.end(
                worker_files.EXIT_MEMORY, text
            )  # a call is at fault, as after a MemoryError

    def end_without_files(self, failed: OSError) -> None:
        """Close connections of strangers when no file can be opened; end the process if that does not help. This makes the
        reason known before the supervisor would presume the process dead."""
        now = self.loop.lease.clock()
        if failed.errno != errno.EMFILE:
            self.no_files_since = None
            return
        patience = min(FILES_SECONDS, self.loop.orders.conf["topology.worker.timeout.secs"] / 3)
        if self.loop.process_exit.open_files.make_room():
            self.next_heartbeat = now
            self.woken.set()
        self.next_heartbeat = min(self.next_heartbeat, now + patience)
        if self.no_files_since is None:
            self.no_files_since = now
        elif now >= self.no_files_since + patience:
            self.loop.process_exit.end(worker_files.EXIT_FILES, self.loop.process_exit.open_files.why_none())

    def heartbeat(self, flags: Flags, executing: tuple[str, int, float] | None) -> WorkerHeartbeat:
        """Return the heartbeat with these flags."""
        reported = {name: value for name, value in msgspec.structs.asdict(flags).items() if name != "errors"}
        return WorkerHeartbeat(
            pid=self.process,
            started=self.began,
            incarnation=self.loop.orders.incarnation,
            number=self.number,
            address=self.address,
            counters=self.counters_number,
            executing=executing,
            **reported,
        )


def bound_output(directory: str) -> None:
    """Move the output of C code and child processes aside if it is too large. This replaces the output that was moved aside
    before.
    """
    path = os.path.join(directory, worker_files.OUTPUT)
    with suppress(OSError):  # there is no output, or the disk is full
        if os.stat(path).st_size > MOST_OUTPUT:
            shutil.copyfile(path, f"{path}.1")
            os.truncate(path, 0)
