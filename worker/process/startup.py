"""What a worker process makes of its directory before it runs: orders, keys, the topology, and the plan that follows.

Must not know: loops, threads, sockets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from squall.cluster.blobs import read_bundle
from squall.cluster.records import Placement
from squall.transport.exchange import PeerPlace
from squall.worker_files import KEYS, SCRATCH, BadFile, Keys, Orders, read_keys, read_orders
from topology_api import SquallError, Topology
from worker.plan import WorkerPlan

#: What orders may ask for.
ASKED = ("run", "pause", "drain", "stop")


@dataclass(frozen=True)
class Start:
    """What a worker begins with."""

    orders: Orders
    keys: Keys
    topology: Topology


def find_orders(directory: str) -> Orders:
    """The orders in a worker's directory, sound in themselves; `BadFile` when there are none, or they are not."""
    orders = read_orders(directory)
    if orders is None:
        raise BadFile(f"there are no orders in {directory}: a supervisor starts workers, see squall run")
    check_orders(orders, directory)
    return orders


def check_orders(orders: Orders, directory: str) -> None:
    """`BadFile` when orders contradict themselves."""
    problems = []
    if orders.asked not in ASKED:
        problems.append(f"they ask to {orders.asked!r}, which is none of {', '.join(ASKED)}")
    known = {task for task, _, _ in orders.tasks}
    placed = [task for place in orders.placements for task in place.tasks]
    if len(placed) != len(set(placed)):
        problems.append(
            f"tasks are placed twice: {sorted({task for task in placed if placed.count(task) > 1})}"
        )
    if set(placed) != known:
        problems.append(f"placed and existing tasks differ in {sorted(set(placed) ^ known)}")
    if orders.lease_secs <= 0:
        problems.append(f"a lease of {orders.lease_secs} s is none")
    if problems:
        raise BadFile(f"the orders in {directory} are not sound: {'; '.join(problems)}")


def own_place(orders: Orders) -> Placement | None:
    """Where the assignment has this worker; None when it has another incarnation of it, or none."""
    for place in orders.placements:
        if place.worker == orders.worker and place.incarnation[0] == orders.incarnation[0]:
            return place
    return None


def begin(directory: str) -> Start:
    """Read all that a worker begins with; `SquallError` says what is wrong."""
    orders = find_orders(directory)
    keys = read_keys(directory)
    if keys is None:
        raise BadFile(
            f"there is no {KEYS} in {directory}: the links of this worker would take what anybody sends;"
            " the supervisor writes it when the topology was submitted with keys"
        )
    topology = read_bundle(orders.bundle)
    missing = {component for _, component, _ in orders.tasks} - {spec.id for spec in topology.components}
    if missing:
        raise SquallError(
            f"the orders of worker {orders.worker!r} have tasks of {sorted(missing)}, which topology"
            f" {topology.name!r} in {orders.bundle} does not have"
        )
    return Start(orders, keys, orders_topology(topology, orders))


def orders_topology(topology: Topology, orders: Orders) -> Topology:
    """The topology with as many tasks of each component as the orders say."""
    counts: dict[str, int] = {}
    for _, component, _ in orders.tasks:
        counts[component] = counts.get(component, 0) + 1
    changed = {name: count for name, count in counts.items() if topology.component(name).parallelism != count}
    return topology.with_parallelism(changed) if changed else topology


def plan_of(orders: Orders, topology: Topology, directory: str) -> WorkerPlan:
    """The worker's plan by its orders."""
    return WorkerPlan(
        worker=orders.worker,
        topology=topology,
        tasks=orders.tasks,
        worker_of={task: place.worker for place in orders.placements for task in place.tasks},
        conf=orders.conf,
        component_confs=orders.component_confs,
        directory=os.path.join(directory, SCRATCH),
        seed=seed_of(orders),
        finished=frozenset(orders.finished),
        incarnation=orders.incarnation,
        topology_id=orders.topology_id,
        linked=False,
    )


def seed_of(orders: Orders) -> int:
    """The seed of this process's random numbers: no two processes of a worker may draw the same edges."""
    if orders.seed == 0:
        return int.from_bytes(os.urandom(8), "big")
    version, restarts = orders.incarnation
    return (orders.seed * 1_000_003 + version) * 1_000_003 + restarts


def peers_of(orders: Orders) -> Mapping[str, PeerPlace]:
    """The other workers of the topology."""
    return {
        place.worker: PeerPlace(place.incarnation, orders.addresses.get(place.worker))
        for place in orders.placements
        if place.worker != orders.worker
    }
