"""The counters of one topology: the latest of each worker, and the sums of workers that have ended.

Must not know: how counters come here, who asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from squall.cluster.counters import ComponentCounters, WorkerCounters
from squall.reports.error_reports import KEPT, ErrorReport, folded
from squall.values import Incarnation


@dataclass
class Counted:
    """The counters of one topology."""

    #: The latest counters of each worker.
    workers: dict[str, tuple[Incarnation, WorkerCounters]] = field(default_factory=dict)
    #: Sums of the incarnations that are gone, and their latest errors; whose they are: worker -> its latest that is in them.
    base: dict[str, ComponentCounters] = field(default_factory=dict)
    reports: dict[str, deque[ErrorReport]] = field(default_factory=dict)
    folded: dict[str, Incarnation] = field(default_factory=dict)

    def count(self, worker: str, incarnation: Incarnation, counters: WorkerCounters) -> None:
        """Add the counters of a worker, unless later ones are known."""
        if incarnation <= self.folded.get(worker, Incarnation(-1, -1)):
            return
        last = self.workers.get(worker)
        if last is not None:
            if incarnation < last[0] or (incarnation == last[0] and counters.number < last[1].number):
                return
            if incarnation > last[0]:
                self.fold(worker)
        self.workers[worker] = incarnation, counters

    def fold(self, worker: str) -> None:
        """Add the sums of an incarnation that has ended to the base, and forget its state."""
        incarnation, counters = self.workers.pop(worker)
        self.folded[worker] = incarnation
        for component, done in counters.components.items():
            self.base.setdefault(component, ComponentCounters()).add(done)
        for component in dict.fromkeys(report.component for report in counters.reports):
            own = [report for report in counters.reports if report.component == component]
            self.reports[component] = deque(folded([*self.reports.get(component, ()), *own]), maxlen=KEPT)

    def totals(self, component: str, living: Collection[tuple[str, Incarnation]]) -> ComponentCounters:
        """Return all that a component has done, and the present state as far as the `living` report it.

        When none lives, how it was at the end: trees of a worker that was killed never had a verdict.
        """
        totals = ComponentCounters()
        if component in self.base:
            totals.add(self.base[component])
        for worker, (incarnation, counters) in self.workers.items():
            here = counters.components.get(component)
            if here is None:
                continue
            totals.add(here)
            if not living or (worker, incarnation) in living:
                totals.add_present(here)
        if not living:
            totals.idle.clear()
        return totals

    def has_emitted(self) -> bool:
        """Return whether any task has ever emitted anything."""
        latest = (counters.components for _, counters in self.workers.values())
        return any(done.emitted for components in (self.base, *latest) for done in components.values())

    def latest_reports(self) -> tuple[ErrorReport, ...]:
        """Return the latest errors of all workers, the oldest first; one that recurs at each restart is listed once."""
        found = [report for reports in self.reports.values() for report in reports]
        found += [report for _, counters in self.workers.values() for report in counters.reports]
        return tuple(folded(found))
