"""Decides what a supervisor does next: turns the desired and the running workers into a list of actions.

The action depends on a worker's phase and its goal. The table `WHAT_TO_DO` has an action for each pair, so that no case is
forgotten. A worker is identified by its topology's id and its own name. A running worker and a desired worker with different
versions of the assignment are two workers, and the running worker has to end first.

Times are seconds of any clock. Must not know: processes, files, topologies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

import msgspec

#: (topology id, worker)
Key = tuple[str, str]


class Goal(Enum):
    """The store's orders for a worker."""

    RUN = "run, whatever its topology's state asks it to do meanwhile"
    STOP = "end, and keep its slot"
    LEAVE = "end, and leave nothing: it has no slot here"


class Phase(Enum):
    """Where a worker is in its life cycle."""

    NONE = "no process"
    RESTING = "no process, and backing off before the next start"
    FOUND = "a process that an earlier supervisor started"
    STARTING = "a process without a heartbeat so far"
    ALIVE = "a process with heartbeats"
    SILENT = "a process that has sent no heartbeat for too long"
    STOPPING = "ordered to stop, with time left"
    LATE = "ordered to stop too long ago"
    DYING = "killed, and not gone yet"
    DEAD = "a process that has ended, which is not reported yet"


class Action(Enum):
    """An action on a worker."""

    START = "start a process for it"
    ADOPT = "take over the process that was found"
    KEEP = "leave it unchanged"
    SIGNAL = "signal that there are new orders"
    STOP = "order it to stop"
    KILL = "kill its process with all its children"
    BURY = "report that its process has ended, and why"
    CLEAN = "forget it, and remove its files"


_P, _A = Phase, Action

WHAT_TO_DO: Final[Mapping[tuple[Phase, Goal], Action]] = MappingProxyType(
    {
        (phase, goal): action
        for phase, actions in {
            # The actions for the goals RUN, STOP and LEAVE.
            _P.NONE: (_A.START, _A.KEEP, _A.CLEAN),
            _P.RESTING: (_A.KEEP, _A.KEEP, _A.CLEAN),
            _P.FOUND: (_A.ADOPT, _A.ADOPT, _A.ADOPT),
            _P.STARTING: (_A.KEEP, _A.STOP, _A.STOP),
            _P.ALIVE: (_A.KEEP, _A.STOP, _A.STOP),
            _P.SILENT: (_A.KILL, _A.KILL, _A.KILL),
            # A worker that was ordered to stop has to end, even if it is wanted again; a new process is started after its end.
            _P.STOPPING: (_A.KEEP, _A.KEEP, _A.KEEP),
            _P.LATE: (_A.KILL, _A.KILL, _A.KILL),
            _P.DYING: (_A.KEEP, _A.KEEP, _A.KEEP),
            _P.DEAD: (_A.BURY, _A.BURY, _A.BURY),
        }.items()
        for goal, action in zip((Goal.RUN, Goal.STOP, Goal.LEAVE), actions)
    }
)

#: Phases that may soon change without a change in the store, so that the supervisor should soon look again.
PASSING: Final = frozenset({_P.FOUND, _P.STARTING, _P.SILENT, _P.STOPPING, _P.LATE, _P.DYING, _P.DEAD})
_OCCUPYING: Final = PASSING | {_P.ALIVE}


class Timeouts(msgspec.Struct, frozen=True):
    """How long things may take, in seconds."""

    #: From the start of a process to its first heartbeat, regardless of the worker timeout: many imports take long.
    start: float = 60.0
    #: From the order to stop to the end of the process. After this time the process is killed.
    stop: float = 10.0
    #: Between two signals about the same unread orders: each signal may interrupt a blocking call of user code.
    signal: float = 5.0
    #: Between two kills of a process that does not end.
    kill: float = 1.0


class DesiredState(msgspec.Struct, frozen=True):
    """A worker with a slot here."""

    #: The version of the assignment that placed the worker: the first number of its incarnation.
    version: int
    slot: int
    #: Whether the worker has to end because of its topology's state.
    stop: bool
    #: Seconds without a heartbeat after which the worker is considered dead.
    timeout: float


class Backoff(msgspec.Struct, frozen=True):
    """How many times a worker has died lately, and when it may be started again."""

    deaths: int = 0
    #: Time of the first of the recent deaths.
    since: float = 0.0
    not_before: float = 0.0
    #: How many of the recent deaths were failed starts.
    unstarted: int = 0


