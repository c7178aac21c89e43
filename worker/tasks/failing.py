"""What a bolt task makes of its own failures: when it pauses, and what it reports to the spout tasks.

The verdict that a task is down needs the failures of all its spout tasks. Each spout task knows which of its tuples fail and
which are suspects, and claims how many fail here (`FailureClaim`). The task adds the claims up: `DOWN_TUPLES` or more with no
success for `DOWN_SECS`, and it pauses, and reports to all spout tasks that it is down. A spout task whose own tuples are enough
decides alone, and asks for the pause: so the verdict outlives this process. The first success is reported to all who know of a
failure.

These are steps of `BoltTask`, apart from it because nothing here is called while no tuple fails.
Must not know: links, threads, which tuples are suspects (`worker.tracking.outages`).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from squall.transport.frames import BURST, DOWN, OPEN, RECOVERED, FailureClaim
from topology_api import Failure
from worker.tasks.probing import Probing
from worker.tracking.ids import task_of
from worker.tracking.outages import BURST_SECS, DOWN_SECS, DOWN_TUPLES

if TYPE_CHECKING:
    from worker.tasks.bolt import BoltTask

#: The key, among the claims of spout tasks, of what the task knows by itself: batches that failed in parts.
OWN: Final = 0


def failed(task: BoltTask, roots: list[int], error: str | None) -> None:
    """Note a failure without a verdict of a tuple of these trees."""
    now = task.now()
    begin(task, now)
    task.failed_for.update((task_of(root), root) for root in roots)
    task.last_error = error
    # Of several failures, such as those of calls that were running when the pause began, one makes it longer.
    if task.probing is not None and now >= task.probing.due:
        task.probing.failed(now)


def begin(task: BoltTask, since: float) -> None:
    """Note since when the task fails, at the latest."""
    failing = task.failed_for or task.claims or task.probing is not None
    task.failing_since = min(task.failing_since, since) if failing else since


def expect(task: BoltTask, root: int, since: float, error: str | None) -> bool:
    """Report the next success to the spout task with this root id, which knows of a failure; return whether that is new."""
    begin(task, since)
    task.last_error = task.last_error or error
    spout = task_of(root)
    is_new = spout not in task.failed_for
    task.failed_for.setdefault(spout, root)
    return is_new


def hear(task: BoltTask, root: int, claim: FailureClaim, since: float) -> None:
    """Note what a spout task knows of the failures here. `root`: a root id of that task."""
    if expect(task, root, since, claim.error):
        return  # a task that has not failed since its last success, or not in this process, does not pause yet
    task.claims[task_of(root)] = claim.tuples
    if claim.is_down:
        go_down(task)
    else:
        judge(task)


def judge(task: BoltTask) -> None:
    """Pause if the claims show that the task is down."""
    if claimed(task) >= DOWN_TUPLES and task.now() - task.failing_since >= DOWN_SECS:
        go_down(task)


def claimed(task: BoltTask, without: int | None = None) -> int:
    """Return how many tuples fail here, as far as is known; `without`: leave out this spout task."""
    of_spouts = sum(tuples for spout, tuples in task.claims.items() if spout not in (OWN, without))
    return max(task.claims.get(OWN, 0), of_spouts)


def go_down(task: BoltTask) -> None:
    """Pause, and report to all spout tasks with failures here that the task is down."""
    pause(task)
    if not task.is_down:
        tell_down(task, list(task.failed_for.values()))


def pause(task: BoltTask) -> None:
    """Execute nothing but probes from now on, until the next success."""
    if task.probing is None:
        task.probing = Probing(task.now(), Random(task.id))


def tell_down(task: BoltTask, failed_roots: list[int]) -> None:
    """Report the verdict to the spout tasks of these trees, which have failed."""
    if not task.waits_for_stores:
        return
    task.is_down = True
    down = Failure(DOWN, task.spec.id, task.id, None, OPEN)
    task.failures += [(root, down) for root in failed_roots]


def succeeded(task: BoltTask, root: int) -> None:
    """Report the first success after a failure to the spout tasks that know of the failure; end a pause.

    `root`: a tree of the tuple that succeeded.
    """
    if task.failed_for:
        success = Failure(RECOVERED, task.spec.id, task.id, None, root)
        was_short = task.now() - task.failing_since < BURST_SECS
        for spout, failed_root in task.failed_for.items():
            if task.waits_for_stores and not (was_short or task.is_down):
                burst = Failure(BURST, task.spec.id, task.id, None, claimed(task, without=spout))
                task.failures.append((failed_root, burst))
            task.failures.append((failed_root, success))
    task.failed_for.clear()
    task.claims.clear()
    task.probing = None
    task.is_down = False
    task.last_error = None
