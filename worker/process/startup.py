"""Reads a worker's directory before the worker runs: orders, keys and topology. Makes the worker's plan from them.

Must not know: loops, threads, sockets.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

from squall.cluster.blobs import read_bundle
from squall.cluster.records import Placement
from squall.transport.exchange import PeerPlace
from squall.values import Keys
from squall.worker_files import (
    COMMITTED,
    KEYS,
    RETURNS,
    SCRATCH,
    BadFile,
    Orders,
    read_keys,
    read_orders,
    state_start,
    user_conf,
)
from topology_api import SquallError, Topology
from topology_api.epoch_rules import state_path
from topology_api.letter_streams import with_letter_streams
from topology_api.options import defaults
from worker.loop.plan import WorkerPlan

#: What orders may ask for.
ASKED = ("run", "pause", "drain", "stop")


def find_orders(directory: str) -> Orders:
    """Return the orders in a worker's directory; raise `BadFile` if there are none or they contradict themselves."""
    if (orders := read_orders(directory)) is None:
        raise BadFile(
            f"there are no orders in {directory}: workers are started by a supervisor, not by hand; see squall run"
        )
    check_orders(orders, directory)
    return orders


def check_orders(orders: Orders, directory: str) -> None:
    """Raise `BadFile` if orders contradict themselves."""
    problems = []
    if orders.asked not in ASKED:
        problems.append(f"they ask to {orders.asked!r}, which is not one of {', '.join(ASKED)}")
    known = {task for task, _, _ in orders.tasks}
    placed = [task for place in orders.placements for task in place.tasks]
    if len(placed) != len(set(placed)):
        problems.append(
            f"tasks are placed twice: {sorted({task for task in placed if placed.count(task) > 1})}"
        )
    if set(placed) != known:
        problems.append(f"placed and existing tasks differ in {sorted(set(placed) ^ known)}")
    if orders.lease_secs <= 0:
        problems.append(f"a lease of {orders.lease_secs} s is not positive")
    if problems:
        raise BadFile(f"the orders in {directory} are not sound: {'; '.join(problems)}")


def own_place(orders: Orders) -> Placement | None:
    """Return this worker's place in the assignment; None if the assignment has no place for this worker, or has a different
    worker of the same name (with a different version in its incarnation).
    """
    own = orders.worker, orders.incarnation.version
    return next((each for each in orders.placements if (each.worker, each.incarnation.version) == own), None)


def begin(directory: str) -> tuple[Orders, Keys, Topology]:
    """Return the orders, keys and topology that a worker starts with. Raises `SquallError` if any is missing or bad."""
    orders = find_orders(directory)
    if (keys := read_keys(directory)) is None:
        raise BadFile(
            f"there is no {KEYS} in {directory}: without it, the links of this worker would accept frames from strangers."
            f" The supervisor writes {KEYS} if the topology was submitted with keys"
        )
    topology = read_bundle(orders.bundle)
    if missing := {component for _, component, _ in orders.tasks} - {spec.id for spec in topology.components}:
        raise SquallError(
            f"the orders of worker {orders.worker!r} have tasks of {sorted(missing)}, which topology"
            f" {topology.name!r} in {orders.bundle} does not have"
        )
    return orders, keys, orders_topology(topology, orders)


def orders_topology(topology: Topology, orders: Orders) -> Topology:
    """Return the topology with the numbers of tasks that follow from the orders, and with the streams that epochs need."""
    if state_path(orders.conf) is not None:
        topology = with_letter_streams(topology)
    counts = Counter(component for _, component, _ in orders.tasks)
    changed = {name: count for name, count in counts.items() if topology.component(name).parallelism != count}
    return topology.with_parallelism(changed) if changed else topology


def plan_of(orders: Orders, topology: Topology, directory: str) -> WorkerPlan:
    """Return the worker's plan, from its orders."""
    return WorkerPlan(
        worker=orders.worker,
        topology=topology,
        tasks=orders.tasks,
        worker_of={task: place.worker for place in orders.placements for task in place.tasks},
        # Nimbus may have merged them in an earlier release, which had fewer options.
        conf={**defaults(), **user_conf(orders)},
        component_confs={name: {**defaults(), **conf} for name, conf in orders.component_confs.items()},
        directory=os.path.join(directory, SCRATCH),
        seed=seed_of(orders),
        finished=frozenset(orders.finished),
        incarnation=orders.incarnation,
        version=orders.version,
        topology_id=orders.topology_id,
        returns=int(orders.conf.get(RETURNS, 0)),
        state_start=state_start(orders),
        committed=int(orders.conf.get(COMMITTED, 0)),
        linked=False,
    )


def seed_of(orders: Orders) -> int:
    """Return the seed of this process's random numbers. No two processes of a worker may draw the same edge ids."""
    if orders.seed == 0:
        return int.from_bytes(os.urandom(8), "big")
    version, restarts = orders.incarnation
    return (orders.seed * 1_000_003 + version) * 1_000_003 + restarts


def peers_of(orders: Orders) -> Mapping[str, PeerPlace]:
    """Return the other workers of the topology."""
    return {
        place.worker: PeerPlace(place.incarnation, orders.addresses.get(place.worker))
        for place in orders.placements
        if place.worker != orders.worker
    }
