"""Follows supervisors by their heartbeats: a supervisor that is silent for too long is given up; its next heartbeat restores
it.

Heartbeats are expected of a supervisor if its record says that it sends them (`SupervisorRecord.beats`), or after its first
heartbeat. A supervisor's silence is counted only while Nimbus itself could receive heartbeats: after a pause of Nimbus (a
frozen process, a laptop that slept) every supervisor gets a moment to be heard before any supervisor is given up. While
connections to Nimbus are closed because there are too many, a supervisor may be unable to reach it: a silent supervisor is then
kept as long as it is present in the store. A record that
cannot be read is no reason to give a supervisor up: the supervisor writes its record again as soon as it can.
Must not know: slots, the tasks of a supervisor that is given up or drained.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from squall.cluster import paths
from squall.cluster.records import SupervisorRecord
from squall.cluster.registry import Registry
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: The grace period, as a fraction of the timeout. If more than this time passes between two ticks, Nimbus has paused; after a
#: pause, each supervisor has at least this time to send a heartbeat.
GRACE = 0.25


class Supervisors:
    """The supervisors that are registered, or were given up. Used by one thread; other threads may read only `given_up`."""

    def __init__(
        self, registry: Registry, timeout_secs: float, now: float, turned_away: Callable[[], int] = int
    ) -> None:
        """`turned_away`: the number of connections to Nimbus that were closed because there were too many."""
        self._registry, self._turned_away = registry, turned_away
        self._count = turned_away()
        #: Until when a supervisor that is present is not given up.
        self._crowded_until = now
        self._kept: set[str] = set()
        #: The records of supervisors that were given up because they were silent, by id.
        self.given_up: dict[str, SupervisorRecord] = {}
        self.timeout_secs = timeout_secs
        self._grace = timeout_secs * GRACE
        #: The time of each supervisor's last heartbeat.
        self._last: dict[str, float] = {}
        self._ticked = now

    def tick(self, now: float) -> None:
        """Record that Nimbus can receive heartbeats now. Call once per round before anything else."""
        if now - self._ticked > self._grace:
            latest = now - self.timeout_secs + self._grace
            self._last = {supervisor: max(last, latest) for supervisor, last in self._last.items()}
        self._ticked = now
        count = self._turned_away()
        if count != self._count:
            self._count, self._crowded_until = count, now + self.timeout_secs

    def silent(self, supervisors: Iterable[SupervisorRecord], now: float) -> list[SupervisorRecord]:
        """Return the registered supervisors that have been silent for too long."""
        registered = {record.id: record for record in supervisors}
        self._last = {supervisor: last for supervisor, last in self._last.items() if supervisor in registered}
        for record in registered.values():
            if record.beats:
                self._last.setdefault(record.id, now)
        return [
            registered[supervisor]
            for supervisor, last in self._last.items()
            if now >= last + self.timeout_secs
        ]

    @property
    def due(self) -> float | None:
        """The time at which the next supervisor will have been silent for too long."""
        return min(self._last.values()) + self.timeout_secs if self._last else None

    def heard(self, supervisor: str, now: float) -> bool:
        """Record a heartbeat; return whether it is news: the supervisor's first heartbeat, or its first since it was given
        up."""
        self.tick(now)
        first = supervisor not in self._last
        self._last[supervisor] = now
        self._kept.discard(supervisor)
        record = self.given_up.get(supervisor)
        if record is None:
            return first
        if all(other.id != record.id for other in self._registry.all_supervisors()):
            self._registry.supervisors.put(record)
            _log.info("supervisor %s: heard again", supervisor)
        del self.given_up[supervisor]
        return True

    def give_up(self, registered: Iterable[SupervisorRecord], unread: Collection[str], now: float) -> bool:
        """Remove supervisors that were silent for too long; return whether there were any. `unread`: the ids of supervisors
        whose records cannot be read; these supervisors could not be restored, so `given_up` leaves them out.
        """
        silent = [record for record in self.silent(registered, now) if not self._is_shut_out(record.id, now)]
        for record in silent:
            if record.id not in unread:
                self.given_up[record.id] = record
            self._registry.supervisors.drop(record.id)
            _log.warning(
                "supervisor %s: no heartbeat for too long, its tasks move to other supervisors", record.id
            )
        return bool(silent)

    def _is_shut_out(self, supervisor: str, now: float) -> bool:
        """Return whether a silent supervisor may be unable to reach Nimbus; if so, it is asked about again after a while."""
        present = (
            now < self._crowded_until and self._registry.store.get(paths.presence(supervisor)) is not None
        )
        if not present:
            self._kept.discard(supervisor)
            return False
        self._last[supervisor] = now - self.timeout_secs + self._grace
        if supervisor not in self._kept:
            self._kept.add(supervisor)
            _log.warning(
                "supervisor %s: no heartbeat for too long, but it is present in the store, and connections to this Nimbus are"
                " closed because there are too many: its tasks stay",
                supervisor,
            )
        return True


class NoSuchSupervisor(SquallError):
    """No supervisor has this id."""


def set_drained(registry: Registry, supervisor_id: str, on: bool) -> None:
    """Drain a supervisor: it gets no new work, so that its host can be taken down. If `on` is False, let it get new work again.

    Raises `NoSuchSupervisor` for an unknown supervisor. A drained supervisor that is gone can be undrained.
    """
    drained = supervisor_id in registry.drained_supervisors()
    if not drained:
        there = {record.id for record in registry.all_supervisors()} | registry.unread_supervisors
        if supervisor_id not in there:
            raise NoSuchSupervisor(
                f"there is no supervisor {supervisor_id!r}: `squall supervisors` lists all of them"
            )
    if on and not drained:
        registry.save_drained(supervisor_id)
        _log.info("supervisor %s: gets no new work; the tasks that run there move away", supervisor_id)
    elif drained and not on:
        registry.remove_drained(supervisor_id)
        _log.info("supervisor %s: may get work again", supervisor_id)
