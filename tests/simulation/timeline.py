"""Simulated time: what happens when, and to whom.

A `Timeline` is a queue of events; each belongs to an `Actor`, one process of the simulated cluster. An actor can be frozen (its
events wait until it thaws) and killed (its events are dropped). An actor that is frozen in the middle of an event, inside
a call of the store say, lets the others go on below it: the queue is worked off by the frozen call itself, which comes back
when the actor thaws, or raises `Killed` when there is nobody left to come back to.
Must not know: stores, daemons, what events do.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

#: When, in which order among those of that moment, to whom, what.
Event = tuple[float, int, "Actor", Callable[[], None]]
#: Actors that may be frozen inside each other's events, at most: Python's stack grows with each.
DEEPEST: Final = 6


class Killed(BaseException):
    """The process that was in the middle of this is no more. No code of a process may catch it for good."""


class Actor:
    """A process of the simulated cluster: its life, its freezes, and its clock, which began at a moment of its own."""

    def __init__(self, line: Timeline, name: str, clock_began: float = 0.0) -> None:
        self.line = line
        self.name = name
        self.alive = True
        self.thaws_at = 0.0
        self.clock_began = clock_began
        #: Whether one of its events is being worked off: no other begins inside it.
        self.busy = False
        #: What came meanwhile, in its order.
        self.waiting: list[Event] = []
        #: What follows from its death, for what is outside of it.
        self.on_death: list[Callable[[], None]] = []

    def now(self) -> float:
        """Its own monotonic clock (`squall.clock.Clock`)."""
        return self.line.now - self.clock_began

    @property
    def frozen(self) -> bool:
        """Whether it stands still."""
        return self.line.now < self.thaws_at

    def freeze(self, seconds: float) -> None:
        """Stand still for so long from now on."""
        self.thaws_at = max(self.thaws_at, self.line.now + seconds)

    def die(self) -> None:
        """Be no more, without a word."""
        if self.alive:
            self.alive = False
            for follow in self.on_death:
                follow()

    def stall(self, seconds: float) -> None:
        """From inside an event of its own: stand still for so long while the others go on. `Killed` when it was meanwhile."""
        self.freeze(seconds)
        while self.alive and self.frozen and self.line.step(self.thaws_at):
            pass
        if not self.alive:
            raise Killed(self.name)


class Timeline:
    """What is to happen, in the order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.depth = 0
        self.events = 0
        #: Called after each event.
        self.after_event: Callable[[], None] = lambda: None
        self._queue: list[Event] = []
        self._number = 0

    def at(self, moment: float, actor: Actor, do: Callable[[], None]) -> None:
        """Have something happen to an actor then, or as soon as it can."""
        self._number += 1
        heappush(self._queue, (moment if moment > self.now else self.now, self._number, actor, do))

    def after(self, seconds: float, actor: Actor, do: Callable[[], None]) -> None:
        """Have something happen to an actor so long from now."""
        self.at(self.now + seconds, actor, do)

    def run(self, until: float) -> None:
        """Let everything happen that is due until then."""
        while self.step(until):
            pass

    def step(self, until: float) -> bool:
        """Let the next thing happen; False when nothing more is due until then, and it is then."""
        queue = self._queue
        if not queue or queue[0][0] > until:
            if until > self.now:
                self.now = until
            return False
        event = heappop(queue)
        moment, _, actor, do = event
        if moment > self.now:
            self.now = moment
        if not actor.alive:
            return True
        if actor.busy:  # a frozen call of the same process is below us on the stack
            actor.waiting.append(event)
        elif self.now < actor.thaws_at:
            self.at(actor.thaws_at, actor, do)
        else:
            self._do(actor, do)
        return True

    def _do(self, actor: Actor, do: Callable[[], None]) -> None:
        self.events += 1
        self.depth += 1
        actor.busy = True
        try:
            do()
        except Killed:
            if actor.alive:
                raise
        finally:
            actor.busy = False
            self.depth -= 1
            while actor.waiting:
                heappush(self._queue, actor.waiting.pop())
        self.after_event()

    @property
    def deep(self) -> bool:
        """Whether no further actor should be frozen inside an event."""
        return self.depth >= DEEPEST
