"""Actors that run in threads of their own, but one at a time: at each step one of them is chosen to go on.

    baton = Baton(choose)                    # choose(unfinished actors, the running one or None) -> the next one
    baton.add("owner 1", lambda: ...)        # within it, baton.step() lets others go first
    baton.run()                              # until all are done; the first error of an actor is raised

The same choices give the same run: nothing but the holder of the baton ever runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


class Killed(BaseException):
    """An actor has died. Nothing catches it."""


class Actor:
    """An actor that works step by step."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self.work = work
        self.go = threading.Lock()
        self.go.acquire()
        self.started = False

    def __repr__(self) -> str:
        return self.name


Choose = Callable[[Sequence[Actor], "Actor | None"], Actor]


class Baton:
    """Decides which actor runs."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._actors: list[Actor] = []
        self._runs: Actor | None = None
        self._all_done = threading.Lock()
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def add(self, name: str, work: Callable[[], None]) -> Actor:
        """Add another actor, which may be chosen from the next step on."""
        actor = Actor(name, work)
        self._actors.append(actor)
        return actor

    @property
    def runs(self) -> Actor:
        """The running actor."""
        assert self._runs is not None
        return self._runs

    def step(self) -> None:
        """Let others run first, if one of them is chosen."""
        if self._error is not None:
            raise Killed  # the run is over
        me = self.runs
        following = self._choose(self._actors, me)
        if following is me:
            return
        self._start(following)
        me.go.acquire()
        if self._error is not None:
            raise Killed

    def run(self) -> None:
        """Run all actors to their end."""
        self._all_done.acquire()
        self._next(None)
        self._all_done.acquire()
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _next(self, done: Actor | None) -> None:
        if done is not None:
            self._actors.remove(done)
        if not self._actors:
            self._all_done.release()
        else:
            self._start(self._choose(self._actors, None))

    def _start(self, actor: Actor) -> None:
        self._runs = actor
        if actor.started:
            actor.go.release()
            return
        actor.started = True
        thread = threading.Thread(target=self._live, args=(actor,), name=actor.name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _live(self, actor: Actor) -> None:
        try:
            if self._error is None:
                actor.work()
        except Killed:
            pass
        except BaseException as error:
            if self._error is None:
                self._error = error
        self._next(actor)
