"""What a spout task makes of verdicts on its failed tuples: which are given up, and how many may wait for their replay.

These are steps of `SpoutTask`, apart from it because nothing here is called for tuples that do not fail.
Must not know: links, threads, how failures are judged (`worker.tracking.outages`).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from squall.transport.frames import BURST, DOWN, RECOVERED
from topology_api import Failure
from worker.tracking.outages import DOWN_TUPLES, LEAST_WAITING, UNSTEADY_SECS, Undecided
from worker.tracking.tracker import Emission

if TYPE_CHECKING:
    from worker.tasks.spout import SpoutTask


def most_waiting(task: SpoutTask, limit: int) -> int:
    """Return how many trees of a spout task may wait for their replay. `limit`: its pending limit.

    Failures without a verdict need other tuples for one, unless their tuples are tried again without end.
    """
    if task.replay is None or task.replay.max_attempts is None or not task.outages.watched():
        return limit
    return max(limit, LEAST_WAITING)


def undecided(task: SpoutTask) -> Undecided | None:
    """Return the tuples of a spout task that are tried again without a verdict."""
    found = task.outages.undecided()
    if found is None or task.replay is None or task.replay.max_attempts is not None:
        return found
    return Undecided(found.tuples, found.since, None, found.failure)


def is_last_resort(task: SpoutTask, emission: Emission, failure: Failure, now: float) -> bool:
    """Whether no verdict on a failed emission can come: it has used its attempts, the source has ended, and the tuples that
    are left have all failed before, and those that are no suspects are too few for a verdict on a task.

    A tuple that has lived through an outage or a burst gets more time, since there may be another.
    """
    most = task.replay.max_attempts if task.replay is not None else None
    outages = task.outages
    if not task.finished or most is None or outages.on_trial or outages.is_down(failure.task):
        return False
    history = emission[6]
    if history is not None:
        since = history.undecided_since
        if emission[4] - history.excused < most:
            return False
        if history.spared and since is not None and now - since < UNSTEADY_SECS:
            return False
    left = task.tracker.pending - task.letters.for_bolts + len(task.replays) + task.undecided
    return outages.unsuspected < DOWN_TUPLES and left <= outages.alive - 1


def reassess(task: SpoutTask, by: Emission | None, report: Failure, now: float) -> None:
    """Handle what a bolt task reports: its success after failures, its verdict that it is down or was for a moment, or a call
    in which a worker died. Earlier failures may count now. `by`: the emission that succeeded, if it is known.
    """
    assert report.task is not None
    outages, replay = task.outages, task.replay
    if report.reason == DOWN:
        outages.went_down(report.task, now)
        return
    if report.reason == BURST:
        outages.had_burst(report.task, report.attempts)
        return
    if report.reason == RECOVERED:
        counted = outages.recovered(report.task, None if by is None else by[6])
    else:
        history = outages.died(report, now)
        counted = [] if history is None else [history]
        if counted:
            task.to_tell.append(report.task)
    if replay is None or not any(outages.spent(each, replay.max_attempts, now) for each in counted):
        return
    waiting, task.replays = task.replays, []
    spent: list[tuple[float, int, Emission]] = []
    for entry in waiting:
        history = entry[2][6]
        is_spent = history is not None and outages.spent(history, replay.max_attempts, now)
        (spent if is_spent else task.replays).append(entry)
    heapq.heapify(task.replays)
    for _, _, emission in sorted(spent):
        assert emission[6] is not None and emission[6].last is not None
        task.give_up(emission, emission[6].last)
