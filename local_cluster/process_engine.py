"""A local cluster whose workers are processes. Nimbus, the supervisors and the store are in this process.

A driver calls `round` and `next_time`, as it does for `local_cluster.engine`, which runs workers in this process. Nimbus and
the supervisors are the same in both engines, but here the supervisors start `python -m worker`. All files of the workers are in
one directory, which is removed with the cluster. If this process dies without cleaning up, the workers end with their lease,
and the next cluster removes the directory.
Must not know: the user's calls on the cluster, terminals, the work of workers.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from local_cluster.driver import STOP_SECS
from local_cluster.leftovers import PREFIX, note_owner, sweep
from local_cluster.stamps import new_stamp
from nimbus.counters.counting import Statuses
from nimbus.leader.master import Nimbus
from nimbus.security.keyring import KeyRing
from squall.clock import Clock
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import FORMAT, SupervisorRecord
from squall.cluster.registry import Registry
from squall.dead_letters.folder import LetterFolder, folder_name
from squall.dead_letters.letter import DeadLetter
from squall.security.sealing import KeyPair
from squall.transport.carriers.sockets import make_keys
from supervisor.agent import Supervisor, WorkerTerms
from supervisor.directories import LETTERS
from supervisor.plan import Timeouts
from supervisor.worker_processes import WorkerProcesses
from topology_api import InvalidConfig, SquallError

_log = logging.getLogger(__name__)

#: The id of the only Nimbus, which seals the keys of topologies for itself under this id.
NIMBUS_ID = "local"
#: For how many seconds workers continue without this process: longer than a call that holds the interpreter's lock.
LEASE_SECS = 10.0
#: Seconds from the end of the workers' leases until their silent supervisor may be given up. Workers check their lease only
#: once a second; with a smaller margin two processes could have the same tasks for a moment.
MARGIN = 2.0
#: Seconds between two checks of workers that are being stopped.
PAUSE = 0.01
#: The most rounds that follow each other without a pause when each round makes the next one necessary.
ROUNDS = 8
#: Seconds before work that the disk or the system refused is tried again.
RETRY_SECS = 1.0


@dataclass(frozen=True)
class WorkerView:
    """A worker process. `directory` holds the worker's log (`worker.log`) and its stdout and stderr (`output.log`); `opened`:
    all its tasks were opened or prepared."""

    worker: str
    pid: int
    incarnation: tuple[int, int]
    tasks: tuple[int, ...]
    directory: Path
    opened: bool = False


class ProcessEngine:
    """A local cluster with worker processes. It has no thread of its own: its driver calls it."""

    def __init__(
        self,
        clock: Clock,
        supervisors: int,
        slots: int,
        supervisor_timeout_secs: float,
        control: AbstractContextManager[object],
    ) -> None:
        """`control`: entered for each round; commands enter it, too."""
        if supervisor_timeout_secs < LEASE_SECS + MARGIN:
            raise InvalidConfig(
                [
                    f"'nimbus.supervisor.timeout.secs' is {supervisor_timeout_secs:g}: workers of a local cluster continue for"
                    f" {LEASE_SECS:g} s without their supervisor, so give {LEASE_SECS + MARGIN:g} or more"
                ]
            )
        self.clock = clock
        self.control = control
        self.store = InMemoryStore()
        self.registry = Registry(self.store)
        self.nimbus = Nimbus(
            self.store,
            clock,
            keyring=KeyRing(Registry(self.store), KeyPair.make(), NIMBUS_ID, lambda: asdict(make_keys())),
            supervisor_timeout_secs=supervisor_timeout_secs,
            stamp=new_stamp,
        )
        self.statuses = Statuses(self.store, self.nimbus.counters, clock.now)
        #: Seconds that workers have for stopping at shutdown.
        self.patience = STOP_SECS
        self.changed = True
        self.rounds = 0
        self.retry_at: float | None = None
        self.state = Path(tempfile.mkdtemp(prefix=PREFIX))
        note_owner(self.state)
        sweep(self.state.parent)
        self.supervisors = [
            self._supervisor(f"local-{number}", slots) for number in range(1, supervisors + 1)
        ]
        for supervisor in self.supervisors:
            supervisor.register()
        self.store.watch("/", self.note_change)

    def _supervisor(self, name: str, slots: int) -> Supervisor:
        registry, pair = Registry(self.store), KeyPair.make()
        return Supervisor(
            SupervisorRecord(name, name, slots, beats=True, public_key=pair.public, reads=FORMAT),
            registry,
            self.nimbus,
            WorkerProcesses(self.state / name, registry, name, key_pair=pair),
            self.clock,
            WorkerTerms(lease_secs=LEASE_SECS, timeouts=Timeouts(stop=STOP_SECS)),
        )

    def note_change(self, path: str) -> None:
        """Note that something was written to the store."""
        self.changed = True

    def round(self) -> bool:
        """Let Nimbus and the supervisors do their due work; return whether more work is due at once."""
        now = self.clock.now()
        if now < self.due(now):
            self.rounds = 0
            return False
        with self.control:
            return self.round_in_control(now)

    def round_in_control(self, now: float) -> bool:
        """As `round`, at a time when work is due."""
        self.changed = False
        self.retry_at = None
        self.nimbus.tick()
        for supervisor in self.supervisors:
            try:
                supervisor.sync(now)
            except OSError as error:  # the workers continue; this call is retried
                self.retry_at = now + RETRY_SECS
                _log.warning("%s cannot supervise its workers at the moment: %s", supervisor.id, error)
        self.rounds += 1
        return self.changed and self.rounds % ROUNDS != 0

    def next_time(self) -> float | None:
        """Return the time at which a round is due."""
        return self.due(self.clock.now())

    def due(self, now: float) -> float:
        """Return the time at which a round is due."""
        if self.retry_at is not None:
            return self.retry_at
        if self.changed:
            return now
        times = [supervisor.next_time(now) for supervisor in self.supervisors]
        due = self.nimbus.due  # read once: a command in another thread may clear it at any moment
        return min(times if due is None else [*times, due])

    def count(self, name: str) -> None:
        """Do nothing: worker processes send their counters by themselves."""

    def workers(self, name: str) -> list[WorkerView]:
        """Return the processes that run for a topology."""
        record = self.registry.topologies.get(name)
        assignment = None if record is None else self.registry.assignments.get(record.id)
        placements = () if assignment is None else assignment.placements
        tasks = {(place.worker, place.incarnation.version): place.tasks for place in placements}
        reports = {} if record is None else self.registry.reports(record.id)
        opened = {(worker, report.incarnation) for worker, report in reports.items() if report.opened}
        return [
            WorkerView(
                hosted.worker,
                hosted.pid,
                hosted.incarnation,
                tasks.get((hosted.worker, hosted.incarnation.version), ()),
                hosted.container.directory,
                (hosted.worker, hosted.incarnation) in opened,
            )
            for supervisor in self.supervisors
            for hosted in supervisor.workers()
            if hosted.topology == name and hosted.pid is not None
        ]

    def dead_letters(self, name: str) -> list[DeadLetter]:
        """Return the dead letters of a topology."""
        found: dict[str, DeadLetter] = {}
        for folder in self.state.glob(f"*/{LETTERS}/{folder_name(name)}"):
            letters = LetterFolder(folder)
            for file in letters.files():
                found.update((kept.letter.id, kept.letter) for kept in letters.read(file.name)[0])
        return sorted(found.values(), key=lambda letter: letter.order)

    def stop(self) -> None:
        """Order all workers to stop, and kill workers that take too long."""
        began = self.clock.now()
        open_still = list(self.supervisors)
        while open_still and self.clock.now() < began + self.patience:  # `hurry` may shorten `patience`
            open_still = [supervisor for supervisor in open_still if not self.close(supervisor)]
            if open_still:
                time.sleep(PAUSE)
        left = [supervisor.id for supervisor in open_still if not supervisor.kill_all()]
        shutil.rmtree(self.state, ignore_errors=True)
        if left:
            raise SquallError(f"workers of {', '.join(left)} have not ended, although they were killed")

    def close(self, supervisor: Supervisor) -> bool:
        """Let a supervisor stop its workers; return whether all have ended."""
        try:
            return supervisor.close(self.clock.now())
        except OSError as error:
            _log.warning("%s cannot stop its workers: %s", supervisor.id, error)
            return False
