"""What the failures of tuples mean: the tuple's fault, or that of a bolt task which works for no tuple at the moment.

While `topology.on.outage` is `wait`, a failure counts against a tuple only if its task works for other tuples:

- A failure is *open* until the task's next success with another tuple; then it *counts*, once for each tuple. So a tuple that
  failed five times before anything passed is tried again as often as a tuple that failed once.
- A tuple with a counted failure is a suspect: its further failures count at once, unless other tuples are failing there too
  (then with theirs), and are evidence against no task.
- A task is *down* when at least `DOWN_TUPLES` tuples that are no suspects, of all its spout tasks together, have failed there
  over at least `DOWN_SECS`, and none has succeeded. What fails at a task that is down does not count. Its first success ends
  this, and discards its open failures.
- A *burst*, as many failing tuples with no success for `BURST_SECS` or longer, is no verdict, but counts against none of them.
  For `UNSTEADY_SECS` after an outage or a burst, a single tuple is enough for another.
- Without a verdict a tuple is tried again for `give_up_secs`. Meanwhile `LEAST_WAITING` trees of a spout task may wait for
  their replay, whatever its pending limit: so there are other tuples, which succeed, or show that the task is down.
- A tuple that is *lost* with a worker is not charged, unless the worker died in a call with this very tuple, and by the call's
  fault: after `MOST_DEATHS` of these it is given up. If the call hung until its worker was ended, that is an open failure.
  A worker whose host knows of as many deaths does not execute the tuple again (`DEADLY`), whatever its root was then.

With `give-up` every failure counts; while a new version is on trial (`squall submit --replace`), none does. One instance judges
for one spout task, and outlives the workers of the bolt tasks; the bolt task adds up what the spout tasks know
(`worker.tasks.failing`).
Must not know: trees, queues, links, the meaning of a tuple.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import msgspec

from squall.transport.frames import COUNTS, DEADLY, DIED, MOST_CLAIMED, OPEN, FailureClaim
from topology_api import Failure, Replay
from worker.tracking.replay_policy import replay_delay

#: The least number of different tuples whose failures show that a task is down.
DOWN_TUPLES: Final = MOST_CLAIMED
#: The least number of seconds between the first and the last of these failures.
DOWN_SECS: Final = 5.0
#: The least number of seconds from the first failure of a burst to the success that ends it. Bad tuples that follow each other
#: closely are no burst.
BURST_SECS: Final = 0.5
#: How long a task is *unsteady* after the last failure of an outage or a burst: it may fail again.
UNSTEADY_SECS: Final = 60.0
#: How many trees of a spout task may wait for their replay while failures have no verdict. With fewer, as many bad tuples in a
#: row would stop a spout whose pending limit is as low.
LEAST_WAITING: Final = 10
#: After how many failures that are a task's fault the pauses between further attempts grow.
MOST_AT_ONCE: Final = 20
#: The number of workers that may die in a call with the same tuple.
MOST_DEATHS: Final = 2
#: How long a loss may still turn out to be the tuple's own fault (its worker is started again, and reports what it finds), and
#: how many losses are remembered.
_LOST_SECS: Final = 900.0
_MOST_LOST: Final = 100_000


@dataclass(eq=False, slots=True)
class FailureHistory:
    """The failures of one emission, over all its attempts."""

    counted: int = 0
    #: How many workers died in a call with the tuple.
    deaths: int = 0
    #: Failures that are no attempts: while the version was on trial, in an outage or a burst, and losses that are not the
    #: tuple's fault.
    excused: int = 0
    #: Those of them in an outage or a burst.
    spared: int = 0
    #: Failures since the last success of the task where it failed.
    open: int = 0

    def spare(self, failures: int) -> None:
        """Note that failures are no attempts, since they were the task's fault."""
        self.excused += failures
        self.spared += failures
        self.open = 0

    #: The time of the first failure without a verdict; None: each failure had one, or its task is down.
    undecided_since: float | None = None
    last: Failure | None = None


@dataclass(slots=True)
class _Evidence:
    """The failures at one bolt task since its last success."""

    #: The times of the first and of the last open failure.
    first: float
    last: float
    #: Tuples with an open failure that were no suspects, and suspects that failed after them.
    undecided: dict[FailureHistory, None] = field(default_factory=dict)
    suspects: dict[FailureHistory, None] = field(default_factory=dict)
    error: str | None = None
    is_down: bool = False
    #: Whether the failures are a burst.
    is_burst: bool = False


