"""Runs a control loop in real time: one thread runs its rounds, and commands between two rounds.

Code in any thread passes commands to the loop (`call`), so that only one thread touches the loop's data. The thread sleeps
until something is due, or until it is woken.
Must not know: what a round does, what commands do.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone  # since Python 3.11, this is the built-in TimeoutError
from typing import Any, Protocol, TypeVar

from squall.clock import Clock, RealClock
from topology_api.errors import SquallError

T = TypeVar("T")

#: The most seconds that the thread sleeps without a reason to wake.
LONGEST_SLEEP = 1.0
#: Seconds that `stop` waits for a command or a round that is still running.
STOP_SECONDS = 10.0


class Rounds(Protocol):
    """A control loop that a `Driver` runs."""

    def round(self) -> bool:
        """Do all work that can be done now; return whether there was any, because then there may be more."""

    def next_time(self) -> float | None:
        """Return the time at which a round is due even if the loop is not woken; None if there is no such time."""


class Stopped(SquallError):
    """The loop accepts no more commands."""


class NotInTime(SquallError):
    """A command was not done within its caller's time limit. `begun`: the command had begun by then, and may still finish
    later."""

    def __init__(self, message: str, begun: bool = False) -> None:
        super().__init__(message)
        self.begun = begun


class Driver:
    """Runs a control loop in its own thread.

    what: the loop's name in errors ("the local cluster"). slow: what is probably still running if the loop does not end, for
    the error ("a command").
    """

    simulated = False

    def __init__(
        self, what: str, thread_name: str, slow: str = "a command", clock: Clock | None = None
    ) -> None:
        self.what = what
        self.slow = slow
        self.clock: Clock = RealClock() if clock is None else clock
        self.woken = threading.Event()
        self.commands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self.engine: Rounds | None = None
        #: `closing`: the loop accepts no more commands. `stopping`: its thread should end.
        self.closing = self.stopping = False
        self.thread = threading.Thread(target=self.serve, name=thread_name, daemon=True)
        #: The error that ended the loop; never expected, never swallowed.
        self.broken: BaseException | None = None
        self.progress = threading.Condition()

    def start(self, engine: Rounds) -> None:
        """Start the thread, which runs the rounds of `engine`."""
        self.engine = engine
        self.thread.start()

    def wake(self) -> None:
        """Wake the loop for a round now (thread-safe)."""
        self.woken.set()

    def call(self, command: Callable[[], T], timeout: float | None = None) -> T:
        """Run a command between two rounds and return its result. Raises `NotInTime` after `timeout` seconds; a command that
        has not begun by then will not run."""
        if threading.current_thread() is self.thread:
            return command()
        self.check_running()
        future: Future[T] = Future()
        self.commands.append((command, future))
        self.wake()
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return future.result(timeout=max(0.0, min(LONGEST_SLEEP, deadline - time.monotonic())))
            except NotDone:
                if future.done():
                    # A timeout error that the command raised, or a result that has just arrived.
                    return future.result()
                if not self.thread.is_alive():
                    self.check_running()
                if time.monotonic() >= deadline:
                    begun = not future.cancel()
                    raise NotInTime(f"{self.what} is busy: no answer within {timeout:g} s", begun) from None

    def check_running(self) -> None:
        """Raise `Stopped` if no more commands are accepted."""
        if self.broken is not None:
            raise Stopped(f"{self.what} has stopped: {self.broken!r}") from self.broken
        if self.closing or not self.thread.is_alive():
            raise Stopped(f"{self.what} has been shut down")

    def serve(self) -> None:
        """The main function of the thread."""
        engine = self.engine
        assert engine is not None
        try:
            while not self.stopping:
                self.woken.clear()
                self.run_commands()
                if self.stopping or engine.round():
                    continue
                with self.progress:
                    self.progress.notify_all()
                self.sleep(engine.next_time())
        except BaseException as error:
            self.broken = error
            raise
        finally:
            with self.progress:
                self.progress.notify_all()

    def sleep(self, until: float | None) -> None:
        """Wait for a command, a wake-up or a time."""
        seconds = LONGEST_SLEEP if until is None else min(LONGEST_SLEEP, until - self.clock.now())
        if seconds > 0:
            self.woken.wait(seconds)

    def run_commands(self) -> None:
        """Run the commands that have arrived."""
        while self.commands:
            command, future = self.commands.popleft()
            if not future.set_running_or_notify_cancel():
                continue  # the caller of this command has given up
            try:
                future.set_result(command())
            except BaseException as error:
                future.set_exception(error)

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until a condition holds, at most `timeout` seconds; return whether it holds."""
        deadline = math.inf if timeout is None else self.clock.now() + timeout
        with self.progress:
            while not condition():
                if self.broken is not None or not self.thread.is_alive():
                    self.check_running()
                left = min(LONGEST_SLEEP / 10, deadline - self.clock.now())
                if left <= 0:
                    return False
                self.progress.wait(left)
        return True

    def stop(self, last: Callable[[], None], timeout: float | None = None) -> None:
        """End the thread with the command `last`. No round follows, since a round could restart the things that `last` has
        ended.

        If a command does not return in time, this raises SquallError and leaves the thread running; the thread ends when the
        command returns.
        """
        self.closing = True
        seconds = STOP_SECONDS if timeout is None else timeout
        if self.thread.is_alive() and self.broken is None:
            future: Future[None] = Future()
            self.commands.append((lambda: self.end(last), future))
            self.wake()
            try:
                future.result(timeout=seconds)
            except NotDone:
                if not future.done():
                    raise SquallError(
                        f"{self.slow_now()} has not returned for {seconds:g} s; {self.what} is left as it is"
                    ) from None
                future.result()  # raises the command's own error
            self.thread.join(seconds)

    def slow_now(self) -> str:
        """Return what is probably still running if the loop does not end, for the error."""
        return self.slow

    def end(self, last: Callable[[], None]) -> None:
        """The last command."""
        try:
            last()
        finally:
            self.stopping = True
