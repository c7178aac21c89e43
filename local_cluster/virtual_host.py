"""The process host of a local cluster in one process: workers in memory, which take orders like worker processes.

Supervisors see a container for each worker (`supervisor.process_host`). Orders take effect at once. Heartbeats are not written
to a file; each heartbeat describes the worker at the moment of reading. This host is also the transport between workers: it
reports to each worker which other workers came and went.
Must not know: the user's calls on the cluster, the store's records, terminals, whether time is real.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from squall.cluster.blobs import get_bundle
from squall.cluster.counters import WorkerCounters
from squall.cluster.records import TopologyRecord
from squall.cluster.store import Store
from squall.transport.carriers.loopback import Loopback
from squall.transport.in_flight import GONE, SentBatch
from squall.transport.wire import Streams
from squall.values import Incarnation
from squall.worker_files import ON_TRIAL, RETURNS, Orders, WorkerHeartbeat, state_start, user_conf
from supervisor.artifacts import Provision
from supervisor.exits import Exit
from supervisor.plan import Key
from supervisor.process_host import Recovered
from topology_api import Topology
from topology_api.epoch_rules import state_path
from topology_api.letter_streams import with_letter_streams
from worker.loop.coming_up import all_up
from worker.loop.peers import waiting_in
from worker.loop.plan import WorkerPlan
from worker.loop.snapshot import worker_counters
from worker.loop.trial import set_on_trial
from worker.loop.worker import Worker

MakeWorker = Callable[[WorkerPlan, Loopback], Worker]
#: Receives a worker's counters: (topology id, worker, incarnation, counters).
Count = Callable[[str, str, Incarnation, WorkerCounters], object]


class WorkerSettings(msgspec.Struct, frozen=True):
    """The settings that all virtual workers of a cluster share."""

    directory: Callable[[], str]
    seed: int
    encoded: bool
    observers: tuple[object, ...]
    calls_an_instant: int | None
    make: MakeWorker


@dataclass
class VirtualTopology:
    """A topology that has workers in this process."""

    topology: Topology
    loopback: Loopback
    #: The containers whose workers run, by the worker's name.
    running: dict[str, VirtualContainer] = field(default_factory=dict)
    #: Tuples that waited in workers when the workers stopped: these tuples are lost.
    left: list[SentBatch] = field(default_factory=list)


class VirtualHost:
    """Implements `supervisor.process_host.ProcessHost` for all supervisors of a local cluster."""

    def __init__(self, store: Store, settings: WorkerSettings, count: Count) -> None:
        self.store = store
        self.settings = settings
        self.count = count
        self.topologies: dict[str, VirtualTopology] = {}
        #: The ids of topologies whose start is not over.
        self.starting: set[str] = set()
        #: Whether a worker has started, stopped or got different orders since this attribute was set to False.
        self.changed = False

    def containers(self, name: str | None = None) -> list[VirtualContainer]:
        """Return the containers whose workers run; with `name`, only the containers of the topology with this name. May be
        called from any thread."""
        return [
            container
            for topology in list(self.topologies.values())
            if name is None or topology.topology.name == name
            for container in list(topology.running.values())
        ]

    def workers(self, name: str | None = None) -> list[Worker]:
        """Return the running workers; `name` as for `containers`."""
        return [container.running for container in self.containers(name)]

    def end_starts(self, now: float) -> None:
        """End the start of topologies whose tasks are all open by now."""
        for name in list(self.starting):
            containers = self.topologies[name].running.values()
            if containers and all_up([container.running for container in containers], now):
                self.starting.discard(name)

    def settle(self) -> None:
        """Report to the remaining workers which workers have stopped, and which tuples are lost. Called after all supervisors
        acted."""
        for topology in self.topologies.values():
            for container in topology.running.values():
                container.tell_gone()
            left, topology.left = topology.left, []
            for container in topology.running.values():
                container.running.peers.lost(left, GONE)
                break  # one worker is enough: each worker knows where the trackers are

    def count_all(self, name: str) -> None:
        """Pass on the counters of a topology's workers. May be called from any thread."""
        for container in self.containers(name):
            container.count()

    def stop(self) -> None:
        """Stop everything at once."""
        for container in self.containers():
            container.kill()

    # As `ProcessHost`

    def mark(self) -> str:
        """See `ProcessHost`."""
        return ""

    def recover(self) -> Iterable[Recovered]:
        """See `ProcessHost`."""
        return ()

    def container(self, key: Key) -> VirtualContainer:
        """See `ProcessHost`."""
        return VirtualContainer(self, key)

    def clear(self, key: Key) -> None:
        """See `ProcessHost`."""

    def provision(self, record: TopologyRecord, now: float, since: float = 0.0) -> Provision:
        """See `ProcessHost`. No files are fetched: the topology is read from the store."""
        if record.id not in self.topologies:
            topology = get_bundle(self.store, record.id)
            if state_path(record.conf) is not None:
                topology = with_letter_streams(topology)
            streams = Streams(topology, {row.task: row.component for row in record.tasks})
            loopback = Loopback(streams, self.settings.encoded, str(record.conf["topology.transport.codec"]))
            self.topologies[record.id] = VirtualTopology(topology, loopback)
            self.starting.add(record.id)
        return Provision(Path())

    def retain(self, used: Mapping[str, TopologyRecord], hosted: Iterable[str]) -> None:
        """See `ProcessHost`."""
        there = self.topologies.items()
        self.topologies = {name: each for name, each in there if name in used or each.running}
        self.starting &= self.topologies.keys()

    def check_starts(self) -> None:
        """See `ProcessHost`."""

    def tick(self, now: float) -> None:
        """See `ProcessHost`."""

    def sweep(self) -> None:
        """See `ProcessHost`."""


