"""Nimbus: the master of a cluster, as an object without threads, sockets or sleep.

Every command does at once what can be done at once; `tick` does what has become due since: a deadline has
passed, a worker has reported, a supervisor has come or gone. All state is in the store, so another Nimbus
over the same store goes on where this one stopped; steps are written in an order that lets it (workers are
noted as leaving before they are withdrawn; the record, which holds the name, goes last).

How a topology ends: `kill` sets a deadline; when every worker is drained, or the deadline has passed, the
assignment is removed, which tells the workers to stop; when each has reported that it stopped, the record is
removed and the name is free.

What it does unasked: a supervisor that has fallen silent is given up, and its tasks go elsewhere; a topology that
was squeezed into too few slots is rebalanced when there are more.

Not thread-safe: one thread, or one lock around it. Deadlines stand in the store as moments of the clock, so
Nimbuses that may take over from each other need clocks that agree.
Must not know: user code. It never unpickles, it works from the typed description.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from nimbus import placing, progress, rebalancing
from nimbus.counting import Counters, components_of
from nimbus.lifecycle import ACTIVE, INACTIVE, KILLED, REBALANCING, step
from nimbus.liveness import SignsOfLife
from nimbus.progress import View
from nimbus.rebalancing import WORKERS
from nimbus.scheduler import Slot, schedule
from nimbus.tasks import TaskSpec, number_tasks
from squall.clock import Clock
from squall.cluster.blobs import BadBlob, get_description, put_bundle
from squall.cluster.records import Assignment, Placement, SupervisorRecord, TopologyRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.cluster.store import Exists, Store
from topology_api.errors import InvalidConfig, NameTaken, NoSuchTopology
from topology_api.options import OPTIONS
from topology_api.topology import Topology

_log = logging.getLogger(__name__)

SUPERVISOR_TIMEOUT = cast(float, OPTIONS["nimbus.supervisor.timeout.secs"].default)

_MESSAGE_TIMEOUT = "topology.message.timeout.secs"
_SETTINGS = (WORKERS, _MESSAGE_TIMEOUT)

MakeKeys = Callable[[], Mapping[str, str]]
"""Makes the keys of a topology's links: Nimbus hands them on and does not know what they are."""


