"""What makes an engine run: a thread in real time, or calls of `advance` in simulated time.

Both run commands between two rounds, so that the engine is only ever touched by one thread at a time.
Must not know: topologies, what commands do.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone  # the built-in one only since Python 3.11
from typing import Any, Protocol, TypeVar

from squall.clock import ManualClock, RealClock
from topology_api import SquallError

T = TypeVar("T")

#: The longest that the thread sleeps without a reason to wake.
LONGEST_SLEEP = 1.0
#: Seconds that `stop` waits for a user's call that is still running.
STOP_SECONDS = 10.0
#: Seconds that worker processes have to end when they are told to stop, before they are killed.
STOP_SECS = 5.0
#: In simulated time: rounds at one instant after which a millisecond passes, so that a topology that never rests cannot
#: hold the clock for ever.
ROUNDS_AN_INSTANT = 20_000


class Rounds(Protocol):
    """What a driver needs of an engine."""

    def round(self) -> bool: ...

    def next_time(self) -> float | None: ...


class RealTimeDriver:
    """Runs an engine in a thread of its own."""

    simulated = False

    def __init__(self) -> None:
        self.clock = RealClock()
        self.woken = threading.Event()
        self.commands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self.engine: Rounds | None = None
        #: No more commands are taken; the thread is to end.
        self.closing = self.stopping = False
        self.thread = threading.Thread(target=self.serve, name="squall-local-cluster", daemon=True)
        #: What the loop itself died of; never expected, never swallowed.
        self.broken: BaseException | None = None
        self.progress = threading.Condition()

    def start(self, engine: Rounds) -> None:
        """Begin."""
        self.engine = engine
        self.thread.start()

    def wake(self) -> None:
        """Something came in: have a round now (thread-safe)."""
        self.woken.set()

    def check_outside(self, what: str) -> None:
        """SquallError when a component calls what would wait for that very call of the component's to end."""
        if threading.current_thread() is self.thread:
            raise SquallError(called_inside(what))

    def call(self, command: Callable[[], T]) -> T:
        """Run a command between two rounds and give its result."""
        if threading.current_thread() is self.thread:
            return command()
        if self.broken is not None:
            raise SquallError(f"the local cluster has stopped: {self.broken!r}") from self.broken
        if self.closing or not self.thread.is_alive():
            raise SquallError("the local cluster has been shut down")
        future: Future[T] = Future()
        self.commands.append((command, future))
        self.wake()
        while True:
            try:
                return future.result(timeout=LONGEST_SLEEP)
            except NotDone:
                if future.done():
                    raise  # the command's own
                if not self.thread.is_alive():
                    why = "been shut down" if self.broken is None else f"stopped: {self.broken!r}"
                    raise SquallError(f"the local cluster has {why}") from self.broken

    def serve(self) -> None:
        """The life of the thread."""
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
        """Wait for something to come in, or for a time."""
        seconds = LONGEST_SLEEP if until is None else min(LONGEST_SLEEP, until - self.clock.now())
        if seconds > 0:
            self.woken.wait(seconds)

    def run_commands(self) -> None:
        """Run the commands that have come."""
        while self.commands:
            command, future = self.commands.popleft()
            try:
                future.set_result(command())
            except BaseException as error:
                future.set_exception(error)

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until a condition holds, at most `timeout` seconds; whether it holds."""
        deadline = None if timeout is None else self.clock.now() + timeout
        with self.progress:
            while not condition():
                if self.broken is not None:
                    raise SquallError(f"the local cluster has stopped: {self.broken!r}") from self.broken
                if not self.thread.is_alive():
                    raise SquallError("the local cluster has been shut down")
                left = (
                    LONGEST_SLEEP / 10
                    if deadline is None
                    else min(LONGEST_SLEEP / 10, deadline - self.clock.now())
                )
                if left <= 0:
                    return False
                self.progress.wait(left)
        return True

    def stop(self, last: Callable[[], None]) -> None:
        """End the thread with the command `last`, after which it has no round more: one could start workers anew.

        A user's call that does not return is left behind, with a report; should it return one day, the end comes then.
        """
        self.closing = True
        if self.thread.is_alive() and self.broken is None:
            future: Future[None] = Future()
            self.commands.append((lambda: self.end(last), future))
            self.wake()
            try:
                future.result(timeout=STOP_SECONDS)
            except NotDone:
                if future.done():
                    raise  # the command's own
                raise SquallError(
                    f"a user's call has not returned for {STOP_SECONDS:g} s; the local cluster is left as it is"
                ) from None
            self.thread.join(STOP_SECONDS)

    def end(self, last: Callable[[], None]) -> None:
        """The last command."""
        try:
            last()
        finally:
            self.stopping = True


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
