"""The supervisor: runs the workers that Nimbus placed with it, and reports their state to Nimbus.

`sync` works in rounds: read the store, observe the workers, let the plan decide, act, report. It waits for nothing,
may be called at any time, and is idempotent; `next_time` gives the time of the next round. A failure that concerns one worker
is reported for that worker and stops no other worker. A new supervisor over the same state adopts the workers of the previous
supervisor.

The supervisor's own time advances by at most one second between two calls of `sync`. So after a freeze, the supervisor does not
consider workers dead only because it could not observe them. All calls come from one thread. Must not know: user code, how
workers run, how Nimbus is reached.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import msgspec

from squall.clock import Clock
from squall.cluster.records import Placement, SupervisorRecord
from squall.cluster.registry import Registry
from squall.http.host_names import reached_at
from squall.reports.event_text import sentence
from squall.values import Incarnation
from supervisor import exits, plan
from supervisor.artifacts import Failed, Pending
from supervisor.desired_state import TopologyView
from supervisor.host_trouble import HostTrouble
from supervisor.managed_worker import ManagedWorker, died, not_started
from supervisor.orders import HostSettings, Own, occasion_of, orders_for, orders_to_stop
from supervisor.plan import Action, Backoff, DesiredState, Goal, Key, Phase, Timeouts, soon
from supervisor.process_host import ProcessHost
from supervisor.rare_warnings import RareWarnings
from supervisor.reporter import NimbusLink, Reporter
from supervisor.store_view import StoreView
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: The most rounds within one `sync`. Each action changes a worker's phase, and no worker can pass through more than six phases
#: without waiting.
_ROUNDS: Final = 6


class LoopPace(msgspec.Struct, frozen=True):
    """How often a supervisor does its periodic work, in seconds."""

    #: Between calls of `sync` while something is about to change.
    soon: float = 0.02
    #: Between calls of `sync` while nothing is about to change.
    at_rest: float = 0.2
    #: At most, between two heartbeats to Nimbus, and between two renewals of the leases.
    heartbeat: float = 1.0
    #: Between reads of a store that reports no change.
    reread: float = 1.0
    #: Before a report that the store does not show is sent again.
    repeat: float = 1.0


class WorkerTerms(msgspec.Struct, frozen=True):
    """A supervisor's settings for its workers."""

    #: The address that workers listen on. With 0.0.0.0 (every address), other hosts reach the workers by this host's name.
    bind: str = "127.0.0.1"
    #: How long workers continue without their supervisor, in seconds.
    lease_secs: float = 20.0
    timeouts: Timeouts = msgspec.field(default_factory=Timeouts)
    pace: LoopPace = msgspec.field(default_factory=LoopPace)


