"""The simulated cluster: the store's servers, candidates, machines with their supervisors, and an operator.

Every random choice comes from the seed, by the name of its user, so that omitting a fault changes little else.
Must not know: what is checked, which faults come when (`tests.simulation.story`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from nimbus.leader.master import Nimbus
from nimbus.lifecycle.states import IllegalTransition
from nimbus.submission.submission import Submission
from squall.cluster import paths
from squall.cluster.records import TopologyRecord
from squall.cluster.registry import Registry
from squall.worker_files import Orders
from tests.simulation.daemons import Agent, Candidate, LinkChances, Memory
from tests.simulation.idle import IdleProgram
from tests.simulation.machines import Habits, Machine, Program, VirtualProcess
from tests.simulation.process_table import Processes
from tests.simulation.sessions import Chances, Server
from tests.simulation.timeline import Actor, Timeline
from tests.simulation.tuples import BOOKS, Air, Book, TupleProgram, tuple_topology
from topology_api.errors import InvalidConfig, NameTaken, NoSuchTopology, SquallError
from topology_api.options import defaults
from topology_api.topology import ComponentSpec, GroupingSpec, StreamSpec, Subscription, Topology


@dataclass
class Asked:
    """The operator's requests, and their answers."""

    what: str
    name: str
    at: float
    answered: float | None = None
    answer: Any = None
    refused: SquallError | None = None
    tries: int = 0
    given_up: bool = False


@dataclass
class Settings:
    """The size of a simulated cluster."""

    candidates: int = 2
    machines: int = 3
    slots: int = 2
    habits: Habits = field(default_factory=Habits)
    #: Whether workers are real, and there are tuples.
    tuples: bool = False


def idle_topology(name: str, spouts: int, bolts: int) -> Topology:
    """A spout of some tasks and optionally a bolt, whose pickles cannot be loaded."""
    label = "lines"
    spout = ComponentSpec(label, "spout", spouts, {}, {"default": StreamSpec(("line",))})
    if not bolts:
        return Topology(name, {}, (spout,), {label: b"this is no pickle"})
    subscription = Subscription(label, "default", GroupingSpec("shuffle"))
    bolt = ComponentSpec("count", "bolt", bolts, {}, {}, (subscription,))
    return Topology(name, {}, (spout, bolt), {label: b"no pickle", "count": b"no pickle either"})


