"""The supervisor: has the worker processes run that Nimbus placed with it, and tells Nimbus what becomes of them.

`sync` does all of it, in turns: read the store, look at the processes and their files, let the plan decide, act, report.
It waits for nothing, may be called at any time and as often as one likes, and does nothing twice; `next_time` says when
it has something to do again. What concerns one worker and goes wrong is told of that worker and stops no other.
A new supervisor over the same state finds the workers of the one before, and goes on with them.

Time that passes between two calls counts for a second at most: when this process was frozen itself, it must not take all
its workers for dead because it did not look. One thread. Must not know: user code, how Nimbus is reached.
"""

from __future__ import annotations

import logging
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import environ
from pathlib import Path
from typing import Final

from squall import worker_files
from squall.clock import Clock
from squall.cluster.records import Placement, SupervisorRecord
from squall.cluster.registry import Registry
from squall.worker_files import Incarnation, Keys, Orders
from supervisor import exits, processes
from supervisor.directories import Directories
from supervisor.hosted import HostedWorker
from supervisor.orders import Own, Surroundings, occasion_of, orders_for, report_of
from supervisor.plan import (
    Action,
    Key,
    Limits,
    Phase,
    Wanted,
    Wish,
    after_death,
    phase_of,
    plan,
    soon,
    wish_of,
)
from supervisor.reporter import NimbusLink, Reporter
from supervisor.wanted import TopologyView, places_of, read_views, wanted_of
from supervisor.wording import death_note
from topology_api.errors import SquallError

__all__ = ["HostedView", "NimbusLink", "Supervisor"]

_log = logging.getLogger(__name__)

#: Seconds between two looks, while something is about to change and otherwise.
SOON: Final = 0.02
AT_REST: Final = 0.2
#: Seconds between two signs of life to Nimbus, and between two leases at most.
BEAT: Final = 1.0
#: An action leads to another phase; no worker goes through more of them without waiting for something.
_ROUNDS: Final = 6
#: Where every address is bound, others need a name to come by.
_EVERYWHERE: Final = ("0.0.0.0", "*", "::", "")


@dataclass(frozen=True)
class HostedView:
    """A worker of a supervisor, for whoever asks."""

    topology_id: str
    topology: str
    worker: str
    pid: int | None
    """Of the process that runs; None: none does."""
    incarnation: Incarnation
    slot: int
    directory: Path


