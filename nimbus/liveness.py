"""Which supervisors are silent: signs of life and the clock in, the answer out.

A supervisor is judged by its signs when it says that it gives them (`SupervisorRecord.beats`), or has given
one. Its silence is counted only while Nimbus itself was there to hear: after a time in which it was not (a
frozen process, a laptop that slept) everybody has a moment to be heard again before anybody is given up.
Must not know: the store, what happens to a supervisor that is silent.
"""

from __future__ import annotations

from collections.abc import Iterable

from squall.cluster.records import SupervisorRecord

GRACE = 0.25
"""The part of the time-out for which Nimbus may be away before that counts, and that is granted after it."""


class SignsOfLife:
    """When each supervisor was last heard."""

    def __init__(self, timeout_secs: float, now: float) -> None:
        self._timeout = timeout_secs
        self._grace = timeout_secs * GRACE
        self._last: dict[str, float] = {}
        self._awake = now

    def awake(self, now: float) -> None:
        """Nimbus is there and hears; to be said before anything else at each moment."""
        if now - self._awake > self._grace:
            latest = now - self._timeout + self._grace
            self._last = {supervisor: max(last, latest) for supervisor, last in self._last.items()}
        self._awake = now

    def heard(self, supervisor: str, now: float) -> bool:
        """A supervisor gave a sign of life; whether it is the first."""
        first = supervisor not in self._last
        self._last[supervisor] = now
        return first

    def silent(self, supervisors: Iterable[SupervisorRecord], now: float) -> list[SupervisorRecord]:
        """Those of the supervisors that are there by their record, and have been silent for too long."""
        there = {record.id: record for record in supervisors}
        self._last = {supervisor: last for supervisor, last in self._last.items() if supervisor in there}
        for record in there.values():
            if record.beats:
                self._last.setdefault(record.id, now)
        return [there[supervisor] for supervisor, last in self._last.items() if now >= last + self._timeout]

    @property
    def due(self) -> float | None:
        """When the next one will have been silent for too long."""
        return min(self._last.values()) + self._timeout if self._last else None
