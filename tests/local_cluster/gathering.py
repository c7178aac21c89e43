"""A spout of given rows, bolts that record their input, and the ways of running a topology to its end.

The components travel by reference, so the test that runs them sees their records in this process.
Must not know: single tests.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from local_cluster import LocalCluster, TopologyStatus
from topology_api import Bolt, Context, Failure, Replay, Spout, Topology, Tuple

Row = tuple[Any, ...]


class Gathered:
    """Records of components by name, in order of time; threads may add to them."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = defaultdict(list)
        self.changed = threading.Condition()

    def add(self, name: str, entry: Any) -> None:
        """Record something."""
        with self.changed:
            self.lists[name].append(entry)
            self.changed.notify_all()

    def __getitem__(self, name: str) -> list[Any]:
        with self.changed:
            return list(self.lists[name])

    def wait_for(self, name: str, count: int = 1, timeout: float = 60) -> None:
        """Wait for this many entries."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.lists[name]) >= count, timeout), f"no {name!r}"


GATHERED = Gathered()


class Rows(Spout):
    """Emits its rows, shared among its tasks in turn; the message id is the row's position. Then it finishes."""

    outputs: Any = ("value",)

    def __init__(
        self,
        rows: Sequence[Row],
        fields: Any = ("value",),
        *,
        tracked: bool = True,
        per_call: int = 10,
        replay: Replay | None = None,
        finishes: bool = True,
    ) -> None:
        self.rows = list(rows)
        self.outputs = fields
        self.tracked = tracked
        self.per_call = per_call
        self.replay = replay
        self.finishes = finishes

    def open(self, context: Context) -> None:
        self.name = context.component
        self.left = list(enumerate(self.rows))[context.index :: context.parallelism][::-1]

    def next_tuple(self) -> None:
        for _ in range(self.per_call):
            if not self.left:
                return self.finish() if self.finishes else None
            number, row = self.left.pop()
            self.emit(row, message_id=number if self.tracked else None)
        return None

    def ack(self, message_id: object) -> None:
        GATHERED.add(f"{self.name} acked", message_id)

    def fail(self, message_id: object, failure: Failure) -> None:
        GATHERED.add(f"{self.name} failed", (message_id, failure))


class Gather(Bolt):
    """Records each tuple's values with its task; passes the tuple on if it has outputs. Records its number of tuples at the end
    of input.
    """

    def __init__(self, fields: Any = ()) -> None:
        if fields:
            self.outputs = fields

    def prepare(self, context: Context) -> None:
        self.name = context.component
        self.task = context.task
        self.got = 0
        GATHERED.add(f"{self.name} tasks", context.task)

    def execute(self, tup: Tuple) -> None:
        self.got += 1
        GATHERED.add(self.name, (self.task, tup.values))
        if self.outputs:
            self.emit(tup.values)

    def end_of_input(self) -> None:
        GATHERED.add(f"{self.name} ended", self.task)
        GATHERED.add(f"{self.name} had", self.got)


def run(
    topology: Topology,
    *,
    simulated: bool = True,
    encode: bool = False,
    conf: Mapping[str, object] | None = None,
    timeout: float = 60,
) -> TopologyStatus:
    """Run a topology to its end and return its status. `timeout`: seconds on the cluster's clock."""
    with LocalCluster(simulated_time=simulated, encode=encode) as cluster:
        cluster.submit(topology, conf)
        if simulated:
            advance_to_the_end(cluster, topology.name, timeout)
        cluster.wait(topology.name, timeout=timeout)
        return cluster.status(topology.name)


def advance_to_the_end(cluster: LocalCluster, name: str, timeout: float = 60) -> None:
    """Advance simulated time until a topology has ended."""
    passed = 0.0
    while cluster.status(name).state not in ("COMPLETED", "FAILED") and passed < timeout:
        cluster.advance(0.25)
        passed += 0.25


#: Ways of running that must give the same result: keyword arguments of `run`.
WAYS = [
    pytest.param({}, id="simulated"),
    pytest.param({"encode": True, "conf": {"topology.workers": 3}}, id="simulated-3-workers-encoded"),
    pytest.param({"simulated": False}, id="real"),
    pytest.param(
        {"simulated": False, "encode": True, "conf": {"topology.workers": 3}}, id="real-3-workers-encoded"
    ),
]


@pytest.fixture(autouse=True)
def gathered() -> Iterator[Gathered]:
    """The records of the components of this test."""
    GATHERED.lists.clear()
    yield GATHERED
    GATHERED.lists.clear()