class World:
    """A cluster."""

    def __init__(self, seed: str, directory: Path, settings: Settings) -> None:
        self.seed = seed
        self.directory = directory
        #: Different in each run.
        self.run_key = f"{seed}/{directory}"
        self.settings = settings
        self.line = Timeline()
        self.nature = Actor(self.line, "nature")
        self.server = Server(self.nature)
        #: The records on the servers, without any session.
        self.registry = Registry(self.server.store)
        self.link_chances = LinkChances()
        self.chances = {name: Chances() for name in (*self.candidate_names, *self.machine_names)}
        #: Seconds that the sources of topologies last, by their name.
        self.finite: dict[str, float] = {}
        self.asked: list[Asked] = []
        self.lives = 0
        #: Whether no more topologies are submitted.
        self.closing = False
        self.processes = Processes(self.line, self.random("processes"), settings.habits, self.program)
        self.processes.machines = [Machine(name, directory / name) for name in self.machine_names]
        self.machines = {machine.name: machine for machine in self.processes.machines}
        for machine in self.machines.values():
            machine.disk.mkdir(parents=True)
        self.candidates: dict[str, Candidate] = {}
        self.agents: dict[str, Agent] = {}
        self.memories: dict[str, Memory] = {}
        #: Functions that repair damaged values.
        self.repairs: list[Callable[[], None]] = []
        self.air = Air(self.random("air"))
        #: Called for each action on the cluster.
        self.log: Callable[[str], None] = lambda text: None

    @property
    def candidate_names(self) -> list[str]:
        """The Nimbuses."""
        return [f"n{number}" for number in range(1, self.settings.candidates + 1)]

    @property
    def machine_names(self) -> list[str]:
        """The machines, and the supervisors on them."""
        return [f"h{number}" for number in range(1, self.settings.machines + 1)]

    def random(self, name: str) -> Random:
        """A source of random numbers for one user."""
        return Random(f"{self.seed}/{name}")

    def begin(self) -> None:
        """Start every daemon."""
        for name in self.candidate_names:
            self.start_candidate(name)
        for name in self.machine_names:
            self.start_agent(name)

    # Daemons

    def start_candidate(self, name: str) -> None:
        """Start a Nimbus daemon, if none runs."""
        there = self.candidates.get(name)
        if there is None or not there.alive:
            self.lives += 1
            random = self.random(f"{name}/{self.lives}")
            if name not in self.memories:
                disk = self.directory / name
                disk.mkdir()
                self.memories[name] = Memory(disk)
            memory = self.memories[name]
            self.candidates[name] = Candidate(
                self.line, name, self.server, self.chances[name], random, memory
            )

    def start_agent(self, name: str) -> None:
        """Start a supervisor daemon, if none runs."""
        there = self.agents.get(name)
        if there is None or not there.alive:
            self.lives += 1
            random = self.random(f"{name}/{self.lives}")
            self.agents[name] = Agent(
                self.line,
                self.machines[name],
                self.settings.slots,
                self.server,
                self.chances[name],
                lambda: self.candidates,
                self.link_chances,
                random,
            )

    def program(self, process: VirtualProcess, orders: Orders) -> Program:
        """The daemon in a process."""
        if self.settings.tuples:
            return TupleProgram(process, orders, self.air, BOOKS[self.book_of(orders.topology)])
        return IdleProgram(process, self.settings.habits, self.finite.get(orders.topology))

    # Queries

    @property
    def leader(self) -> Candidate | None:
        """The leader according to the servers."""
        found = self.server.store.get(paths.LEADER)
        return None if found is None else self.candidates.get(found[0].decode())

    # The operator

    def ask(self, what: str, name: str, do: Callable[[Nimbus], Any], patience: float = 120.0) -> Asked:
        """Have an operator repeat a request until there is an answer."""
        asked = Asked(what, name, self.line.now)
        self.asked.append(asked)
        random = self.random(f"operator/{len(self.asked)}")
        until = self.line.now + patience

        def answer(value: Any, refused: SquallError | None) -> None:
            if asked.answered is None:
                asked.answered, asked.answer, asked.refused = self.line.now, value, refused
                self.log(f"{what} {name}: {refused or 'done'}")

        def at_nimbus(candidate: Candidate) -> None:
            if asked.answered is not None or asked.given_up:
                return  # its connection is closed by now
            try:
                value, refused = candidate.command(do), None
            except (NameTaken, NoSuchTopology, IllegalTransition, InvalidConfig) as error:
                value, refused = None, error
            except SquallError as error:
                self.log(f"{what} {name} at {candidate.name}: {type(error).__name__} {error}")
                return
            if random.random() >= self.link_chances.lose:
                self.line.after(0.005, self.nature, lambda: answer(value, refused))

        def attempt() -> None:
            if asked.answered is not None or asked.given_up or self.line.now > until:
                return
            asked.tries += 1
            candidate = (
                self.leader if random.random() < 0.9 else random.choice(list(self.candidates.values()))
            )
            if candidate is not None and random.random() >= self.link_chances.lose:
                self.line.after(0.005, candidate, lambda: at_nimbus(candidate))
            self.line.after(random.uniform(0.5, 2.0), self.nature, attempt)

        attempt()
        return asked

    def give_up_asking(self) -> None:
        """Requests without an answer so far are not repeated."""
        self.closing = True
        for asked in self.asked:
            asked.given_up = True

    def submit(
        self,
        name: str,
        spouts: int,
        bolts: int,
        workers: int,
        active: bool = True,
        finite: float | None = None,
        replace: bool = False,
        wait_secs: float | None = None,
    ) -> Asked:
        """Have a topology submitted."""
        conf = defaults() | {
            "topology.workers": workers,
            "topology.message.timeout.secs": 5,
            "topology.worker.timeout.secs": 8,
        }
        if finite is not None and not self.settings.tuples:
            self.finite[name] = finite
        topology = self.make_topology(name, spouts, bolts)
        key = f"{name}/{len(self.asked)}"

        def do(nimbus: Nimbus) -> TopologyRecord:
            confs = {spec.id: conf for spec in topology.components}
            return nimbus.submit(
                Submission(topology, conf, confs, active, key=key, replace=replace, wait_secs=wait_secs)
            )

        return self.ask("replace" if replace else "submit", name, do)

    def submit_when_free(self, name: str, *topology: Any) -> None:
        """Submit a topology as soon as its name is free."""

        def look() -> None:
            if self.closing:
                return
            if paths_free(self, name):
                self.submit(name, *topology)
            else:
                self.line.after(1.0, self.nature, look)

        look()

    def drain(self, supervisor: str, on: bool) -> None:
        """Drain a supervisor, or undrain it."""
        self.ask("drain" if on else "undrain", supervisor, lambda nimbus: nimbus.drain(supervisor, on))

    @property
    def habits(self) -> Habits:
        """The behaviour of the processes."""
        return self.settings.habits

    def make_topology(self, name: str, spouts: int, bolts: int) -> Topology:
        """The topology to submit."""
        if not self.settings.tuples:
            return idle_topology(name, spouts, bolts)
        key = self.book_of(name)
        BOOKS.setdefault(key, Book(self.line))
        return tuple_topology(
            key, name, spouts, bolts, self.random(f"{name}/pause").choice([0.01, 0.05, 0.3])
        )

    # The ledgers of tasks

    def book_of(self, name: str) -> str:
        """The key of the ledger for topologies of a name."""
        return f"{self.run_key}/{name}"

    def books(self) -> list[Book]:
        """The ledgers of this run."""
        return [book for key, book in BOOKS.items() if key.startswith(f"{self.run_key}/")]

    def superseded(self, process: VirtualProcess) -> None:
        """A process's tasks belong to others from now on."""
        if self.settings.tuples and process.identity is not None and process.topology is not None:
            book = BOOKS[self.book_of(process.topology)]
            book.superseded.setdefault(process.pid, book.moment)

    def close(self) -> None:
        """The run is over."""
        for key in [key for key in BOOKS if key.startswith(f"{self.run_key}/")]:
            del BOOKS[key]


def paths_free(world: World, name: str) -> bool:
    """Whether a name is free."""
    return world.server.store.get(paths.topology(name)) is None