class Supervisor:
    """The agent of one host."""

    def __init__(
        self,
        id: str,
        host: str,
        slots: int,
        registry: Registry,
        nimbus: NimbusLink,
        state: Path,
        clock: Clock,
        *,
        python_path: Sequence[str] | None = None,
        lease_secs: float = 20.0,
        bind: str = "127.0.0.1",
        limits: Limits | None = None,
        command: Callable[[Path], Sequence[str]] = processes.worker_command,
        kernel_kills: Callable[[], int | None] = exits.kernel_kills,
    ) -> None:
        """`state`: a directory of this supervisor's own. `host`: its name for the scheduler; where `bind` means every address,
        also the name that others reach its workers by. `python_path`: where workers find modules (default: where we do)."""
        self.id = id
        self.record = SupervisorRecord(id, host, slots, beats=True)
        self.registry = registry
        self.directories = Directories(state)
        self.clock = clock
        self.limits = Limits() if limits is None else limits
        self._around = Surroundings(id, bind, host if bind in _EVERYWHERE else bind, lease_secs)
        # Not a copy: what is added to it later counts too.
        self._python_path = sys.path if python_path is None else python_path
        self._command = command
        self._kernel_kills = exits.KernelKills(kernel_kills)
        self._hosted: dict[Key, HostedWorker] = {}
        self._views: dict[str, TopologyView] = {}
        self._places: dict[Key, Placement] = {}
        self._wanted: dict[Key, Wanted] = {}
        self._reporter = Reporter(nimbus, id)
        self._read = False  # whether it is known what is wanted; before, whatever is found goes on
        self._changed = True  # whether the store may hold something that was not looked at
        self._unwatch: Callable[[], None] | None = None
        self._closing = False
        self._left = False
        # Our own time (see above), and the moment of the clock that it was read at.
        self._time = 0.0
        self._looked: float | None = None
        self._next = clock.now()
        self._next_beat = self._next
        self._next_read = self._next
        self._lease = 0

    # Life

    def register(self) -> None:
        """Say that this supervisor is there, and find the workers that an earlier one of the same state had."""
        if self._unwatch is None:
            self._unwatch = self.registry.store.watch("/", self._note_change)
            for directory in self.directories.workers():
                found = HostedWorker.find(directory)
                if found is not None:
                    self._hosted[found.key] = found
                    self._lease = max(self._lease, _lease_of(found.directory))
        self.registry.save_supervisor(self.record)
        self._reporter.heard()

    def sync(self, now: float) -> None:
        """Do all that is to do at this moment."""
        if self._left:
            return
        if self._unwatch is None:
            self.register()
        if self._looked is not None:
            self._time += min(max(now - self._looked, 0.0), 1.0)
        self._looked = now
        for hosted in self._hosted.values():
            hosted.observe(self._time)
        for _ in range(_ROUNDS):
            self._read_store(now)
            self._pass_on(now)
            if not self._read or not self._act():
                break
        self._give_orders()
        self._pass_on(now)
        self._beat(now)
        waiting = soon((hosted.facts() for hosted in self._hosted.values()), self._time, self.limits)
        self._next = now + (SOON if waiting or self._awaits_workers() else AT_REST)

    def next_time(self, now: float) -> float:
        """When to call `sync` again."""
        return now if self._changed else max(now, self._next)

    def close(self, now: float) -> bool:
        """Have all workers stop, and start none; True when all have ended. To be called again until it says so."""
        if not self._closing:
            self._closing = True
            self._changed = True
        self.sync(now)
        if any(hosted.life != "none" for hosted in self._hosted.values()):
            return False
        self._leave()
        return True

    def kill_all(self, patience: float = 5.0) -> bool:
        """End every worker and all that it started at once, and wait for it; whether all are gone."""
        self._closing = True
        alive = [hosted for hosted in self._hosted.values() if hosted.life in ("alive", "found")]
        for hosted in alive:
            hosted.kill(self._time, "everything is being ended")
        end = time.monotonic() + patience
        left = [hosted.process for hosted in alive if hosted.process is not None]
        while left := [process for process in left if not process.gone()]:
            if time.monotonic() > end:
                return False
            time.sleep(0.002)  # the kernel needs a moment; there is nothing that one could wait for
        for hosted in alive:
            hosted.life = "none"
        self._leave()
        return True

    def processes(self) -> list[HostedView]:
        """The workers that are here, by name."""
        return [
            HostedView(
                hosted.topology_id,
                hosted.topology,
                hosted.worker,
                None if hosted.process is None or hosted.life == "none" else hosted.process.pid,
                hosted.incarnation,
                hosted.slot,
                hosted.directory,
            )
            for _, hosted in sorted(self._hosted.items())
        ]

    def _leave(self) -> None:
        self._left = True
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
            self.registry.remove_supervisor(self.id)

    def _note_change(self, path: str) -> None:
        self._changed = True

    # What is wanted

    def _read_store(self, now: float) -> None:
        """Read what is wanted, if anything in the store has changed (or, for safety, after a second)."""
        if not self._changed and now < self._next_read:
            return
        self._changed = False
        self._next_read = now + BEAT
        try:
            if not self._closing and self.id not in {each.id for each in self.registry.supervisors()}:
                self.register()  # Nimbus did not hear of us for too long
            self._views = read_views(self.registry, self._views)
        except (SquallError, OSError) as error:
            _log.warning("supervisor %s cannot read the store, and goes on as before: %s", self.id, error)
            self._next_read = now + AT_REST
            return
        self._read = True
        self._places = places_of(self._views.values(), self.id)
        self._wanted = wanted_of(self._views, self._places)
        if self._closing:
            self._wanted = {key: replace(want, stop=True) for key, want in self._wanted.items()}
        for key, hosted in self._hosted.items():
            if key in self._wanted:
                hosted.timeout = self._wanted[key].timeout
        self._reporter.keep(self._views)
        self.directories.remove_topologies({*self._views, *(key[0] for key in self._hosted)})

    # What is done

    def _act(self) -> bool:
        """Carry out the plan; whether there was anything to do."""
        running = {key: hosted.facts() for key, hosted in self._hosted.items()}
        actions = plan(self._wanted, running, self._time, self.limits)
        for action, key in actions:
            try:
                self._do(action, key)
            except Exception:  # it concerns this worker; the others go on
                _log.exception("supervisor %s: %s of %s failed", self.id, action.name, key)
        return bool(actions)

    def _do(self, action: Action, key: Key) -> None:
        if action is Action.START:
            self._start(key)
            return
        hosted = self._hosted[key]
        if action is Action.ADOPT:
            hosted.adopt(self._time)
            hosted.observe(self._time)
        elif action is Action.SIGNAL:
            hosted.signal(self._time)
        elif action is Action.STOP:
            hosted.stop(self._time)
        elif action is Action.KILL:
            hosted.kill(self._time, self._why_killed(hosted))
        elif action is Action.BURY:
            self._bury(hosted)
        elif action is Action.CLEAN:
            del self._hosted[key]
            self._reporter.forget(key)
            self.directories.clear_worker(*key)

    def _start(self, key: Key) -> None:
        view, place = self._views[key[0]], self._places[key]
        hosted = self._hosted.get(key)
        if hosted is None:
            hosted = self._host(view, place)
        incarnation = hosted.next_incarnation()
        try:
            directory = self.directories.make_worker(*key)
            bundle = self.directories.make_bundle(self.registry.store, key[0])
            keys = self.registry.keys(key[0])
            if keys is not None:
                worker_files.write(directory, worker_files.KEYS, Keys(**keys), 0o600)
            self._write_lease(hosted)
            own = Own(key[1], incarnation, str(bundle), hosted.ports, secrets.randbits(62))
            hosted.start(
                self._command(directory),
                processes.worker_environment(directory, self._python_path, environ),
                orders_for(view, own, self._around, self._incarnations().get(key[0], {})),
                occasion_of(view),
                self._time,
            )
        except Exception as error:  # whatever it is, it rests before it is tried again
            backoff = after_death(hosted.backoff, self._time, self._time)
            label, what = hosted.label, f"cannot be started: {error}"
            hosted.bury(backoff, death_note(label, what, backoff, self._time), again=True)
            _log.error("%s", hosted.note)

    def _host(self, view: TopologyView, place: Placement) -> HostedWorker:
        """Make room for a worker that is new here; it may have run here before, and was forgotten since."""
        key = (view.record.id, place.worker)
        hosted = HostedWorker(
            key, view.record.name, place.incarnation[0], place.slot, self.directories.worker(*key)
        )
        hosted.timeout = self._wanted[key].timeout
        last = view.reports.get(place.worker)
        if last is not None and last.incarnation[0] == hosted.version:
            hosted.restart = last.incarnation[1] + 1
        self._hosted[key] = hosted
        return hosted

    def _why_killed(self, hosted: HostedWorker) -> str:
        silent = phase_of(hosted.facts(), self._time, self.limits) is Phase.SILENT
        doing = hosted.pulse.executing if hosted.pulse is not None else None
        call = "" if doing is None else f"; when last heard of it was in a call of {doing[0]}[{doing[1]}]"
        if not silent:
            return f"it did not stop within {self.limits.stop:g} s{call}"
        if hosted.heard is None:
            return f"it gave no sign of life within {self._time - hosted.started:.0f} s of its start"
        return f"it gave no sign of life for {self._time - hosted.heard:.0f} s{call}"

    def _bury(self, hosted: HostedWorker) -> None:
        """Take note of the end of a process, and of its cause unless it was told to end."""
        exit = self._kernel_kills.told_apart(hosted.exit)
        again = self._wish(hosted) is Wish.RUN
        if hosted.told_to_stop is not None and hosted.killed is None and not exit.status:
            _log.info("%s: ended as told", hosted.label)
            hosted.bury(hosted.backoff, hosted.note, again)
            return
        backoff = after_death(hosted.backoff, hosted.started, self._time, exit.innocent)
        note = death_note(hosted.label, exits.cause(exit), backoff if again else None, self._time)
        _log.warning("%s", note)
        hosted.bury(backoff, note, again)

    # What workers are told

    def _give_orders(self) -> None:
        incarnations = self._incarnations()
        for key, hosted in self._hosted.items():
            if hosted.life != "alive" or hosted.orders is None or hosted.told_to_stop is not None:
                continue
            if self._wish(hosted) is not Wish.RUN:
                continue
            view, own = self._views[key[0]], incarnations[key[0]]
            if hosted.basis is not None and hosted.basis[0] is view and hosted.basis[1] == own:
                continue  # nothing is new that orders are made from
            orders = orders_for(view, _own(hosted.orders), self._around, own)
            try:
                hosted.give(orders, occasion_of(view))
                hosted.basis = (view, own)
                if hosted.behind and hosted.heard is not None and hosted.signalled is None:
                    hosted.signal(self._time)
            except OSError as error:
                _log.warning("%s cannot be given its orders: %s", hosted.label, error)

    def _incarnations(self) -> dict[str, dict[str, Incarnation]]:
        """What is known here of our own workers' incarnations, by topology."""
        found: dict[str, dict[str, Incarnation]] = {}
        for (topology_id, worker), hosted in self._hosted.items():
            found.setdefault(topology_id, {})[worker] = hosted.incarnation
        return found

    def _beat(self, now: float) -> None:
        """Once a second: new leases, and a sign of life to Nimbus."""
        if now < self._next_beat:
            return
        self._next_beat = now + min(BEAT, self._around.lease_secs / 5)
        self._lease += 1
        for hosted in self._hosted.values():
            if hosted.life == "alive":
                try:
                    self._write_lease(hosted)
                except OSError as error:
                    _log.warning("%s cannot be given a new lease: %s", hosted.label, error)
        self._kernel_kills.look(now)
        self._reporter.heard()

    def _write_lease(self, hosted: HostedWorker) -> None:
        worker_files.write(hosted.directory, worker_files.LEASE, {"number": self._lease}, 0o600)

    # What Nimbus is told

    def _pass_on(self, now: float) -> None:
        """Tell Nimbus what it does not know: counters first, so that they are there when a state says that all is done."""
        for key, hosted in self._hosted.items():
            counters = hosted.counters()
            if counters is not None:
                self._reporter.counters(key, hosted.incarnation, counters)
            view = self._views.get(key[0])
            if view is not None and view.knows(hosted.worker, hosted.version):
                stopped = hosted.life == "none" and self._wish(hosted) is not Wish.RUN
                self._reporter.report(view, report_of(hosted.standing(view.asked, stopped)), now)
        for view in self._views.values():
            for place in view.withdrawn:
                if place.supervisor == self.id and (view.record.id, place.worker) not in self._hosted:
                    self._reporter.gone(view, place, now)

    def _wish(self, hosted: HostedWorker) -> Wish:
        return wish_of(self._wanted.get(hosted.key), hosted.facts())

    def _awaits_workers(self) -> bool:
        """Whether a worker that has its orders is still about to do what they ask, or is over but for its children."""
        for key, hosted in self._hosted.items():
            if hosted.over is not None and hosted.life == "alive":
                return True
            view, pulse = self._views.get(key[0]), hosted.pulse
            if view is None or pulse is None or hosted.life != "alive":
                continue
            if view.asked == "drain" and not pulse.drained:
                return True
            if view.asked == "run" and not pulse.opened:
                return True
        return False


def _own(orders: Orders) -> Own:
    """What stays the same in the orders of one process."""
    return Own(orders.worker, orders.incarnation, orders.bundle, orders.ports, orders.seed)


def _lease_of(directory: Path) -> int:
    try:
        body = worker_files.read(directory, worker_files.LEASE)
        return int(body["number"]) if body is not None else 0
    except (worker_files.BadFile, KeyError, TypeError, ValueError):
        return 0
