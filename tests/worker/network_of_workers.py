"""Workers joined by exchanges in one process, over a network that loses, doubles and reorders messages.

The network is one in memory, in simulated time (`InMemory`), or ZeroMQ's, in real time (`OverZeroMQ`).
Must not know: single tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from random import Random
from types import TracebackType
from typing import Any, Protocol

from squall.clock import Clock, ManualClock, RealClock
from squall.settings import Overrides, merged
from squall.transport.carrier import DATA, Carrier
from squall.transport.carriers.sockets import Sockets, make_keys
from squall.transport.exchange import Exchange, PeerPlace
from squall.transport.frames import Frame
from squall.transport.link import LocalWorker
from squall.transport.wire import Streams
from squall.values import Incarnation, TaskRow
from tests.carrier_in_memory import LoopbackCarrier, LoopbackNetwork
from tests.worker.lossy_carrier import Faults, LossyCarrier
from topology_api import Topology
from worker.loop.kinds import worker_class
from worker.loop.plan import WorkerPlan
from worker.loop.snapshot import idle_reason
from worker.tasks.simulated_async import SimulatedAsync


class World(Protocol):
    """The surroundings of workers: their time, and the carrier of their messages."""

    @property
    def clock(self) -> Clock:
        """The time."""

    @property
    def calls_an_instant(self) -> int | None:
        """See `WorkerPlan`."""

    @property
    def rounds(self) -> int:
        """Rounds of workers with work to do before time goes on."""

    def carrier(self, worker: str) -> Carrier:
        """The carrier of a worker's process."""

    def move(self, worker: str) -> None:
        """The next process of a worker listens elsewhere."""

    def go_on(self, until: float, busy: bool) -> None:
        """Let time pass until then, or less."""


class InMemory:
    """Simulated time, and a network of lists."""

    calls_an_instant = 1000

    def __init__(self, rounds: int = 1000) -> None:
        self.rounds = rounds
        self.clock = ManualClock()
        self.network = LoopbackNetwork()

    def carrier(self, worker: str) -> Carrier:
        """See `World`."""
        return LoopbackCarrier(self.network)

    def move(self, worker: str) -> None:
        """See `World`. Every process listens elsewhere."""

    def go_on(self, until: float, busy: bool) -> None:
        """See `World`."""
        self.clock.move_to(max(until, self.clock.now() + 0.0005))


class OverZeroMQ:
    """Real time, and sockets of this machine, encrypted and authenticated. A worker that comes back has its ports again."""

    calls_an_instant = None
    rounds = 1

    def __init__(self) -> None:
        self.clock = RealClock()
        self.keys = make_keys()
        self.made: list[Sockets] = []
        self.ports: dict[str, tuple[int, int]] = {}

    def carrier(self, worker: str) -> Carrier:
        """See `World`."""
        sockets = Sockets(self.keys, ports=self.ports.get(worker, (0, 0)))
        self.ports.setdefault(worker, sockets.ports)
        self.made.append(sockets)
        return sockets

    def move(self, worker: str) -> None:
        """See `World`."""
        self.ports.pop(worker, None)

    def go_on(self, until: float, busy: bool) -> None:
        """See `World`. All workers share this thread, so none of them may wait by itself."""
        if not busy:
            time.sleep(max(0.0, min(0.001, until - self.clock.now())))

    def __enter__(self) -> OverZeroMQ:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sockets in self.made:
            sockets.close()


class Node:
    """One process: a worker and its exchange."""

    def __init__(self, plan: WorkerPlan, clock: Clock, carrier: LossyCarrier) -> None:
        self.name = plan.worker
        self.incarnation = plan.incarnation
        self.carrier = carrier
        #: Whether the tasks are opened only when all other workers answer.
        self.waits_for_peers = True
        calls = SimulatedAsync(clock.now)
        self.worker = worker_class(plan)(plan, clock, self.send, calls, lambda: None, inline=True)
        streams = Streams(plan.topology, plan.component_of)
        codec = str(plan.conf["topology.transport.codec"])
        local = LocalWorker(
            plan.worker, plan.incarnation, carrier.address, codec, streams, self.worker.window_of
        )
        local.ordered = plan.has_epochs
        self.exchange = Exchange(
            local, carrier, clock, self.worker.peers, int(plan.conf["topology.cycle.buffer"])
        )

    def send(self, worker: str, frame: Frame) -> None:
        self.exchange.send(worker, frame)

    def step(self) -> bool:
        """One round of the process's loop."""
        busy = self.exchange.receive()
        if not self.worker.started and (self.exchange.linked or not self.waits_for_peers):
            self.worker.start()
            self.exchange.ready()
            busy = True
        busy |= self.worker.step()
        busy |= self.exchange.advance()
        return busy


