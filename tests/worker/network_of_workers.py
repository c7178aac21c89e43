"""Workers joined by exchanges over a network in memory that loses, doubles and reorders messages; time is simulated."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from squall.clock import ManualClock
from squall.settings import Overrides, merged
from squall.transport.carrier import DATA, Parts
from squall.transport.exchange import Exchange, PeerPlace
from squall.transport.frames import Frame
from squall.transport.loopback import LoopbackCarrier, LoopbackNetwork
from squall.worker_files import Address, Incarnation
from topology_api import Topology
from worker.plan import WorkerPlan
from worker.runners import InlineRunner
from worker.simulated_async import SimulatedAsync
from worker.worker import Worker


class LossyNetwork(LoopbackNetwork):
    """Loses, doubles, changes and reorders messages with the given chances, while `bad`."""

    def __init__(
        self, random: Random, lose: float, double: float = 0.0, swap: float = 0.0, flip: float = 0.0
    ) -> None:
        super().__init__()
        self.random = random
        self.chances = lose, double, swap, flip
        self.bad = True
        self.losses = 0
        #: Messages that never arrive, whatever the chances: those to an address for which this is true.
        self.cut: Callable[[Address, int], bool] = lambda address, channel: False

    def carry(self, address: Address, channel: int, parts: Parts) -> None:
        if self.cut(address, channel):
            self.losses += 1
            return
        if not self.bad:
            super().carry(address, channel, parts)
            return
        lose, double, swap, flip = self.chances
        draw = self.random.random
        if draw() < lose:
            self.losses += 1
            return
        if draw() < flip:
            first = bytearray(parts[0])
            first[self.random.randrange(len(first))] ^= 1 << self.random.randrange(8)
            parts = [bytes(first), *parts[1:]]
        super().carry(address, channel, parts)
        if draw() < double:
            super().carry(address, channel, parts)
        queue = self.queues[address][channel] if address in self.queues else []
        if len(queue) > 1 and draw() < swap:
            queue[-1], queue[-2] = queue[-2], queue[-1]


class Node:
    """One process: a worker and its exchange."""

    def __init__(self, net: Net, name: str, incarnation: Incarnation) -> None:
        self.name = name
        self.incarnation = incarnation
        self.carrier = LoopbackCarrier(net.network)
        self.worker = Worker(
            net.plan(name, incarnation),
            net.clock,
            self.send,
            InlineRunner(),
            SimulatedAsync(net.clock.now),
            lambda: None,
            inline=True,
        )
        topology = net.topology
        streams = [
            (spec.id, stream, out.fields)
            for spec in topology.components
            for stream, out in spec.outputs.items()
        ]
        self.exchange = Exchange(
            name,
            incarnation,
            self.carrier,
            net.clock,
            streams,
            self.worker.plan.component_of,
            str(self.worker.plan.conf["topology.transport.codec"]),
            self.worker.window_of,
            self.worker.peers,
            int(net.conf["topology.cycle.buffer"]),  # type: ignore[call-overload]
        )

    def send(self, worker: str, frame: Frame) -> None:
        self.exchange.send(worker, frame)

    def step(self) -> bool:
        """What the process's loop does in one round."""
        busy = self.exchange.receive()
        if not self.worker.started and self.exchange.linked:
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
        hosts: dict[str, list[str]],
        network: LossyNetwork,
        conf: dict[str, Any] | None = None,
    ) -> None:
        """`hosts`: the tasks of each worker, as "component/index"."""
        self.topology = topology
        self.network = network
        self.clock = ManualClock()
        self.conf, self.component_confs = merged(topology, {}, {}, Overrides(topology=dict(conf or {})))
        self.tasks: tuple[tuple[int, str, int], ...] = ()
        self.number_tasks(topology)
        self.hosts = hosts
        self.version = 1
        self.incarnations: dict[str, Incarnation] = dict.fromkeys(hosts, (1, 0))
        self.nodes: dict[str, Node] = {}

    def number_tasks(self, topology: Topology) -> None:
        """Ids from 1 in the order of declaration; those that are there keep theirs."""
        ids = {(component, index): task for task, component, index in self.tasks}
        highest = max(ids.values(), default=0)
        rows = []
        for spec in topology.components:
            for index in range(spec.parallelism):
                task = ids.get((spec.id, index))
                if task is None:
                    task = highest = highest + 1
                rows.append((task, spec.id, index))
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
            calls_an_instant=1000,
            incarnation=incarnation,
            linked=False,
        )

    def start(self, *names: str) -> None:
        """Start the processes of these workers (all), and tell everybody where they are."""
        for name in names or tuple(self.hosts):
            self.nodes[name] = Node(self, name, self.incarnations[name])
        self.tell()

    def tell(self, renumbered: list[int] | None = None) -> None:
        """What supervisors do: everybody hears of the assignment, and where its peers are."""
        for name, node in self.nodes.items():
            peers = {
                other: PeerPlace(
                    self.incarnations[other],
                    self.nodes[other].carrier.address if other in self.nodes else None,
                )
                for other in self.hosts
                if other != name
            }
            component_of = {task: component for task, component, _ in self.tasks}
            node.exchange.assign(self.version, peers, component_of, renumbered or [])

    def kill(self, name: str) -> None:
        """The process of a worker is gone, without a word."""
        self.nodes.pop(name).carrier.close()

    def restart(self, name: str) -> None:
        """Its supervisor starts it again."""
        version, number = self.incarnations[name]
        self.incarnations[name] = (version, number + 1)
        self.start(name)

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; whether `until` came true."""
        end = self.clock.now() + seconds
        while True:
            for _ in range(10_000):
                busy = False
                for node in list(self.nodes.values()):
                    busy |= node.step()
                if until():
                    return True
                if not busy:
                    break
            now = self.clock.now()
            if now >= end:
                return False
            times = [end]
            for node in self.nodes.values():
                times += [
                    time for time in (node.worker.next_time(), node.exchange.next_time()) if time is not None
                ]
            self.clock.move_to(max(min(times), now + 0.0005))

    @property
    def spouts(self) -> list[Any]:
        return [spout for node in self.nodes.values() for spout in node.worker.spouts]

    def settled(self) -> bool:
        """Whether every worker has ended."""
        return all(node.worker.ended for node in self.nodes.values())


def credit_is_back(net: Net) -> list[str]:
    """What is left under way though all is quiet: windows that are not whole, frames nobody confirmed, unheard words."""
    problems = []
    for name, node in net.nodes.items():
        links = node.worker.links
        for target, window in links.sending.items():
            if window.granted != window.sent + links.window_of(target):
                problems.append(f"{name} to task {target}: {window.sent} sent, {window.granted} granted")
        for peer, link in node.exchange.links.items():
            if link.unconfirmed or link.unacked or link.waiting or link.out[DATA]:
                problems.append(
                    f"{name} to {peer}: {len(link.unconfirmed)} unconfirmed, {len(link.unacked)} control frames unacked, "
                    f"{len(link.waiting)} waiting"
                )
    return problems
