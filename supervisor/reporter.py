"""Tells Nimbus what it does not know yet: what workers say of themselves, their counters, and that we are there.

A report is sent while the store has another one; one that was refused, or did not arrive, is sent again after a second.
Nimbus may be away: what it could not be told is told later, and nothing here fails for it.
Must not know: processes, the plan.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, Protocol

from squall.cluster.records import Placement, WorkerReport
from squall.worker_files import Incarnation
from supervisor.plan import Key
from supervisor.wanted import TopologyView
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds after which something that was not taken is said again.
AGAIN: Final = 1.0


class NimbusLink(Protocol):
    """How a supervisor speaks to Nimbus."""

    def report(self, name: str, worker: str, report: WorkerReport) -> bool:
        """What a worker of the topology `name` says; False: nobody wants that worker (any more)."""

    def count(self, topology_id: str, worker: str, incarnation: Incarnation, counters: bytes) -> None:
        """The cumulative counters of a worker's incarnation."""

    def heard(self, supervisor_id: str) -> None:
        """The supervisor is there."""


class Reporter:
    """Speaks to Nimbus for one supervisor."""

    def __init__(self, nimbus: NimbusLink, supervisor: str) -> None:
        self._nimbus = nimbus
        self._supervisor = supervisor
        self._sent: dict[Key, tuple[WorkerReport, float]] = {}

    def heard(self) -> None:
        """Say that the supervisor is there."""
        self._say(lambda: self._nimbus.heard(self._supervisor))

    def counters(self, key: Key, incarnation: Incarnation, counters: bytes) -> None:
        """Pass on the counters of a worker."""
        self._say(lambda: self._nimbus.count(*key, incarnation, counters))

    def report(self, view: TopologyView, report: WorkerReport, now: float) -> None:
        """Tell of a worker, if the store does not have it so and it was not told a moment ago."""
        key = (view.record.id, report.worker)
        if view.reports.get(report.worker) == report:
            return
        sent = self._sent.get(key)
        if sent is not None and sent[0] == report and now < sent[1] + AGAIN:
            return
        self._sent[key] = (report, now)
        self._say(lambda: self._nimbus.report(view.record.name, report.worker, report))

    def gone(self, view: TopologyView, place: Placement, now: float) -> None:
        """Tell of a worker that was withdrawn, and is gone or was never here: nobody need wait for it."""
        last = view.reports.get(place.worker)
        if last is not None and last.incarnation[0] == place.incarnation[0]:
            report = replace(last, stopped=True)
        else:
            report = WorkerReport(place.worker, place.incarnation, False, False, False, True, None)
        self.report(view, report, now)

    def forget(self, key: Key) -> None:
        """A worker is gone for good, and was told so."""
        self._sent.pop(key, None)

    def keep(self, topology_ids: Collection[str]) -> None:
        """All other topologies are no more."""
        for key in [key for key in self._sent if key[0] not in topology_ids]:
            del self._sent[key]

    def _say(self, say: Callable[[], object]) -> None:
        try:
            say()
        except (SquallError, OSError) as error:
            _log.warning("supervisor %s cannot reach Nimbus: %s", self._supervisor, error)
