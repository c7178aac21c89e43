"""Replays: bolts that do not depend on the order of arrival emit the same in a batch as in a stream, in any topology."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from local_cluster.testing import complete_topology
from tests.squall_io.random_topologies import GROUPINGS, SIMPLE, Passes, Shape, Sums, build, streams_of
from tests.squall_io.replay_in_memory import replay

shapes = st.lists(
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


@settings(max_examples=40, deadline=None)
@given(shapes, st.lists(st.integers(0, 9), max_size=25), st.integers(1, 4))
def test_a_replay_of_any_topology_gives_the_results_of_its_stream(
    shape: Shape, numbers: list[int], partitions: int
) -> None:
    topology, outputs = build(shape), streams_of(shape)
    rows = [(number,) for number in numbers]
    stream = complete_topology(topology, sources={"numbers": rows})
    batch = replay(topology, {"numbers": [rows[part::partitions] for part in range(partitions)]}, outputs)
    for output in outputs:
        component, _, name = output.partition(":")
        assert Counter(batch.outputs[output]) == Counter(stream.emitted(component, name)), output
    assert not batch.errors and not any(totals.unsettled for totals in batch.totals)


def test_a_source_may_replace_a_bolt() -> None:
    topology = build([(Passes, 2, [(0, False, "shuffle")]), (Sums, 2, [(0, False, "fields")])])
    whole = replay(topology, {"numbers": [[(n,) for n in range(9)]]}, ["bolt0:default", "bolt1:default"])
    part = replay(topology, {"bolt0:default": [whole.outputs["bolt0:default"]]}, ["bolt1:default"])
    assert Counter(part.output) == Counter(whole.outputs["bolt1:default"])
    assert not part.of("bolt0")[0].executed  # it was replaced by rows, and did not run
