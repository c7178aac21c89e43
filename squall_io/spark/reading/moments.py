"""Time ranges as users give them, which limit a read to a range of commits.

The name of this module is in pickles of CommittedRows. Must not know: tables, Spark.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from topology_api import SquallError

#: The forms that users may give: an aware datetime, ISO text with a zone, or seconds since 1970.
Moment = datetime | str | int | float


class WrongMoment(SquallError):
    """A moment that is invalid or ambiguous."""


@dataclass(frozen=True)
class Span:
    """The times from `since` (included) to `until` (excluded), in seconds since 1970; None: no limit."""

    since: float | None = None
    until: float | None = None

    @classmethod
    def of(cls, since: Moment | None, until: Moment | None) -> Span:
        """Return the range between two moments. Raises `WrongMoment`."""
        span = cls(
            None if since is None else seconds_of(since, "since"),
            None if until is None else seconds_of(until, "until"),
        )
        if span.since is not None and span.until is not None and span.since > span.until:
            raise WrongMoment(f"since ({since!r}) is later than until ({until!r}): nothing lies between them")
        return span

    def holds(self, seconds: float) -> bool:
        """Return whether a moment is in the range."""
        return not self.is_after(seconds) and (self.until is None or seconds < self.until)

    def is_after(self, seconds: float) -> bool:
        """Return whether the range begins after a moment."""
        return self.since is not None and seconds < self.since

    def __bool__(self) -> bool:
        return self != ALWAYS


#: The range without limits.
ALWAYS: Final = Span()


def seconds_of(moment: Moment, name: str) -> float:
    """Return a moment in seconds since 1970. Raises `WrongMoment`, which names the argument and the problem."""
    if isinstance(moment, str):
        return _seconds_in(moment, name)
    if isinstance(moment, datetime):
        return _seconds_at(moment, repr(moment), name)
    if isinstance(moment, bool) or not isinstance(moment, (int, float)) or not math.isfinite(moment):
        raise WrongMoment(
            f"{name} is {moment!r}: give a datetime with its tzinfo, ISO text with its zone"
            " ('2026-03-01T12:00:00+01:00'), or seconds since 1970"
        )
    return float(moment)


def _seconds_in(text: str, name: str) -> float:
    with suppress(ValueError):
        return seconds_of(float(text), name)
    plain = text.strip()
    if plain[-1:] in "zZ" and plain:  # Python 3.10 does not read the "Z"
        plain = f"{plain[:-1]}+00:00"
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        raise WrongMoment(
            f"{name} is {text!r}, which is not a moment: write it as '2026-03-01T12:00:00+01:00' or"
            " '2026-03-01T11:00:00Z', or give seconds since 1970"
        ) from None
    return _seconds_at(moment, repr(text), name)


def _seconds_at(moment: datetime, given: str, name: str) -> float:
    if moment.tzinfo is None or moment.utcoffset() is None:
        meant = moment.replace(tzinfo=timezone.utc).isoformat()
        raise WrongMoment(f"{name} is {given}, which has no time zone: give one, as in {meant!r}")
    return moment.timestamp()
