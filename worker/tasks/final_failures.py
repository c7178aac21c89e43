"""The final calls of tuples that a spout task gave up: their dead letters are kept, then `fail` is called; and the trees of
dead letters, which are no emissions of the user's.

These are steps of `SpoutTask`, apart from it because nothing here is called for tuples that do not fail.
Must not know: links, threads, how letters are kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from squall.dead_letters.letter import HANDED_OVER
from squall.transport.frames import RECOVERED
from topology_api import EmitError, Failure
from topology_api.topology import DEAD_LETTERS
from topology_api.wording import is_error
from worker.errors.reports import ErrorReport, failure_line, failure_text, one_line
from worker.tasks.emitter import short
from worker.tasks.spout_letters import ForBolt, Resent
from worker.tracking.tracker import Emission

if TYPE_CHECKING:
    from topology_api.tuples import Source
    from worker.tasks.spout import SpoutTask


def own_trees(task: SpoutTask, completed: list[Emission]) -> list[Emission]:
    """Return the completed trees of the user's emissions; the others are trees of dead letters."""
    if not task.letters.open_trees:
        return completed
    before = task.letters.for_bolts
    own, resent = task.letters.take_ended(completed)
    make_room(task, task.letters.for_bolts - before)
    task.acked += len(resent)
    for emission in resent:
        if emission[6] is not None:
            task.outages.end(emission[6])
    return own


def keep_and_fail(task: SpoutTask, now: float, enough: float) -> None:
    """Keep the letters of the tuples that were given up, then call `fail` for them, until `produced` reaches `enough`."""
    letters = task.letters
    if letters.are_due(now) and (why := letters.keep(now)) is not None and not task.stopping:
        report(task, f"the spout waits: {why.text}")
    while letters.due and task.produced < enough:
        kept = letters.due.popleft()
        fail_for_good(task, kept.emission, kept.failure, kept.id)


def fail_left(task: SpoutTask, failure: Failure) -> None:
    """Make the final calls of a task that is being stopped, for the trees that are left.

    If its version is rolled back, and the task has the values of its trees, they become letters for the version that has the
    name again; their reason says so, since a source that delivered them again would double them.
    """
    letters = task.letters
    letters.withdraw_all("")
    if letters.heir and task.replay is not None:
        fail_unkept(task, failure)  # what was given up before; it is no part of what is handed over
        fail_open(task, replace(failure, reason=HANDED_OVER))
    else:
        fail_open(task, failure)
    fail_unkept(task, failure)
    fail_open(task, failure)


def fail_unkept(task: SpoutTask, failure: Failure) -> None:
    """Keep the letters that are left, and call `fail`. What cannot be kept is stopped like open trees, and no dead letter: its
    source has to read it again."""
    letters = task.letters
    letters.retry_at = 0.0
    while letters.undone:
        keep_and_fail(task, task.now(), float("inf"))
        unkept, letters.batch = letters.batch, []
        lost = sum(cause.reason == HANDED_OVER for _, cause in unkept)
        if lost and letters.waits is not None:
            what = f"{lost:,} pending tuples are not handed over to {letters.heir}, and fail as stopped"
            report(task, f"{what}: {letters.waits.text}")
        for emission, cause in unkept:
            fail_for_good(task, emission, replace(failure, attempts=cause.attempts))


