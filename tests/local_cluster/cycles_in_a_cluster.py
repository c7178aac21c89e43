"""A bolt in a cluster makes cycles of objects, and the memory of the process is measured meanwhile. For a process of its own:

python -c "from tests.local_cluster.cycles_in_a_cluster import run; print(*run(2_000_000))"
"""

from __future__ import annotations

import resource

from local_cluster import LocalCluster
from topology_api import Bolt, Fields, Spout, TopologyBuilder, Tuple

#: Cycles of one tuple, and of the first tuples, after which the process has the memory that it needs.
AT_ONCE = 1_000
WARM = 200_000
MEASURED: list[int] = []


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class Numbers(Spout):
    outputs = Fields("number")

    def __init__(self, count: int) -> None:
        self.left = count

    def next_tuple(self) -> None:
        if not self.left:
            return self.finish()
        self.left -= 1
        self.emit((self.left,), message_id=self.left)


class Node:
    """Refers to itself, so only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


class MakesCycles(Bolt):
    def execute(self, tup: Tuple) -> None:
        for _ in range(AT_ONCE):
            Node()
        if tup[0] % 10 == 0:
            MEASURED.append(resident())


def run(cycles: int) -> tuple[int, int]:
    """Return the most resident memory in bytes during the first 200,000 cycles, and afterwards."""
    builder = TopologyBuilder("cycles")
    builder.set_spout("numbers", Numbers(cycles // AT_ONCE))
    builder.set_bolt("cycles", MakesCycles()).shuffle_grouping("numbers")
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(builder.build())
        cluster.advance(60)
        cluster.wait("cycles")
    warm = WARM // AT_ONCE // 10
    return max(MEASURED[:warm]), max(MEASURED[warm:])
