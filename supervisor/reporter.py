"""Sends Nimbus the reports that it does not have yet: the state of workers, their counters, and heartbeats.

A report is sent if it differs from the worker's report in the store. A report that was refused or lost is sent again after a
second. While Nimbus is away no call fails, and reports are sent later.
Must not know: processes, the plan.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Protocol

from msgspec.structs import replace

from squall.cluster.records import Placement, WorkerReport
from squall.values import Incarnation
from supervisor.desired_state import TopologyView
from supervisor.plan import Key
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)


class NimbusLink(Protocol):
    """How a supervisor sends messages to Nimbus."""

    def report(self, name: str, worker: str, report: WorkerReport) -> bool:
        """Report a worker of the topology `name`; return False if no such worker is wanted (any more)."""

    def count(self, topology_id: str, worker: str, incarnation: Incarnation, counters: bytes) -> None:
        """Send the cumulative counters of a worker's incarnation."""

    def heard(self, supervisor_id: str) -> None:
        """Send a heartbeat of the supervisor."""


class Reporter:
    """The reports of one supervisor."""

    def __init__(self, nimbus: NimbusLink, supervisor: str, repeat: float = 1.0) -> None:
        """`repeat`: seconds after which a report that was not accepted is sent again."""
        self._nimbus = nimbus
        self._repeat = repeat
        self._supervisor = supervisor
        self._sent: dict[Key, tuple[WorkerReport, float]] = {}

    def heard(self) -> None:
        """Send a heartbeat."""
        self._say(lambda: self._nimbus.heard(self._supervisor))

    def counters(self, key: Key, incarnation: Incarnation, counters: bytes) -> None:
        """Pass on the counters of a worker."""
        self._say(lambda: self._nimbus.count(*key, incarnation, counters))

    def report(self, view: TopologyView, report: WorkerReport, now: float) -> None:
        """Send a worker's report, unless the store already has the report, or it was sent a moment ago."""
        key = (view.record.id, report.worker)
        if view.reports.get(report.worker) == report:
            return
        sent = self._sent.get(key)
        if sent is not None and sent[0] == report and now < sent[1] + self._repeat:
            return
        self._sent[key] = (report, now)
        self._say(lambda: self._nimbus.report(view.record.name, report.worker, report))

    def gone(self, view: TopologyView, place: Placement, now: float) -> None:
        """Report that a withdrawn worker is gone, or was never here, so that nothing waits for it."""
        report = view.reports.get(place.worker)
        if report is None or report.incarnation.version != place.incarnation.version:
            report = WorkerReport(place.worker, place.incarnation, False, False, False, True, None)
        self.report(view, replace(report, stopped=True), now)

    def forget(self, key: Key) -> None:
        """Forget a worker that has left."""
        self._sent.pop(key, None)

    def keep(self, topology_ids: Collection[str]) -> None:
        """Forget the reports of all topologies that are not in `topology_ids`."""
        for key in [key for key in self._sent if key[0] not in topology_ids]:
            del self._sent[key]

    def _say(self, say: Callable[[], object]) -> None:
        try:
            say()
        except (SquallError, OSError) as error:
            _log.warning("supervisor %s cannot reach Nimbus: %s", self._supervisor, error)
