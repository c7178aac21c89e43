"""What makes an engine run: a thread in real time, or calls of `advance` in simulated time.

Both run commands between two rounds, so that the engine is only ever touched by one thread at a time.
Must not know: topologies, what commands do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from squall.clock import ManualClock
from squall.rounds import Driver, Rounds
from topology_api import SquallError

T = TypeVar("T")

#: Seconds that worker processes have to end when they are told to stop, before they are killed.
STOP_SECS = 5.0
#: In simulated time: rounds at one instant after which a millisecond passes, so that a topology that never rests cannot
#: hold the clock for ever.
ROUNDS_AN_INSTANT = 20_000


class RealTimeDriver(Driver):
    """Runs an engine in a thread of its own."""

    def __init__(self) -> None:
        super().__init__("the local cluster", "squall-local-cluster", slow="a user's call")

    def check_outside(self, what: str) -> None:
        """SquallError when a component calls what would wait for that very call of the component's to end."""
        if threading.current_thread() is self.thread:
            raise SquallError(called_inside(what))


def called_inside(what: str) -> str:
    """What a component is told that calls what only a cluster's owner can call."""
    return f"{what} cannot be called by a component: it would wait for this call to end; kill(name) may be called"


class SimulatedDriver:
    """Runs an engine in the caller's thread; time moves only by `advance`."""

    simulated = True

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine: Rounds | None = None
        self.stopped = False
        self.broken: BaseException | None = None
        #: A round is under way: whoever calls now is a component.
        self.in_round = False
        #: Called before each round; what it raises comes out of the call that is under way.
        self.between_rounds: Callable[[], object] | None = None

    def start(self, engine: Rounds) -> None:
        """Begin."""
        self.engine = engine

    def wake(self) -> None:
        """Nothing to wake: the next call looks at everything."""

    def check_outside(self, what: str) -> None:
        """SquallError when a component calls what only the owner of the cluster can call."""
        if self.in_round:
            raise SquallError(called_inside(what))

    def call(self, command: Callable[[], T]) -> T:
        """Run a command, and everything that follows from it at this instant."""
        if self.stopped:
            raise SquallError("the local cluster has been shut down")
        result = command()
        if not self.in_round:
            self.settle()
        return result

    def settle(self) -> int:
        """Run rounds until nothing more happens at this instant; the number of rounds."""
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
        """Move time on by so many seconds, stopping wherever something is due."""
        self.check_outside("advance()")
        until = self.clock.now() + seconds
        while self.step(until):
            pass

    def step(self, until: float) -> bool:
        """Settle this instant, then move to the next one at which something is due; False when that is `until`."""
        rounds = self.settle()
        return self.move_on(until, restless=rounds >= ROUNDS_AN_INSTANT)

    def move_on(self, until: float, restless: bool) -> bool:
        """Move to the next moment at which something is due, at most to `until`; False when time stands there already, or
        when nothing is due and `until` is infinite. `restless`: this instant never came to rest."""
        now = self.clock.now()
        if now >= until:
            return False
        assert self.engine is not None
        due = self.engine.next_time()
        if restless:
            due = now + 0.001
        if due is not None and due <= now:  # due now, and yet a round did nothing: rounding
            due = now + 1e-6
        moment = until if due is None else min(due, until)
        if moment == float("inf"):
            return False
        self.clock.move_to(moment)
        return True

    def run_until(self, over: Callable[[], bool]) -> bool:
        """Jump from one moment at which something is due to the next until something is over; whether it is. False: nothing
        is due any more, so it never will be."""
        while True:
            restless = self.settle() >= ROUNDS_AN_INSTANT
            if over():
                return True
            if not self.move_on(float("inf"), restless):
                return False

    def stop(self, last: Callable[[], None]) -> None:
        """End."""
        if not self.stopped:
            self.stopped = True
            last()
