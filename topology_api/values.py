"""Plain values of the user's API: Failure (why a tree failed) and Replay (how it is emitted again).

Must not know: who creates or uses them.
"""

from __future__ import annotations

from dataclasses import dataclass

from topology_api.errors import InvalidConfig
from topology_api.wording import shown, typed

MAX_SECONDS = 365 * 24 * 3600  # a year: a longer time is probably in the wrong unit
_MAX_ATTEMPTS = 2**31 - 1


@dataclass(frozen=True)
class Failure:
    """The reason why a tuple tree failed, as passed to `Spout.fail`.

    reason: `"failed"` (a bolt failed or raised), `"timeout"` (no activity for
        `topology.message.timeout.secs`), `"lost"` (a worker that held part of the tree is gone), `"stopped"`
        (the topology was stopped first: the source has to deliver the message again), `"handed over"` (a new version was
        rolled back: Squall has written the values to the disk, for the version that returns).
    component, task: the bolt and its task that failed or held the tuple, None if not known.
    error: the text of the error or the reason given to `fail` or FailTuple; None if there is none.
    attempts: how many times the values were emitted, including the first time.
    """

    reason: str
    component: str | None = None
    task: int | None = None
    error: str | None = None
    attempts: int = 1


@dataclass(frozen=True)
class Replay:
    """How the runtime emits failed trees again: the value of `Spout.replay`.

    max_attempts: how many failures may count against a tuple (an int >= 1); None: it is tried again without end. With
        `topology.on.outage: give-up` every failure counts, so this is the number of emissions, including the first.
    first_delay: seconds between the first failure and the second emission; later delays double.
    max_delay: the longest delay in seconds.
    Raises InvalidConfig with all problems if a value is invalid.
    """

    max_attempts: int | None = 3
    first_delay: float = 1.0
    max_delay: float = 60.0

    def __post_init__(self) -> None:
        problems = []
        attempts = self.max_attempts
        if attempts is not None and (type(attempts) is not int or not 1 <= attempts <= _MAX_ATTEMPTS):
            problems.append(
                f"max_attempts is {typed(attempts)}: give an int from 1 to {_MAX_ATTEMPTS} (1 = no replay), or None for no "
                "limit"
            )
        for name in ("first_delay", "max_delay"):
            if problem := number_problem(getattr(self, name), 0, MAX_SECONDS, "seconds"):
                problems.append(f"{name} {problem}")
        if not problems and self.max_delay < self.first_delay:
            problems.append(
                f"max_delay ({self.max_delay!r} s) is shorter than first_delay ({self.first_delay!r} s)"
            )
        if problems:
            raise InvalidConfig(problems, "a Replay")


def number_problem(value: object, low: float, high: float, unit: str, *, above: bool = False) -> str | None:
    """Return why a value is not a number of `unit` within the bounds, or None. above: the lower bound itself is excluded."""
    bounds = f"more than {low}" if above else f"at least {low}"
    what = f"give a number of {unit}, {bounds} and at most {high}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"is {typed(value)}: {what}, without a unit"
    if not low <= value <= high or (above and value == low):  # a comparison with nan is false
        return f"is {shown(value)}: {what}"
    return None