class Undecided(msgspec.Struct, frozen=True):
    """Tuples that are tried again although nothing shows yet whether they or a task are at fault.

    `since`: the time of the first of their failures; `until`: when they are given up (None: never); `failure`: the last one.
    """

    tuples: int
    since: float
    until: float | None
    failure: Failure


class Outages:
    """The failures at each bolt task, as one spout task sees them."""

    def __init__(self, waits: bool, give_up_secs: float | None) -> None:
        """`waits`: whether failures of an outage do not count. `give_up_secs`: None: never."""
        self.waits = waits
        self.give_up_secs = give_up_secs
        self._tasks: dict[int, _Evidence] = {}
        #: The end of the last outage or burst of each task.
        self._unsteady: dict[int, float] = {}
        #: Lost trees, the oldest first: root -> (history, time of the loss).
        self._lost: dict[int, tuple[FailureHistory, float]] = {}
        #: Whether the version is on trial: no failure counts, and none is evidence against a task.
        self.on_trial = False
        #: How many attempts failed.
        self.attempts_failed = 0
        #: How many emissions have a history: they failed before, and have not ended yet.
        self.alive = 0
        #: Those of them that are no suspects.
        self.unsuspected = 0
        #: Those with a time in `undecided_since`, in the order of these times.
        self._undecided: dict[FailureHistory, None] = {}
        self._random = Random(0)

    def begin(self, counted: int = 0) -> FailureHistory:
        """Begin the history of an emission that fails for the first time. `counted`: what counts against it from before."""
        self.alive += 1
        self.unsuspected += not counted
        return FailureHistory(counted)

    def end(self, history: FailureHistory) -> None:
        """Record that an emission with a history has had its final call."""
        self.alive -= 1
        self.unsuspected -= not history.counted
        self._decided(history)

    def _count(self, history: FailureHistory) -> None:
        """Let a failure count against an emission, which is a suspect from now on."""
        self.unsuspected -= not history.counted
        history.counted += 1

    def _decided(self, history: FailureHistory) -> None:
        """Note a verdict on the failures of an emission."""
        if history.undecided_since is not None:
            history.undecided_since = None
            del self._undecided[history]

    def failed(self, history: FailureHistory, failure: Failure, now: float) -> None:
        """Judge a failure."""
        if failure.attempts <= OPEN or not history.deaths:  # how a worker died says more than that it is gone
            history.last = failure
        self.attempts_failed += 1
        if self.on_trial:
            history.excused += 1
            return
        if failure.attempts == DEADLY:
            self._count(history)
            history.deaths = MOST_DEATHS
        elif self.waits and failure.attempts > OPEN:  # a loss; this is the root
            history.excused += 1
            self._remember(failure.attempts, history, now)
            if self.is_down(failure.task):
                self._decided(history)
        else:
            self._judge(history, failure, now)

    def _remember(self, root: int, history: FailureHistory, now: float) -> None:
        """Remember a loss: a later report may say that its worker died in a call with this tuple."""
        lost = self._lost
        lost[root] = history, now
        while len(lost) > _MOST_LOST or next(iter(lost.values()))[1] < now - _LOST_SECS:
            del lost[next(iter(lost))]

    def died(self, failure: Failure, now: float) -> FailureHistory | None:
        """Judge a call in which a worker died by the call's fault (`DIED`), or which hung until its worker was ended (`HUNG`).

        `failure.attempts`: the root of its tree. Return the history of the tuple; None: its loss is not known here.
        """
        history, _ = self._lost.pop(failure.attempts, (None, 0.0))
        if history is None or self.on_trial:
            return None
        history.excused -= 1
        if failure.reason == DIED:
            self._count(history)
            history.deaths += 1
        else:
            self._judge(history, replace(failure, reason="failed", attempts=OPEN), now)
        history.last = replace(failure, reason="lost", attempts=OPEN)
        return history

    def _judge(self, history: FailureHistory, failure: Failure, now: float) -> None:
        """Let a failure count, or keep it open."""
        evidence = self._tasks.get(failure.task) if failure.task is not None else None
        if self.waits and failure.attempts != COUNTS and evidence is not None and evidence.is_down:
            evidence.error, evidence.last = failure.error, now
            history.spare(1)
            self._decided(history)
            return
        judged = failure.reason == "failed" and failure.task is not None and failure.attempts != COUNTS
        if not (self.waits and judged) or (
            history.counted and evidence is None and not self._is_unsteady(failure.task, now)
        ):
            self._count(history)
            return
        assert failure.task is not None
        if evidence is None:
            evidence = self._tasks[failure.task] = _Evidence(now, now)
        evidence.error, evidence.last = failure.error, now
        (evidence.suspects if history.counted else evidence.undecided)[history] = None
        history.open += 1
        if history.undecided_since is None:
            history.undecided_since = now
            self._undecided[history] = None
        if len(evidence.undecided) >= DOWN_TUPLES and now - evidence.first >= DOWN_SECS:
            self._go_down(evidence)

    def _is_unsteady(self, task: int | None, now: float) -> bool:
        """Whether the last outage or burst of a task was a moment ago."""
        return task in self._unsteady and now - self._unsteady[task] < UNSTEADY_SECS

    def _go_down(self, evidence: _Evidence) -> None:
        evidence.is_down = True
        for each in (*evidence.undecided, *evidence.suspects):
            each.spare(each.open)
            self._decided(each)

    def went_down(self, task: int, now: float) -> None:
        """Record the verdict of a bolt task that it is down."""
        if self.waits and not self.on_trial:
            self._go_down(self._tasks.setdefault(task, _Evidence(now, now)))

    def had_burst(self, task: int, others: int) -> None:
        """Record that a bolt task did not work for a while. `others`: how many tuples of other spout tasks failed."""
        evidence = self._tasks.get(task)
        if evidence is None:
            return
        if len(evidence.undecided) + others >= DOWN_TUPLES:
            evidence.is_burst = True
            self._unsteady[task] = evidence.last
        elif self._is_unsteady(task, evidence.first):
            evidence.is_burst = True

    def recovered(self, task: int, by: FailureHistory | None) -> list[FailureHistory]:
        """Record a success of a bolt task, with the tuple of the history `by`; return the histories with a failure that counts
        now.
        """
        evidence = self._tasks.pop(task, None)
        if evidence is None:
            return []
        if evidence.is_down:
            self._unsteady[task] = evidence.last
            return []
        if evidence.is_burst:
            for each in (*evidence.undecided, *evidence.suspects):
                each.spare(each.open)
            return []
        counted = [each for each in (*evidence.undecided, *evidence.suspects) if each is not by]
        for history in counted:
            self._count(history)
            history.open = 0
            self._decided(history)
        if by is not None:
            self._decided(by)
        return counted

    def claim(self, task: int, now: float) -> FailureClaim | None:
        """Return what this spout task knows of the failures at a bolt task since its last success; None: nothing."""
        evidence = self._tasks.get(task)
        if evidence is None:
            return None
        tuples = DOWN_TUPLES if evidence.is_down else len(evidence.undecided)
        return FailureClaim(tuples, now - evidence.first, evidence.error, evidence.is_down)

    def delay(self, replay: Replay, attempt: int, history: FailureHistory) -> float:
        """Return the seconds until the replay after failed attempt number `attempt`.

        Failures that are the task's fault do not make it longer, up to `MOST_AT_ONCE`: so the tuple is there when the task
        works again. While none counts, up to a quarter is left out at random, but for the first replay: so bad tuples that came
        in a row come apart, and good ones come between them.
        """
        delay = replay_delay(replay, max(1, attempt - min(history.spared, MOST_AT_ONCE)))
        if attempt == 1 or history.counted or self.on_trial or not self.waits:
            return delay
        return delay * self._random.uniform(0.75, 1.0)

    def undecided(self) -> Undecided | None:
        """Return the tuples without a verdict, if there are any. Any thread may call this."""
        each = list(self._undecided.copy())
        since = each[0].undecided_since if each else None
        last = each[-1].last if each else None
        if since is None or last is None:
            return None
        return Undecided(
            len(each), since, None if self.give_up_secs is None else since + self.give_up_secs, last
        )

    def is_down(self, task: int | None) -> bool:
        """Whether a bolt task is down."""
        evidence = self._tasks.get(task) if task is not None else None
        return evidence is not None and evidence.is_down

    def watched(self) -> list[int]:
        """The tasks whose next success matters: they have failures without a verdict, or are down."""
        return list(self._tasks)

    def spent(self, history: FailureHistory, most: int | None, now: float) -> bool:
        """Whether a tuple is given up. `most`: how many of its failures may count; None: any number."""
        if most is None:
            return False
        if history.counted >= most or history.deaths >= MOST_DEATHS:
            return True
        since = history.undecided_since
        return since is not None and self.give_up_secs is not None and now - since >= self.give_up_secs
