"""Nimbus: the master of a cluster, as an object without threads, sockets or sleep.

A command does at once everything that is possible at once. `tick` does the work that falls due later, because a deadline has
passed, a worker has reported, or a supervisor has come or gone. All state is in the store, so another Nimbus over the same
store continues where this Nimbus stopped. The order of writes makes this possible: workers are recorded as leaving before they
are withdrawn, and the record, which reserves the name, is removed last. Once a command is written, it takes effect, whatever
fails afterwards.

How a topology ends: `kill` sets a deadline. When every worker has drained, or the deadline has passed, the assignment is
removed; this tells the workers to stop. When every worker has reported that it stopped, the record is removed and the name is
free. How a new version takes over a topology's name is described in `nimbus.lifecycle.replacing`.

Without a command, Nimbus gives up silent supervisors and places their tasks elsewhere, rebalances topologies that run on too
few slots when more slots become free, moves topologies away from drained supervisors one after the other, and removes values
that belong to no topology. An error of one topology does not affect the others: a step that failed is tried again after a
second, and a topology that cannot be read is left alone until it is killed.

Not thread-safe: use it from one thread, or under one lock. Deadlines are stored as times of the leader's own clock; the next
leader restarts them, so the clocks of leaders need not agree.
Must not know: user code. Nimbus never unpickles it, but works from the typed description.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from nimbus.counters.counting import Counters
from nimbus.counters.ended import EndedVersions
from nimbus.leader.rounds import REST_SECS, DirtySet, TopologyBackoff
from nimbus.leader.steps import SWEEP_AFTER, TopologySteps
from nimbus.lifecycle import progress, rebalancing
from nimbus.lifecycle.assigning import Assigner
from nimbus.lifecycle.cleanup import (
    BadTopology,
    TopologyKeys,
    check_name,
    clear,
    existing_record,
    readable_record,
)
from nimbus.lifecycle.ending_trials import EndedTrial, end_trial
from nimbus.lifecycle.notes import with_events, with_news
from nimbus.lifecycle.rebalancing import WORKERS
from nimbus.lifecycle.replacing import USUAL_TERMS, Replacements, ReplaceTerms, check_proved
from nimbus.lifecycle.states import KILLED
from nimbus.lifecycle.transition import message_timeout, restart_deadlines, transition
from nimbus.lifecycle.versions import EarlierVersions
from nimbus.placement.supervisors import Supervisors, set_drained
from nimbus.submission.accept import Intake, check_wait
from nimbus.submission.backups import Restorer, backup_of
from nimbus.submission.keeping import has_state
from nimbus.submission.restoration import Restoration
from nimbus.submission.set_options import rebalanced
from nimbus.submission.submission import Submission
from squall.api.backups import TopologyBackup
from squall.clock import Clock
from squall.cluster import identity, paths
from squall.cluster.blobs import get_description
from squall.cluster.records import HowReplaced, TopologyRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.cluster.store import Deposed, Store, StoreError, Unavailable
from squall.reports.events import Event
from squall.values import Incarnation
from topology_api.epoch_rules import has_key
from topology_api.errors import InvalidConfig, NoSuchTopology
from topology_api.options import OPTIONS
from topology_api.topology import Topology
from topology_api.wording import typed

_log = logging.getLogger(__name__)

SUPERVISOR_TIMEOUT = cast(float, OPTIONS["nimbus.supervisor.timeout.secs"].default)


class Nimbus:
    """Accepts topologies, places their tasks, and follows each of them to its end."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        keyring: TopologyKeys | None = None,
        counters: Counters | None = None,
        supervisor_timeout_secs: float = SUPERVISOR_TIMEOUT,
        replacing: ReplaceTerms = USUAL_TERMS,
        wall_clock: Callable[[], float] | None = None,
        poll_secs: float | None = None,
        stamp: Callable[[], str] | None = None,
        turned_away: Callable[[], int] = int,
    ) -> None:
        """Continue from the state in the store. `keyring`: makes and hands out the keys of topologies' links (None: no keys);
        `wall_clock`: gives seconds since 1970 (default: the clock); `poll_secs`: the most seconds between two reads of a store
        that may lose notifications (None: read the store only after a notification); `stamp`: makes the last part of a
        topology's id, so that ids stay unique even if the store forgets its counters (default: the time of `wall_clock` in
        whole seconds); `turned_away`: the number of connections that were closed because there were too many."""
        self._clock = clock
        self._wall_clock = clock.now if wall_clock is None else wall_clock
        #: The records in the store. Other objects only read this registry.
        self.registry = registry = Registry(store)
        #: The counters of workers; may be read from any thread.
        self.counters = Counters() if counters is None else counters
        self.supervisors = Supervisors(registry, supervisor_timeout_secs, clock.now(), turned_away)
        self._assigner = Assigner(registry, keyring)
        ended = EndedVersions(registry, self.counters, self._wall_clock)
        earlier = EarlierVersions(registry, replacing.versions_kept, self._wall_clock)

        def keep(record: TopologyRecord, how: HowReplaced) -> None:
            ended.keep(record, how)
            earlier.keep(record, how)

        self._replacements = Replacements(
            registry, self._assigner, replacing.timeout_secs, self._wall_clock, keep, self.counters.left_over
        )
        self._intake = Intake(registry, keyring, self._replacements, stamp)
        self._restorer = Restorer(registry, keyring)
        self._backoff = TopologyBackoff()
        self._steps = TopologySteps(
            registry,
            self._assigner,
            self._replacements,
            self.supervisors,
            self.counters,
            self._wall_clock,
            ended,
            earlier,
        )
        self._dirty = DirtySet()
        #: The time at which `tick` is due if nothing changes before that time; None: never.
        self.due: float | None = None
        self._poll_secs = poll_secs
        self._poll_at: float | None = None
        #: The id of the cluster that the store holds.
        self.cluster_id = identity.establish(store)
        restart_deadlines(registry, clock.now(), self._wall_clock())
        self._steps.sweep(clock.now())
        self._unwatch = store.watch("/", self._dirty.mark)

    # Commands

    def submit(self, submission: Submission) -> TopologyRecord:
        """Accept a topology under its name. Raises `NameTaken` if another topology has this name. A second submission with the
        same key changes nothing."""
        record = self._intake.submitted(submission.key)
        if record is not None:
            self._follow_up()
            return record
        with self._swept_on_errors():
            record = self._intake.accept(submission, self._wall_clock())
        self._follow_up()
        try:
            known = readable_record(self.registry, record.name)
        except (StoreError, BadTopology):  # the current record cannot be read
            return record
        return known if known is not None and known.id == record.id else record

    def check(self, submission: Submission) -> tuple[TopologyRecord | None, TopologyRecord]:
        """Return (the topology that has the submission's name, the record that `submit` would write). Raises what `submit`
        raises, and changes nothing."""
        return self._intake.check(submission, self._wall_clock())

    def submitted(self, submission: str) -> TopologyRecord | None:
        """Return the topology that was submitted with this key, or None."""
        return self._intake.submitted(submission)

    def restore(
        self, restoration: Restoration, bundles: Mapping[str, Topology]
    ) -> tuple[TopologyRecord, bool]:
        """Write a topology that comes from a backup; return its record, and whether an earlier request with the same key wrote
        it. `bundles`: those of its versions, by their ids. Raises what `Restorer.restore` raises."""
        record = self._intake.submitted(restoration.key)
        if record is None:
            with self._swept_on_errors():
                now, time = self._clock.now(), self._wall_clock()
                written = self._restorer.restore(restoration, bundles, now, time)
        self._follow_up()
        return (written, False) if record is None else (record, True)

    def check_restore(self, restoration: Restoration, bundles: Mapping[str, Topology]) -> None:
        """Raise what `restore` raises, and change nothing. `bundles`: those that are there already."""
        self._restorer.check(restoration, bundles)

    def activate(self, name: str) -> None:
        """Let the spouts of a topology run."""
        self._command(name, "activate")

    def deactivate(self, name: str) -> None:
        """Let the spouts of a topology rest; tuples that are already pending are still processed."""
        self._command(name, "deactivate")

    def fail(self, name: str, error: str) -> None:
        """Mark a topology FAILED on behalf of a watcher (`squall run`, `submit --wait`), exactly as a crash would."""
        if not isinstance(error, str):
            raise InvalidConfig([f"the error is {typed(error)}: give a text"], f"the failure of {name!r}")
        self._command(name, "crash", error=error)

    def end_trial(self, name: str, wanted: str | None, key: str) -> EndedTrial | None:
        """Let the version before the one on trial return because an operator wants it (see `ending_trials.end_trial`)."""
        record = existing_record(self.registry, name)
        ended = end_trial(self.registry, record, wanted, key, self._wall_clock())
        if ended is not None:
            self._follow_up()
        return ended

    def kill(self, name: str, wait_secs: float | None = None) -> None:
        """End a topology: it may drain for `wait_secs` seconds (default: its message timeout), and then its workers stop.

        A second kill may set a different deadline; without `wait_secs` the deadline stays. A topology whose record cannot be
        read is killed without a drain.
        """
        check_name(name)
        check_wait(wait_secs)
        try:
            record = existing_record(self.registry, name)
        except NoSuchTopology:
            if not self._replacements.drop(name):
                raise
            self._steps.sweep_at = self._clock.now()
            self._follow_up()
            return
        except BadTopology as error:
            self._replacements.drop(name)
            cleared = clear(self.registry, name, error.reason, self._wall_clock())
            self._steps.sweep_at = self._clock.now()
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
        """Drain a topology for at most `wait_secs` seconds (default: its message timeout), then place all its tasks again.

        `workers`: the new number of workers; `parallelism`: component -> its new number of tasks. An argument that is None
        changes nothing.
        """
        check_wait(wait_secs)
        record = existing_record(self.registry, name)
        stateful = parallelism and has_state(record)
        components = get_description(self.registry.store, record.id)["components"] if stateful else ()
        keeping = [each["id"] for each in components if each.get("keeps_tasks")]
        keyed = [each["id"] for each in components if has_key(each.get("keeps", {}))]
        groups = self.counters.key_groups(record.id)
        problems = rebalancing.problems_of_rebalance(record, workers, parallelism, keeping, keyed, groups)
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
            set_options=rebalanced(record.set_options, workers, parallelism),
        )

    def drain(self, supervisor_id: str, on: bool = True) -> None:
        """Place no more tasks on a supervisor, and move the tasks that run there. If `on` is False, allow new tasks there
        again."""
        set_drained(self.registry, supervisor_id, on)
        self._follow_up()

    # Reports

    def report(self, name: str, worker_id: str, report: WorkerReport, sender: str | None = None) -> bool:
        """Store the report of a worker of the topology `name`. A report without news costs little. `sender`: the supervisor
        that sent it over HTTP; it may speak for its own workers only.

        Returns False, without storing the report, if no such worker is wanted (any more). While the topology cannot be read,
        returns True, although the report is not stored.
        """
        if report.worker != worker_id:
            raise ValueError(f"worker {worker_id!r} of {name!r} sent the report of {report.worker!r}")
        try:
            record = readable_record(self.registry, name)
        except BadTopology:
            return True  # the workers continue until the topology is killed
        if record is None:
            return False
        wanted = (
            *progress.workers_of(self.registry.assignments.get(record.id)),
            *progress.workers_of(self.registry.leaving.get(record.id)),
        )
        meant = [placement for placement in wanted if progress.speaks_for(report, placement)]
        if not meant:
            return False
        if sender is not None and sender not in {placement.supervisor for placement in meant}:
            _log.warning(
                "supervisor %s reported for worker %s of %s, which is not its own", sender, worker_id, name
            )
            return False
        last = self.registry.report(record.id, worker_id)
        # Versions of assignments rise, so no report is refused because of an earlier worker of the same name.
        if last is not None and last.incarnation > report.incarnation:
            return False
        report = progress.settled(report, record)
        if last != report:
            known = with_news(record, report, last, self._wall_clock())
            if known != record:  # before the report is stored: afterwards it is no longer news
                self.registry.topologies.update(record, known)
            self.registry.save_report(record.id, report)
            self._dirty.mark(paths.report(record.id, worker_id))
        self._try_tick()
        return True

    def heard(self, supervisor_id: str) -> None:
        """Record a heartbeat of a supervisor. A supervisor that was given up because it was silent may get tasks again."""
        if self.supervisors.heard(supervisor_id, self._clock.now()):
            self._follow_up()

    def count(self, topology_id: str, worker: str, incarnation: Incarnation, data: bytes) -> None:
        """Add the counters that a worker process wrote."""
        self.counters.count_bytes(topology_id, worker, incarnation, data)

    def add_events(self, name: str, topology_id: str, events: Iterable[Event]) -> None:
        """Keep events of a topology, if the version with this id still has the name."""
        record = existing_record(self.registry, name)
        if record.id == topology_id:
            self.registry.topologies.update(record, with_events(record, events, self._wall_clock()))

    # Queries

    def topology(self, name: str) -> TopologyRecord:
        """Return the record of a topology; raise `NoSuchTopology` if there is no record."""
        return existing_record(self.registry, name)

    def backup(self, name: str) -> TopologyBackup:
        """Return all lasting records of a topology. Raises `NoSuchTopology`, `BadTopology` or `BadRecord`."""
        return backup_of(self.registry, name)

    # Time

    def tick(self, now: float | None = None) -> None:
        """Do the work that is due. Reads nothing while nothing has changed and no deadline has passed."""
        moment = self._clock.now() if now is None else now
        self.supervisors.tick(moment)
        if self.due is not None and moment >= self.due:
            self._dirty.all = True
        if self._poll_at is not None and moment >= self._poll_at:
            self._dirty.supervisors = True
        try:
            # Each step writes to the store, which marks its topology as changed again. The loop ends when no step is due.
            while self._dirty:
                self._round(self._dirty.pop(), moment)
        except BaseException:
            self._dirty.all = True  # the next tick tries again
            self.due = moment + REST_SECS
            raise

    def _round(self, reported: set[str] | None, now: float) -> None:
        """Do the work that is due: for all topologies (None), or only for the topologies with these ids, which have new
        reports."""
        if reported is None:
            self._check_supervisors(now)
            if self._steps.sweep_at is not None and now >= self._steps.sweep_at:
                self._steps.sweep(now)
        self._for_each(self._steps.advance, now, reported)
        if reported is None:
            self._assigner.find_disputes()
            for do in (self._steps.place, self._steps.leave_drained, self._steps.spread_again):
                self._for_each(do, now)
            self._backoff.end_round(now)
        self.due = self._next_deadline(now)

    def close(self) -> None:
        """Stop listening to the store; the topologies continue."""
        self._unwatch()

    @contextmanager
    def _swept_on_errors(self) -> Iterator[None]:
        """Sweep some time after a new topology could not be written: the write may have arrived nevertheless, or may still
        arrive."""
        try:
            yield
        except StoreError:
            self._steps.sweep_at = sweep_at = self._clock.now() + SWEEP_AFTER
            self.due = sweep_at if self.due is None else min(self.due, sweep_at)
            raise

    def _follow_up(self) -> None:
        """Carry out the next steps of a command. The command itself has been written already, so it takes effect even if the
        store no longer answers."""
        self._dirty.all = True  # the store may report the command's own write late
        self._try_tick()

    def _try_tick(self) -> None:
        try:
            self.tick()
        except (Unavailable, Deposed) as error:
            _log.warning("the next steps are delayed: %s", error)

    def _for_each(
        self, do: Callable[[TopologyRecord, float], bool | None], now: float, ids: set[str] | None = None
    ) -> None:
        """Call `do` for every topology, or for the topologies with these ids, the oldest first. An error of one topology does
        not affect the others."""
        records = self.registry.all_topologies()
        self._backoff.update(self.registry.bad, {record.id for record in records})
        for record in records:
            if self._backoff.rests(record.id, now) or (ids is not None and record.id not in ids):
                continue
            try:
                if do(record, now):
                    self._dirty.all = True
            except (Unavailable, Deposed):
                raise  # the steps of other topologies would fail, too
            except Exception as error:
                self._backoff.add(record.id, record.name, error, now)

    def _command(self, name: str, event: str, *, wait: float | None = None, **changes: object) -> None:
        record = existing_record(self.registry, name)
        check_proved(record, event, self._wall_clock())
        transition(self.registry, record, event, self._wall_clock(), wait=wait, **changes)
        self._follow_up()

    def _check_supervisors(self, now: float) -> None:
        """See which supervisors are registered, and remove those that have been silent for too long."""
        if self._dirty.supervisors:
            self._dirty.supervisors = False
            try:
                self._assigner.refresh()
            except BaseException:
                self._dirty.supervisors = True
                raise
            self._poll_at = None if self._poll_secs is None else now + self._poll_secs
        if self.supervisors.give_up(self._assigner.supervisors.values(), self._assigner.unread, now):
            self._dirty.supervisors = self._dirty.all = True

    def _next_deadline(self, now: float) -> float | None:
        deadlines = [
            moment
            for record in self.registry.all_topologies()
            for moment in progress.moments(record, self.registry.assignments.get(record.id) is not None, now)
        ]
        others = (self.supervisors.due, self._steps.sweep_at, self._backoff.due, self._poll_at)
        return min([*deadlines, *(moment for moment in others if moment is not None)], default=None)
