"""Follows one topology on a local cluster from its submission to its end, shows its progress, and starts the drain.

The main thread reads the cluster's status a few times a second and updates the view. Everything that may take long runs in
another thread (a drain must wait for a running user call), so that a second Ctrl-C always works.
Must not know: how the run is shown, the options of the command.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone  # the built-in one only since Python 3.11
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType

import msgspec

from local_cluster import LocalCluster, TopologyStatus
from local_cluster.driver import STOP_SECS
from squall.dead_letters.letter import DeadLetter
from squall_cli.local.rates import Rates
from squall_cli.local.worker_logs import WorkerLogs
from squall_cli.terminal import formats
from squall_cli.terminal.error_feed import ErrorFeed, FailedStarts
from squall_cli.terminal.interrupts import EndNow, Interrupts
from squall_cli.terminal.views import Moment, RunView
from topology_api.errors import NoSuchTopology, SquallError
from worker.errors.reports import OURS

#: The longest pause between two reads of the status, in seconds. Pauses begin short, so that the time of a short run is
#: measured well.
PAUSE = 0.05
#: The shortest pause, in seconds.
LEAST_PAUSE = 0.002
#: The share of the time that reading the status may take; the status of many tasks is not cheap.
SHARE = 0.05
#: Seconds after the deadline of the drain within which the workers must end. Workers that need longer are considered hung.
GRACE = 3.0
#: Seconds between two searches for new worker processes.
FIND = 0.1
#: Seconds for `close` and `cleanup` after a second Ctrl-C.
LAST_SECONDS = 1.0
#: Seconds that the shutdown may take in addition if there are no worker processes. A call that hangs in this process is
#: abandoned.
MORE_SECONDS = 0.5
#: The same if there are worker processes: killing them takes longer on a busy machine, and neither the processes nor their
#: files may remain.
KILL_SECONDS = 5.0
STDLIB = os.path.dirname(os.__file__) + os.sep


class Ended(msgspec.Struct, frozen=True):
    """How a run ended: "completed", "failed", "drained" (after --seconds), "interrupted" (drained after a signal) or
    "cut off" (without a drain, after a second signal or because user code hung)."""

    how: str
    status: TopologyStatus
    seconds: float
    #: Whether the error report that made the topology fail was shown.
    reported: bool = False
    #: What the spouts gave up.
    letters: Sequence[DeadLetter] = ()
    #: The folder of its state; "": it keeps none.
    folder: str = ""


@dataclass(eq=False)
class LocalRun:
    """Follows one submitted topology. `logs` reads the output of worker processes; None: there are no worker processes."""

    cluster: LocalCluster
    name: str
    view: RunView
    interrupts: Interrupts
    seconds: float | None
    drain_seconds: float
    logs: WorkerLogs | None = None
    next_find: float = 0.0
    feed: ErrorFeed = field(default_factory=ErrorFeed)
    failed_starts: FailedStarts = field(default_factory=FailedStarts)
    started: float = field(default_factory=time.monotonic)
    deadline: float | None = None
    how: str = "completed"

    def __post_init__(self) -> None:
        #: Like GRACE. Worker processes get more time: a process in which a call hangs is killed after STOP_SECS.
        self.grace = GRACE if self.logs is None else GRACE + STOP_SECS
        self.status = self.cluster.last_status(self.name)
        self.rates = Rates(self.started, self.status.components)

    def follow(self) -> Ended:
        """Follow the topology until it has ended, or until a second signal ends the wait. Return how it ended."""
        try:
            while not self.over():
                began = time.monotonic()
                self.refresh(began)
                self.decide(began)
                took = time.monotonic() - began
                time.sleep(max(min(PAUSE, (began - self.started) / 10), took / SHARE, LEAST_PAUSE))
        except EndNow:
            self.how = "cut off"
        self.refresh(time.monotonic())
        if self.status.state == "FAILED":
            self.how = "failed"
        reported = self.status.error is not None and self.feed.has_shown(self.status.error, self.status)
        seconds = time.monotonic() - self.started
        return Ended(self.how, self.status, seconds, reported, self.cluster.dead_letters(self.name))

    def over(self) -> bool:
        """Return whether the topology has ended and its workers are gone."""
        if self.cluster.broken is not None:
            raise SquallError(f"the local cluster has stopped: {self.cluster.broken!r}")
        if self.deadline is not None and self.name not in self.cluster.topologies():
            return True
        return self.status.state in ("COMPLETED", "FAILED") and not self.status.workers

    def refresh(self, now: float) -> None:
        """Read the status, and show it."""
        self.status = self.cluster.last_status(self.name)
        self.rates.record(now, self.status.components)
        self.read_logs(now)
        for report in self.feed.fresh(self.status):
            self.view.notice(report.render())
        left = None if self.deadline is None else self.deadline - now
        rates = self.rates.at(now, self.status.components)
        self.view.show(Moment(self.status, now - self.started, rates, left))

    def read_logs(self, now: float) -> None:
        """Find the current worker processes, and show their output."""
        if self.logs is None:
            return
        if now >= self.next_find:
            self.next_find = now + FIND
            with suppress(NoSuchTopology):  # the topology has just been removed
                workers = self.cluster.workers(self.name)
                self.logs.follow((each.worker, each.directory) for each in workers)
                self.failed_starts.opened(task for each in workers if each.opened for task in each.tasks)
        text = self.logs.read()
        if text:
            self.view.output(text)

    def decide(self, now: float) -> None:
        """End the run if a component can never be opened; drain after a signal or --seconds; stop waiting for a drain that
        hangs."""
        if self.deadline is None:
            error = self.failed_starts.update(self.status.errors)
            if error is not None and self.logs is not None and self.status.state == "ACTIVE":
                with suppress(SquallError):  # the topology has just ended on its own
                    self.cluster.fail(self.name, error.render())
            elif self.interrupts.count:
                self.drain(now, "interrupted", self.interrupts.name)
            elif self.seconds is not None and now - self.started >= self.seconds:
                self.drain(now, "drained", f"{self.seconds:g} s have passed")
        elif now > self.deadline + self.grace:
            self.view.notice(f"the topology does not end{hung_call()}; it is abandoned")
            raise EndNow

    def drain(self, now: float, how: str, why: str) -> None:
        """Start the drain in another thread: spouts stop, pending trees are processed."""
        self.how = how
        self.deadline = now + self.drain_seconds
        pending = sum(component.pending for component in self.status.components.values())
        self.view.notice(
            f"{why}: draining, {formats.plural(pending, 'tree')} pending, for at most {self.drain_seconds:g} s"
            " (Ctrl-C ends at once)"
        )
        threading.Thread(target=self.order_drain, name="squall-drain", daemon=True).start()

    def order_drain(self) -> None:
        with suppress(SquallError):
            # The topology may have just ended on its own, or the cluster is broken; `over` will report that.
            self.cluster.kill(self.name, self.drain_seconds)


def hung_call() -> str:
    """Return a text with the place of a user's call that does not return, in a thread that runs tasks; "" if there is no such
    call."""
    frames = sys._current_frames()
    for thread in threading.enumerate():  # the thread that was started first comes first
        place = user_place(frames.get(thread.ident or 0))
        if place and thread is not threading.main_thread():
            return f", because a call has not returned: it is at {place}"
    return ""


def user_place(frame: FrameType | None) -> str:
    """Return the place in the user's code, if this stack has user code that Squall has called; "" for any other stack."""
    places: list[str] = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(OURS):
            return places[0] if places else ""
        if not code.co_filename.startswith((STDLIB, "<")) and "site-packages" not in code.co_filename:
            places.append(f"{code.co_filename}:{frame.f_lineno}, in {code.co_name}")
        frame = frame.f_back
    return ""


def begin_shutdown(cluster: LocalCluster) -> Future[None]:
    """Shut the cluster down in a thread, so that the main thread can receive signals. Return the future of the shutdown."""
    future: Future[None] = Future()

    def shut_down() -> None:
        try:
            cluster.shutdown()
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=shut_down, name="squall-shutdown", daemon=True).start()
    return future


def end_at_once(
    cluster: LocalCluster, interrupts: Interrupts, processes: bool, begun: Future[None] | None = None
) -> None:
    """Shut the cluster down without waiting for trees, or speed up a shutdown that has begun. Return when the calls of `close`
    and `cleanup` have ended, or when the short time for them is over. Signals are ignored from now on."""
    interrupts.ignore()
    cluster.hurry(LAST_SECONDS)
    future = begin_shutdown(cluster) if begun is None else begun
    with suppress(NotDone, SquallError):  # if a call does not return, the process ends anyway
        future.result(LAST_SECONDS + (KILL_SECONDS if processes else MORE_SECONDS))
