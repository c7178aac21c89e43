"""The supervisors as the master hears them: who is silent for too long is given up, and is there again when it is heard.

Silence alone decides that, never a record that cannot be read: its supervisor writes it anew as soon as it can.
Must not know: slots, what happens to the tasks of a supervisor that is given up.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from nimbus.liveness import SignsOfLife
from squall.cluster.records import SupervisorRecord
from squall.cluster.registry import Registry

_log = logging.getLogger(__name__)


class Hosts:
    """One thread, but for `given_up`."""

    def __init__(self, registry: Registry, timeout_secs: float, now: float) -> None:
        self._registry = registry
        self.timeout_secs = timeout_secs
        self._signs = SignsOfLife(timeout_secs, now)
        self._given_up: dict[str, SupervisorRecord] = {}

    def awake(self, now: float) -> None:
        """Nimbus is there and hears; to be said before anything else at each moment."""
        self._signs.awake(now)

    def heard(self, supervisor_id: str, now: float) -> bool:
        """Take a sign of life; whether it is news: the first, or that of one that was given up."""
        self._signs.awake(now)
        first = self._signs.heard(supervisor_id, now)
        record = self._given_up.get(supervisor_id)
        if record is None:
            return first
        if all(other.id != record.id for other in self._registry.supervisors()):
            self._registry.save_supervisor(record)
            _log.info("supervisor %s: heard again", supervisor_id)
        del self._given_up[supervisor_id]
        return True

    def give_up(self, there: Iterable[SupervisorRecord], unread: Collection[str], now: float) -> bool:
        """Remove those that have not been heard for too long; whether there were any. `unread`: whose records cannot be read,
        so that there is nothing to put there again."""
        silent = self._signs.silent(there, now)
        for record in silent:
            if record.id not in unread:
                self._given_up[record.id] = record
            self._registry.remove_supervisor(record.id)
            _log.warning("supervisor %s: not heard for too long, its tasks go elsewhere", record.id)
        return bool(silent)

    def given_up(self, supervisor_id: str) -> SupervisorRecord | None:
        """The record of a supervisor that is given up for its silence."""
        return self._given_up.get(supervisor_id)

    @property
    def due(self) -> float | None:
        """When the next one will have been silent for too long."""
        return self._signs.due
