"""The worker's heartbeat: a thread that tells the supervisor that the worker lives, whatever its loop is doing.

Every second, and at once when the loop says that something changed: the lease is looked at, calls that hang are found, the
counters and the pulse are written. While the loop is inside a user's call, the peers get signs of life from here.
A worker whose time is up, or that hangs, is ended from here, since its loop may never come back.
Must not know: the loop, sockets (functions are given to it), what orders say.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from squall.cluster.counters import WorkerCounters
from squall.process_stat import stat_of
from squall.worker_files import (
    COUNTERS,
    EXIT_FILES,
    EXIT_HUNG,
    EXIT_STOPPED,
    ORDERS,
    OUTPUT,
    PULSE,
    Address,
    Incarnation,
    Pulse,
    write,
    write_bytes,
)
from worker.calls import Call, Calls, all_stacks
from worker.last_words import LastWords
from worker.lease import Lease

_log = logging.getLogger(__name__)

#: Seconds between two pulses, and between two looks in between: at a loop that is held up, at new orders.
BEAT_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 0.5
#: Seconds between two pulses that are sent for nothing but further errors of user code.
ERROR_SECONDS: Final = 0.3
#: Seconds between two pulses at least: news come in crowds.
SHORTEST_BEAT: Final = 0.05
#: Seconds for which user code may have used up all files that the process may open.
FILES_SECONDS: Final = 3.0
#: The size at which the process's own stdout and stderr are put aside.
MOST_OUTPUT: Final = 10_000_000


@dataclass(frozen=True)
class Flags:
    """What the loop says of the worker; true of one moment."""

    orders: int
    asked: str
    version: int
    opened: bool = False
    ended: bool = False
    drained: bool = False
    stopped: bool = False
    crash: str | None = None
    finished: tuple[int, ...] = ()
    #: Errors reported so far: they are to be seen within a second.
    errors: int = 0


class Rounds(Protocol):
    """What the heartbeat asks of the loop."""

    #: When the round that is under way began; None: the loop waits.
    round_began: float | None
    #: When the process is to be over, asked for twice. None: it is not.
    must_end_by: float | None

    def look_at_orders(self) -> None:
        """There may be new ones (the signal may have been lost)."""

    def counters(self) -> WorkerCounters:
        """The worker's counters as they are now."""

    def send_signs(self, held: bool) -> None:
        """Tell the peers that the worker lives; `held`: and which trees merely wait in it."""


