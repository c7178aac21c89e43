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
from squall.host_names import reached_at
from squall.sealing import KeyPair
from squall.transport import same_host
from squall.worker_files import Incarnation, Orders
from supervisor import exits, processes
from supervisor.directories import Directories
from supervisor.hosted import HostedWorker, lease_in
from supervisor.link_keys import LinkKeys
from supervisor.orders import Own, Surroundings, occasion_of, orders_for, report_of
from supervisor.outlook import Outlook
from supervisor.plan import (
    Action,
    Backoff,
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
from supervisor.provisions import Failed, Pending, Provision, Provisioner, Provisions
from supervisor.reporter import NimbusLink, Reporter
from supervisor.wanted import TopologyView
from supervisor.wording import death_note, not_started_note, waiting_note

__all__ = ["HostedView", "NimbusLink", "Supervisor"]

_log = logging.getLogger(__name__)

#: Seconds between two looks, while something is about to change and otherwise.
SOON: Final = 0.02
AT_REST: Final = 0.2
#: Seconds between two signs of life to Nimbus, and between two leases at most.
BEAT: Final = 1.0
#: An action leads to another phase; no worker goes through more of them without waiting for something.
_ROUNDS: Final = 6
#: Seconds between two warnings of what fails for every worker.
_WARN_EVERY: Final = 60.0


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
        ports: str | None = None,
        limits: Limits | None = None,
        command: Callable[[Path], Sequence[str]] = processes.worker_command,
        kernel_kills: Callable[[], int | None] = exits.kernel_kills,
        key_pair: KeyPair | None = None,
        provisions: Provisioner | None = None,
        directories: Directories | None = None,
        admit: Callable[[], object] = lambda: None,
        wake: Callable[[], object] = lambda: None,
        last_words: Callable[[], object] = lambda: None,
    ) -> None:
        """`state`: a directory of this supervisor's own; `directories`: what is in it, where workers are to have working
        directories of their own. `host`: its name for the scheduler; where `bind` means every address,
        also the name that others reach its workers by. `ports`: those that workers may listen on (6700-6799; default: all).
        `python_path`: where workers find modules (default: where we do). `command`: a Python, and what it runs in a worker's
        directory. `key_pair`: opens what topologies' keys are sealed with.
        `admit` raises when the store is another cluster's. `wake` is called, from any thread, when `sync` has work to do,
        `last_words` before it leaves for good: Nimbus listens to those that it knows."""
        self.id = id
        public = "" if key_pair is None else key_pair.public
        self.record = SupervisorRecord(id, host, slots, beats=True, public_key=public)
        self.registry = registry
        self.directories = directories or Directories(state)
        self.clock = clock
        self.limits = Limits() if limits is None else limits
        self._around = Surroundings(id, bind, reached_at(bind, host), lease_secs)
        # Not a copy: what is added to it later counts too.
        self._python_path = sys.path if python_path is None else python_path
        self._command, self._ports = command, ports
        self._kernel_kills = exits.KernelKills(kernel_kills)
        self._keys = LinkKeys(registry, id, key_pair)
        self._provisions = provisions or Provisions(state, registry.store)
        self._admit, self._wake, self._last_words = admit, wake, last_words
        self._hosted: dict[Key, HostedWorker] = {}
        self._outlook: Outlook | None = None
        self._reporter = Reporter(nimbus, id)
        self._closing = False
        self._left = False
        # Our own time (see above), and the moment of the clock that it was read at.
        self._time = 0.0
        self._looked: float | None = None
        self._next = clock.now()
        self._next_beat = self._next
        self._lease = 0
        self._warn_again = 0.0

    # Life

    def register(self) -> None:
        """Say that this supervisor is there, and find the workers that an earlier one of the same state had.

        `SquallError` while the store cannot be reached, or is another cluster's: `sync` goes on trying.
        """
        self._begin().register()
        self._reporter.heard()

    def _begin(self) -> Outlook:
        if self._outlook is None:
            mark = self.directories.mark()
            self._outlook = Outlook(self.registry, self.record, self._admit, self._wake, mark)
            for directory in self.directories.workers():
                found = HostedWorker.find(directory)
                if found is not None:
                    self._hosted[found.key] = found
                    self._lease = max(self._lease, lease_in(found.directory))
        return self._outlook

    def sync(self, now: float) -> None:
        """Do all that is to do at this moment."""
        if self._left:
            return
        outlook = self._begin()
        if self._looked is not None:
            self._time += min(max(now - self._looked, 0.0), 1.0)
        self._looked = now
        for hosted in self._hosted.values():
            hosted.observe(self._time)
        for _ in range(_ROUNDS):
            self._look(outlook, now)
            self._pass_on(outlook, now)
            if not outlook.known or not self._act(outlook, now):
                break
        if self._give_orders(outlook):
            self._pass_on(outlook, now)  # what was said before counts for what was asked before
        self._beat(now)
        waiting = soon((hosted.facts() for hosted in self._hosted.values()), self._time, self.limits)
        self._next = now + (SOON if waiting or self._awaits_workers(outlook) else AT_REST)

    def next_time(self, now: float) -> float:
        """When to call `sync` again."""
        if self._outlook is None or self._outlook.changed:
            return now
        return max(now, self._next)

    def close(self, now: float) -> bool:
        """Have all workers stop, and start none; True when all have ended. To be called again until it says so."""
        if self._left:
            return True
        outlook = self._begin()
        if not self._closing:
            self._closing = True
            outlook.present, outlook.changed = False, True
        self.sync(now)
        if any(hosted.life != "none" for hosted in self._hosted.values()):
            return False
        self._leave()
        return True

    def leave_workers(self) -> None:
        """Do nothing more: the workers go on until their leases are over, or a supervisor of the same state finds them."""
        self._leave(for_good=False)

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
        same_host.sweep()
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

    def _leave(self, for_good: bool = True) -> None:
        self._left = True
        if for_good:
            self._last_words()
        if self._outlook is not None:
            outlook, self._outlook = self._outlook, None
            outlook.leave(for_good)

    # What is wanted

    def _look(self, outlook: Outlook, now: float) -> None:
        """Look at the store, and forget what is there no more."""
        topologies = {hosted.topology_id: hosted.topology for hosted in self._hosted.values()}
        if not outlook.look(now, topologies):
            return
        for key, hosted in self._hosted.items():
            if key in outlook.wanted:
                hosted.timeout = outlook.wanted[key].timeout
        self._reporter.keep(outlook.views)
        if not outlook.unsure:
            self.directories.remove_topologies({*outlook.used, *topologies})
            self._provisions.keep(outlook.used.values(), topologies)
        for record in outlook.coming:
            self._provisions.state(record, self._time)  # while the version before is at its end

    def _wanted(self, outlook: Outlook, key: Key) -> Wanted | None:
        """What is wanted of a worker. One whose topology nobody can tell about goes on as it is."""
        want, hosted = outlook.wanted.get(key), self._hosted.get(key)
        if want is None and hosted is not None and hosted.topology in outlook.unsure:
            want = Wanted(hosted.version, hosted.slot, stop=False, timeout=hosted.timeout)
        return replace(want, stop=True) if want is not None and self._closing else want

    def _wish(self, outlook: Outlook, hosted: HostedWorker) -> Wish:
        return wish_of(self._wanted(outlook, hosted.key), hosted.facts())

    # What is done

    def _act(self, outlook: Outlook, now: float) -> bool:
        """Carry out the plan; whether anything was done."""
        wanted = {
            key: want for key in (*outlook.wanted, *self._hosted) if (want := self._wanted(outlook, key))
        }
        running = {key: hosted.facts() for key, hosted in self._hosted.items()}
        done = False
        for action, key in plan(wanted, running, self._time, self.limits):
            try:
                done |= self._do(outlook, action, key, now)
            except Exception:  # it concerns this worker; the others go on
                _log.exception("supervisor %s: %s of %s failed", self.id, action.name, key)
        return done

    def _do(self, outlook: Outlook, action: Action, key: Key, now: float) -> bool:
        if action is Action.START:
            return self._start(outlook, key, now)
        hosted = self._hosted[key]
        if action is Action.ADOPT:
            hosted.adopt(self._time)
            hosted.observe(self._time)
        elif action is Action.SIGNAL:
            hosted.signal(self._time)
        elif action is Action.STOP:
            hosted.stop(self._time)
        elif action is Action.KILL:
            silent = phase_of(hosted.facts(), self._time, self.limits) is Phase.SILENT
            hosted.kill(self._time, hosted.why_killed(self._time, None if silent else self.limits.stop))
        elif action is Action.BURY:
            self._bury(outlook, hosted)
        elif action is Action.CLEAN:
            del self._hosted[key]
            self._reporter.forget(key)
            self.directories.clear_worker(*key)
        return True

    def _start(self, outlook: Outlook, key: Key, now: float) -> bool:
        """Start a worker, unless what it needs has to be prepared first, or the store to be asked once more; whether anything
        was done."""
        view, place = outlook.views.get(key[0]), outlook.places.get(key)
        if view is None or place is None:
            return False  # nobody can tell at the moment what it is to be started with
        hosted = self._hosted.get(key) or self._host(outlook, view, place)
        state = self._provisions.state(view.record, self._time)
        if isinstance(state, Pending):
            hosted.wait_for(None if state.note is None else waiting_note(hosted.label, state.note))
            return False
        if isinstance(state, Failed):
            self._rest(hosted, state.why, state.backoff)
            return True
        if not outlook.may_start(now):
            return outlook.changed  # the plan is made anew, by what is read then
        try:
            self._start_process(view, hosted, state.provision)
        except Exception as error:  # whatever it is, it rests before it is tried again
            backoff = after_death(hosted.backoff, self._time, self._time, unstarted=True)
            self._rest(hosted, str(error), backoff)
        return True

    def _start_process(self, view: TopologyView, hosted: HostedWorker, provision: Provision) -> None:
        incarnation = hosted.next_incarnation()
        directory = self.directories.make_worker(*hosted.key)
        keys = self._keys.of(hosted.topology_id, directory)
        if keys is not None:
            worker_files.write(directory, worker_files.KEYS, keys, 0o600)
        hosted.write_lease(self._lease)
        own = Own(hosted.worker, incarnation, str(provision.bundle), hosted.ports, secrets.randbits(62))
        # An environment finds our modules after its own packages; ours on the path would come before them.
        ours = self._python_path if provision.python is None else ()
        command = list(self._command(directory))
        if provision.python is not None:
            command[0] = provision.python
        work = self.directories.work(directory)
        hosted.start(
            command,
            processes.worker_environment(directory, (*provision.folders, *ours), environ, work, self._ports),
            orders_for(view, own, self._around, self._incarnations().get(hosted.topology_id, {})),
            occasion_of(view),
            self._time,
            work,
        )

    def _rest(self, hosted: HostedWorker, why: str, backoff: Backoff) -> None:
        """It cannot be started, and is tried again after a while."""
        note = not_started_note(hosted.label, why, backoff, self._time)
        hosted.bury(backoff, note, again=True)
        _log.error("%s", note)

    def _host(self, outlook: Outlook, view: TopologyView, place: Placement) -> HostedWorker:
        """Make room for a worker that is new here; it may have run here before, and was forgotten since."""
        key = (view.record.id, place.worker)
        hosted = HostedWorker(
            key, view.record.name, place.incarnation[0], place.slot, self.directories.worker(*key)
        )
        hosted.timeout = outlook.wanted[key].timeout
        last = view.reports.get(place.worker)
        if last is not None and last.incarnation[0] == hosted.version:
            hosted.restart = last.incarnation[1] + 1
        self._hosted[key] = hosted
        return hosted

    def _bury(self, outlook: Outlook, hosted: HostedWorker) -> None:
        """Take note of the end of a process, and of its cause unless it was told to end."""
        exit = self._kernel_kills.told_apart(hosted.exit)
        again = self._wish(outlook, hosted) is Wish.RUN
        if hosted.told_to_stop is not None and hosted.killed is None and not exit.status:
            _log.info("%s: ended as told", hosted.label)
            hosted.bury(hosted.backoff, hosted.note, again)
            return
        backoff = after_death(hosted.backoff, hosted.started, self._time, exit.innocent)
        note = death_note(hosted.label, exits.cause(exit), backoff if again else None, self._time)
        _log.warning("%s", note)
        hosted.bury(backoff, note, again)

    # What workers are told

    def _give_orders(self, outlook: Outlook) -> bool:
        """Tell workers what is new; whether anything was."""
        given = False
        incarnations = self._incarnations()
        for key, hosted in self._hosted.items():
            if hosted.life != "alive" or hosted.orders is None or hosted.told_to_stop is not None:
                continue
            if key not in outlook.wanted or self._wish(outlook, hosted) is not Wish.RUN:
                continue
            view, own = outlook.views[key[0]], incarnations[key[0]]
            if hosted.basis is not None and hosted.basis[0] is view and hosted.basis[1] == own:
                continue  # nothing is new that orders are made from
            orders = orders_for(view, _own(hosted.orders), self._around, own)
            try:
                hosted.give(orders, occasion_of(view))
                hosted.basis, given = (view, own), True
                if hosted.behind and hosted.heard is not None and hosted.signalled is None:
                    hosted.signal(self._time)
            except OSError as error:
                self._warn("%s cannot be given its orders: %s", hosted.label, error)
        return given

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
            if hosted.life in ("alive", "found"):  # found: while the store is away nobody takes them over
                try:
                    hosted.write_lease(self._lease)
                except OSError as error:
                    self._warn("%s cannot be given a new lease: %s", hosted.label, error)
        self._kernel_kills.look(now)
        self._reporter.heard()

    def _warn(self, text: str, label: str, error: OSError) -> None:
        """A warning that would come with every look, as long as the disk is full."""
        if self._time >= self._warn_again:
            self._warn_again = self._time + _WARN_EVERY
            _log.warning(text, label, error)

    # What Nimbus is told

    def _pass_on(self, outlook: Outlook, now: float) -> None:
        """Tell Nimbus what it does not know: counters first, so that they are there when a state says that all is done."""
        for key, hosted in self._hosted.items():
            counters = hosted.counters()
            if counters is not None:
                self._reporter.counters(key, hosted.incarnation, counters)
            view = outlook.views.get(key[0])
            if view is not None and view.knows(hosted.worker, hosted.version):
                stopped = hosted.life == "none" and self._wish(outlook, hosted) is not Wish.RUN
                self._reporter.report(view, report_of(hosted.standing(view.asked, stopped)), now)
        for view in outlook.views.values():
            for place in view.withdrawn:
                here = place.supervisor == self.id and not view.places(place)
                if here and (view.record.id, place.worker) not in self._hosted:
                    self._reporter.gone(view, place, now)

    def _awaits_workers(self, outlook: Outlook) -> bool:
        """Whether a worker that has its orders is still about to do what they ask, or is over but for its children."""
        for key, hosted in self._hosted.items():
            if hosted.over is not None and hosted.life == "alive":
                return True
            view, pulse = outlook.views.get(key[0]), hosted.pulse
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