class Net:
    """All workers of a topology."""

    def __init__(
        self,
        topology: Topology,
        hosts: Mapping[str, list[str]],
        world: World,
        faults: Faults | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        """`hosts`: the tasks of each worker, as "component/index"; `faults`: of the network, usually none."""
        self.topology = topology
        self.world = world
        self.clock = world.clock
        self.faults = faults or Faults(Random(1))
        self.conf, self.component_confs = merged(topology, {}, {}, Overrides(topology=dict(conf or {})))
        self.tasks: tuple[TaskRow, ...] = ()
        self.number_tasks(topology)
        self.hosts = dict(hosts)
        self.version = 1
        self.incarnations: dict[str, Incarnation] = dict.fromkeys(hosts, Incarnation(1, 0))
        self.nodes: dict[str, Node] = {}

    def number_tasks(self, topology: Topology) -> None:
        """Ids from 1 in the order of declaration; existing tasks keep theirs."""
        ids = {(component, index): task for task, component, index in self.tasks}
        highest = max(ids.values(), default=0)
        rows = []
        for spec in topology.components:
            for index in range(spec.parallelism):
                task = ids.get((spec.id, index))
                if task is None:
                    task = highest = highest + 1
                rows.append(TaskRow(task, spec.id, index))
        self.tasks = tuple(rows)

    @property
    def worker_of(self) -> dict[int, str]:
        place = {task: worker for worker, tasks in self.hosts.items() for task in tasks}
        return {task: place[f"{component}/{index}"] for task, component, index in self.tasks}

    def plan(self, worker: str, incarnation: Incarnation) -> WorkerPlan:
        return WorkerPlan(
            worker=worker,
            topology=self.topology,
            tasks=self.tasks,
            worker_of=self.worker_of,
            conf=self.conf,
            component_confs=self.component_confs,
            directory="/nonexistent",
            seed=7,
            calls_an_instant=self.world.calls_an_instant,
            incarnation=incarnation,
            version=self.version,
            topology_id="net",
            linked=False,
        )

    def start(self, *names: str) -> None:
        """Start the processes of these workers (default: all), and send all workers their addresses."""
        for name in names or tuple(self.hosts):
            self.begin(name)
        self.tell()

    def begin(self, name: str) -> Node:
        """Start the process of a worker, without informing its peers."""
        carrier = LossyCarrier(self.world.carrier(name), self.faults)
        node = self.nodes[name] = Node(self.plan(name, self.incarnations[name]), self.clock, carrier)
        return node

    def tell(self, renumbered: list[int] | None = None) -> None:
        """Act as the supervisors: give every worker the assignment and its peers' addresses."""
        for name in self.nodes:
            self.tell_one(name, renumbered)

    def tell_one(self, name: str, renumbered: list[int] | None = None) -> None:
        """Give one worker the assignment and its peers' addresses."""
        peers = {
            other: PeerPlace(
                self.incarnations[other],
                self.nodes[other].carrier.address if other in self.nodes else None,
            )
            for other in self.hosts
            if other != name
        }
        component_of = {task: component for task, component, _ in self.tasks}
        self.nodes[name].exchange.assign(self.version, peers, component_of, renumbered or [])

    def kill(self, name: str) -> None:
        """The process of a worker dies without a message."""
        node = self.nodes.pop(name)
        node.carrier.close()
        node.worker.asyncio_driver.stop()  # its coroutines go with it

    def stop_coroutines(self) -> None:
        """The test is over."""
        for node in self.nodes.values():
            node.worker.asyncio_driver.stop()

    def restart(self, name: str) -> None:
        """Its supervisor starts it again."""
        self.number_again(name)
        self.start(name)

    def number_again(self, name: str) -> None:
        """The next process of a worker has the next number."""
        version, number = self.incarnations[name]
        self.incarnations[name] = Incarnation(version, number + 1)

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; return whether `until` came true."""
        end = self.clock.now() + seconds
        rounds = 0
        while True:
            busy = False
            for node in list(self.nodes.values()):
                busy |= node.step()
            if until():
                return True
            rounds += 1
            if busy and rounds < self.world.rounds:
                continue
            rounds = 0
            if self.clock.now() >= end:
                return False
            self.world.go_on(min([end, *self.times()]), busy)

    def times(self) -> list[float]:
        """When something is due even if no message arrives."""
        times = [
            moment
            for node in self.nodes.values()
            for moment in (node.worker.next_time(), node.exchange.next_time())
        ]
        return [moment for moment in times if moment is not None]

    def run_until_quiet(self, seconds: float) -> None:
        """Let every worker end, and all credit return."""
        assert self.run(seconds, self.settled), [(spout.pending, idle_reason(spout)) for spout in self.spouts]
        self.run(3, lambda: not credit_is_back(self))
        assert credit_is_back(self) == []

    @property
    def spouts(self) -> list[Any]:
        return [spout for node in self.nodes.values() for spout in node.worker.spouts]

    def settled(self) -> bool:
        """Whether every worker has ended."""
        return all(node.worker.ended for node in self.nodes.values())


def credit_is_back(net: Net) -> list[str]:
    """Everything that remains in flight though all is quiet: open windows, unconfirmed frames, unread messages."""
    problems = []
    for name, node in net.nodes.items():
        links = node.worker.links
        for target, window in links.sending.items():
            if window.granted != window.sent + links.window_of(target):
                problems.append(f"{name} to task {target}: {window.sent} sent, {window.granted} granted")
        for other, peer in node.exchange.peers.items():
            link = peer.link
            if not link.executed or link.control.unacked or peer.queues[DATA]:
                problems.append(
                    f"{name} to {other}: {len(link.in_flight)} unconfirmed, {len(link.control.unacked)} control frames unacked,"
                    f" {len(link.waiting)} waiting"
                )
    return problems
