"""The supervisors as Nimbus hears them: one that is silent for too long is given up, and is back when it is heard again.

A supervisor is judged by its heartbeats when its record says that it sends them (`SupervisorRecord.beats`), or when one has
come. Its silence counts only while Nimbus itself could hear: after a pause (a frozen process, a laptop that slept) every
supervisor gets a moment to be heard before any is given up. Silence alone decides that, never a record that cannot be
read: its supervisor writes it again as soon as it can.
Must not know: slots, what happens to the tasks of a supervisor that is given up.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from squall.cluster.records import SupervisorRecord
from squall.cluster.registry import Registry

_log = logging.getLogger(__name__)

GRACE = 0.25
"""The part of the timeout for which Nimbus may be away before that counts, and that is granted after it."""


class SupervisorHeartbeats:
    """When each supervisor was last heard."""

    def __init__(self, timeout_secs: float, now: float) -> None:
        self._timeout = timeout_secs
        self._grace = timeout_secs * GRACE
        self._last: dict[str, float] = {}
        self._ticked = now

    def tick(self, now: float) -> None:
        """Note that Nimbus can hear. Call once per round before anything else."""
        if now - self._ticked > self._grace:
            latest = now - self._timeout + self._grace
            self._last = {supervisor: max(last, latest) for supervisor, last in self._last.items()}
        self._ticked = now

    def heard(self, supervisor: str, now: float) -> bool:
        """Take a heartbeat; return whether it is the supervisor's first."""
        first = supervisor not in self._last
        self._last[supervisor] = now
        return first

    def silent(self, supervisors: Iterable[SupervisorRecord], now: float) -> list[SupervisorRecord]:
        """Return those of the registered supervisors that have been silent for too long."""
        registered = {record.id: record for record in supervisors}
        self._last = {supervisor: last for supervisor, last in self._last.items() if supervisor in registered}
        for record in registered.values():
            if record.beats:
                self._last.setdefault(record.id, now)
        return [
            registered[supervisor] for supervisor, last in self._last.items() if now >= last + self._timeout
        ]

    @property
    def due(self) -> float | None:
        """When the next supervisor will have been silent for too long."""
        return min(self._last.values()) + self._timeout if self._last else None


class Supervisors:
    """The supervisors that are registered, or were given up. One thread, except for `given_up`."""

    def __init__(self, registry: Registry, timeout_secs: float, now: float) -> None:
        self._registry = registry
        self.timeout_secs = timeout_secs
        self._heartbeats = SupervisorHeartbeats(timeout_secs, now)
        self._given_up: dict[str, SupervisorRecord] = {}

    def tick(self, now: float) -> None:
        """Note that Nimbus can hear. Call once per round before anything else."""
        self._heartbeats.tick(now)

    def heard(self, supervisor_id: str, now: float) -> bool:
        """Take a heartbeat; return whether it is news: a supervisor's first, or the first since it was given up."""
        self._heartbeats.tick(now)
        first = self._heartbeats.heard(supervisor_id, now)
        record = self._given_up.get(supervisor_id)
        if record is None:
            return first
        if all(other.id != record.id for other in self._registry.all_supervisors()):
            self._registry.supervisors.put(record)
            _log.info("supervisor %s: heard again", supervisor_id)
        del self._given_up[supervisor_id]
        return True

    def give_up(self, registered: Iterable[SupervisorRecord], unread: Collection[str], now: float) -> bool:
        """Remove those that were silent for too long; return whether there were any. `unread`: ids whose records cannot be
        read, so that there is nothing to restore."""
        silent = self._heartbeats.silent(registered, now)
        for record in silent:
            if record.id not in unread:
                self._given_up[record.id] = record
            self._registry.supervisors.drop(record.id)
            _log.warning("supervisor %s: not heard for too long, its tasks go elsewhere", record.id)
        return bool(silent)

    def given_up(self, supervisor_id: str) -> SupervisorRecord | None:
        """Return the record of a supervisor that was given up for its silence."""
        return self._given_up.get(supervisor_id)

    @property
    def due(self) -> float | None:
        """When the next supervisor will have been silent for too long."""
        return self._heartbeats.due
