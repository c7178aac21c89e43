"""What a supervisor does next: what should run and what runs in, a list of actions out.

Two words decide: in which phase a worker is, and what is wished of it. The table `WHAT_TO_DO` names the action for each
pair, so that no pair is forgotten. A worker is named by its topology's id and its own name; one that runs by another
version of an assignment than the one wanted is another worker, which has to go first.

Time is seconds of some clock. Must not know: processes, files, topologies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Final

#: (topology id, worker)
Key = tuple[str, str]


class Wish(Enum):
    """What is wished of a worker."""

    RUN = "that it runs, whatever its topology's state asks it to do meanwhile"
    STOP = "that it ends, and keeps its place"
    LEAVE = "that it ends and leaves nothing: it has no place here"


class Phase(Enum):
    """Where in its life a worker is."""

    NONE = "no process"
    RESTING = "no process, and none is to be started yet: it died too often"
    FOUND = "a process that an earlier supervisor started"
    STARTING = "a process that gave no sign of life so far"
    ALIVE = "a process that gives signs of life"
    SILENT = "a process that gave no sign of life for too long"
    STOPPING = "told to stop a moment ago"
    LATE = "told to stop too long ago"
    DYING = "killed, and not gone yet"
    DEAD = "a process that is over, which nobody took note of yet"


class Action(Enum):
    """What is done with a worker."""

    START = "start a process for it"
    ADOPT = "take over the process that was found"
    KEEP = "leave it as it is"
    SIGNAL = "say that there are new orders"
    STOP = "order it to stop"
    KILL = "kill its process and all that it started"
    BURY = "take note that its process is over, and why"
    CLEAN = "forget it, and remove what it needed"


_W, _P, _A = Wish, Phase, Action

WHAT_TO_DO: Final[Mapping[tuple[Phase, Wish], Action]] = MappingProxyType(
    {
        (_P.NONE, _W.RUN): _A.START,
        (_P.NONE, _W.STOP): _A.KEEP,
        (_P.NONE, _W.LEAVE): _A.CLEAN,
        (_P.RESTING, _W.RUN): _A.KEEP,
        (_P.RESTING, _W.STOP): _A.KEEP,
        (_P.RESTING, _W.LEAVE): _A.CLEAN,
        (_P.FOUND, _W.RUN): _A.ADOPT,
        (_P.FOUND, _W.STOP): _A.ADOPT,
        (_P.FOUND, _W.LEAVE): _A.ADOPT,
        (_P.STARTING, _W.RUN): _A.KEEP,
        (_P.STARTING, _W.STOP): _A.STOP,
        (_P.STARTING, _W.LEAVE): _A.STOP,
        (_P.ALIVE, _W.RUN): _A.KEEP,
        (_P.ALIVE, _W.STOP): _A.STOP,
        (_P.ALIVE, _W.LEAVE): _A.STOP,
        (_P.SILENT, _W.RUN): _A.KILL,
        (_P.SILENT, _W.STOP): _A.KILL,
        (_P.SILENT, _W.LEAVE): _A.KILL,
        # Once it was told to stop it stops, also when it is wanted again: a new one comes after it.
        (_P.STOPPING, _W.RUN): _A.KEEP,
        (_P.STOPPING, _W.STOP): _A.KEEP,
        (_P.STOPPING, _W.LEAVE): _A.KEEP,
        (_P.LATE, _W.RUN): _A.KILL,
        (_P.LATE, _W.STOP): _A.KILL,
        (_P.LATE, _W.LEAVE): _A.KILL,
        (_P.DYING, _W.RUN): _A.KEEP,
        (_P.DYING, _W.STOP): _A.KEEP,
        (_P.DYING, _W.LEAVE): _A.KEEP,
        (_P.DEAD, _W.RUN): _A.BURY,
        (_P.DEAD, _W.STOP): _A.BURY,
        (_P.DEAD, _W.LEAVE): _A.BURY,
    }
)

#: Phases that pass by themselves, so that it pays to look again soon.
PASSING: Final = frozenset({_P.FOUND, _P.STARTING, _P.SILENT, _P.STOPPING, _P.LATE, _P.DYING, _P.DEAD})
_OCCUPYING: Final = PASSING | {_P.ALIVE}


@dataclass(frozen=True)
class Limits:
    """How long things may take, in seconds."""

    #: From the start of a process to its first sign of life, whatever the worker timeout: a Python that imports much is slow.
    start: float = 60.0
    #: From the order to stop to the end; after it the process is killed.
    stop: float = 10.0
    #: Between two signals about the same orders, while they are not taken: each may disturb a call of user code that waits.
    signal: float = 5.0
    #: Between two kills of a process that does not go.
    kill: float = 1.0


@dataclass(frozen=True)
class Wanted:
    """A worker that has a place here."""

    version: int
    """The version of the assignment that placed it: the first number of its incarnation."""
    slot: int
    stop: bool
    """Whether its topology's state asks it to end."""
    timeout: float
    """Seconds without a sign of life after which it is taken for dead."""


