"""A worker that a supervisor manages: the state of its process, and the actions on it.

Each method does one thing and never waits. `supervisor.plan` decides when a method is called; the container
(`supervisor.process_host`) runs processes and transfers files. `now` is the supervisor's own time (see `supervisor.agent`).
Must not know: the store, how reports reach Nimbus, other workers.
"""

from __future__ import annotations

import logging
from typing import Final

from msgspec.structs import replace

from squall.cluster.records import WorkerReport
from squall.reports.event_text import sentence
from squall.reports.events import Cause, Event, Kind
from squall.values import Incarnation
from squall.worker_files import Orders, WorkerHeartbeat
from supervisor.artifacts import Provision
from supervisor.orders import Occasion, ports_of
from supervisor.plan import Backoff, Key, Running
from supervisor.process_host import Container, Recovered
from supervisor.rare_warnings import RareWarnings
from supervisor.silence import SILENT_SECS, WRITE_SECS, Silence, text_of
from topology_api.errors import SquallError

_log = logging.getLogger(__name__)

#: Seconds that a worker's killed children have to end. A child that hangs in the kernel is left behind.
_STUCK: Final = 5.0


class ManagedWorker(Running):
    """One worker. `life` is the life of its process: "none", "found", "alive" or "dead". Most other attributes also describe
    the process."""

    def __init__(self, key: Key, topology: str, version: int, slot: int, container: Container) -> None:
        super().__init__(version, slot, "none")
        self.topology_id, self.worker = self.key = key
        self.topology = topology
        self.container = container
        self.restart = 0
        # The time since which no process has run: the next process needs files that were checked after this time.
        self.idle_since = 0.0
        # The last event of this worker.
        self.event: Event | None = None
        self.ports = (0, 0)
        self._warnings = RareWarnings()
        # Whether no process has used the number `restart` yet.
        self._fresh = True
        self._forget_process()

    def _forget_process(self) -> None:
        self.orders: Orders | None = None
        self.occasion: Occasion | None = None
        # The inputs from which the present orders were made.
        self.basis: tuple[object, object] | None = None
        self.asked_since = 0
        self.heartbeat: WorkerHeartbeat | None = None
        self.counted = 0
        self.started, self.behind = 0.0, False
        self.heard = self.signalled = self.told_to_stop = self.killed = None
        self.killed_because: str | None = None
        self.silence: Silence | None = None
        # The time at which the process itself ended; other processes of its session may still run.
        self.over: float | None = None

    # State

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of the running process; if no process runs, of the next process."""
        return Incarnation(self.version, self.restart)

    @property
    def pid(self) -> int | None:
        """The pid of the worker's process; None: no process runs."""
        return None if self.life == "none" else self.container.pid

    @property
    def label(self) -> str:
        """The worker's name in messages."""
        pid = "" if self.container.pid is None else f" (pid {self.container.pid})"
        return f"worker {self.worker}{pid} of topology {self.topology!r}"

    def named(self, kind: Kind) -> Event:
        """Return an event of this kind about this worker."""
        return Event(kind, topology=self.topology, worker=self.worker, pid=self.container.pid)

    def report(self, asked: str | None, stopped: bool) -> WorkerReport:
        """Return the report for Nimbus. `asked`: what the topology's state asks of its workers. `stopped`: whether the worker's
        work here is over."""
        heartbeat, event = self.heartbeat, self.event
        if self.silence is not None and self.silence.text:
            event = Event("text", worker=self.worker, error=f"worker {self.worker} {self.silence.text}")
        report = WorkerReport(
            self.worker, self.incarnation, False, False, False, stopped, None,
            version=self.version, note=None if event is None else sentence(event), waits=self._waits, event=event,
        )  # fmt: skip
        if heartbeat is None:
            return report
        # A worker that drained earlier still reports "drained" until it has read its new orders.
        answers = heartbeat.asked == "drain" and heartbeat.orders >= self.asked_since
        return replace(
            report,
            opened=heartbeat.opened,
            ended=heartbeat.ended,
            drained=heartbeat.drained and answers and asked == "drain",
            crash=heartbeat.crash,
            address=heartbeat.address,
            finished=heartbeat.finished,
            version=heartbeat.version,
        )

    # Observation

    def observe(self, now: float) -> None:
        """Read the state of the worker's process, and the last heartbeat."""
        if self.life != "alive":
            return
        # Observe the process before reading the heartbeat: if the process has ended, its last heartbeat is then read, too.
        gone = self.container.gone()
        self.over = self.over if not self.container.ended() else now if self.over is None else self.over
        self._read_heartbeat(now)
        self._watch_silence(now)
        if self.over is not None and not gone and now - self.over >= _STUCK:
            _log.warning("%s has ended, but a process that it started cannot be killed", self.label)
            gone = True
        if gone:
            self.life = "dead"

    def _read_heartbeat(self, now: float) -> None:
        try:
            heartbeat = self.container.read_heartbeat()
        except SquallError as error:
            if self._warnings.due("heartbeat", now):
                _log.warning("%s: %s; its heartbeats are not seen", self.label, error)
            return
        own = self.container.pid, self.incarnation
        if heartbeat is None or (heartbeat.pid, heartbeat.incarnation) != own:
            return
        if self.heartbeat is None or heartbeat.number != self.heartbeat.number:
            self.heard = now
        self.heartbeat = heartbeat
        self.behind = self.orders is not None and heartbeat.orders < self.orders.number
        if heartbeat.address is not None:
            self.ports = ports_of(heartbeat.address)

    def _watch_silence(self, now: float) -> None:
        """If the worker sends no heartbeats, find out what it does."""
        heard = self.heard
        if (
            heard is None
            or now - heard < SILENT_SECS
            or self.over is not None
            or self.told_to_stop is not None
        ):
            self.silence = None
        elif self.silence is None:
            self.silence = Silence(now)
            self.container.show_stacks()
        elif not self.silence.text and now - self.silence.since >= WRITE_SECS:
            call = None if self.heartbeat is None else self.heartbeat.executing
            text = text_of(now - heard, call, self.container.shown_stacks())
            self.silence = Silence(self.silence.since, text)
            _log.warning("%s %s", self.label, text)

    def counters(self, now: float) -> bytes | None:
        """Return the worker's counters if the heartbeat says that they have changed, else None."""
        if self.heartbeat is None or self.heartbeat.counters == self.counted:
            return None
        try:
            data = self.container.read_counters()
        except OSError:  # this supervisor can open no file at the moment: it reads them later
            return None
        except SquallError as error:
            self.counted = self.heartbeat.counters  # read again when the heartbeat names new ones
            if self._warnings.due("counters", now):
                _log.warning("%s: %s; its counters are not seen", self.label, error)
            return None
        if data is not None:
            self.counted = self.heartbeat.counters
        return data

    def why_killed(self, now: float, patience: float | None) -> str:
        """Return why the worker has to be killed. `patience`: the seconds that the worker had for stopping; None: the worker
        was silent for too long."""
        doing = self.heartbeat.executing if self.heartbeat is not None else None
        call = "" if doing is None else f"; at its last heartbeat it was in a call of {doing[0]}[{doing[1]}]"
        if patience is not None:
            return f"it did not stop within {patience:g} s{call}"
        if self.heard is None:
            return f"it sent no heartbeat within {now - self.started:.0f} s of its start"
        return f"it sent no heartbeat for {now - self.heard:.0f} s{call}"

    # Actions

    def next_incarnation(self) -> Incarnation:
        """Return the incarnation of the process that is started next."""
        if not self._fresh:
            self.restart += 1
            self._fresh = True
        return self.incarnation

    def start(self, provision: Provision, orders: Orders, occasion: Occasion, now: float) -> None:
        """Start a process in its prepared container, with orders. Raises `OSError` if nothing was started."""
        self._forget_process()
        self._fresh = False
        self.give(orders, occasion)
        self.container.launch(provision, self.incarnation, self.slot)
        self.life = "alive"
        self.started = now
        if self._waits:
            self.event = None
        _log.info("%s: started as %s", self.label, self.incarnation)

    def give(self, orders: Orders, occasion: Occasion) -> None:
        """Write the orders if the orders or the occasion have changed. The plan decides when to signal."""
        last = 0 if self.orders is None else self.orders.number
        if occasion == self.occasion and replace(orders, number=last) == self.orders:
            return
        number = last + 1
        written = replace(orders, number=number)
        self.container.write_orders(written)
        if occasion != self.occasion:
            self.asked_since = number
        self.orders, self.occasion = written, occasion
        self.signalled, self.behind = None, True

    def stop(self, now: float, orders: Orders | None) -> None:
        """Order the worker to stop; kill it if its orders were lost (None)."""
        if orders is None:
            self.kill(now, "it had to stop, and its orders were lost")
            return
        self.told_to_stop = now
        try:
            self.give(orders, ("stop", "", None, orders.version))
        except OSError as error:
            _log.warning("%s cannot be given the order to stop, and gets SIGTERM: %s", self.label, error)
            self.container.terminate()

    def wait_for(self, part: str | None) -> None:
        """Record that the worker cannot start yet, since `part` is being prepared. Earlier events stay visible."""
        if part is not None and (self.event is None or self._waits):
            self.event = replace(self.named("waits"), part=part)

    @property
    def _waits(self) -> bool:
        return self.event is not None and self.event.kind == "waits"

    def signal(self, now: float) -> None:
        """Signal to the worker that there are new orders."""
        self.signalled = now
        self.container.wake()

    def kill(self, now: float, because: str) -> None:
        """Kill the worker's process with all its children."""
        if self.killed is None:
            self.killed_because = because
            _log.warning("%s is killed: %s", self.label, because)
        self.killed = now
        self.container.kill()

    def bury(self, backoff: Backoff, event: Event | None, now: float, again: bool) -> None:
        """Record that the worker's process has ended. `again`: another process is wanted, and gets the next incarnation."""
        self.life, self.behind, self.idle_since = "none", False, now
        self.backoff = backoff
        self.event = event
        if again:
            self.container.reset()
            self._forget_process()
            self.next_incarnation()

    # After a restart of the supervisor

    @classmethod
    def recovered(cls, found: Recovered) -> ManagedWorker:
        """Return a worker of an earlier supervisor."""
        orders = found.orders
        key = (orders.topology_id, orders.worker)
        worker = cls(key, orders.topology, orders.incarnation.version, found.slot, found.container)
        worker.restart = orders.incarnation.restart
        worker._fresh = False
        worker.life = found.life
        if found.life != "none":
            worker.orders = orders
        if found.life == "dead":
            worker._read_heartbeat(0.0)  # the previous supervisor may not have read this heartbeat
        return worker

    def adopt(self, now: float) -> None:
        """Adopt the recovered process; its timeouts begin now."""
        self.life, self.behind = "alive", self.orders is not None
        self.started = now
        _log.info("%s: found alive as %s", self.label, self.incarnation)


# Events


def died(worker: Event, cause: Cause, backoff: Backoff | None, now: float) -> Event:
    """Return the event of a death. `worker`: an event that names the worker; `backoff` None: the worker is not started
    again."""
    event = replace(worker, kind="died", cause=cause)
    return event if backoff is None else _retried(event, backoff.deaths - backoff.unstarted, backoff, now)


def not_started(worker: Event, part: str, error: str, backoff: Backoff, now: float) -> Event:
    """Return the event of a failed start. `part`: the artifact that could not be prepared; "": the process itself could not be
    started."""
    event = replace(worker, kind="not_started", part=part, error=error)
    return _retried(event, backoff.unstarted, backoff, now)


def _retried(event: Event, attempt: int, backoff: Backoff, now: float) -> Event:
    return replace(
        event,
        attempt=attempt,
        within_secs=max(0.0, now - backoff.since),
        retry_in_secs=max(0.0, backoff.not_before - now),
    )