@dataclass(eq=False, repr=False)
class Supervisor:
    """The agent of one host.

    `admit` raises when the store belongs to another cluster. `wake` is called, from any thread, when `sync` has work.
    `last_words` is called before the supervisor leaves for good: Nimbus accepts reports only from registered supervisors.
    `closed` returns how many connections were closed because there were too many, by reason.
    """

    record: SupervisorRecord
    registry: Registry
    nimbus: NimbusLink
    processes: ProcessHost
    clock: Clock
    terms: WorkerTerms = field(default_factory=WorkerTerms)
    _: KW_ONLY
    admit: Callable[[], object] = lambda: None
    wake: Callable[[], object] = lambda: None
    last_words: Callable[[], object] = lambda: None
    closed: Callable[[], Mapping[str, int]] = dict
    _hosted: dict[Key, ManagedWorker] = field(default_factory=dict, init=False)
    _store_view: StoreView | None = field(default=None, init=False)
    _closing: bool = field(default=False, init=False)
    _left: bool = field(default=False, init=False)
    # The supervisor's own time (see above), and the clock's time at the last `sync`.
    _time: float = field(default=0.0, init=False)
    _looked: float | None = field(default=None, init=False)
    _lease: int = field(default=0, init=False)
    _warnings: RareWarnings = field(default_factory=RareWarnings, init=False)

    def __post_init__(self) -> None:
        self.id, terms = self.record.id, self.terms
        self.timeouts, self.pace = terms.timeouts, terms.pace
        host = reached_at(terms.bind, self.record.host)
        self._host_settings = HostSettings(self.id, terms.bind, host, terms.lease_secs)
        self._trouble = HostTrouble(self.processes.check_starts)
        self._reporter = Reporter(self.nimbus, self.id, self.pace.repeat)
        self._next = self._next_heartbeat = self.clock.now()

    # Life

    def register(self) -> None:
        """Register in the store, and find the workers of an earlier supervisor over the same state.

        Raises `SquallError` if the store cannot be reached, or belongs to another cluster. `sync` then tries again to register.
        """
        self._begin().register()
        self._report_alive()

    def _begin(self) -> StoreView:
        if self._store_view is None:
            mark, found = self.processes.mark(), list(self.processes.recover())  # may raise `OSError`
            self._store_view = StoreView(
                self.registry, self.record, self.admit, self.wake, mark, self.pace.reread
            )
            for recovered in found:
                worker = ManagedWorker.recovered(recovered)
                self._hosted[worker.key] = worker
                self._lease = max(self._lease, recovered.lease)
        return self._store_view

    def sync(self, now: float) -> None:
        """Do all work that is due now."""
        if self._left:
            return
        store_view = self._begin()
        if self._looked is not None:
            self._time += min(max(now - self._looked, 0.0), 1.0)
        self._looked = now
        for hosted in self._hosted.values():
            self._observe(hosted)
        self._trouble.retry(self._time)
        for _ in range(_ROUNDS):
            store_view.set_trouble(self._trouble.why)
            store_view.set_closed(self.closed(), now)
            self._refresh(store_view, now)
            self._pass_on(store_view, now)
            if not store_view.known or not self._act(store_view, now):
                break
        if self._give_orders(store_view):
            # Report again: the heartbeats that were read so far answer the earlier orders.
            self._pass_on(store_view, now)
        self._send_heartbeat(now)
        waiting = soon(self._hosted.values(), self._time, self.timeouts) or self._awaits_workers(store_view)
        self._next = now + (self.pace.soon if waiting else self.pace.at_rest)

    def next_time(self, now: float) -> float:
        """Return the time at which to call `sync` again."""
        if self._store_view is None or self._store_view.changed:
            return now
        return max(now, self._next)

    def close(self, now: float) -> bool:
        """Stop all workers and start none. Call this again until it returns True: then all workers have ended."""
        if self._left:
            return True
        store_view = self._begin()
        if not self._closing:
            self._closing = True
            store_view.present, store_view.changed = False, True
        self.sync(now)
        if any(hosted.life != "none" for hosted in self._hosted.values()):
            return False
        self.leave()
        return True

    def kill_all(self, patience: float = 5.0) -> bool:
        """Kill every worker with all its children, and wait up to `patience` seconds; return whether all are gone."""
        self._closing = True
        alive = [hosted for hosted in self._hosted.values() if hosted.life in ("alive", "found")]
        for hosted in alive:
            hosted.kill(self._time, "its supervisor is ending everything")
        end = time.monotonic() + patience
        left = [hosted.container for hosted in alive]
        while left := [container for container in left if not container.gone()]:
            if time.monotonic() > end:
                return False
            time.sleep(0.002)  # the kernel needs a moment, and offers no event to wait for
        for hosted in alive:
            hosted.life = "none"
        self.processes.sweep()
        self.leave()
        return True

    def workers(self) -> list[ManagedWorker]:
        """Return the workers of this supervisor, by name."""
        return [self._hosted[key] for key in sorted(self._hosted)]

    def leave(self, for_good: bool = True) -> None:
        """Stop supervising. If not for good, the workers continue until their leases expire, unless a supervisor over the same
        state adopts them."""
        self._left = True
        if for_good:
            self.last_words()
        if self._store_view is not None:
            store_view, self._store_view = self._store_view, None
            store_view.leave(for_good)

    # Desired state

    def _refresh(self, store_view: StoreView, now: float) -> None:
        """Read the store, and forget workers that the store no longer has."""
        topologies = {hosted.topology_id: hosted.topology for hosted in self._hosted.values()}
        if not store_view.refresh(now, topologies):
            return
        for key, hosted in self._hosted.items():
            if key in store_view.wanted:
                hosted.timeout = store_view.wanted[key].timeout
        self._reporter.keep(store_view.views)
        if not store_view.unsure:
            self.processes.retain(store_view.used, topologies)
        for record in store_view.coming:
            self.processes.provision(record, self._time)  # while the previous version ends

    def _wanted(self, store_view: StoreView, key: Key) -> DesiredState | None:
        """Return the desired state of a worker. If its topology is unreadable, the worker continues unchanged."""
        want, hosted = store_view.wanted.get(key), self._hosted.get(key)
        if want is None and hosted is not None and hosted.topology in store_view.unsure:
            want = DesiredState(hosted.version, hosted.slot, stop=False, timeout=hosted.timeout)
        return msgspec.structs.replace(want, stop=True) if want is not None and self._closing else want

    def _goal(self, store_view: StoreView, hosted: ManagedWorker) -> Goal:
        return plan.goal_of(self._wanted(store_view, hosted.key), hosted)

    # Actions

    def _act(self, store_view: StoreView, now: float) -> bool:
        """Carry out the plan; return whether anything was done."""
        wanted = {
            key: want
            for key in (*store_view.wanted, *self._hosted)
            if (want := self._wanted(store_view, key))
        }
        done = False
        for action, key in plan.plan(wanted, self._hosted, self._time, self.timeouts):
            try:
                done |= self._do(store_view, action, key, now)
            except Exception as error:  # the error concerns one worker; the others continue
                self._warn((action, key), error, "%s of %s failed", action.name, key)
        return done

    def _do(self, store_view: StoreView, action: Action, key: Key, now: float) -> bool:
        if action is Action.START:
            return self._start(store_view, key, now)
        hosted = self._hosted[key]
        if action is Action.ADOPT:
            hosted.adopt(self._time)
            self._observe(hosted)
        elif action is Action.SIGNAL:
            hosted.signal(self._time)
        elif action is Action.STOP:
            last = hosted.orders
            hosted.stop(self._time, None if last is None else orders_to_stop(last, store_view.views))
        elif action is Action.KILL:
            silent = plan.phase_of(hosted, self._time, self.timeouts) is Phase.SILENT
            hosted.kill(self._time, hosted.why_killed(self._time, None if silent else self.timeouts.stop))
        elif action is Action.BURY:
            self._bury(store_view, hosted)
        elif action is Action.CLEAN:
            del self._hosted[key]
            self._reporter.forget(key)
            self.processes.clear(key)
        return True

    def _start(self, store_view: StoreView, key: Key, now: float) -> bool:
        """Start a worker, unless its artifacts are not ready or the store must be read again first; return whether anything
        was done."""
        view, place = store_view.views.get(key[0]), store_view.places.get(key)
        if view is None or place is None:
            return False  # the worker's orders are unknown at the moment
        hosted = self._hosted.get(key) or self._host(store_view, view, place)
        state = self.processes.provision(view.record, self._time, hosted.idle_since)
        if isinstance(state, Pending):
            hosted.wait_for(state.part)
            return False
        if isinstance(state, Failed):
            self._rest(hosted, state.part, state.error, state.backoff)
            return True
        if not store_view.may_start(now):
            return store_view.changed  # plan again after the next read
        try:
            incarnation = hosted.next_incarnation()
            hosted.container.prepare(self._lease)
            own = Own(hosted.worker, incarnation, str(state.bundle), hosted.ports, secrets.randbits(62))
            siblings = self._incarnations().get(hosted.topology_id, {})
            orders = orders_for(view, own, self._host_settings, siblings)
            hosted.start(state, orders, occasion_of(view), self._time)
        except Exception as error:  # after any error, back off before the next try
            backoff = plan.after_death(hosted.backoff, self._time, self._time, unstarted=True)
            self._rest(hosted, "", error, backoff)
        else:
            self._trouble.started(self._time)
        return True

    def _rest(self, hosted: ManagedWorker, part: str, error: Exception, backoff: Backoff) -> None:
        """Report a failed start. The start is retried after the back-off."""
        self._trouble.failed(error, self._time)
        event = not_started(hosted.named("not_started"), part, str(error), backoff, self._time)
        hosted.bury(backoff, event, self._time, again=True)
        _log.error("%s", sentence(event))

    def _host(self, store_view: StoreView, view: TopologyView, place: Placement) -> ManagedWorker:
        """Begin to manage a worker, which may have run here before."""
        key = (view.record.id, place.worker)
        hosted = ManagedWorker(
            key, view.record.name, place.incarnation.version, place.slot, self.processes.container(key)
        )
        hosted.timeout = store_view.wanted[key].timeout
        hosted.idle_since = self._time
        last = view.reports.get(place.worker)
        if last is not None and last.incarnation.version == hosted.version:
            hosted.restart = last.incarnation.restart + 1
        self._hosted[key] = hosted
        return hosted

    def _bury(self, store_view: StoreView, hosted: ManagedWorker) -> None:
        """Report the end of a process, with its cause unless it was ordered to end."""
        exit = hosted.container.exit(hosted.killed_because)
        again = self._goal(store_view, hosted) is Goal.RUN
        if hosted.told_to_stop is not None and hosted.killed is None and not exit.status:
            _log.info("%s: ended as ordered", hosted.label)
            hosted.bury(hosted.backoff, hosted.event, self._time, again)
            return
        backoff = plan.after_death(hosted.backoff, hosted.started, self._time, exit.innocent)
        event = died(hosted.named("died"), exits.cause(exit), backoff if again else None, self._time)
        _log.warning("%s", sentence(event), extra={"event": event})
        hosted.bury(backoff, event, self._time, again)

    # Orders to workers

    def _give_orders(self, store_view: StoreView) -> bool:
        """Write changed orders; return whether any had changed."""
        given = False
        incarnations = self._incarnations()
        for key, hosted in self._hosted.items():
            if hosted.life != "alive" or hosted.orders is None or hosted.told_to_stop is not None:
                continue
            if key not in store_view.wanted or self._goal(store_view, hosted) is not Goal.RUN:
                continue
            view, own = store_view.views[key[0]], incarnations[key[0]]
            if hosted.basis is not None and hosted.basis[0] is view and hosted.basis[1] == own:
                continue  # nothing in the orders has changed
            orders = orders_for(view, hosted.orders, self._host_settings, own)
            try:
                hosted.give(orders, occasion_of(view))
                hosted.basis, given = (view, own), True
                if hosted.behind and hosted.heard is not None and hosted.signalled is None:
                    hosted.signal(self._time)
            except OSError as error:
                self._warn("orders", error, "%s cannot be given its orders", hosted.label)
        return given

    def _incarnations(self) -> dict[str, dict[str, Incarnation]]:
        """Return the incarnations of this supervisor's workers, by topology and worker."""
        found: dict[str, dict[str, Incarnation]] = {}
        for (topology_id, worker), hosted in self._hosted.items():
            found.setdefault(topology_id, {})[worker] = hosted.incarnation
        return found

    def _send_heartbeat(self, now: float) -> None:
        """Once a second: renew the leases, and send a heartbeat to Nimbus."""
        if now < self._next_heartbeat:
            return
        self._next_heartbeat = now + min(self.pace.heartbeat, self._host_settings.lease_secs / 5)
        self._lease += 1
        for hosted in self._hosted.values():
            if hosted.life in ("alive", "found"):  # found: not adopted yet, because the store is away
                try:
                    hosted.container.write_lease(self._lease)
                except OSError as error:
                    self._warn("lease", error, "%s cannot be given a new lease", hosted.label)
        self.processes.tick(now)
        self._report_alive()

    def _report_alive(self) -> None:
        if self.record.beats:
            self._reporter.heard()

    def _observe(self, hosted: ManagedWorker) -> None:
        """Read what a worker shows. User code may have left anything in its directory; whatever that is, it concerns only this
        worker."""
        try:
            hosted.observe(self._time)
        except Exception as error:
            # If this supervisor can open no file, that is no silence of the worker.
            if isinstance(error, OSError) and hosted.heard is not None:
                hosted.heard = self._time
            self._warn(("observe", hosted.key), error, "%s cannot be observed", hosted.label)

    def _warn(self, kind: Hashable, error: Exception, text: str, *values: object) -> None:
        """Warn, at most once a minute for each kind and type of error: a full disk causes an error on every `sync`."""
        if self._warnings.due((kind, type(error)), self._time):
            known = isinstance(error, (SquallError, OSError))
            text = f"supervisor %s: {text}: %s"
            _log.warning(text, self.id, *values, error, exc_info=None if known else error)

    # Reports to Nimbus

    def _pass_on(self, store_view: StoreView, now: float) -> None:
        """Send Nimbus the reports that it does not have. A worker's counters are sent before its state, so that Nimbus has all
        of them when the state says that the worker has ended."""
        for key, hosted in self._hosted.items():
            counters = hosted.counters(self._time)
            if counters is not None:
                self._reporter.counters(key, hosted.incarnation, counters)
            view = store_view.views.get(key[0])
            if view is not None and view.knows(hosted.worker, hosted.version):
                stopped = hosted.life == "none" and self._goal(store_view, hosted) is not Goal.RUN
                self._reporter.report(view, hosted.report(view.asked, stopped), now)
        for view in store_view.views.values():
            for place in view.withdrawn:
                here = place.supervisor == self.id and not view.places(place)
                if here and (view.record.id, place.worker) not in self._hosted:
                    self._reporter.gone(view, place, now)

    def _awaits_workers(self, store_view: StoreView) -> bool:
        """Return whether a worker has not yet done what its orders ask, or has ended while its children still run."""
        for key, hosted in self._hosted.items():
            if hosted.over is not None and hosted.life == "alive":
                return True
            view, heartbeat = store_view.views.get(key[0]), hosted.heartbeat
            if view is None or heartbeat is None or hosted.life != "alive":
                continue
            if view.asked == "drain" and not heartbeat.drained:
                return True
            if view.asked == "run" and not heartbeat.opened:
                return True
        return False
