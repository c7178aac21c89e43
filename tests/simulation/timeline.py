"""Simulated time: events, their times and their actors.

A `Timeline` is a queue of events; each belongs to an `Actor`, one process of the simulated cluster. An actor can be frozen (its
events wait until it thaws) and killed (its events are dropped). If an actor is frozen in the middle of an event, for example
inside a call of the store, the others continue below it: the frozen call itself processes the queue, and returns when the actor
thaws, or raises `Killed` if the actor was killed.
Must not know: stores, daemons, what events do.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

#: Time, order among events of that time, actor, action.
Event = tuple[float, int, "Actor", Callable[[], None]]
#: Limit of actors that may be frozen inside each other's events: Python's stack grows with each.
DEEPEST: Final = 6


class Killed(BaseException):
    """The process in the middle of this has died. No code of a process may swallow it."""


class Actor:
    """A process of the simulated cluster: its life, its freezes, and its clock, which began at a moment of its own."""

    def __init__(self, line: Timeline, name: str, clock_began: float = 0.0) -> None:
        self.line = line
        self.name = name
        self.alive = True
        self.thaws_at = 0.0
        self.clock_began = clock_began
        #: Whether one of its events is being processed: no other begins inside it.
        self.busy = False
        #: Events that came meanwhile, in order.
        self.waiting: list[Event] = []
        #: Consequences of its death for the outside.
        self.on_death: list[Callable[[], None]] = []

    def now(self) -> float:
        """Its own monotonic clock (`squall.clock.Clock`)."""
        return self.line.now - self.clock_began

    @property
    def frozen(self) -> bool:
        """Whether it is suspended."""
        return self.line.now < self.thaws_at

    def freeze(self, seconds: float) -> None:
        """Suspend it for this long from now on."""
        self.thaws_at = max(self.thaws_at, self.line.now + seconds)

    def die(self) -> None:
        """Die without a message."""
        if self.alive:
            self.alive = False
            for follow in self.on_death:
                follow()

    def stall(self, seconds: float) -> None:
        """From inside an event of its own: be suspended for this long while the others go on. `Killed` if it was killed
        meanwhile.
        """
        self.freeze(seconds)
        while self.alive and self.frozen and self.line.step(self.thaws_at):
            pass
        if not self.alive:
            raise Killed(self.name)


class Timeline:
    """Coming events in order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.depth = 0
        self.events = 0
        #: Called after each event.
        self.after_event: Callable[[], None] = lambda: None
        self._queue: list[Event] = []
        self._number = 0

    def at(self, moment: float, actor: Actor, do: Callable[[], None]) -> None:
        """Schedule an action of an actor at a time, or as soon as it can run."""
        self._number += 1
        heappush(self._queue, (moment if moment > self.now else self.now, self._number, actor, do))

    def after(self, seconds: float, actor: Actor, do: Callable[[], None]) -> None:
        """Schedule an action of an actor after this long."""
        self.at(self.now + seconds, actor, do)

    def run(self, until: float) -> None:
        """Run all events that are due until then."""
        while self.step(until):
            pass

    def step(self, until: float) -> bool:
        """Run the next event; False if no more are due until then, and it is then."""
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
