"""Decides how the trial of a new version ends, from what Nimbus knows: the counters of its components and the reports of its
workers. Pure functions over values.

The trial of a version begins when its workers have opened their tasks. It has proved that it runs when tuples were acked (or
untracked tuples were executed) and, over `WINDOW_SECS`, fewer than half of the settled attempts failed. If half of them or more
failed, it is rolled back. If the source was silent and nothing failed until the deadline, that is proof as well. While trees
are open and nothing failed, the trial goes on: they are acked, fail, or time out.

A version whose worker fails at its start with the same error `SAME_ERRORS` times in a row is rolled back at once.
The leader's memory holds when an observation began; a new leader begins it again, since the counters are cumulative.
Must not know: the store, how counters arrive, how a version is rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from squall.reports.events import Event, subject

#: Seconds over which settled attempts are compared, from the first one that is seen.
WINDOW_SECS: Final = 10.0
#: Seconds between two looks at the counters of a version on trial.
LOOK_SECS: Final = 1.0
#: How many identical errors in a row at the start of a worker end the trial.
SAME_ERRORS: Final = 3


class TrialOutcome(Enum):
    """How a trial stands."""

    OPEN = "nothing is decided yet"
    GOOD = "the version has proved that it runs"
    BAD = "its tuples fail"


class Evidence(msgspec.Struct, frozen=True):
    """What the tasks of a version have done since it took over."""

    #: Tuples that spouts emitted.
    emitted: int = 0
    #: Attempts of trees that were acked, and attempts that failed, those that are tried again included.
    acked: int = 0
    failed: int = 0
    #: Trees that are open.
    pending: int = 0
    #: Calls of bolts, and tuples that these calls failed.
    executed: int = 0
    raised: int = 0
    #: Errors of user code, and the text of the last one.
    errors: int = 0
    last_error: str = ""

    @property
    def attempts(self) -> tuple[int, int]:
        """How many settled attempts went well, and how many failed; of tuples without a tree, calls count."""
        if self.failed:
            return self.acked, self.failed
        if self.raised:
            return self.executed - self.raised, self.raised
        return (self.acked, 0) if self.acked or self.pending else (self.executed, 0)

    @property
    def of_calls(self) -> Evidence:
        """The evidence of a version with epochs: a tuple is acked when its epoch is committed, which is after the trial. So the
        calls of bolts count; tuples that are pending are not waited for."""
        if not self.executed:
            return self
        return msgspec.structs.replace(
            self, acked=self.executed - self.raised, failed=self.raised + self.failed, pending=0
        )


class Start(msgspec.Struct, frozen=True):
    """Consecutive errors of one worker at its start that are the same."""

    error: Event
    first_attempt: int


class Trial(msgspec.Struct, frozen=True):
    """What the leader remembers of the trial of one version."""

    evidence: Evidence = Evidence()
    #: When a settled attempt was first seen, on the leader's clock; None: there is none yet.
    since: float | None = None
    #: Worker -> its last errors at a start.
    starts: Mapping[str, Start] = msgspec.field(default_factory=dict)
    #: The error that repeated itself `SAME_ERRORS` times.
    repeated: Event | None = None


NO_TRIAL: Final = Trial()


def observed(trial: Trial, evidence: Evidence, now: float) -> Trial:
    """Return the trial after a look at the counters of a version whose workers are up."""
    since = trial.since
    if since is None and any(evidence.attempts):
        since = now
    return msgspec.structs.replace(trial, evidence=evidence, since=since)


def with_start(trial: Trial, worker: str, event: Event | None, opened: bool) -> Trial:
    """Return the trial after a worker's report. Only errors of the version itself count: what a host or an operator did to a
    worker says nothing about the version.
    """
    if opened or event is None or not _is_own_fault(event):
        return msgspec.structs.replace(
            trial, starts={name: start for name, start in trial.starts.items() if name != worker}
        )
    error = subject(event)
    last = trial.starts.get(worker)
    if last is None or last.error != error or event.attempt < last.first_attempt:
        last = Start(error, event.attempt)
    repeated = event if event.attempt - last.first_attempt + 1 >= SAME_ERRORS else trial.repeated
    return msgspec.structs.replace(trial, starts={**trial.starts, worker: last}, repeated=repeated)


def outcome_of(trial: Trial, now: float, deadline: float | None) -> TrialOutcome:
    """Return how the trial of a version whose workers are up stands."""
    evidence = trial.evidence
    if trial.since is not None:
        if now < trial.since + WINDOW_SECS:
            return TrialOutcome.OPEN
        good, bad = evidence.attempts
        return TrialOutcome.GOOD if good and 2 * bad < good + bad else TrialOutcome.BAD
    if deadline is None or now < deadline:
        return TrialOutcome.OPEN
    if evidence.errors:
        return TrialOutcome.BAD
    return TrialOutcome.OPEN if evidence.pending else TrialOutcome.GOOD


def why_bad(evidence: Evidence) -> str:
    """Return what to say of a version whose tuples fail."""
    good, bad = evidence.attempts
    said = f"its tuples fail: of {good + bad:,} settled attempts {bad:,} failed"
    if not good + bad:
        said = f"it emitted nothing, and its code raised {evidence.errors:,} errors"
    return f"{said}; the last error: {evidence.last_error}" if evidence.last_error else said


def _is_own_fault(event: Event) -> bool:
    if event.kind == "not_started":
        return event.part == "environment"
    return event.kind == "died" and event.cause is not None and event.cause.kind not in ("killed", "unknown")