class Heartbeat:
    """The thread and its work."""

    def __init__(
        self,
        directory: str,
        incarnation: Incarnation,
        address: Address | None,
        flags: Flags,
        lease: Lease,
        calls: Calls,
        rounds: Rounds,
        last_words: LastWords,
    ) -> None:
        self.directory = directory
        self.incarnation = incarnation
        self.address = address
        self.flags = flags
        self.lease = lease
        self.calls = calls
        self.rounds = rounds
        self.last_words = last_words
        self.process = os.getpid()
        stat = stat_of(self.process)
        self.began = 0 if stat is None else stat.started
        self.number = 0
        self.counters_number = 0
        #: The counters that were written last, but for the number of their reading.
        self.counted = b""
        self.last_beat = self.next_beat = self.next_held = 0.0
        self.orders_file = file_mark(os.path.join(directory, ORDERS))
        self.woken = threading.Event()
        self.ending = False
        self.failed_writes = 0
        #: Since when the system lets this process open no more files.
        self.no_files_since: float | None = None
        #: Calls that were told of in the log: a spout's may take as long as it likes.
        self.told: set[object] = set()
        self.thread = threading.Thread(target=self.serve, name="squall-heartbeat", daemon=True)

    def start(self) -> None:
        """The first pulse, and then one after the other."""
        self.beat()
        self.thread.start()

    def tell(self, flags: Flags) -> None:
        """From the loop: this is true now. The supervisor is told at once; of further errors soon."""
        before, self.flags = self.flags, flags
        if replace(flags, errors=0) == replace(before, errors=0):
            self.next_beat = min(self.next_beat, self.last_beat + ERROR_SECONDS)
            return
        self.next_beat = 0.0
        self.woken.set()

    def stop(self, flags: Flags) -> None:
        """The last pulse, and no more after it."""
        self.ending = True
        self.woken.set()
        if self.thread.is_alive():
            self.thread.join(BEAT_SECONDS)
        self.flags = flags
        self.write_pulse(None)

    def serve(self) -> None:
        """The life of the thread."""
        while not self.ending:
            self.woken.wait(self.look_seconds())
            self.woken.clear()
            if self.ending:
                return
            try:
                self.look()
                if self.lease.clock() >= self.next_beat:
                    self.beat()
            except BaseException:  # also what a user's gauge raises
                _log.exception("the heartbeat has a fault; it goes on")
            threading.Event().wait(SHORTEST_BEAT)

    def look_seconds(self) -> float:
        """Seconds between two looks; with a short message timeout trees need signs of life more often."""
        return min(LOOK_SECONDS, self.calls.worker.timers.report_every)

    # A look, twice a second.

    def look(self) -> None:
        """What cannot wait for the next pulse."""
        self.lease.look()
        now = self.lease.now()
        rounds = self.rounds
        if rounds.must_end_by is not None and now >= rounds.must_end_by:
            self.last_words.end(
                EXIT_STOPPED, "told twice to end, while a call was still running", all_stacks()
            )
        mark = file_mark(os.path.join(self.directory, ORDERS))
        if mark != self.orders_file:
            self.orders_file = mark
            rounds.look_at_orders()
        began = rounds.round_began
        every = self.calls.worker.timers.report_every
        if began is not None and now - began >= min(LOOK_SECONDS, every):
            due = now - began >= every and now >= self.next_held
            if due:
                self.next_held = now + every
            rounds.send_signs(due)

    # A beat, every second.

    def beat(self) -> None:
        """A pulse, and what goes with it."""
        now = self.lease.now()
        self.last_beat, self.next_beat = now, now + BEAT_SECONDS
        running = self.calls.look(now)
        self.look_for_hangs(running)
        self.write_pulse(running[0] if running else None)
        bound_output(self.directory)

    def look_for_hangs(self, running: list[Call]) -> None:
        """A bolt's call that hangs ends the process. A spout's, or one that opens or closes a task, is told of once."""
        hanging = [call for call in running if call.hangs]
        self.told &= {(call.task.id, call.since) for call in hanging}
        for call in hanging:
            task = call.task
            if task.spec.kind == "bolt" and task.opened and not task.closed:
                reason = (
                    f"a call of {call.name} has not returned for {call.seconds:.0f} s"
                    f" (topology.bolt.hang.secs: {task.hang_secs:g})"
                )
                self.last_words.end(EXIT_HUNG, reason, all_stacks())
            key = task.id, call.since
            if key not in self.told:
                self.told.add(key)
                _log.warning(
                    "a call of %s has been running for %.0f s\n%s", call.name, call.seconds, all_stacks()
                )

    def write_pulse(self, call: Call | None) -> None:
        """The counters and the pulse. The flags are taken first, so that the counters have seen what the flags speak of."""
        flags = self.flags
        counters = self.rounds.counters()
        counted = replace(counters, number=0).to_bytes()
        executing = None
        if call is not None:
            executing = call.task.spec.id, call.task.id, round(call.seconds, 3)
        self.number += 1
        failed: OSError | None = None
        if counted != self.counted:
            try:
                write_bytes(self.directory, COUNTERS, counters.to_bytes())
                self.counted = counted
                self.counters_number += 1
            except OSError as error:  # a full disk: the sign of life takes no room; that all is done, waits for the counters
                failed = error
                flags = replace(flags, ended=False)
        try:
            write(self.directory, PULSE, self.pulse(flags, executing))
        except OSError as error:
            failed = error
        if failed is not None:
            self.failed_writes += 1
            if self.failed_writes == 1:
                _log.error(
                    "the pulse or its counters cannot be written (%s): if no pulse can, the supervisor will take this worker"
                    " for dead",
                    failed,
                )
            self.look_for_files(failed)
            return
        if self.failed_writes:
            _log.warning("pulses can be written again; %d could not", self.failed_writes)
            self.failed_writes = 0
            self.no_files_since = None

    def look_for_files(self, failed: OSError) -> None:
        """A process that can open no file any more ends by itself, and says why, before it is taken for dead."""
        now = self.lease.clock()
        if failed.errno != errno.EMFILE:
            self.no_files_since = None
        elif self.no_files_since is None:
            self.no_files_since = now
        elif now >= self.no_files_since + FILES_SECONDS:
            self.last_words.end(EXIT_FILES, self.last_words.open_files.why_none())

    def pulse(self, flags: Flags, executing: tuple[str, int, float] | None) -> Pulse:
        """The pulse of these flags."""
        return Pulse(
            pid=self.process,
            started=self.began,
            incarnation=self.incarnation,
            number=self.number,
            orders=flags.orders,
            asked=flags.asked,
            version=flags.version,
            opened=flags.opened,
            ended=flags.ended,
            drained=flags.drained,
            stopped=flags.stopped,
            crash=flags.crash,
            finished=flags.finished,
            address=self.address,
            counters=self.counters_number,
            executing=executing,
        )


def bound_output(directory: str) -> None:
    """What C code and child processes print is not for ever: beyond a size it is put aside, over what was there."""
    path = os.path.join(directory, OUTPUT)
    try:
        if os.stat(path).st_size > MOST_OUTPUT:
            shutil.copyfile(path, f"{path}.1")
            os.truncate(path, 0)
    except OSError:
        pass  # there is none, or no room to keep it


def file_mark(path: str) -> Any:
    """Something that changes when another file is renamed to this path."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