class Nimbus:
    """Takes topologies in, places their tasks, and follows each of them to its end."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        make_keys: MakeKeys | None = None,
        supervisor_timeout_secs: float = SUPERVISOR_TIMEOUT,
    ) -> None:
        self._store = store
        self._clock = clock
        self._make_keys = make_keys
        self._registry = Registry(store)
        self._signs = SignsOfLife(supervisor_timeout_secs, clock.now())
        self._given_up: dict[str, SupervisorRecord] = {}
        self._spread_enough: dict[str, object] = {}
        #: What workers count; may be read from any thread.
        self.counters = Counters()
        self._changed = True  # whether the store may hold something that was not looked at
        self._due: float | None = None
        self._unwatch = store.watch("/", self._note_change)

    # Commands

    def submit(
        self,
        topology: Topology,
        conf: Mapping[str, object],
        component_confs: Mapping[str, Mapping[str, object]],
        active: bool = True,
    ) -> TopologyRecord:
        """Take a topology in under its name; `NameTaken` while another one has it.

        `conf` and `component_confs` are merged: every option of Squall's is in them.
        """
        missing = [key for key in _SETTINGS if key not in conf]
        if missing:  # a record without them could be neither placed nor killed
            raise InvalidConfig([f"{key} is not set: submit takes a merged configuration" for key in missing])
        now = self._clock.now()
        name = topology.name
        there = self._registry.topology(name)
        if there is not None:
            raise NameTaken(name, being_killed=there.state == KILLED)
        topology_id = f"{name}-{self._registry.next_number('submissions')}-{int(now)}"
        record = TopologyRecord(
            id=topology_id,
            name=name,
            state=ACTIVE if active else INACTIVE,
            previous=None,
            conf=dict(conf),
            component_confs={component: dict(own) for component, own in component_confs.items()},
            tasks=tuple((spec.task, spec.component, spec.index) for spec in number_tasks(topology)),
            version=0,
            deadline=None,
            error=None,
            submitted=now,
        )
        put_bundle(self._store, topology_id, topology)
        if self._make_keys is not None:
            self._registry.save_keys(topology_id, self._make_keys())
        try:
            self._registry.create_topology(record)
        except Exists:
            self._registry.remove_keys(topology_id)
            self._registry.remove_bundle(topology_id)
            raise NameTaken(name) from None
        _log.info("%s: submitted as %s, %s", name, topology_id, record.state)
        self.tick(now)
        return self._registry.topology(name) or record

    def activate(self, name: str) -> None:
        """Let the spouts of a topology run."""
        self._command(name, "activate")

    def deactivate(self, name: str) -> None:
        """Let the spouts of a topology rest; what is in flight is worked off."""
        self._command(name, "deactivate")

    def kill(self, name: str, wait_secs: float | None = None) -> None:
        """End a topology: it may drain for `wait_secs` (default: its message timeout), then its workers stop.

        Said again, it may set another deadline; without `wait_secs` the deadline stays.
        """
        if wait_secs is not None and not 0 <= wait_secs < float("inf"):
            raise InvalidConfig([f"wait_secs must be 0 or more seconds, not {wait_secs!r}"])
        record = self._existing(name)
        if record.state == KILLED and wait_secs is None:
            return
        wait = _message_timeout(record) if wait_secs is None else wait_secs
        self._command(name, "kill", deadline=self._clock.now() + wait)

    def rebalance(
        self, name: str, workers: int | None = None, parallelism: Mapping[str, int] | None = None
    ) -> None:
        """Place all tasks of a topology anew once it has drained: over `workers` workers, with `parallelism` tasks for
        the components that it names."""
        record = self._existing(name)
        problems = rebalancing.problems_of_rebalance(record, workers, parallelism)
        if problems:
            raise InvalidConfig(problems, f"the rebalance of topology {name!r}")
        conf = dict(record.conf) if workers is None else {**record.conf, WORKERS: workers}
        self._command(
            name,
            "rebalance",
            deadline=self._clock.now() + _message_timeout(record),
            conf=conf,
            parallelism=rebalancing.changes_of(record, parallelism),
        )

    # What workers and supervisors say

    def report(self, name: str, worker_id: str, report: WorkerReport) -> bool:
        """Take the word of a worker of the topology `name`; a report that says nothing new costs little.

        False: no such worker is wanted (any more), it is superseded and should stop; its report was not kept.
        """
        if report.worker != worker_id:
            raise ValueError(f"worker {worker_id!r} of {name!r} sent the report of {report.worker!r}")
        record = self._registry.topology(name)
        if record is None:
            return False
        wanted = (
            *_workers(self._registry.assignment(record.id)),
            *_workers(self._registry.leaving(record.id)),
        )
        if not any(progress.speaks_for(report, placement) for placement in wanted):
            return False
        last = self._registry.report(record.id, worker_id)
        # Versions of assignments rise: so this refuses nothing because of an earlier worker of the same name.
        if last is not None and last.incarnation > report.incarnation:
            return False
        report = progress.settled(report, record)
        if last != report:
            known = progress.with_news(record, report, last)
            if known != record:  # first: once the report is written it says nothing new
                self._registry.update_topology(record, known)
            self._registry.save_report(record.id, report)
        self.tick()
        return True

    def heard(self, supervisor_id: str) -> None:
        """Take a sign of life of a supervisor; one that was given up for its silence is there again."""
        now = self._clock.now()
        self._signs.awake(now)
        if self._signs.heard(supervisor_id, now):
            self._changed = True  # so that the next moment to look is known
        record = self._given_up.pop(supervisor_id, None)
        if record is not None and all(other.id != record.id for other in self._registry.supervisors()):
            self._registry.save_supervisor(record)
            _log.info("supervisor %s: heard again", supervisor_id)
            self.tick(now)

    def count(self, topology_id: str, worker: str, incarnation: tuple[int, int], data: bytes) -> None:
        """Take the counters that a worker process wrote."""
        self.counters.count_bytes(topology_id, worker, incarnation, data)

    # What is there

    def topology(self, name: str) -> TopologyRecord:
        """The record of a topology; `NoSuchTopology` if there is none of that name."""
        return self._existing(name)

    def topologies(self) -> list[TopologyRecord]:
        """All topologies, the oldest submission first."""
        return self._registry.topologies()

    @property
    def due(self) -> float | None:
        """The next moment at which `tick` has something to do even if nothing happens before."""
        return self._due

    # Time

    def tick(self, now: float | None = None) -> None:
        """Do what is due. Nothing is read while nothing has changed and no deadline has passed."""
        moment = self._clock.now() if now is None else now
        self._signs.awake(moment)
        if self._due is not None and moment >= self._due:
            self._changed = True
        try:
            while self._changed:  # a step writes, and so has itself looked at: this ends when none was due
                self._changed = False
                self._give_up_silent(moment)
                for record in self._registry.topologies():
                    self._advance(record, moment)
                self._place_tasks()
                self._spread_again(moment)
                self._due = self._next_deadline()
        except BaseException:
            self._changed = True  # the next tick tries again
            raise

    def close(self) -> None:
        """Stop listening to the store; the topologies stay as they are."""
        self._unwatch()

    # One topology, one step

    def _advance(self, record: TopologyRecord, now: float) -> None:
        view = self._view(record)
        if self._forget_gone(view):
            view = self._view(record)
        event = progress.event_due(view, now)
        if event == "remove":
            self._remove(view)
        elif event == "rebalanced":
            self._finish_rebalance(view)
        elif event == "crash":
            self._step(record, event, error=progress.crash_of(view))
        elif event is not None:
            self._step(record, event)
        elif progress.must_leave(view, now):
            self._assign(view, {})

    def _view(self, record: TopologyRecord) -> View:
        return View(
            record,
            self._registry.assignment(record.id),
            self._registry.leaving(record.id),
            self._registry.reports(record.id),
            {supervisor.id for supervisor in self._registry.supervisors()},
        )

    def _existing(self, name: str) -> TopologyRecord:
        record = self._registry.topology(name)
        if record is None:
            raise NoSuchTopology(name)
        return record

    def _command(self, name: str, event: str, **changes: object) -> None:
        self._step(self._existing(name), event, **changes)
        self.tick()

    def _step(self, record: TopologyRecord, event: str, **changes: object) -> None:
        """Take the record through the table; what belonged to the state that it leaves goes."""
        state = step(record.state, event, record.previous, record.name)
        if state == record.state and not changes:
            return  # said twice
        previous = record.state if state == REBALANCING else None
        settled: dict[str, Any] = {
            "state": state,
            "previous": previous,
            "deadline": None,
            "parallelism": {},
            **changes,
        }
        self._registry.update_topology(record, replace(record, **settled))
        _log.info("%s: %s, %s -> %s", record.name, event, record.state, state)

    def _forget_gone(self, view: View) -> bool:
        """Forget the withdrawn workers that are gone, and what they said."""
        stay = progress.still_there(view)
        if view.leaving is None or stay == view.withdrawn:
            return False
        for placement in placing.withdrawn(view.withdrawn, stay):
            if view.report_of(placement) is not None:
                self._registry.remove_report(view.record.id, placement.worker)
            if view.record.state in (ACTIVE, INACTIVE, REBALANCING):
                self.counters.replaced(view.record.id, placement.worker, placement.incarnation[0])
        self._registry.save_leaving(replace(view.leaving, placements=stay))
        return True

    def _remove(self, view: View) -> None:
        record = view.record
        step(record.state, "remove", name=record.name)
        try:
            self.counters.close(record, components_of(get_description(self._store, record.id)))
        except BadBlob as error:  # it goes all the same
            _log.warning("%s: its final counters are lost: %s", record.name, error)
        for worker in view.reports:
            self._registry.remove_report(record.id, worker)
        self._spread_enough.pop(record.id, None)
        self._registry.remove_keys(record.id)
        self._registry.remove_bundle(record.id)
        self._registry.remove_topology(record)
        _log.info("%s: gone, the name is free", record.name)

    def _finish_rebalance(self, view: View) -> None:
        """Number the tasks anew, place all of them as if they were new, then go back to the state before."""
        becomes = rebalancing.renumbered(view.record)
        self._assign(view, self._scheduled(becomes, set(self._slots()), {}), becomes)
        for placement in view.workers:
            report = self._registry.report(view.record.id, placement.worker)
            if report is not None and report.drained:  # what it drained for is over
                self._registry.save_report(view.record.id, replace(report, drained=False))
        self._step(self._existing(view.record.name), "rebalanced")

    def _next_deadline(self) -> float | None:
        deadlines = [
            record.deadline
            for record in self._registry.topologies()
            if record.deadline is not None
            and (record.state == REBALANCING or self._registry.assignment(record.id) is not None)
        ]
        if self._signs.due is not None:
            deadlines.append(self._signs.due)
        return min(deadlines, default=None)

    def _note_change(self, path: str) -> None:
        self._changed = True

    # Where tasks run

    def _place_tasks(self) -> None:
        """Place what runs nowhere, the oldest topology first."""
        slots = set(self._slots())
        for record in self._registry.topologies():
            workers = _workers(self._registry.assignment(record.id))
            if record.state in (ACTIVE, INACTIVE) and not placing.all_run(record.tasks, workers, slots):
                chosen = self._scheduled(record, slots, placing.tasks_by_slot(workers))
                self._assign(self._view(record), chosen)

    def _spread_again(self, now: float) -> None:
        """Rebalance the oldest topology that was squeezed into too few slots and need not be now.

        One at a time: what the first will take, the next cannot have.
        """
        records = self._registry.topologies()
        if any(record.state == REBALANCING for record in records):
            return
        slots = set(self._slots())
        for record in records:
            workers = _workers(self._registry.assignment(record.id))
            if record.state in (ACTIVE, INACTIVE) and self._is_squeezed(record, len(workers), slots):
                _log.info("%s: there are slots again for more than its %d workers", record.name, len(workers))
                self._step(record, "rebalance", deadline=now + _message_timeout(record))
                return

    def _is_squeezed(self, record: TopologyRecord, workers: int, slots: set[Slot]) -> bool:
        """Whether a rebalance would give the topology more workers than it has."""
        wanted = min(cast(int, record.conf[WORKERS]), len(record.tasks))
        if not 0 < workers < wanted:
            return False
        free = slots - self._taken_from(record)
        situation = (record.version, wanted, free)
        if len(free) <= workers or self._spread_enough.get(record.id) == situation:
            return False
        # Free slots do not mean more workers: spread evenly over hosts, tasks may leave some of them out.
        if len(self._scheduled(record, slots, {})) > workers:
            return True
        self._spread_enough[record.id] = situation
        return False

    def _give_up_silent(self, now: float) -> None:
        """Remove the supervisors that have not been heard for too long; their tasks are placed elsewhere."""
        for record in self._signs.silent(self._registry.supervisors(), now):
            self._given_up[record.id] = record
            self._registry.remove_supervisor(record.id)
            _log.warning("supervisor %s: not heard for too long, its tasks go elsewhere", record.id)

    def _slots(self) -> list[Slot]:
        return placing.slots_of(self._registry.supervisors())

    def _scheduled(
        self, record: TopologyRecord, slots: set[Slot], current: Mapping[int, Slot]
    ) -> dict[Slot, tuple[int, ...]]:
        """The scheduler's answer, with the slots that no other topology has."""
        tasks = [TaskSpec(*row) for row in record.tasks]
        wanted = cast(int, record.conf[WORKERS])
        return schedule(tasks, wanted, slots - self._taken_from(record), current)

    def _taken_from(self, record: TopologyRecord) -> set[Slot]:
        """The slots of all other topologies, also those that a withdrawn worker has not left yet."""
        others = [other.id for other in self._registry.topologies() if other.id != record.id]
        return {
            placing.slot_of(placement)
            for other in others
            for assignment in (self._registry.assignment(other), self._registry.leaving(other))
            for placement in _workers(assignment)
        }

    def _assign(
        self, view: View, chosen: Mapping[Slot, tuple[int, ...]], becomes: TopologyRecord | None = None
    ) -> None:
        """Write the workers of a topology: those that are to go, the record (as what it becomes), those that it has.

        Until the last is written the record's version is not the assignment's, which tells hosts to look again.
        """
        record = view.record
        becomes = record if becomes is None else becomes
        same = {placing.slot_of(placement): placement.tasks for placement in view.workers} == chosen
        if same and becomes == record:
            return
        version = self._registry.next_number("assignments") if chosen else record.version
        placements = placing.placements_for(chosen, view.workers, view.withdrawn, version)
        leaving = placing.withdrawn(dict.fromkeys((*view.withdrawn, *view.workers)), placements)
        if leaving != view.withdrawn:
            self._registry.save_leaving(Assignment(record.id, version, leaving))
        becomes = replace(becomes, version=version)
        if becomes != record:
            self._registry.update_topology(record, becomes)
        self._registry.save_assignment(Assignment(record.id, version, placements))
        _log.info("%s: %d workers by assignment %d", record.name, len(placements), version)


def _workers(assignment: Assignment | None) -> tuple[Placement, ...]:
    return () if assignment is None else assignment.placements


def _message_timeout(record: TopologyRecord) -> float:
    return cast(float, record.conf[_MESSAGE_TIMEOUT])
