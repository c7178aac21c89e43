"""How long Nimbus takes to place a big topology, to move the tasks of a lost host, and to process the reports of workers.

A cluster must bear 10,000 tasks on 1,000 slots of 250 hosts: placing them takes less than a second. The store is in memory, so
the figures are of Nimbus itself.

    python -m benchmarks scheduling [--hosts 250] [--slots 4] [--tasks 10000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from benchmarks.child import machine, spread
from nimbus.leader.master import Nimbus
from nimbus.submission.submission import Submission
from squall.clock import RealClock
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import SupervisorRecord, WorkerReport
from squall.cluster.registry import Registry
from topology_api.options import defaults
from topology_api.topology import ComponentSpec, GroupingSpec, StreamSpec, Subscription, Topology

NAMES = ("all tasks placed", "a host lost", "one worker's report")


def topology(tasks: int) -> Topology:
    """Return a spout and a bolt with half of the tasks each; nothing is ever unpickled."""
    subscription = Subscription("lines", "default", GroupingSpec("shuffle"))
    components = (
        ComponentSpec("lines", "spout", tasks // 2, {}, {"default": StreamSpec(("line",))}),
        ComponentSpec("count", "bolt", tasks - tasks // 2, {}, {}, (subscription,)),
    )
    return Topology("big", {}, components, {"lines": b"no pickle", "count": b"no pickle"})


def a_round(hosts: int, slots: int, tasks: int) -> tuple[float, ...]:
    """Return how long each of `NAMES` took, in seconds."""
    store = InMemoryStore()
    registry = Registry(store)
    for number in range(hosts):
        registry.supervisors.put(SupervisorRecord(f"s{number:04}", f"host-{number:04}", slots))
    nimbus = Nimbus(store, RealClock())
    conf = defaults() | {"topology.workers": hosts * slots}
    placing = seconds(lambda: nimbus.submit(Submission(topology(tasks), conf, {})))
    registry.supervisors.drop("s0001")
    losing = seconds(nimbus.tick)
    record = nimbus.topology("big")
    assignment = registry.assignments.get(record.id)
    if assignment is None or sum(len(place.tasks) for place in assignment.placements) != tasks:
        raise SystemExit(f"not all {tasks} tasks are placed")
    place = assignment.placements[0]
    report = WorkerReport(place.worker, place.incarnation, True, False, False, False, None)
    return placing, losing, seconds(lambda: nimbus.report("big", place.worker, report))


def seconds(do: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=250)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(machine())
    print(f"{options.tasks:,} tasks on {options.hosts * options.slots:,} slots of {options.hosts:,} hosts")
    rounds = [a_round(options.hosts, options.slots, options.tasks) for _ in range(options.rounds)]
    for name, taken in zip(NAMES, zip(*rounds)):
        print(f"{name:>22}: {spread([1000 * each for each in taken])} ms")
