"""The drivers of an engine: a thread in real time, or calls of `advance` in simulated time.

Both drivers run commands between two rounds, so that only one thread at a time uses the engine.
Must not know: topologies, the work of commands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from squall.clock import ManualClock
from squall.daemon.command_loop import Driver, Rounds
from topology_api import SquallError

T = TypeVar("T")

#: Seconds from the order to stop until worker processes are killed.
STOP_SECS = 5.0
#: In simulated time, a millisecond passes after this number of rounds at one instant. So a topology that is never idle cannot
#: stop the clock.
ROUNDS_AN_INSTANT = 20_000


class RealTimeDriver(Driver):
    """Runs an engine in a separate thread."""

    def __init__(self) -> None:
        super().__init__("the local cluster", "squall-local-cluster", slow="a user's call")

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

    def call(self, command: Callable[[], T]) -> T:
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
