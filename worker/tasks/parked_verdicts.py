"""What a bolt task with epochs makes of its failures: which parked tuples are given up, and when it pauses.

The rules are those of `worker.tracking.outages`, as without epochs. There each spout task judges for its tuples; here the bolt
task judges for all, since nothing that fails leaves it. While it is down, what arrives waits in its inbox, and one tuple at a
time is tried: a parked one and one of the inbox in turn, each time another. So that epochs end meanwhile, tuples before a
marker are parked without a try, as long as there is room for them.

These are steps of `EpochBoltTask`, apart from it because nothing here is called while no tuple fails.
Must not know: links, trackers, how failures are judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from squall.transport.frames import DEADLY
from topology_api import Failure, Replay
from topology_api.tuples import UNTRACKED, Tuple
from worker.epochs.parking import Parked
from worker.tasks import failing, letter_readers
from worker.tasks.bolt import make_tuple
from worker.tasks.parked_tuples import lost, mark_of, new_parked, spout_of
from worker.tasks.special_batches import MarkerBatch
from worker.tasks.task import RUN_SECONDS
from worker.tracking.outages import (
    BURST_SECS,
    DOWN_SECS,
    DOWN_TUPLES,
    UNSTEADY_SECS,
    FailureHistory,
    Undecided,
)

if TYPE_CHECKING:
    from worker.tasks.epoch_batch import EpochBatchTask
    from worker.tasks.epoch_bolt import EpochBoltTask


def replay_of(task: EpochBoltTask, parked: Parked) -> Replay:
    """Return the policy for a tuple: that of its spout."""
    return task.epochs.replays.of_spout(mark_of(parked.item).spout or parked.item[0])


def replay_before(task: EpochBoltTask, tup: Tuple) -> Replay:
    """Return the policy for a tuple that is about to be tried."""
    parked = task.trying or getattr(task, "tries", {}).get(id(tup))
    if parked is not None:
        return replay_of(task, parked)
    return task.epochs.replays.of_spout(spout_of(task, tup) or tup._source.component)


def failed(task: EpochBoltTask, parked: Parked, failure: Failure) -> None:
    """Judge a failure of a tuple: it waits for its next try, or is a dead letter. The task may pause."""
    now, outages, replay = task.now(), task.outages, replay_of(task, parked)
    history = parked.history
    if history is None:
        history = parked.history = outages.begin(parked.attempts)
    failing.begin(task, now)
    outages.failed(history, failure, now)
    parked.attempts, parked.tries = history.counted, parked.tries + 1
    if outages.watched():
        task.failed_for[task.id] = UNTRACKED  # the next success is looked at
    if outages.is_down(task.id):
        failing.pause(task)
    if task.probing is not None and now >= task.probing.due:
        task.probing.failed(now)
        task.tries_parked = not task.tries_parked
    if outages.spent(history, replay.max_attempts, now) or is_last_resort(task, parked, history, now):
        if failure.attempts == DEADLY:
            parked.item = lost(parked.item)
        give_up(task, parked, failure.error or "")
    else:
        task.parking.wait(parked, now + outages.delay(replay, parked.tries, history))


def is_last_resort(task: EpochBoltTask, parked: Parked, history: FailureHistory, now: float) -> bool:
    """Whether no verdict can come (`worker.tasks.spout_verdicts.is_last_resort`): the tuple has used its attempts, and there
    are no others, or too few that are no suspects for a verdict on the task."""
    most, outages = replay_of(task, parked).max_attempts, task.outages
    if most is None or outages.on_trial or outages.is_down(task.id):
        return False
    since = history.undecided_since
    if parked.tries - history.excused < most:
        return False
    if history.spared and since is not None and now - since < UNSTEADY_SECS:
        return False
    histories = [history, *(each.history for each in task.parking.parked)]
    if not task.inputs.outside_ended or has_input(task) or None in histories:
        return False
    return sum(each is not None and not each.counted for each in histories) < DOWN_TUPLES


def give_up(task: EpochBoltTask, parked: Parked, text: str) -> None:
    """Make a tuple a dead letter."""
    most = replay_of(task, parked).max_attempts
    if parked.history is not None and most is not None and parked.attempts < most:  # there was no verdict
        parked.attempts = max(parked.attempts, parked.tries - parked.history.excused)
    letter_readers.give_up(task, parked, text)
    settled(task, parked)


def settled(task: EpochBoltTask, parked: Parked) -> None:
    """Note that a tuple that has failed before is acked, or a dead letter."""
    if parked.history is not None:
        task.outages.end(parked.history)
        parked.history = None


def succeeded(task: EpochBoltTask) -> None:
    """Let the failures before a success count, or not; end a pause. `task.trying`: what has succeeded, if it failed before."""
    outages, now, by = task.outages, task.now(), task.trying
    if task.probing is None and now - task.failing_since >= BURST_SECS:
        outages.had_burst(task.id, 0)
    counted = set(map(id, outages.recovered(task.id, None if by is None else by.history)))
    task.failed_for.clear()
    task.claims.clear()
    task.probing, task.tries_parked, task.last_error = None, False, None
    for parked in list(task.parking.parked) if counted else ():
        history = parked.history
        if history is None or id(history) not in counted:
            continue
        parked.attempts = history.counted
        if outages.spent(history, replay_of(task, parked).max_attempts, now):
            task.parking.parked.remove(parked)
            give_up(task, parked, (history.last and history.last.error) or "")


def failed_call(task: EpochBatchTask, error: str | None) -> None:
    """Count a failed call for several tuples; pause if none has succeeded for long. It is no verdict: the halves are tried."""
    now = task.now()
    failing.begin(task, now)
    task.failed_for[task.id] = UNTRACKED
    task.last_error = error
    task.failed_calls += 1
    if task.failed_calls >= DOWN_TUPLES and now - task.failing_since >= DOWN_SECS:
        failing.pause(task)
    if task.probing is not None and now >= task.probing.due:
        task.probing.failed(now)
        task.tries_parked = not task.tries_parked


def may_try_parked(task: EpochBoltTask, now: float) -> bool:
    """Whether a parked tuple may be tried now."""
    parking, probing = task.parking, task.probing
    if probing is None:
        due = parking.next_due()
        return due is not None and now >= due
    turn = task.tries_parked or parking.full or not has_input(task)
    return bool(parking.parked) and turn and now >= probing.due


def next_try(task: EpochBoltTask, now: float) -> Parked | None:
    """Remove and return the parked tuple to try now, if there is one."""
    if not may_try_parked(task, now):
        return None
    return task.parking.due(now if task.probing is None else inf)


def tries(task: EpochBoltTask) -> Iterator[Parked]:
    """Yield the parked tuples to try in this run, each once, as long as the run may last and emit. The task may be run."""
    if not task.parked_due():
        return
    task.open_here()
    now, enough = task.now(), task.emitter.emitted + task.limits.emits
    for _ in range(len(task.parking.parked)):
        if task.emitter.emitted >= enough or task.crashing() or task.now() >= now + RUN_SECONDS:
            return
        parked = next_try(task, now)
        if parked is None:
            return
        yield parked


def has_input(task: EpochBoltTask) -> bool:
    """Whether tuples wait that are not parked."""
    return bool(task.inbox or task.buffered())


def may_probe_input(task: EpochBoltTask, now: float) -> bool:
    """Whether a task that is down may execute the next tuple of its input now."""
    probing = task.probing
    assert probing is not None
    return now >= probing.due and not (task.tries_parked and task.parking.parked)


def may_clear(task: EpochBoltTask) -> bool:
    """Whether a marker waits behind tuples that a task which is down may park. The loop may ask while the thread runs."""
    if task.probing is None or task.parking.full or task.reached:
        return False
    return any(isinstance(batch, MarkerBatch) for batch in list(task.inbox))


def clear_way(task: EpochBoltTask) -> None:
    """Park tuples without a try, so that the next marker comes first; as many as there is room for."""
    inbox = task.inbox
    while may_clear(task) and not isinstance(inbox[0], MarkerBatch):
        batch = inbox[0]
        if batch.ended:
            task.inputs.ended(batch.source.task)
        elif batch.position < len(batch.rows):
            tup = make_tuple(batch, batch.position)
            parked = new_parked(task, tup)
            if mark_of(parked.item).unkept:
                return  # a failure would make it a dead letter, and this is none
            batch.position += 1
            task.parking.wait(parked, task.now())
            task.xors.add_tuple(tup)
        if batch.ended or batch.position >= len(batch.rows):
            inbox.popleft()
            task.done.append(batch)


def undecided(task: EpochBoltTask) -> Undecided | None:
    """Return the parked tuples of a task that are tried again without a verdict. Any thread may call this."""
    found = task.outages.undecided()
    if found is None or task.epochs.replays.most.max_attempts is not None:
        return found
    return Undecided(found.tuples, found.since, None, found.failure)
