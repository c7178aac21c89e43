"""The daemons of the simulated cluster: their real cores, each in an actor of its own.

A `Candidate` is a Nimbus daemon: its `LeaderLoop`, which runs the master while it leads. An `Agent` is a supervisor daemon: a
`Supervisor` over the disk of its machine. A supervisor reaches Nimbus by a `Link`, which may lose, double and delay its
messages, and never answers.
Must not know: which faults there are, what is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final

from nimbus.leader.control import LeaderLoop
from nimbus.leader.master import Nimbus
from nimbus.lifecycle.replacing import ReplaceTerms
from nimbus.security.secrets import Secrets
from squall.cluster import identity, paths
from squall.cluster.records import FORMAT, NimbusRecord, SupervisorRecord, WorkerReport
from squall.cluster.registry import Registry
from squall.cluster.store import Store
from squall.daemon.command_loop import LONGEST_SLEEP
from squall.daemon.state_directory import KnownCluster
from squall.security.sealing import KeyPair
from squall.values import Incarnation
from supervisor.agent import LoopPace, Supervisor, WorkerTerms
from supervisor.artifacts import Artifacts
from supervisor.directories import Directories
from supervisor.environments import Environments
from supervisor.plan import Timeouts
from supervisor.worker_processes import WorkerCommand, WorkerProcesses
from tests.simulation.machines import Machine
from tests.simulation.sessions import Chances, Server, SimulatedSession
from tests.simulation.timeline import Actor, Timeline
from topology_api.errors import SquallError

SUPERVISOR_TIMEOUT_SECS: Final = 15.0
LEASE_SECS: Final = 10.0
REPLACE_TIMEOUT_SECS: Final = 15.0
#: Seconds between two looks of a Nimbus without a notification, since notifications may be lost.
LOOK_SECS: Final = 5.0
#: Seconds that a message takes from one process to another.
LATENCY: Final = (0.001, 0.02)
#: Seconds from a change to the look at it: changes come in bursts.
SOON_SECS: Final = 0.02
#: Seconds after which a supervisor notices a change of its processes. A real one checks this often; here it is woken.
SEEN_SECS: Final = (0.0, 0.2)
#: Seconds between two looks of a supervisor without any event: while one of its limits may expire, and otherwise (a little more
#: than a second, after which it has work of its own).
LIMITS_SECS: Final = 0.5
REST_SECS: Final = 1.001
#: A supervisor reads the store again without a notification (a real one after one second), and sends heartbeats to Nimbus and
#: its workers, a fifth of a lease apart, the longest real interval. Between looks without a reason, a session uses its cache
#: (`sessions.CACHE_SECS`).
PACE: Final = LoopPace(reread=3.0, heartbeat=2.0)


class Memory:
    """The state on a Nimbus's disk: its cluster id, its key pair, the token."""

    def __init__(self, disk: Path) -> None:
        self.disk = disk
        self.cluster: str | None = None
        self.pair = pair_of(disk.name)


@lru_cache
def pair_of(name: str) -> KeyPair:
    """The key pair of a daemon, the same in every run: making one takes longer than an event."""
    return KeyPair.make()


def link_keys() -> dict[str, str]:
    """The keys of a topology's links."""
    return {"public": "a public key", "secret": "a secret key"}


class Candidate(Actor):
    """A Nimbus daemon."""

    def __init__(
        self, line: Timeline, id: str, server: Server, chances: Chances, random: Random, memory: Memory
    ) -> None:
        super().__init__(line, id, -random.uniform(0, 1e6))
        self.session = SimulatedSession(server, self, chances, random)
        self.memory = memory
        self._wakes_at: float | None = None
        self.secrets = Secrets(
            self.session, memory.pair, id, link_keys, self, memory.disk, (), {"HOME": str(memory.disk)}, {}
        )
        self.control = LeaderLoop(
            self.session,
            NimbusRecord(id, f"http://{id}", id, memory.pair.public, reads=FORMAT),
            self,
            self._make_master,
            self.secrets,
            self._why_not,
            lambda: self.wake_in(SOON_SECS),
            lambda: self.secrets.aside,
        )
        self._leadership = self.control._leadership
        self.wake_in(random.uniform(0, 0.5))

    def _make_master(self, store: Store) -> Nimbus:
        master = Nimbus(
            store,
            self,
            keyring=self.secrets.ring,
            supervisor_timeout_secs=SUPERVISOR_TIMEOUT_SECS,
            replacing=ReplaceTerms(REPLACE_TIMEOUT_SECS),
            wall_clock=lambda: self.line.now,
            poll_secs=LOOK_SECS,
        )
        self.memory.cluster = master.cluster_id
        return master

    def _why_not(self) -> str | None:
        try:
            found = identity.check(self.session, self.memory.cluster)
        except identity.OtherCluster as error:
            return str(error)
        self.memory.cluster = found or self.memory.cluster
        return self.secrets.lacks()

    def wake_in(self, seconds: float) -> None:
        """Wake it then at the latest."""
        moment = self.line.now + seconds
        if self._wakes_at is None or moment < self._wakes_at:
            self._wakes_at = moment
            self.line.at(moment, self, self._wake)

    def _wake(self) -> None:
        if self._wakes_at is not None and self.line.now < self._wakes_at:
            return  # another wake-up will come
        self._wakes_at = None
        self.control.round()
        self._sleep()

    def _sleep(self) -> None:
        due = self.control.next_time()
        self.wake_in(LONGEST_SLEEP if due is None else min(LONGEST_SLEEP, max(SOON_SECS, due - self.now())))

    @property
    def leads(self) -> bool:
        """Whether it considers itself the leader, and could know better."""
        if self._leadership._guard is None or not self.alive or self.session.early:
            return False
        return self._leadership.leading(self.now())

    @property
    def supervisors(self) -> Collection[str]:
        """The live supervisors, as far as it knows while it leads."""
        master = self.control._master
        return () if master is None else master._assigner.supervisors.keys()

    def command(self, do: Callable[[Nimbus], Any]) -> Any:
        """A request of an operator."""
        try:
            return self.control.lead(do)
        finally:
            self._sleep()

    def say(self, do: Callable[[Nimbus], Any]) -> None:
        """A report of a supervisor."""
        try:
            self.command(do)
        except SquallError:
            return


