"""When the store is swept of what belongs to no topology, and how long that is put off.

Must not know: what an orphan is (`nimbus.lifecycle.cleanup`).
"""

from __future__ import annotations

from nimbus.counters.counting import Counters
from nimbus.lifecycle.assigning import TopologyKeys
from nimbus.lifecycle.cleanup import sweep_orphans
from nimbus.lifecycle.replacing import Replacements
from squall.cluster.registry import Registry

#: Seconds until leftovers of a failed submission are swept: by then it is known whether it was accepted after all.
SWEEP_AFTER = 30.0


class OrphanSweep:
    """Sweeps when it is due."""

    def __init__(
        self, registry: Registry, replacements: Replacements, counters: Counters, keys: TopologyKeys | None
    ) -> None:
        self._registry = registry
        self._replacements = replacements
        self._counters = counters
        self._keys = keys
        #: When the next sweep is due; None: there is nothing to sweep.
        self.due: float | None = None

    def put_off(self, now: float) -> float:
        """Sweep a while later, since a write that failed may still arrive; return when."""
        self.due = now + SWEEP_AFTER
        return self.due

    def run(self, now: float) -> None:
        """Remove what belongs to no topology."""
        records, bad = self._registry.all_topologies(), set(self._registry.bad)
        self._replacements.drop_nameless({record.name for record in records} | bad)
        known = {record.id for record in records} | self._replacements.ids()
        unread = self._replacements.unread() | bad
        sweep_orphans(self._registry, self._keys, known, unread)
        self._counters.keep(known, unread)
        # What may belong to a topology that cannot be read is swept once that topology can be read.
        self.due = now + SWEEP_AFTER if unread else None
