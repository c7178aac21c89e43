"""The steps that are due for one topology, carried out: events, placement, moves, removal.

Must not know: when topologies are looked at, commands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from nimbus.counters.counting import Counters, components_of
from nimbus.leader.orphans import OrphanSweep
from nimbus.lifecycle import progress, rebalancing
from nimbus.lifecycle.assigning import Assigner, TopologyKeys
from nimbus.lifecycle.cleanup import existing_record
from nimbus.lifecycle.notes import lost_hosts, with_events
from nimbus.lifecycle.progress import LifecycleView
from nimbus.lifecycle.replacing import Replacements
from nimbus.lifecycle.states import ACTIVE, INACTIVE, KILLED, REBALANCING, REPLACING, step
from nimbus.lifecycle.transition import forget_drains, message_timeout, transition
from nimbus.placement.placing import withdrawn
from nimbus.placement.supervisors import Supervisors
from squall.cluster.blobs import BadBlob, get_description
from squall.cluster.records import TopologyRecord
from squall.cluster.registry import Registry

_log = logging.getLogger(__name__)


class TopologySteps:
    """Carries out what is due. `now` is the leader's clock, `wall_clock` gives seconds since 1970."""

    def __init__(
        self,
        registry: Registry,
        assigner: Assigner,
        replacements: Replacements,
        supervisors: Supervisors,
        counters: Counters,
        keys: TopologyKeys | None,
        sweep: OrphanSweep,
        wall_clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._assigner = assigner
        self._replacements = replacements
        self._supervisors = supervisors
        self._counters = counters
        self._keys = keys
        self._sweep = sweep
        self._wall_clock = wall_clock

    def advance(self, record: TopologyRecord, now: float) -> bool:
        """Take the step of its lifecycle that is due; return whether other topologies may have a step due because of it."""
        view = self.view(record)
        if self._forget_gone(view):
            view = self.view(record)
        # A step of a replacement leaves something of a version behind, even if it fails.
        sweep_at, self._sweep.due = self._sweep.due, now
        if self._replacements.advance(view, now):
            return True
        self._sweep.due = sweep_at
        event = progress.event_due(view, now)
        if event == "remove":
            self._remove(view, now)
        elif event == "rebalanced":
            self._finish_rebalance(view)
        elif event == "crash":
            transition(self._registry, record, event, self._wall_clock(), error=progress.crash_of(view))
        elif event is not None:
            transition(self._registry, record, event, self._wall_clock())
        elif progress.must_leave(view, now):
            self._assigner.withdraw(view)
        return False

    def place(self, record: TopologyRecord, now: float) -> None:
        """Place the tasks of a running topology that run nowhere."""
        if record.state in (ACTIVE, INACTIVE):
            view = self.view(record)
            lost = lost_hosts(view.workers, self._supervisors.given_up, self._supervisors.timeout_secs)
            self._assigner.place(view, with_events(record, lost, self._wall_clock()) if lost else record)

    def leave_drained(self, record: TopologyRecord, now: float) -> None:
        """Move a topology away from drained supervisors if there is another place for it."""
        if self._assigner.must_move(record):
            self._move(record, now, "it leaves drained supervisors")

    def spread_again(self, record: TopologyRecord, now: float) -> None:
        """Rebalance a topology that was squeezed into too few slots once there are more."""
        if record.state in (ACTIVE, INACTIVE) and self._assigner.is_squeezed(record):
            self._move(record, now, "there are slots again for more workers than it has")

    def _move(self, record: TopologyRecord, now: float, reason: str) -> None:
        """Rebalance a topology unasked, unless another one is moving and may take the same slots."""
        moving = any(other.state in (REBALANCING, REPLACING) for other in self._registry.all_topologies())
        if not moving and record.state in (ACTIVE, INACTIVE) and record.replaces is None:
            _log.info("%s: %s", record.name, reason)
            wait = message_timeout(record)
            transition(
                self._registry, record, "rebalance", self._wall_clock(), deadline=now + wait, wait=wait
            )

    def view(self, record: TopologyRecord) -> LifecycleView:
        """Return all that is known of a topology at this moment."""
        return LifecycleView(
            record,
            self._registry.assignments.get(record.id),
            self._registry.leaving.get(record.id),
            self._registry.reports(record.id),
            self._assigner.supervisors.keys(),
            self._counters.silent(record.id) if record.state in (KILLED, REBALANCING, REPLACING) else None,
        )

    def _forget_gone(self, view: LifecycleView) -> bool:
        """Forget the withdrawn workers that are gone, and their reports; return whether there were any."""
        stay = progress.still_there(view)
        if view.leaving is None or stay == view.withdrawn:
            return False
        for placement in withdrawn(view.withdrawn, (*stay, *view.workers)):
            if view.report_of(placement) is not None:
                self._registry.remove_report(view.record.id, placement.worker)
            if view.record.state in (ACTIVE, INACTIVE, REBALANCING, REPLACING):
                self._counters.replaced(view.record.id, placement.worker, placement.incarnation.version)
        self._registry.leaving.write(replace(view.leaving, placements=stay))
        return True

    def _remove(self, view: LifecycleView, now: float) -> None:
        record = view.record
        step(record.state, "remove", name=record.name)
        try:
            description = get_description(self._registry.store, record.id)
            self._counters.close(record, components_of(description))
        except BadBlob as error:  # the topology is removed all the same
            _log.warning("%s: its final counters are lost: %s", record.name, error)
        if self._replacements.drop(record.name):
            self._sweep.due = now
        if self._keys is not None:
            self._keys.forget(record.id)
        self._registry.remove_all_of(record.id)
        self._registry.topologies.remove(record)
        _log.info("%s: gone, the name is free", record.name)

    def _finish_rebalance(self, view: LifecycleView) -> None:
        """Number the tasks again, place all of them as if they were new, then go back to the state before."""
        self._assigner.place_all(view, rebalancing.renumbered(view.record))
        forget_drains(self._registry, view.record.id, view.workers)
        record = existing_record(self._registry, view.record.name)
        transition(self._registry, record, "rebalanced", self._wall_clock())