@dataclass(frozen=True)
class Backoff:
    """How often a worker died of late, and when it may be started again."""

    deaths: int = 0
    since: float = 0.0
    """When it began to die."""
    not_before: float = 0.0
    unstarted: int = 0
    """How many of these deaths were none: nothing could be started."""


@dataclass(frozen=True)
class Running:
    """A worker that is known here, with its process or without."""

    version: int
    slot: int
    process: str
    """"none", "found", "alive" or "dead"."""
    timeout: float = 30.0
    started: float = 0.0
    heard: float | None = None
    """When it gave its last sign of life; None: it gave none yet."""
    behind: bool = False
    """Whether it has not taken its last orders."""
    signalled: float | None = None
    """When it was last told that there are orders; None: not since they were written."""
    told_to_stop: float | None = None
    killed: float | None = None
    backoff: Backoff = Backoff()


def plan(
    wanted: Mapping[Key, Wanted], running: Mapping[Key, Running], now: float, limits: Limits
) -> list[tuple[Action, Key]]:
    """What to do now, at most one action for each worker, in the order of names. Nothing to do: nothing in the list."""
    occupied = {run.slot for run in running.values() if phase_of(run, now, limits) in _OCCUPYING}
    actions: list[tuple[Action, Key]] = []
    for key in sorted({*wanted, *running}):
        want, run = wanted.get(key), running.get(key)
        phase = Phase.NONE if run is None else phase_of(run, now, limits)
        action = WHAT_TO_DO[phase, wish_of(want, run)]
        if action is Action.START and (want is None or want.slot in occupied):
            action = Action.KEEP  # the worker that was in the slot has not left it yet
        if run is not None:
            action = _repeated(action, phase, run, now, limits)
        if action is Action.START and want is not None:
            occupied.add(want.slot)
        if action is not Action.KEEP:
            actions.append((action, key))
    return actions


def wish_of(want: Wanted | None, run: Running | None) -> Wish:
    """What is wished of a worker, or, where another one of its name still runs, of that one."""
    if want is None or (run is not None and run.version != want.version):
        return Wish.LEAVE
    return Wish.STOP if want.stop else Wish.RUN


def phase_of(run: Running, now: float, limits: Limits) -> Phase:
    """Where in its life a worker is."""
    if run.process == "none":
        return Phase.RESTING if now < run.backoff.not_before else Phase.NONE
    if run.process == "found":
        return Phase.FOUND
    if run.process == "dead":
        return Phase.DEAD
    if run.killed is not None:
        return Phase.DYING
    if run.told_to_stop is not None:
        return Phase.LATE if now - run.told_to_stop >= limits.stop else Phase.STOPPING
    if run.heard is None:
        return Phase.SILENT if now - run.started >= max(limits.start, run.timeout) else Phase.STARTING
    return Phase.SILENT if now - run.heard >= run.timeout else Phase.ALIVE


def _repeated(action: Action, phase: Phase, run: Running, now: float, limits: Limits) -> Action:
    """What has to be said again: a signal may come before its handler, and a kill before a child that is being made."""
    if action is not Action.KEEP:
        return action
    if phase is Phase.DYING and run.killed is not None and now - run.killed >= limits.kill:
        return Action.KILL
    # Before its first sign of life a worker has no handler, and the signal would end it.
    if phase in (Phase.ALIVE, Phase.STOPPING) and run.behind and run.heard is not None:
        due = run.signalled is None or now - run.signalled >= limits.signal
        return Action.SIGNAL if due else Action.KEEP
    return action


#: A worker that lived so long, in seconds, has not died of what it did at its start: counting begins anew.
LONG_ENOUGH: Final = 10.0
#: Seconds before the second start in a row, doubled each time; the first comes at once.
FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 60.0


def after_death(
    backoff: Backoff, started: float, now: float, innocent: bool = False, unstarted: bool = False
) -> Backoff:
    """When a worker that died at `now` may be started again.

    `innocent`: it ended as it should, which does not count (unless it does so at once, over and over).
    `unstarted`: nothing ran, what it needs could not be prepared.
    """
    if innocent and now - started >= FIRST_DELAY:
        return replace(backoff, not_before=now)
    if backoff.deaths == 0 or now - started >= LONG_ENOUGH:
        return Backoff(1, now, now, int(unstarted))
    # The exponent is bounded: a float overflows after a thousand deaths.
    delay = min(FIRST_DELAY * 2.0 ** min(backoff.deaths - 1, 16), LONGEST_DELAY)
    return Backoff(backoff.deaths + 1, backoff.since, now + delay, backoff.unstarted + unstarted)


def soon(running: Iterable[Running], now: float, limits: Limits) -> bool:
    """Whether something is about to change by itself."""
    return any(phase_of(run, now, limits) in PASSING or run.behind for run in running)
