"""Carries out the steps that are due for one topology: events, placement, moves, removal; and the sweep that follows.

The sweep removes orphans: values of a topology that has no record, because its submission was never finished or the topology
was removed. Of an earlier version that is kept (`nimbus.lifecycle.versions`), only the bundle stays. Values of a topology whose
record cannot be read are not orphans.
Must not know: commands, when a topology's steps are checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from nimbus.counters.counting import Components, Counters, components_of
from nimbus.counters.ended import EndedVersions
from nimbus.lifecycle import progress, rebalancing
from nimbus.lifecycle.assigning import Assigner
from nimbus.lifecycle.cleanup import existing_record, remove_all_of, view_of
from nimbus.lifecycle.notes import lost_hosts, with_events
from nimbus.lifecycle.progress import LifecycleView
from nimbus.lifecycle.replacing import Replacements, every_record
from nimbus.lifecycle.states import INACTIVE, KILLED, REBALANCING, REPLACING, RUNNING, step
from nimbus.lifecycle.transition import forget_drains, message_timeout, transition
from nimbus.lifecycle.trial import NO_TRIAL, Evidence, Trial, observed, with_start
from nimbus.lifecycle.versions import EarlierVersions
from nimbus.placement.supervisors import Supervisors
from nimbus.submission.keeping import has_state
from squall.cluster import paths
from squall.cluster.blobs import BadBlob, get_description
from squall.cluster.records import TopologyRecord
from squall.cluster.registry import Registry, name_of

_log = logging.getLogger(__name__)

#: Seconds until leftovers of a failed submission are swept: by then it is certain whether the submission was accepted.
SWEEP_AFTER: Final = 30.0


@dataclass(eq=False, repr=False)
class TopologySteps:
    """Carries out the steps that are due. `now` is a time on the leader's clock, `wall_clock` gives seconds since 1970."""

    registry: Registry
    assigner: Assigner
    replacements: Replacements
    supervisors: Supervisors
    counters: Counters
    wall_clock: Callable[[], float]
    ended: EndedVersions
    versions: EarlierVersions
    #: The time at which the next sweep is due; None: there is nothing to sweep.
    sweep_at: float | None = None
    #: What is known of the versions on trial, by their id.
    trials: dict[str, Trial] = field(default_factory=dict, init=False)
    #: Their components.
    _components: dict[str, Components] = field(default_factory=dict, init=False)

    def advance(self, record: TopologyRecord, now: float) -> bool:
        """Take the step of a topology's lifecycle that is due. Return whether this may have made steps of other topologies
        due."""
        view = self.view(record)
        if self._forget_gone(view):
            view = self.view(record)
        view = self._on_trial(view, now)
        if progress.awaits_commit(record) and (epoch := self.counters.committed(record.id)):
            self.registry.topologies.update(record, replace(record, committed=epoch))
            return False  # the record is marked as changed
        # Every step of a replacement, even a failed step, leaves values of a version behind.
        sweep_at, self.sweep_at = self.sweep_at, now
        if self.replacements.advance(view, now):
            return True
        self.sweep_at = sweep_at
        event = progress.event_due(view, now)
        if event == "remove":
            self._remove(view, now)
        elif event == "rebalanced":
            self._finish_rebalance(view)
        elif event == "crash":
            transition(self.registry, record, event, self.wall_clock(), error=progress.crash_of(view))
        elif event is not None:
            transition(self.registry, record, event, self.wall_clock())
        elif progress.must_leave(view, now):
            self.assigner.withdraw(view)
        elif record.state in RUNNING and self.assigner.gives_up(view):
            _log.warning("%s: its tasks leave hosts that cannot start workers", record.name)
            self.assigner.place(view, record)
        return False

    def place(self, record: TopologyRecord, now: float) -> None:
        """Place those tasks of a running topology that no worker runs."""
        if record.state in RUNNING:
            view = self.view(record)
            lost = lost_hosts(view.workers, self.supervisors.given_up.get, self.supervisors.timeout_secs)
            self.assigner.place(view, with_events(record, lost, self.wall_clock()) if lost else record)

    def leave_drained(self, record: TopologyRecord, now: float) -> None:
        """Move a topology away from drained supervisors if there is another place for it."""
        if self.assigner.must_move(record):
            self._move(record, now, "it leaves drained supervisors")

    def spread_again(self, record: TopologyRecord, now: float) -> None:
        """Rebalance a topology that was squeezed into too few slots, if more slots are free now."""
        if record.state in RUNNING and self.assigner.is_squeezed(record):
            self._move(record, now, "there are free slots for more workers again")

    def _move(self, record: TopologyRecord, now: float, reason: str) -> None:
        """Rebalance a topology although no user asked for it, but not while a different topology is moving: that topology may
        take the same slots."""
        moving = any(other.state in (REBALANCING, REPLACING) for other in self.registry.all_topologies())
        if not moving and record.state in RUNNING and record.replaces is None:
            _log.info("%s: %s", record.name, reason)
            wait = message_timeout(record)
            transition(self.registry, record, "rebalance", self.wall_clock(), deadline=now + wait, wait=wait)

    def view(self, record: TopologyRecord) -> LifecycleView:
        """Return all that is known about a topology at this moment."""
        view = view_of(self.registry, record, self.assigner.supervisors.keys())
        if record.state in (KILLED, REBALANCING, REPLACING):
            # The counters are read after the reports, so they are at least as new: other threads update them meanwhile.
            return replace(view, silent=self.counters.silent(record.id))
        return view

    def _on_trial(self, view: LifecycleView, now: float) -> LifecycleView:
        """Look at a version on trial: its counters while its workers are up, and how their starts failed."""
        record, trials = view.record, self.trials
        if not progress.is_on_trial(record):
            trials.pop(record.id, None)
            self._components.pop(record.id, None)
            return view
        trial = trials.get(record.id, NO_TRIAL)
        for place in view.workers:
            report = view.report_of(place)
            event, opened = (None, False) if report is None else (report.fact, report.opened)
            trial = with_start(trial, place.worker, event, opened)
        if record.state == INACTIVE:
            trial = replace(trial, since=None)
        elif progress.is_up(view):
            trial = observed(trial, self._evidence(view), now)
        trials[record.id] = trial
        return replace(view, trial=trial)

    def _evidence(self, view: LifecycleView) -> Evidence:
        reports = map(view.report_of, view.workers)
        living = {(report.worker, report.incarnation) for report in reports if report is not None}
        id = view.record.id
        if id not in self._components:
            try:
                description = get_description(self.registry.store, id)
            except BadBlob as error:
                _log.warning("%s: its counters cannot be judged: %s", view.record.name, error)
                return Evidence()
            self._components[id] = components_of(description)
        found = self.counters.evidence(id, self._components[id], living)
        return found.of_calls if has_state(view.record) else found

    def _forget_gone(self, view: LifecycleView) -> bool:
        """Forget the withdrawn workers that are gone, and their reports; return whether any were gone."""
        stay = progress.still_there(view)
        if view.leaving is None or stay == view.withdrawn:
            return False
        for placement in progress.withdrawn(view.withdrawn, (*stay, *view.workers)):
            if view.report_of(placement) is not None:
                self.registry.remove_report(view.record.id, placement.worker)
            if view.record.state in (*RUNNING, REBALANCING, REPLACING):
                self.counters.replaced(view.record.id, placement.worker, placement.incarnation.version)
        self.registry.leaving.write(replace(view.leaving, placements=stay))
        return True

    def _remove(self, view: LifecycleView, now: float) -> None:
        record = view.record
        step(record.state, "remove", name=record.name)
        self.ended.keep(record, "killed")
        try:
            description = get_description(self.registry.store, record.id)
            self.counters.close(record, components_of(description))
        except BadBlob as error:  # the topology is removed nevertheless
            _log.warning("%s: its final counters are lost: %s", record.name, error)
        if self.versions.ids_of(record.name):
            self.sweep_at = now  # before they are dropped: afterwards nothing points to their bundles
            self.versions.drop(record.name)
        if self.replacements.drop(record.name):
            self.sweep_at = now
        remove_all_of(self.registry, self.assigner.keys, record.id)
        self.registry.topologies.remove(record)
        _log.info("%s: gone, the name is free", record.name)

    def _finish_rebalance(self, view: LifecycleView) -> None:
        """Number the tasks again, place all of them as if they were new, then return the topology to its previous state."""
        self.assigner.place_all(view, rebalancing.renumbered(view.record))
        forget_drains(self.registry, view.record.id, view.workers)
        record = existing_record(self.registry, view.record.name)
        transition(self.registry, record, "rebalanced", self.wall_clock())

    def sweep(self, now: float) -> None:
        """Remove all values that belong to no topology."""
        self.replacements.drop_nameless()
        records, unread = every_record(self.registry)
        known = {record.id for record in records}
        present = {record.name: record.id for record in self.registry.all_topologies()}
        earlier = self.versions.sweep(present, unread) - known
        for topology_id in sorted(self.registry.known_ids() - known - earlier):
            if name_of(topology_id) not in unread:
                remove_all_of(self.registry, self.assigner.keys, topology_id)
                _log.info("%s: removed its leftovers", topology_id)
        for topology_id in sorted(self.registry.known_ids(paths.OF_RUNNING) & earlier):
            remove_all_of(self.registry, self.assigner.keys, topology_id, paths.OF_RUNNING)
            _log.info("%s: removed what it has besides its bundle", topology_id)
        self.counters.keep(known, unread)
        # Values that may belong to a topology that cannot be read are swept once it can be read.
        self.sweep_at = now + SWEEP_AFTER if unread else None
