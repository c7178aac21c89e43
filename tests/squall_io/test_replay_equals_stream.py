"""Replays: bolts that do not depend on the order of arrival give in a batch what they give in a stream, in any topology."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from local_cluster.testing import complete_topology
from tests.squall_io.replay_in_memory import replay
from tests.squall_io.replay_topologies import ByRemainder, Numbers
from topology_api import BatchBolt, Bolt, Fields, Topology, TopologyBuilder, Tuple


class Passes(Bolt):
    outputs = {"default": Fields("n"), "odd": Fields("n")}

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0] + 1,))
        if tup[0] % 2:
            self.emit((tup[0],), stream="odd")


class Doubles(Bolt):
    """Two of each, by way of a rich bolt."""

    outputs = {"default": Fields("n"), "odd": Fields("n")}
    auto_ack = False
    auto_anchor = False

    def execute(self, tup: Tuple) -> None:
        self.emit((tup[0],), anchors=tup)
        self.emit((tup[0] * 2,), anchors=(tup, tup))
        if tup[0] % 2:
            self.emit((tup[0],), anchors=tup, stream="odd")
        self.ack(tup)


class InBatches(BatchBolt):
    outputs = {"default": Fields("n"), "odd": Fields("n")}
    batch_size = 3

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            self.emit((tup[0] + 3,), stream="odd" if tup[0] % 2 else "default")


class Awaits(Bolt):
    outputs = {"default": Fields("n"), "odd": Fields("n")}

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(0)
        self.emit((tup[0] - 1,), stream="odd" if tup[0] % 2 else "default")


class Sums(Bolt):
    """A state per key, told at the end: needs equal keys to meet."""

    outputs = {"default": Fields("n"), "odd": Fields("n")}

    def prepare(self, context: Any) -> None:
        self.counts: Counter[int] = Counter()

    def execute(self, tup: Tuple) -> None:
        self.counts[tup[0]] += 1

    def end_of_input(self) -> None:
        for key, count in self.counts.items():
            self.emit((key * 100 + count,))
            self.emit((count,), stream="odd")


SIMPLE = (Passes, Doubles, InBatches, Awaits)
GROUPINGS = ("shuffle", "fields", "partial_key", "all", "global", "none", "local_or_shuffle", "custom")

#: Of one bolt: its class, its tasks, its inputs (which component before it, which stream, which grouping).
bolts = st.lists(
    st.tuples(
        st.sampled_from((*SIMPLE, Sums)),
        st.integers(1, 3),
        st.lists(
            st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from(GROUPINGS)), min_size=1, max_size=2
        ),
    ),
    min_size=1,
    max_size=4,
)


def build(shape: list[tuple[type[Bolt], int, list[tuple[int, bool, str]]]]) -> Topology:
    """The topology of a shape: bolt `i` reads the spout or bolts before it."""
    builder = TopologyBuilder("random")
    builder.set_spout("numbers", Numbers())
    for place, (kind, tasks, inputs) in enumerate(shape):
        declared = builder.set_bolt(f"bolt{place}", kind(), parallelism=tasks)
        seen = set()
        for back, odd, grouping in inputs:
            source = f"bolt{place - 1 - back}" if back < place else "numbers"
            stream = "odd" if odd and source != "numbers" else "default"
            if (source, stream) in seen:
                continue
            seen.add((source, stream))
            if kind is Sums and grouping not in ("all", "global"):
                grouping = "fields"
            if grouping in ("fields", "partial_key"):
                getattr(declared, f"{grouping}_grouping")(source, "n", stream=stream)
            elif grouping == "custom":
                declared.custom_grouping(source, Never(), stream=stream)
            else:
                getattr(declared, f"{grouping}_grouping")(source, stream=stream)
    return builder.build()


class Never(ByRemainder):
    """By remainder too, and takes what is negative as well."""

    def choose(self, values: tuple[Any, ...]) -> Sequence[int]:
        return super().choose((abs(values[0]),))


@settings(max_examples=40, deadline=None)
@given(bolts, st.lists(st.integers(0, 9), max_size=25), st.integers(1, 4))
def test_any_topology_gives_what_its_stream_gives(
    shape: list[tuple[type[Bolt], int, list[tuple[int, bool, str]]]], numbers: list[int], partitions: int
) -> None:
    topology = build(shape)
    rows = [(number,) for number in numbers]
    stream = complete_topology(topology, sources={"numbers": rows})
    outputs = [f"bolt{place}:{name}" for place in range(len(shape)) for name in ("default", "odd")]
    batch = replay(topology, {"numbers": [rows[part::partitions] for part in range(partitions)]}, outputs)
    for output in outputs:
        component, _, name = output.partition(":")
        assert Counter(batch.outputs[output]) == Counter(stream.emitted(component, name)), output
    assert not batch.errors and not any(totals.unsettled for totals in batch.totals)


def test_a_source_may_stand_for_a_bolt() -> None:
    topology = build([(Passes, 2, [(0, False, "shuffle")]), (Sums, 2, [(0, False, "fields")])])
    whole = replay(topology, {"numbers": [[(n,) for n in range(9)]]}, ["bolt0:default", "bolt1:default"])
    part = replay(topology, {"bolt0:default": [whole.outputs["bolt0:default"]]}, ["bolt1:default"])
    assert Counter(part.output) == Counter(whole.outputs["bolt1:default"])
    assert not part.of("bolt0")[0].executed  # it stood for rows, and did not run