@dataclass(eq=False)
class Running:
    """The facts about a managed worker that the plan needs."""

    version: int
    slot: int
    #: The life of the worker's process: "none", "found", "alive" or "dead".
    life: str
    timeout: float = 30.0
    started: float = 0.0
    #: Time of the worker's last heartbeat; None: the worker has sent none yet.
    heard: float | None = None
    #: Whether the worker has not read its last orders yet.
    behind: bool = False
    #: When the worker was last signalled; None: it was not signalled since its last orders were written.
    signalled: float | None = None
    told_to_stop: float | None = None
    killed: float | None = None
    backoff: Backoff = field(default_factory=Backoff)


def plan(
    wanted: Mapping[Key, DesiredState], running: Mapping[Key, Running], now: float, limits: Timeouts
) -> list[tuple[Action, Key]]:
    """Return what to do now: at most one action for each worker, sorted by the workers' names."""
    occupied = {run.slot for run in running.values() if phase_of(run, now, limits) in _OCCUPYING}
    actions: list[tuple[Action, Key]] = []
    for key in sorted({*wanted, *running}):
        want, run = wanted.get(key), running.get(key)
        phase = Phase.NONE if run is None else phase_of(run, now, limits)
        action = WHAT_TO_DO[phase, goal_of(want, run)]
        if action is Action.START and (want is None or want.slot in occupied):
            action = Action.KEEP  # the slot's previous worker has not left yet
        if run is not None:
            action = _repeated(action, phase, run, now, limits)
        if action is Action.START and want is not None:
            occupied.add(want.slot)
        if action is not Action.KEEP:
            actions.append((action, key))
    return actions


def goal_of(want: DesiredState | None, run: Running | None) -> Goal:
    """Return the goal of a worker. If a worker of the same name but a different version still runs, return the goal of the
    running worker."""
    if want is None or (run is not None and run.version != want.version):
        return Goal.LEAVE
    return Goal.STOP if want.stop else Goal.RUN


def phase_of(run: Running, now: float, limits: Timeouts) -> Phase:
    """Return the phase of a worker."""
    if run.life == "none":
        return Phase.RESTING if now < run.backoff.not_before else Phase.NONE
    if run.life == "found":
        return Phase.FOUND
    if run.life == "dead":
        return Phase.DEAD
    if run.killed is not None:
        return Phase.DYING
    if run.told_to_stop is not None:
        return Phase.LATE if now - run.told_to_stop >= limits.stop else Phase.STOPPING
    if run.heard is None:
        return Phase.SILENT if now - run.started >= max(limits.start, run.timeout) else Phase.STARTING
    return Phase.SILENT if now - run.heard >= run.timeout else Phase.ALIVE


def _repeated(action: Action, phase: Phase, run: Running, now: float, limits: Timeouts) -> Action:
    """Return the action. If the action is KEEP, but a signal or a kill has to be repeated, return that instead: a signal may
    have arrived before its handler was set, and a kill may have missed a new child."""
    if action is not Action.KEEP:
        return action
    if phase is Phase.DYING and run.killed is not None and now - run.killed >= limits.kill:
        return Action.KILL
    # Before its first heartbeat a worker may have no signal handler: a signal would then end the worker.
    if phase in (Phase.ALIVE, Phase.STOPPING) and run.behind and run.heard is not None:
        due = run.signalled is None or now - run.signalled >= limits.signal
        return Action.SIGNAL if due else Action.KEEP
    return action


#: If a worker has lived for LONG_ENOUGH seconds, its start did not cause its death: the count of deaths begins again.
LONG_ENOUGH: Final = 10.0
#: Seconds before the second restart in a row, doubled for each further restart. The first restart comes at once.
FIRST_DELAY: Final = 1.0
#: The most seconds before a restart.
LONGEST_DELAY: Final = 60.0


def after_death(
    backoff: Backoff, started: float, now: float, innocent: bool = False, unstarted: bool = False
) -> Backoff:
    """Return the back-off of a worker that died at `now`.

    `innocent`: the worker ended in an orderly way, which counts as a death only if it ended within FIRST_DELAY of its start.
    `unstarted`: the worker could not be started.
    """
    if innocent and now - started >= FIRST_DELAY:
        return msgspec.structs.replace(backoff, not_before=now)
    if backoff.deaths == 0 or now - started >= LONG_ENOUGH:
        return Backoff(1, now, now, int(unstarted))
    # The exponent is bounded: without the bound, the float would overflow after a thousand deaths.
    delay = min(FIRST_DELAY * 2.0 ** min(backoff.deaths - 1, 16), LONGEST_DELAY)
    return Backoff(backoff.deaths + 1, backoff.since, now + delay, backoff.unstarted + unstarted)


def soon(running: Iterable[Running], now: float, limits: Timeouts) -> bool:
    """Return whether something is about to change by itself."""
    return any(phase_of(run, now, limits) in PASSING or run.behind for run in running)
