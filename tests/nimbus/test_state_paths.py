"""Topologies whose state is at a path: what Nimbus does not do with them yet."""

from __future__ import annotations

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


def test_a_rebalance_keeps_the_number_of_tasks_of_a_spout_of_such_a_topology() -> None:
    scenario = Scenario()
    scenario.nimbus.submit(Submission(a_topology("words", 1, 2), AT_A_PATH, {}))
    with pytest.raises(InvalidConfig, match="spout 'lines' has 1 tasks, and would have 3"):
        scenario.nimbus.rebalance("words", parallelism={"lines": 3})
    scenario.nimbus.rebalance("words", 2, {"count": 3})
