"""A worker that a supervisor has, its process and its directory: what is seen of it, and what is done with it.

Each method does one thing at once and waits for nothing. When to do what is decided elsewhere (`supervisor.plan`).
`now` is the supervisor's own time (see `supervisor.agent`). Must not know: the store, Nimbus, other workers.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from squall import worker_files
from squall.transport import same_host
from squall.worker_files import BadFile, Incarnation, Orders, Pulse
from supervisor import directories, exits
from supervisor.directories import Started
from supervisor.exits import Exit
from supervisor.orders import Occasion, Standing, ports_of
from supervisor.plan import Backoff, Key, Running
from supervisor.processes import WorkerProcess, kill_left_over

_log = logging.getLogger(__name__)

#: Seconds that a worker's children have to be gone after they were killed; one that hangs in the kernel is left.
_STUCK: Final = 5.0
#: Seconds that are waited for a process that was killed before its directory is used again.
_KILL_PATIENCE: Final = 2.0


class HostedWorker:
    """One worker: `process` is "none", "found", "alive" or "dead", and the other attributes belong to that process."""

    def __init__(self, key: Key, topology: str, version: int, slot: int, directory: Path) -> None:
        self.topology_id, self.worker = key
        self.topology = topology
        self.version = version
        self.slot = slot
        self.directory = directory
        self._pulse_file = str(directory / worker_files.PULSE)
        self.restart = 0
        self.process: WorkerProcess | None = None
        self.life = "none"
        self.timeout = 30.0
        self.backoff = Backoff()
        self.note: str | None = None
        # Whether the note says only what it waits for.
        self.waits = False
        self.ports = (0, 0)
        # Whether `restart` is a number that no process had yet.
        self._fresh = True
        self._forget_process()

    def _forget_process(self) -> None:
        self.orders: Orders | None = None
        self.occasion: Occasion | None = None
        # What the orders were made from, for whoever makes them.
        self.basis: tuple[object, object] | None = None
        self.asked_since = 0
        self.pulse: Pulse | None = None
        self.counted = 0
        self.started = 0.0
        self.heard: float | None = None
        self.signalled: float | None = None
        self.told_to_stop: float | None = None
        self.killed: float | None = None
        self.killed_because: str | None = None
        # Since when the process itself is over, while others of its session may be there.
        self.over: float | None = None
        self._seen: tuple[int, int] | None = None
        self._output_begin = 0

    # What is known

    @property
    def key(self) -> Key:
        """Its name among all workers."""
        return self.topology_id, self.worker

    @property
    def incarnation(self) -> Incarnation:
        """Of the process that runs, or of the next one."""
        return self.version, self.restart

    @property
    def label(self) -> str:
        """How it is called in a message."""
        pid = "" if self.process is None else f" (pid {self.process.pid})"
        return f"worker {self.worker}{pid} of topology {self.topology!r}"

    @property
    def behind(self) -> bool:
        """Whether it has orders that it has not taken."""
        if self.orders is None or self.life != "alive":
            return False
        return self.pulse is None or self.pulse.orders < self.orders.number

    def facts(self) -> Running:
        """What the plan has to know."""
        return Running(
            version=self.version,
            slot=self.slot,
            process=self.life,
            timeout=self.timeout,
            started=self.started,
            heard=self.heard,
            behind=self.behind,
            signalled=self.signalled,
            told_to_stop=self.told_to_stop,
            killed=self.killed,
            backoff=self.backoff,
        )

    def standing(self, asked: str | None, stopped: bool) -> Standing:
        """What a report of it is made from."""
        return Standing(
            self.worker, self.incarnation, self.pulse, asked, self.asked_since, stopped, self.note, self.waits
        )

    # What is seen

    def observe(self, now: float) -> None:
        """Look at its process and its last pulse."""
        if self.life != "alive" or self.process is None:
            return
        # First the process: what it said last is then there to be read.
        gone = self.process.gone()
        self.over = self.over if not self.process.ended() else now if self.over is None else self.over
        self._read_pulse(now)
        if self.over is not None and not gone and now - self.over >= _STUCK:
            _log.warning("%s is over, but a process that it started cannot be killed", self.label)
            gone = True
        if gone:
            self.life = "dead"

    def _read_pulse(self, now: float) -> None:
        try:
            stat = os.stat(self._pulse_file)
        except OSError:
            return
        seen = (stat.st_ino, stat.st_mtime_ns)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            pulse = worker_files.read_pulse(self.directory)
        except BadFile as error:
            _log.warning("%s: %s; its signs of life are not seen", self.label, error)
            return
        if pulse is None or self.process is None:
            return
        if pulse.incarnation != self.incarnation or pulse.pid != self.process.pid:
            return
        if self.pulse is None or pulse.number != self.pulse.number:
            self.heard = now
        self.pulse = pulse
        if pulse.address is not None:
            self.ports = ports_of(pulse.address)

    def counters(self) -> bytes | None:
        """Its counters, when the pulse says that there are others than last time."""
        if self.pulse is None or self.pulse.counters == self.counted:
            return None
        try:
            data = (self.directory / worker_files.COUNTERS).read_bytes()
        except OSError:
            return None
        self.counted = self.pulse.counters
        return data

    def why_killed(self, now: float, patience: float | None) -> str:
        """Why it has to be killed. `patience`: the seconds that it had to stop; None: it was silent for too long."""
        doing = self.pulse.executing if self.pulse is not None else None
        call = "" if doing is None else f"; when last heard of it was in a call of {doing[0]}[{doing[1]}]"
        if patience is not None:
            return f"it did not stop within {patience:g} s{call}"
        if self.heard is None:
            return f"it gave no sign of life within {now - self.started:.0f} s of its start"
        return f"it gave no sign of life for {now - self.heard:.0f} s{call}"

    # What is done

    def next_incarnation(self) -> Incarnation:
        """The incarnation of the process to be started next."""
        if not self._fresh:
            self.restart += 1
            self._fresh = True
        return self.incarnation

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        orders: Orders,
        occasion: Occasion,
        now: float,
        work: Path | None = None,
    ) -> None:
        """Start a process, which finds its orders; the directory is there. `work`: where it works, None for where we do.
        `OSError`: nothing runs."""
        self._forget_process()
        self._fresh = False
        self.give(orders, occasion)
        self._output_begin = exits.output_size(self.directory)
        # First that it is about to be: should we die in between, whoever comes after us looks for the process.
        directories.write_started(self.directory, Started(0, 0, self.incarnation, self.slot))
        self.process = WorkerProcess.start(command, self.directory, environment, work)
        self.life = "alive"
        self.started = now
        if self.waits:
            self.note, self.waits = None, False
        self._note_process()
        _log.info("%s: started as %s", self.label, self.incarnation)

    def _note_process(self) -> None:
        """Note which process runs, for a supervisor after us."""
        assert self.process is not None
        began = Started(self.process.pid, self.process.started, self.incarnation, self.slot)
        try:
            directories.write_started(self.directory, began)
        except OSError as error:  # it runs, and should; a supervisor after us finds it by its mark
            _log.warning("%s: what runs there cannot be noted: %s", self.label, error)

    def give(self, orders: Orders, occasion: Occasion) -> None:
        """Write orders if they are new: others than before, or on another occasion. The plan says when to signal."""
        last = 0 if self.orders is None else self.orders.number
        if occasion == self.occasion and replace(orders, number=last) == self.orders:
            return
        number = last + 1
        written = replace(orders, number=number)
        worker_files.write(self.directory, worker_files.ORDERS, written, 0o600)
        if occasion != self.occasion:
            self.asked_since = number
        self.orders, self.occasion, self.signalled = written, occasion, None

    def stop(self, now: float) -> None:
        """Order it to stop; without orders that could be changed, it is killed."""
        if self.orders is None:
            self.kill(now, "it was to stop, and its orders were lost")
            return
        self.told_to_stop = now
        try:
            self.give(replace(self.orders, asked="stop"), ("stop", "", None, self.orders.version))
        except OSError as error:
            _log.warning("%s cannot be given the order to stop, and gets SIGTERM: %s", self.label, error)
            if self.process is not None:
                self.process.signal(signal.SIGTERM)

    def wait_for(self, note: str | None) -> None:
        """It cannot be started yet; `note` says what it waits for, unless there is something more important to be said."""
        if note is not None and (self.note is None or self.waits):
            self.note, self.waits = note, True

    def write_lease(self, number: int) -> None:
        """Have it go on: a number that rises. `OSError`: it was not written."""
        worker_files.write(self.directory, worker_files.LEASE, {"number": number}, 0o600)

    def signal(self, now: float) -> None:
        """Say that there are new orders."""
        self.signalled = now
        if self.process is not None:
            self.process.signal(signal.SIGUSR1)

    def kill(self, now: float, because: str) -> None:
        """End its process and all that it started, at once."""
        if self.killed is None:
            self.killed_because = because
            _log.warning("%s is killed: %s", self.label, because)
        self.killed = now
        if self.process is not None:
            self.process.kill()

    def exit(self, by_kernel: bool | None) -> Exit:
        """All that is known of the end of its process."""
        assert self.process is not None
        return Exit(
            status=self.process.status,
            killed_because=self.killed_because,
            by_kernel=by_kernel,
            end=exits.read_end(self.directory, self.process.pid),
            tail=exits.output_tail(self.directory, self._output_begin),
        )

    def bury(self, backoff: Backoff, note: str | None, again: bool) -> None:
        """Take note that its process is over, and remove the sockets that it left outside of its directory. `again`: another
        one is wanted, and has its number from now on."""
        same_host.sweep()
        self.life = "none"
        self.backoff = backoff
        self.note = note
        if again:
            self.process = None
            self._forget_process()
            self.next_incarnation()

    # After a restart of the supervisor

    @classmethod
    def find(cls, directory: Path) -> HostedWorker | None:
        """The worker that an earlier supervisor had in a directory, None when there was none."""
        started = directories.read_started(directory)
        try:
            orders = worker_files.read_orders(directory)
        except BadFile as error:
            _log.warning("%s; what runs there is ended", error)
            orders = None
        if orders is None:
            _end_unknown(directory, started)
            return None
        key = (orders.topology_id, orders.worker)
        slot = _slot_of(orders) if started is None else started.slot
        found = cls(key, orders.topology, orders.incarnation[0], slot, directory)
        found.restart = orders.incarnation[1]
        found._fresh = False
        if started is None:  # nothing was started with these orders, or nothing runs any more
            return found
        found.process = _process_of(directory, started)
        if found.process is not None:
            found.orders = orders
            found.life = "found"
            if not started.pid:  # found by its mark: its end is to be told also if we do not see it
                found._note_process()
        elif started.pid:
            found.orders = orders
            kill_left_over(started.pid, directory)
            found.process = WorkerProcess(started.pid, started.started, child=False)
            found.life = "dead"
            found._read_pulse(0.0)  # what it said last was perhaps heard by nobody
        return found

    def adopt(self, now: float) -> None:
        """Take over the process that was found; it is new to us, and has all its time."""
        self.life = "alive"
        self.started = now
        _log.info("%s: found alive as %s", self.label, self.incarnation)


def lease_in(directory: Path) -> int:
    """The number of the last lease in a worker's directory, 0 without one."""
    try:
        body = worker_files.read(directory, worker_files.LEASE)
        return int(body["number"]) if body is not None else 0
    except (BadFile, KeyError, TypeError, ValueError):
        return 0


def _process_of(directory: Path, started: Started) -> WorkerProcess | None:
    """The living process that was started in a directory, or perhaps was."""
    if not started.pid:
        return WorkerProcess.find(directory)
    return WorkerProcess.adopt(started.pid, started.started)


def _slot_of(orders: Orders) -> int:
    places = [place.slot for place in orders.placements if place.worker == orders.worker]
    return places[0] if places else 0


def _end_unknown(directory: Path, started: Started | None) -> None:
    """Nobody can tell what runs in a directory: it goes, before something else is started there."""
    process = None if started is None else _process_of(directory, started)
    if process is None:
        return
    process.kill()
    end = time.monotonic() + _KILL_PATIENCE
    while not process.gone() and time.monotonic() < end:
        time.sleep(0.002)  # the kernel needs a moment
    same_host.sweep()