@dataclass
class LinkChances:
    """The messages of supervisors and operators to Nimbus, with their faults."""

    lose: float = 0.0
    double: float = 0.0
    late: float = 0.0
    #: Pairs (supervisor, Nimbus) between which no message arrives.
    cut: frozenset[tuple[str, str]] = frozenset()

    def calm(self) -> None:
        """No faults from now on."""
        self.__dict__.update(vars(LinkChances()))


class Link:
    """A `supervisor.reporter.NimbusLink` to the leader."""

    def __init__(
        self,
        agent: Agent,
        candidates: Callable[[], dict[str, Candidate]],
        chances: LinkChances,
        random: Random,
    ) -> None:
        self._agent = agent
        self._candidates = candidates
        self._chances = chances
        self._random = random
        self._last = 0.0

    def report(self, name: str, worker: str, report: WorkerReport) -> bool:
        """See `NimbusLink`. Whether it was accepted is not known: the store will show it."""
        self._send(lambda nimbus: nimbus.report(name, worker, report))
        return True

    def count(self, topology_id: str, worker: str, incarnation: Incarnation, counters: bytes) -> None:
        """See `NimbusLink`."""
        self._send(lambda nimbus: nimbus.count(topology_id, worker, incarnation, counters))

    def heard(self, supervisor_id: str) -> None:
        """See `NimbusLink`."""
        self._send(lambda nimbus: nimbus.heard(supervisor_id))

    def _send(self, say: Callable[[Nimbus], Any]) -> None:
        chances, draw = self._chances, self._random.random
        times = 2 if draw() < chances.double else 1
        for _ in range(times):
            if draw() < chances.lose:
                continue
            delay = self._random.uniform(*(LATENCY if draw() >= chances.late else (0.5, 8.0)))
            self._agent.line.after(delay / 2, self._agent, partial(self._leave, say, delay / 2))

    def _leave(self, say: Callable[[Nimbus], Any], delay: float) -> None:
        try:
            found = self._agent.session.get(paths.LEADER)
        except SquallError:
            return
        candidate = None if found is None else self._candidates().get(found[0].decode())
        if candidate is None or (self._agent.name, candidate.name) in self._chances.cut:
            return
        candidate.line.after(delay, candidate, lambda: candidate.say(say))


def no_command(*what: object) -> list[str]:
    """Virtual processes need none."""
    return []


class Agent(Actor):
    """A supervisor daemon on a machine."""

    def __init__(
        self,
        line: Timeline,
        machine: Machine,
        slots: int,
        server: Server,
        chances: Chances,
        candidates: Callable[[], dict[str, Candidate]],
        link_chances: LinkChances,
        random: Random,
    ) -> None:
        super().__init__(line, machine.name, -random.uniform(0, 1e6))
        self.machine = machine
        machine.supervisor = self
        machine.news = self._news
        self._random = random
        self.session = SimulatedSession(server, self, chances, random)
        known = KnownCluster(machine.disk)
        registry, pair = Registry(self.session), pair_of(machine.name)
        self.directories = Directories(machine.disk)
        processes = WorkerProcesses(
            machine.disk,
            registry,
            machine.name,
            key_pair=pair,
            start=WorkerCommand([], command=no_command),
            kernel_kills=lambda: None,
            artifacts=Artifacts(
                machine.disk, self.session, environments=Environments(machine.disk / "environments", uv="")
            ),
            directories=self.directories,
        )
        self.supervisor = Supervisor(
            SupervisorRecord(
                machine.name, machine.name, slots, beats=True, public_key=pair.public, reads=FORMAT
            ),
            registry,
            Link(self, candidates, link_chances, random),
            processes,
            self,
            WorkerTerms(lease_secs=LEASE_SECS, timeouts=Timeouts(start=20.0, stop=5.0), pace=PACE),
            admit=lambda: known.admit(self.session),
            wake=lambda: self.wake_in(SOON_SECS),
        )
        self._wakes_at: float | None = None
        self.wake_in(random.uniform(0, 0.5))

    def wake_in(self, seconds: float) -> None:
        """Wake it then at the latest."""
        moment = self.line.now + seconds
        if self._wakes_at is None or moment < self._wakes_at:
            self._wakes_at = moment
            self.line.at(moment, self, self._wake)

    def _news(self) -> None:
        """A process has reported news, or has ended."""
        self.wake_in(self._random.uniform(*SEEN_SECS))

    def _wake(self) -> None:
        if self._wakes_at is not None and self.line.now < self._wakes_at:
            return
        self._wakes_at = None
        supervisor = self.supervisor
        try:
            supervisor.sync(self.now())
        except SquallError:
            return self.wake_in(0.5)
        now = self.now()
        if supervisor.next_time(now) <= now:
            return self.wake_in(SOON_SECS)
        seconds = LIMITS_SECS if supervisor.next_time(now) - now <= PACE.soon else REST_SECS
        store_view = supervisor._store_view
        if store_view is not None:  # a failed read is soon repeated
            due = now if store_view.changed else store_view._next
            seconds = min(seconds, max(due - now, SOON_SECS))
        self.wake_in(seconds)