def fail_for_good(task: SpoutTask, emission: Emission, failure: Failure, letter: str = "") -> None:
    """Call `fail` for an emission. `letter`: the id of its dead letter, which goes to the bolts that read them."""
    message_id, row, source = emission[:3]
    task.failed += 1
    task.given_up[failure.reason] = task.given_up.get(failure.reason, 0) + 1
    why, what = failure_line(failure), f"message id {short(message_id)}"
    again = message_id.letter if type(message_id) is Resent else None
    if again is not None:
        what = f"dead letter {again.id}, sent again"
        if letter:
            task.letters.resends -= 1
        else:
            task.letters.stopped(again)
    handed_over = failure.reason == HANDED_OVER
    if task.first_failure is None and failure.reason != "stopped" and not handed_over:
        task.first_failure = task.now(), f"{what}: {why}"
    if letter and handed_over:
        task.letters.keeper.bolt_done(letter, acked=False)  # no bolt gets it: it is not given up
    elif letter and (again is not None or not send_to_bolts(task, message_id, row, source, failure, letter)):
        task.letters.keeper.bolt_done(letter, acked=False)
        report(task, f"given up: {why}", f"{what}, values {short(row)}")
    if again is not None:
        return
    task.set_time(task.now())  # fail() may emit
    try:
        task.instance.fail(message_id, failure)
    except BaseException as error:
        task.final_call_raised("fail", error, message_id)
    if task.observer is not None:
        task.observer.spout_failed(message_id, failure)


def send_to_bolts(
    task: SpoutTask, message_id: Any, row: Any, source: Source, failure: Failure, letter: str
) -> bool:
    """Send a dead letter to the bolts that read them; return whether there are any."""
    letters = task.emitter.outputs.get(DEAD_LETTERS)
    if letters is None:
        return False
    values = (message_id, row, source.stream, failure)
    try:
        task.emitter.track((ForBolt(letter), values, letters.source, 0, 1, task.now(), None))
    except BaseException as error:  # too many trees are open, or a custom grouping raised
        task.report("fail", error, f"message id {short(message_id)}")
        return False
    task.letters.for_bolts += 1
    make_room(task, 1)
    task.count_besides()
    return True


def make_room(task: SpoutTask, change: int) -> None:
    """Let dead letters that travel to bolts take no place of the pending limit: such a bolt may be slow."""
    if task.max_pending is not None:
        task.max_pending += change
        task.letter_places += change


def send_again(task: SpoutTask, now: float, enough: float) -> None:
    """Send the letters again that were handed over for that, while there is room, until `produced` reaches `enough`."""
    letters = task.letters
    if task.finished:
        letters.withdraw_all("the source has ended")
    while task.produced < enough and may_resend(task):
        letter, load = letters.to_resend.popleft()
        why = letters.problem_with(letter, task.emitter.outputs)
        if not why:
            try:
                row = load()
            except BaseException as error:  # raised by the class of a value
                why = f"its values cannot be decoded: {failure_text(error) or error}"
        if why:
            letters.keeper.withdraw(letter.id, why)
            continue
        letters.resends += 1
        source = task.emitter.outputs[letter.stream].source
        emission = (Resent(letter), row, source, letter.target, 1, now, None)
        task.emitter.emitted += 1
        try:
            task.emitter.track(emission)
        except BaseException as error:  # raised by a custom grouping
            text = str(error) if is_error(error, EmitError) else failure_text(error)
            task.give_up(emission, Failure("failed", task.spec.id, task.id, text, 1))


def may_resend(task: SpoutTask) -> bool:
    """Return whether a dead letter may be sent again now; after the end of the source none is."""
    ready = task.active and not (task.draining or task.blocked)
    return bool(task.letters.to_resend) and ready and (task.finished or not task.full())


def fail_open(task: SpoutTask, failure: Failure) -> None:
    """Give up every open tree for this reason."""
    tracker = task.tracker
    for root in tracker.open_roots():
        tracker.fail(root, failure)
    failed, tracker.failed = tracker.failed, []
    for left, cause in failed:
        if cause.reason != RECOVERED and left is not None:
            task.give_up(left, cause)
    replays, task.replays = sorted(task.replays), []
    for _, _, emission in replays:
        task.give_up(emission, failure)


def report(task: SpoutTask, text: str, what: str | None = None) -> None:
    """Report something that is no error of a call, since none failed."""
    what = None if what is None else one_line(what)
    where = task.context.topology, task.spec.id, task.id
    task.reports.append(ErrorReport(*where, "", one_line(text), "", (), what, task.now()))