class VirtualContainer:
    """Implements `supervisor.process_host.Container`: a worker in memory."""

    def __init__(self, host: VirtualHost, key: Key) -> None:
        self.host = host
        self.topology_id, self.name = key
        self.pid: int | None = None
        self.worker: Worker | None = None
        self.orders: Orders | None = None
        self.heartbeats = 0
        #: Workers that have stopped, and whose end has not been reported to this worker yet.
        self.gone_peers: list[str] = []

    @property
    def directory(self) -> Path:
        """See `Container`. The tasks' own directories are made in this directory."""
        return Path(self.host.settings.directory(), self.topology_id)

    @property
    def topology(self) -> VirtualTopology:
        """The topology of this worker."""
        return self.host.topologies[self.topology_id]

    @property
    def running(self) -> Worker:
        """The running worker."""
        assert self.worker is not None
        return self.worker

    # As `Container`

    def prepare(self, lease: int) -> None:
        """See `Container`."""

    def write_lease(self, number: int) -> None:
        """See `Container`."""

    def wake(self) -> None:
        """See `Container`. Does nothing: orders have already taken effect."""

    def write_orders(self, orders: Orders) -> None:
        """See `Container`. The orders take effect on a running worker at once."""
        before, self.orders = self.orders, orders
        if self.worker is None or self.worker.stopped:
            return
        self.host.changed = True
        if before is None or orders.version != before.version:
            self.tell_gone()
            self.worker.replan(self.plan())
        self.obey()

    def launch(self, provision: Provision, incarnation: Incarnation, slot: int) -> None:
        """See `Container`."""
        self.host.changed = True
        topology = self.topology
        self.pid = os.getpid()
        self.worker = self.host.settings.make(self.plan(), topology.loopback)
        topology.loopback.join(self.name, self.worker.deliver)
        others = list(topology.running.values())
        topology.running[self.name] = self
        self.obey()
        for other in others:
            other.tell_gone()
            other.running.peers.linked(self.name)

    def reset(self) -> None:
        """See `Container`."""
        self.worker = self.pid = None

    def read_heartbeat(self) -> WorkerHeartbeat | None:
        """See `Container`."""
        worker, orders = self.worker, self.orders
        if worker is None or orders is None:
            return None
        if not worker.stopped:
            self.obey()  # a task that was still opening when the orders came may be ready now
        self.heartbeats += 1
        return WorkerHeartbeat(
            pid=os.getpid(),
            started=0,
            incarnation=orders.incarnation,
            number=self.heartbeats,
            orders=orders.number,
            asked=orders.asked,
            version=orders.version,
            opened=worker.opened,
            ended=worker.ended,
            drained=worker.drained or (worker.draining and not worker.started and not self.awaited),
            stopped=worker.stopped,
            crash=worker.crash.render() if worker.crash else None,
            finished=tuple(sorted(worker.finished_spouts)),
        )

    def read_counters(self) -> bytes | None:
        """See `Container`. Not used: `count` passes counters on."""
        return None

    def show_stacks(self) -> None:
        """See `Container`. Does nothing: there is no process."""

    def shown_stacks(self) -> str:
        """See `Container`."""
        return ""

    def terminate(self) -> None:
        """See `Container`."""
        self.kill()

    def kill(self) -> None:
        """See `Container`. The worker stops in an orderly way: a thread cannot be killed."""
        worker = self.running
        if worker.stopped:
            return
        self.host.changed = True
        worker.stop()
        for _, component, index in worker.plan.own_tasks:
            shutil.rmtree(worker.plan.scratch(component, index), ignore_errors=True)
        self.count()
        topology = self.topology
        topology.loopback.leave(self.name)
        del topology.running[self.name]
        topology.left += waiting_in(worker.tasks.values(), worker.arrived)
        for other in topology.running.values():
            other.gone_peers.append(self.name)

    def ended(self) -> bool:
        """See `Container`."""
        return self.worker is None or self.worker.stopped

    gone = ended

    def exit(self, killed_because: str | None) -> Exit:
        """See `Container`."""
        return Exit(status=0, killed_because=killed_because)

    # The worker

    def count(self) -> None:
        """Pass on the worker's counters."""
        plan = self.running.plan
        self.host.count(plan.topology_id, self.name, plan.incarnation, worker_counters(self.running))

    def tell_gone(self) -> None:
        """Report to the worker which other workers have stopped."""
        gone, self.gone_peers = self.gone_peers, []
        for name in gone:
            self.running.peers.superseded(name)

    @property
    def awaited(self) -> bool:
        """Whether tuples have arrived for tasks that were never opened."""
        return not self.running.started and bool(waiting_in((), self.running.arrived))

    def obey(self) -> None:
        """Carry out the worker's orders."""
        worker, orders = self.running, self.orders
        assert orders is not None
        set_on_trial(worker, ON_TRIAL in orders.conf)
        if orders.asked == "run":
            if not worker.started:
                worker.start()
            worker.set_active(True)
        elif orders.asked == "pause":
            if worker.started:
                worker.set_active(False)
        elif orders.asked == "drain":
            worker.drain()
            if self.awaited or (worker.plan.has_epochs and not worker.started):
                worker.start()
        else:
            self.kill()

    def plan(self) -> WorkerPlan:
        """Return the worker's plan according to its orders."""
        orders, hosted, settings = self.orders, self.topology, self.host.settings
        assert orders is not None
        # Frames still in flight may name a task that is gone.
        streams = hosted.loopback.streams
        streams.component_of = {**streams.component_of, **{row.task: row.component for row in orders.tasks}}
        return WorkerPlan(
            worker=self.name,
            topology=hosted.topology.with_parallelism(Counter(row.component for row in orders.tasks)),
            tasks=orders.tasks,
            worker_of={task: place.worker for place in orders.placements for task in place.tasks},
            conf=user_conf(orders),
            component_confs=orders.component_confs,
            directory=f"{settings.directory()}/{self.topology_id}",
            seed=settings.seed,
            observers=settings.observers,
            finished=frozenset(orders.finished),
            calls_an_instant=settings.calls_an_instant,
            incarnation=orders.incarnation,
            version=orders.version,
            topology_id=self.topology_id,
            returns=int(orders.conf.get(RETURNS, 0)),
            state_start=state_start(orders),
        )
