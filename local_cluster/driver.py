"""The drivers of an engine: a thread in real time, or calls of `advance` in simulated time.

While a command runs, the engine does nothing except process tuples, so that only one thread at a time uses Nimbus.
Must not know: topologies, the work of commands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple, TypeVar

from squall.clock import ManualClock
from squall.daemon.command_loop import LONGEST_SLEEP, Driver, NotInTime, Rounds
from topology_api import SquallError

T = TypeVar("T")

#: A command that has to wait for a component's call gives up when the call has been running for this number of seconds.
HUNG_SECS = 10.0
#: Seconds from the order to stop until worker processes are killed.
STOP_SECS = 5.0
#: In simulated time, a millisecond passes after this number of rounds at one instant. So a topology that is never idle cannot
#: stop the clock.
ROUNDS_AN_INSTANT = 20_000


class RunningCall(NamedTuple):
    """A component's call that runs in the engine's thread."""

    #: Such as "prepare() of count[3] of topology 'words'".
    text: str
    seconds: float


class RealTimeDriver(Driver):
    """Runs an engine in a separate thread.

    The engine holds `control` except while its workers process tuples. A command needs only `control`: it does not wait for a
    component's call, unless that call opens or closes a task.
    """

    def __init__(self) -> None:
        super().__init__("the local cluster", "squall-local-cluster", slow="a user's call")
        self.control = threading.RLock()
        #: Returns the component's call that is running in the engine's thread, if there is one.
        self.running_call: Callable[[], RunningCall | None] = lambda: None

    def command(self, command: Callable[[], T]) -> T:
        """Run a command in the caller's thread, and let the engine continue with it. Raises `NotInTime`, without running the
        command, if a component's call has been running for HUNG_SECS and leaves no control."""
        inside = threading.current_thread() is self.thread  # a component's own call
        while not self.control.acquire(timeout=LONGEST_SLEEP):
            self.check_running()
            call = self.running_call()
            if call is not None and call.seconds >= HUNG_SECS:
                raise NotInTime(
                    f"{self.what} cannot do this at the moment: {call.text} has been running for {call.seconds:.0f} s. Nothing"
                    " was changed: try again when the call has returned. Calls of a component with `threaded = True` delay no"
                    " other call"
                )
        try:
            if not inside:
                self.check_running()
            return command()
        finally:
            self.control.release()
            self.wake()

    def slow_now(self) -> str:
        """Return what is probably still running if the loop does not end."""
        call = self.running_call()
        return self.slow if call is None else f"{call.text}, which has been running for {call.seconds:.0f} s,"

    def check_outside(self, what: str) -> None:
        """Raise SquallError if a component makes a call that would wait until the component's own call ends."""
        if threading.current_thread() is self.thread:
            raise SquallError(called_inside(what))


def called_inside(what: str) -> str:
    """Return the error text for a component that makes a call that only the cluster's owner may make."""
    return (
        f"{what} cannot be called by a component: {what} would wait until the component's own call ends;"
        " a component may call kill(name)"
    )


class SimulatedDriver:
    """Runs an engine in the caller's thread. Only `advance` moves time."""

    simulated = True

    def __init__(self) -> None:
        self.control = nullcontext()
        self.clock = ManualClock()
        self.engine: Rounds | None = None
        self.stopped = False
        self.broken: BaseException | None = None
        #: Whether a round is running. Calls during a round come from a component.
        self.in_round = False
        #: Called before each round; its exceptions propagate to the current call.
        self.between_rounds: Callable[[], object] | None = None

    def start(self, engine: Rounds) -> None:
        """Use this engine from now on."""
        self.engine = engine

    def wake(self) -> None:
        """Do nothing: the next call runs everything."""

    def check_outside(self, what: str) -> None:
        """Raise SquallError if a component makes a call that only the cluster's owner may make."""
        if self.in_round:
            raise SquallError(called_inside(what))

    def command(self, command: Callable[[], T]) -> T:
        """Run a command, and everything that follows from the command at this instant."""
        if self.stopped:
            raise SquallError("the local cluster has been shut down")
        result = command()
        if not self.in_round:
            self.settle()
        return result

    def settle(self) -> int:
        """Run rounds until nothing more happens at this instant; return how many rounds did something."""
        assert self.engine is not None
        for number in range(ROUNDS_AN_INSTANT):
            if self.between_rounds is not None:
                self.between_rounds()
            self.in_round = True
            try:
                if not self.engine.round():
                    return number
            finally:
                self.in_round = False
        return ROUNDS_AN_INSTANT

    def advance(self, seconds: float) -> None:
        """Advance time by `seconds`, stopping whenever something is due."""
        self.check_outside("advance()")
        self.run_until(lambda: False, self.clock.now() + seconds)

    def run_until(self, over: Callable[[], bool], latest: float = float("inf")) -> bool:
        """Jump from one due time to the next until `over` returns True. Return False if the time `latest` is reached, or if
        nothing is due any more: then `over` can never become true."""
        assert self.engine is not None
        while True:
            restless = self.settle() >= ROUNDS_AN_INSTANT
            if over():
                return True
            now, due = self.clock.now(), self.engine.next_time()
            if restless:  # this instant never settled
                due = now + 0.001
            if due is not None and due <= now:
                due = now + 1e-6  # something is due now, but a round did nothing: a rounding error
            moment = latest if due is None else min(due, latest)
            if now >= latest or moment == float("inf"):
                return False
            self.clock.move_to(moment)

    def stop(self, last: Callable[[], None]) -> None:
        """Stop, and run `last` once."""
        if not self.stopped:
            self.stopped = True
            last()
