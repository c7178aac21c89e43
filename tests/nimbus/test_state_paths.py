"""Topologies whose state is at a path: what Nimbus does not do with them yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nimbus.submission.submission import Submission
from squall.cluster.registry import Registry
from tests.nimbus.transcripts import Scenario, a_topology
from topology_api.errors import InvalidConfig
from topology_api.options import defaults

AT_A_PATH = {**defaults(), "topology.state.path": "file:///state"}


@pytest.mark.parametrize(("before", "after"), [(AT_A_PATH, defaults()), (defaults(), AT_A_PATH)])
def test_a_topology_with_or_for_a_state_path_is_not_replaced(
    before: dict[str, object], after: dict[str, object]
) -> None:
    scenario = Scenario()
    first = scenario.nimbus.submit(Submission(a_topology("words", 1), before, {}))
    with pytest.raises(InvalidConfig, match=r"kill it, then submit again\. It goes on from its last commit"):
        scenario.nimbus.submit(Submission(a_topology("words", 1), after, {}, replace=True))
    record = Registry(scenario.store).topologies.get("words")
    assert record is not None and record.id == first.id


@pytest.mark.parametrize("keeps", [True, False])
def test_a_rebalance_keeps_the_number_of_tasks_of_a_spout_that_cannot_merge_its_positions(
    keeps: bool,
) -> None:
    topology = a_topology("words", 1, 2)
    lines, count = topology.components
    topology = replace(topology, components=(replace(lines, keeps_tasks=keeps), count))
    scenario = Scenario()
    scenario.nimbus.submit(Submission(topology, AT_A_PATH, {}))
    if keeps:
        with pytest.raises(
            InvalidConfig, match=r"spout 'lines' has 1 tasks, and would have 3.*merge_positions"
        ):
            scenario.nimbus.rebalance("words", parallelism={"lines": 3})
        scenario.nimbus.rebalance("words", 2, {"count": 3})
    else:
        scenario.nimbus.rebalance("words", 2, {"lines": 3, "count": 3})
