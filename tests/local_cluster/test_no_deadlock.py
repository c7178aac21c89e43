"""Random graphs of bolts, with and without cycles, under full queues: they complete, and their counts equal those of a plain
loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from local_cluster import LocalCluster
from tests.local_cluster.recording import run_to_the_end
from topology_api import BatchBolt, Bolt, Context, Fields, Spout, Topology, TopologyBuilder, Tuple

MOST_EXECUTIONS = 12_000
OUT = Fields("key", "hops")


class Starts(Spout):
    """Emits `count` tuples with `hops` hops to go, `per_call` in a call."""

    outputs = OUT
    replay = None

    def __init__(self, count: int, hops: int, per_call: int, tracked: bool) -> None:
        self.count = count
        self.hops = hops
        self.per_call = per_call
        self.tracked = tracked

    def open(self, context: Context) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        for _ in range(self.per_call):
            if self.next >= self.count:
                return self.finish()
            self.next += 1
            self.emit((self.next, self.hops), message_id=self.next if self.tracked else None)
        return None


def send_on(bolt: Bolt, tup: Tuple, fan_out: int) -> None:
    """Sends a tuple on `fan_out` times, unless its hops are used up."""
    if tup["hops"] > 0:
        for number in range(fan_out):
            bolt.emit((tup["key"] + number, tup["hops"] - 1), anchors=tup)


class Hops(Bolt):
    """Sends its tuples on."""

    outputs = OUT

    def __init__(self, fan_out: int) -> None:
        self.fan_out = fan_out

    def execute(self, tup: Tuple) -> None:
        send_on(self, tup, self.fan_out)


class SlowHops(Bolt):
    """The same as a coroutine that takes a while."""

    outputs = OUT
    max_concurrency = 4

    def __init__(self, fan_out: int) -> None:
        self.fan_out = fan_out

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(0.002)
        send_on(self, tup, self.fan_out)


class BatchHops(BatchBolt):
    """The same in batches."""

    outputs = OUT
    batch_size = 30
    batch_interval = 0.05

    def __init__(self, fan_out: int) -> None:
        self.fan_out = fan_out

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            send_on(self, tup, self.fan_out)


KINDS: dict[str, Callable[[int], Bolt]] = {"plain": Hops, "slow": SlowHops, "batch": BatchHops}


@dataclass(frozen=True)
class Node:
    """A bolt: `inputs` are (node number or -1 for the spout, grouping)."""

    kind: str
    tasks: int
    fan_out: int
    inputs: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Graph:
    """A random graph, and how to run it."""

    nodes: tuple[Node, ...]
    count: int
    hops: int
    per_call: int
    queue: int
    pending: int | None
    workers: int
    tracked: bool
    encode: bool


@st.composite
def graphs(draw: st.DrawFn, cycles: bool) -> Graph:
    """Bolts that each read from components before them, and (`cycles`) possibly from those at or after them."""
    size = draw(st.integers(1, 6))
    groupings = st.sampled_from(["shuffle", "fields", "global", "all", "local_or_shuffle", "partial_key"])
    nodes = []
    for number in range(size):
        sources = {draw(st.integers(-1, number - 1))}
        sources |= set(draw(st.lists(st.integers(-1, size - 1 if cycles else number - 1), max_size=2)))
        nodes.append(
            Node(
                kind=draw(st.sampled_from(sorted(KINDS))),
                tasks=draw(st.integers(1, 3)),
                fan_out=draw(st.sampled_from([1, 1, 2, 7])),
                inputs=tuple((source, draw(groupings)) for source in sorted(sources)),
            )
        )
    graph = Graph(
        tuple(nodes),
        count=draw(st.integers(1, 120)),
        hops=draw(st.integers(0, 8)),
        per_call=draw(st.sampled_from([1, 5, 200])),
        queue=draw(st.sampled_from([16, 17, 40, 4096])),
        pending=draw(st.sampled_from([None, 1, 10])),
        workers=draw(st.integers(1, 3)),
        tracked=draw(st.booleans()),
        encode=draw(st.booleans()),
    )
    assume(sum(expected_counts(graph).values()) <= MOST_EXECUTIONS)
    return graph


def expected_counts(graph: Graph) -> Counter[int]:
    """How many tuples each bolt executes, hop by hop, by a plain computation."""
    totals: Counter[int] = Counter()
    emitted: Counter[int] = Counter({-1: graph.count})
    for hops in range(graph.hops, -1, -1):
        executed: Counter[int] = Counter()
        for number, node in enumerate(graph.nodes):
            for source, grouping in node.inputs:
                executed[number] += emitted[source] * (node.tasks if grouping == "all" else 1)
        totals += executed
        emitted = Counter({number: executed[number] * graph.nodes[number].fan_out for number in executed})
        if hops == 0 or sum(totals.values()) > MOST_EXECUTIONS:
            break
    return totals


def build(graph: Graph) -> Topology:
    conf = {
        "topology.queue.size": graph.queue,
        "topology.workers": graph.workers,
        "topology.max.spout.pending": graph.pending,
        "topology.cycle.buffer": 1_000_000,  # nothing is dropped: the counts must be exact
    }
    builder = TopologyBuilder("graph", conf)
    builder.set_spout("spout", Starts(graph.count, graph.hops, graph.per_call, graph.tracked))
    for number, node in enumerate(graph.nodes):
        bolt = KINDS[node.kind](node.fan_out)
        declarer = builder.set_bolt(f"b{number}", bolt, parallelism=node.tasks)
        for source, grouping in node.inputs:
            fields = ("key",) if grouping in ("fields", "partial_key") else ()
            name = "spout" if source < 0 else f"b{source}"
            getattr(declarer, f"{grouping}_grouping")(name, *fields)
    return builder.build()


def check(graph: Graph) -> None:
    with LocalCluster(simulated_time=True, encode=graph.encode) as cluster:
        cluster.submit(build(graph))
        status = run_to_the_end(cluster, "graph", seconds=600.0)
    assert status.state == "COMPLETED"
    expected = expected_counts(graph)
    executed = {number: status.components[f"b{number}"].executed for number in range(len(graph.nodes))}
    assert executed == {number: expected[number] for number in range(len(graph.nodes))}
    spout = status.components["spout"]
    assert (spout.emitted, spout.failed, spout.pending) == (graph.count, 0, 0)
    assert spout.acked == (graph.count if graph.tracked else 0)


@settings(max_examples=25)
@given(graphs(cycles=False))
def test_a_graph_without_cycles_completes_and_counts_exactly(graph: Graph) -> None:
    check(graph)


@settings(max_examples=25)
@given(graphs(cycles=True))
def test_a_graph_with_cycles_completes_and_counts_exactly(graph: Graph) -> None:
    check(graph)
