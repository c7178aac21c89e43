"""Nimbus: the master of a cluster, as an object without threads, sockets or sleep.

Every command does at once what can be done at once; `tick` does what has become due since: a deadline has
passed, a worker has reported, a supervisor has come or gone. All state is in the store, so another Nimbus
over the same store goes on where this one stopped; steps are written in an order that lets it (workers are
noted as leaving before they are withdrawn; the record, which holds the name, goes last). A command that has been
written is done, whatever fails afterwards.

How a topology ends: `kill` sets a deadline; when every worker is drained, or the deadline has passed, the
assignment is removed, which tells the workers to stop; when each has reported that it stopped, the record is
removed and the name is free. How another version takes its name over: `nimbus.replacing`.

What it does unasked: a supervisor that has fallen silent is given up, and its tasks go elsewhere; a topology that
was squeezed into too few slots is rebalanced when there are more; topologies leave drained supervisors, one after the
other; what belongs to no topology is removed. What goes wrong with one topology keeps nothing from the others: it is
tried again after a second, and one that cannot be read is left alone until it is killed.

Not thread-safe: one thread, or one lock around it. Deadlines stand in the store as moments of the clock of the Nimbus
that leads; the next one sets them anew, so clocks need not agree.
Must not know: user code. It never unpickles, it works from the typed description.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

from nimbus import progress, rebalancing
from nimbus.assigning import Assigner, Keys, workers_of
from nimbus.changes import Changes
from nimbus.clearing import BadTopology, clear, sweep_orphans, whole
from nimbus.counting import Counters, components_of
from nimbus.draining import set_drained
from nimbus.hosts import Hosts
from nimbus.intake import Intake, Order, check_wait
from nimbus.lifecycle import ACTIVE, INACTIVE, KILLED, REBALANCING, REPLACING, step
from nimbus.notes import notes_on_lost_hosts, with_news, with_notes
from nimbus.placing import withdrawn
from nimbus.progress import View
from nimbus.rebalancing import WORKERS
from nimbus.replacing import Replacements, check_proved
from nimbus.stepping import message_timeout, set_deadlines_anew, take_step
from nimbus.troubles import REST_SECS, Troubles
from squall.clock import Clock
from squall.cluster import identity, paths
from squall.cluster.blobs import BadBlob, get_description
from squall.cluster.records import SupervisorRecord, TopologyRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.cluster.store import Deposed, Store, StoreError, Unavailable
from topology_api.errors import InvalidConfig, NoSuchTopology
from topology_api.options import OPTIONS
from topology_api.topology import Topology

_log = logging.getLogger(__name__)

SUPERVISOR_TIMEOUT = cast(float, OPTIONS["nimbus.supervisor.timeout.secs"].default)
REPLACE_TIMEOUT = cast(float, OPTIONS["nimbus.replace.timeout.secs"].default)

#: Seconds until what a submission that failed has left is swept: by then it is known whether it was taken in after all.
SWEEP_AFTER = 30.0


class Nimbus:
    """Takes topologies in, places their tasks, and follows each of them to its end."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        keyring: Keys | None = None,
        counters: Counters | None = None,
        supervisor_timeout_secs: float = SUPERVISOR_TIMEOUT,
        replace_timeout_secs: float = REPLACE_TIMEOUT,
        calendar: Callable[[], float] | None = None,
        look_every_secs: float | None = None,
        stamp: Callable[[], str] | None = None,
    ) -> None:
        """Take over whatever is in the store. `keyring`: makes and hands out the keys of topologies' links (None: there are
        none); `counters`: what is known of what topologies have done; `calendar`: what users are told the time by (default:
        the clock); `look_every_secs`: so often it looks though nothing was told, where what a store tells may be lost; `stamp`:
        the end of a topology's id (default: the calendar's second), where the store, and so its numbers, do not last."""
        self._store = store
        self._clock = clock
        self._keys = keyring
        self._calendar = clock.now if calendar is None else calendar
        self._registry = Registry(store)
        self._hosts = Hosts(self._registry, supervisor_timeout_secs, clock.now())
        self._assigner = Assigner(self._registry, keyring)
        self._replacements = Replacements(
            self._registry, self._assigner, replace_timeout_secs, message_timeout, self._calendar
        )
        self._intake = Intake(self._registry, keyring, self._replacements, stamp)
        self._troubles = Troubles()
        #: What workers count; may be read from any thread.
        self.counters = Counters() if counters is None else counters
        self._changes = Changes()
        self._due: float | None = None
        self._sweep_at: float | None = None
        self._look_every = look_every_secs
        self._look_at: float | None = None
        #: The id of the cluster that the store holds.
        self.cluster_id = identity.establish(store)
        set_deadlines_anew(self._registry, clock.now(), self._calendar())
        self._sweep()
        self._unwatch = store.watch("/", self._changes.note)

    # Commands

    def submit(
        self,
        topology: Topology,
        conf: Mapping[str, object],
        component_confs: Mapping[str, Mapping[str, object]],
        active: bool = True,
        *,
        submission: str = "",
        files: Mapping[str, str] = MappingProxyType({}),
        python: str = "",
        replace: bool = False,
        wait_secs: float | None = None,
    ) -> TopologyRecord:
        """Take a topology in under its name; `NameTaken` while another one has it.

        `conf` and `component_confs` are merged: every option of Squall's is in them. What comes again with the same
        `submission` is the same. `replace`: when a topology has the name, this one takes over once that one has drained, for
        which it has `wait_secs` (default: its message timeout).
        """
        record = self._intake.submitted(submission)
        if record is not None:
            self._follow_up()
            return record
        order = Order(topology, conf, component_confs, active, submission, files, python, replace, wait_secs)
        try:
            record = self._intake.take(order, self._calendar())
        except StoreError:
            # It may have been taken in all the same: what it brought is swept when that is known.
            self._sweep_at = self._clock.now() + SWEEP_AFTER
            self._due = min(self._sweep_at, self._sweep_at if self._due is None else self._due)
            raise
        self._follow_up()
        return self._now_known(record)

    def submitted(self, submission: str) -> TopologyRecord | None:
        """The topology that was submitted with this key, if it is there."""
        return self._intake.submitted(submission)

    def activate(self, name: str) -> None:
        """Let the spouts of a topology run."""
        self._command(name, "activate")

    def deactivate(self, name: str) -> None:
        """Let the spouts of a topology rest; what is in flight is worked off."""
        self._command(name, "deactivate")

    def fail(self, name: str, error: str) -> None:
        """End a topology as a crash of its does, for whoever watches it and sees that it comes to nothing."""
        self._command(name, "crash", error=error)

    def kill(self, name: str, wait_secs: float | None = None) -> None:
        """End a topology: it may drain for `wait_secs` (default: its message timeout), then its workers stop.

        Said again, it may set another deadline; without `wait_secs` the deadline stays. One that cannot be read goes at once.
        """
        check_wait(wait_secs)
        try:
            record = self._existing(name)
        except NoSuchTopology:
            if not self._replacements.drop(name):
                raise
            self._sweep_at = self._clock.now()
            self._follow_up()
            return
        except BadTopology as error:
            self._replacements.drop(name)
            cleared = clear(self._registry, name, error.reason, self._calendar())
            self._sweep_at = self._clock.now()
            if cleared is None:
                self._follow_up()
                return
            record, wait_secs = cleared, 0.0
        if record.state == KILLED and wait_secs is None:
            return
        wait = message_timeout(record) if wait_secs is None else wait_secs
        self._command(name, "kill", deadline=self._clock.now() + wait, wait=wait)

    def rebalance(
        self,
        name: str,
        workers: int | None = None,
        parallelism: Mapping[str, int] | None = None,
        wait_secs: float | None = None,
    ) -> None:
        """Place all tasks of a topology anew once it has drained, for which it has `wait_secs` (default: its message
        timeout): over `workers` workers, with `parallelism` tasks for the components that it names."""
        check_wait(wait_secs)
        record = self._existing(name)
        problems = rebalancing.problems_of_rebalance(record, workers, parallelism)
        if problems:
            raise InvalidConfig(problems, f"the rebalance of topology {name!r}")
        wait = message_timeout(record) if wait_secs is None else wait_secs
        self._command(
            name,
            "rebalance",
            deadline=self._clock.now() + wait,
            wait=wait,
            conf=dict(record.conf) if workers is None else {**record.conf, WORKERS: workers},
            parallelism=rebalancing.changes_of(record, parallelism),
        )

    def drain(self, supervisor_id: str, on: bool = True) -> None:
        """Place nothing with a supervisor any more, and move what runs there, one topology after the other; not `on`: again."""
        set_drained(self._registry, supervisor_id, on)
        self._follow_up()

    # What workers and supervisors say

    def report(self, name: str, worker_id: str, report: WorkerReport) -> bool:
        """Take the word of a worker of the topology `name`; a report that says nothing new costs little.

        False: no such worker is wanted (any more), it is superseded and should stop; its report was not kept.
        """
        if report.worker != worker_id:
            raise ValueError(f"worker {worker_id!r} of {name!r} sent the report of {report.worker!r}")
        try:
            record = whole(self._registry, name)
        except BadTopology:
            return True  # what it wants nobody knows, and its workers are to go on
        if record is None:
            return False
        wanted = (
            *workers_of(self._registry.assignment(record.id)),
            *workers_of(self._registry.leaving(record.id)),
        )
        if not any(progress.speaks_for(report, placement) for placement in wanted):
            return False
        last = self._registry.report(record.id, worker_id)
        # Versions of assignments rise: so this refuses nothing because of an earlier worker of the same name.
        if last is not None and last.incarnation > report.incarnation:
            return False
        report = progress.settled(report, record)
        if last != report:
            known = with_news(record, report, last, self._calendar())
            if known != record:  # first: once the report is written it says nothing new
                self._registry.update_topology(record, known)
            self._registry.save_report(record.id, report)
            self._changes.note(paths.report(record.id, worker_id))
        self._try_tick()
        return True

    def heard(self, supervisor_id: str) -> None:
        """Take a sign of life of a supervisor; one that was given up for its silence is there again."""
        if self._hosts.heard(supervisor_id, self._clock.now()):
            self._follow_up()

    def count(self, topology_id: str, worker: str, incarnation: tuple[int, int], data: bytes) -> None:
        """Take the counters that a worker process wrote."""
        self.counters.count_bytes(topology_id, worker, incarnation, data)

    def given_up(self, supervisor_id: str) -> SupervisorRecord | None:
        """The record of a supervisor that is given up for its silence; may be called from any thread."""
        return self._hosts.given_up(supervisor_id)

    # What is there

    def topology(self, name: str) -> TopologyRecord:
        """The record of a topology; `NoSuchTopology` if there is none of that name."""
        return self._existing(name)

    def topologies(self) -> list[TopologyRecord]:
        """All topologies that can be read, the oldest submission first."""
        return self._registry.topologies()

    def drained(self) -> set[str]:
        """The supervisors that get no work."""
        return self._registry.drained_supervisors()

    @property
    def due(self) -> float | None:
        """The next moment at which `tick` has something to do even if nothing happens before."""
        return self._due

    # Time

    def tick(self, now: float | None = None) -> None:
        """Do what is due. Nothing is read while nothing has changed and no deadline has passed."""
        moment = self._clock.now() if now is None else now
        self._hosts.awake(moment)
        if self._due is not None and moment >= self._due:
            self._changes.all = True
        if self._look_at is not None and moment >= self._look_at:
            self._changes.hosts = True
        try:
            while self._changes:  # a step writes, and so has itself looked at: this ends when none was due
                self._look(self._changes.take(), moment)
        except BaseException:
            self._changes.all = True  # the next tick tries again
            self._due = moment + REST_SECS
            raise

    def _look(self, reported: set[str] | None, now: float) -> None:
        """Do what is due, of topologies of which nothing is new but reports, or of all (None)."""
        if reported is None:
            self._look_at_supervisors(now)
            if self._sweep_at is not None and now >= self._sweep_at:
                self._sweep()
        self._each(self._advance, now, reported)
        if reported is None:
            self._assigner.look_for_disputes()
            for do in (self._place, self._leave_drained, self._spread_again):
                self._each(do, now)
            self._troubles.settle(now)
        self._due = self._next_deadline(now)

    def close(self) -> None:
        """Stop listening to the store; the topologies stay as they are."""
        self._unwatch()

    def _follow_up(self) -> None:
        """Do what a command leads to. The command itself is done: a store that is away by now takes nothing from it."""
        self._changes.all = True  # not every store has told of our own write by now
        self._try_tick()

    def _try_tick(self) -> None:
        try:
            self.tick()
        except (Unavailable, Deposed) as error:
            _log.warning("what follows is done later: %s", error)

    def _sweep(self) -> None:
        """Remove what belongs to no topology."""
        records = self._registry.topologies()
        self._replacements.drop_nameless({record.name for record in records} | set(self._registry.bad))
        known = {record.id for record in records} | self._replacements.ids()
        unread = self._replacements.unread() | set(self._registry.bad)
        sweep_orphans(self._registry, self._keys, known, unread)
        self.counters.keep(known, unread)
        # What may belong to a topology that cannot be read is looked at again when it can be, perhaps.
        self._sweep_at = self._clock.now() + SWEEP_AFTER if unread else None

    # One topology, one step

    def _each(
        self, do: Callable[[TopologyRecord, float], None], now: float, ids: set[str] | None = None
    ) -> None:
        """Do something with every topology (of these ids), the oldest first; what goes wrong with one keeps nothing from the
        others."""
        records = self._registry.topologies()
        self._troubles.note_bad(self._registry.bad, {record.id for record in records})
        for record in records:
            if self._troubles.rests(record.id, now) or (ids is not None and record.id not in ids):
                continue
            try:
                do(record, now)
            except (Unavailable, Deposed):
                raise  # the others would fare no better
            except Exception as error:
                self._troubles.note(record.id, record.name, error, now)

    def _advance(self, record: TopologyRecord, now: float) -> None:
        view = self._view(record)
        if self._forget_gone(view):
            view = self._view(record)
        # A step, also one that fails, leaves something of a version.
        sweep_at, self._sweep_at = self._sweep_at, now
        if self._replacements.advance(view, now):
            self._changes.all = True
            return
        self._sweep_at = sweep_at
        event = progress.event_due(view, now)
        if event == "remove":
            self._remove(view)
        elif event == "rebalanced":
            self._finish_rebalance(view)
        elif event == "crash":
            take_step(self._registry, record, event, self._calendar(), error=progress.crash_of(view))
        elif event is not None:
            take_step(self._registry, record, event, self._calendar())
        elif progress.must_leave(view, now):
            self._assigner.withdraw(view)

    def _place(self, record: TopologyRecord, now: float) -> None:
        if record.state in (ACTIVE, INACTIVE):
            view = self._view(record)
            lost = notes_on_lost_hosts(view.workers, self._hosts.given_up, self._hosts.timeout_secs)
            self._assigner.place(view, with_notes(record, lost, self._calendar()) if lost else record)

    def _view(self, record: TopologyRecord) -> View:
        return View(
            record,
            self._registry.assignment(record.id),
            self._registry.leaving(record.id),
            self._registry.reports(record.id),
            self._assigner.supervisors.keys(),
            self.counters.silent(record.id) if record.state in (KILLED, REBALANCING, REPLACING) else None,
        )

    def _existing(self, name: str) -> TopologyRecord:
        record = whole(self._registry, name)
        if record is None:
            raise NoSuchTopology(name)
        return record

    def _now_known(self, record: TopologyRecord) -> TopologyRecord:
        """The record as it stands by now, where that can be told."""
        try:
            known = whole(self._registry, record.name)
        except (StoreError, BadTopology):
            return record
        return known if known is not None and known.id == record.id else record

    def _command(self, name: str, event: str, *, wait: float | None = None, **changes: object) -> None:
        record = self._existing(name)
        check_proved(record, event, self._calendar())
        take_step(self._registry, record, event, self._calendar(), wait=wait, **changes)
        self._follow_up()

    def _forget_gone(self, view: View) -> bool:
        """Forget the withdrawn workers that are gone, and what they said."""
        stay = progress.still_there(view)
        if view.leaving is None or stay == view.withdrawn:
            return False
        for placement in withdrawn(view.withdrawn, (*stay, *view.workers)):
            if view.report_of(placement) is not None:
                self._registry.remove_report(view.record.id, placement.worker)
            if view.record.state in (ACTIVE, INACTIVE, REBALANCING, REPLACING):
                self.counters.replaced(view.record.id, placement.worker, placement.incarnation[0])
        self._registry.save_leaving(dataclasses.replace(view.leaving, placements=stay))
        return True

    def _remove(self, view: View) -> None:
        record = view.record
        step(record.state, "remove", name=record.name)
        try:
            self.counters.close(record, components_of(get_description(self._store, record.id)))
        except BadBlob as error:  # it goes all the same
            _log.warning("%s: its final counters are lost: %s", record.name, error)
        if self._replacements.drop(record.name):
            self._sweep_at = self._clock.now()
        if self._keys is not None:
            self._keys.forget(record.id)
        self._registry.remove_all_of(record.id)
        self._registry.remove_topology(record)
        _log.info("%s: gone, the name is free", record.name)

    def _finish_rebalance(self, view: View) -> None:
        """Number the tasks anew, place all of them as if they were new, then go back to the state before."""
        self._assigner.place_anew(view, rebalancing.renumbered(view.record))
        for placement in view.workers:
            report = self._registry.report(view.record.id, placement.worker)
            if report is not None and report.drained:  # what it drained for is over
                self._registry.save_report(view.record.id, dataclasses.replace(report, drained=False))
        take_step(self._registry, self._existing(view.record.name), "rebalanced", self._calendar())

    def _move(self, record: TopologyRecord, now: float, reason: str) -> None:
        """Rebalance a topology unasked, unless another one is moving: what that will take, this one cannot have."""
        moving = any(other.state in (REBALANCING, REPLACING) for other in self._registry.topologies())
        if not moving and record.state in (ACTIVE, INACTIVE) and record.replaces is None:
            _log.info("%s: %s", record.name, reason)
            wait = message_timeout(record)
            take_step(self._registry, record, "rebalance", self._calendar(), deadline=now + wait, wait=wait)

    def _leave_drained(self, record: TopologyRecord, now: float) -> None:
        if self._assigner.must_move(record):
            self._move(record, now, "it leaves drained supervisors")

    def _spread_again(self, record: TopologyRecord, now: float) -> None:
        """A topology that was squeezed into too few slots need not be any more."""
        if record.state in (ACTIVE, INACTIVE) and self._assigner.is_squeezed(record):
            self._move(record, now, "there are slots again for more workers than it has")

    def _look_at_supervisors(self, now: float) -> None:
        """See who is there, and remove those that have not been heard for too long; their tasks are placed elsewhere."""
        if self._changes.hosts:
            self._changes.hosts = False
            try:
                self._assigner.look()
            except BaseException:
                self._changes.hosts = True
                raise
            self._look_at = None if self._look_every is None else now + self._look_every
        if self._hosts.give_up(self._assigner.supervisors.values(), self._assigner.unread, now):
            self._changes.hosts = self._changes.all = True

    def _next_deadline(self, now: float) -> float | None:
        deadlines = [
            moment
            for record in self._registry.topologies()
            for moment in progress.moments(record, self._registry.assignment(record.id) is not None, now)
        ]
        others = (self._hosts.due, self._sweep_at, self._troubles.due, self._look_at)
        return min([*deadlines, *(moment for moment in others if moment is not None)], default=None)
