"""Topologies whose state is at a path: which versions may take over, and what is changed in no case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from nimbus.lifecycle.trial import Evidence
from nimbus.submission.submission import Submission
from squall.cluster.records import SetOptions
from squall.cluster.registry import Registry
from tests.nimbus.transcripts import Scenario, a_topology
from topology_api import StatefulBolt, ValueState
from topology_api.errors import InvalidConfig
from topology_api.options import defaults
from topology_api.state_types import keeps_of
from topology_api.topology import Topology

AT_A_PATH = {**defaults(), "topology.state.path": "file:///state"}
IN_MEMORY = {**defaults(), "topology.state.path": None}
ELSEWHERE = {**defaults(), "topology.state.path": "file:///elsewhere"}


class Count(StatefulBolt):
    key = "line"
    times = ValueState(int, default=0)


class Mean(StatefulBolt):
    key = "line"
    times = ValueState(float, default=0.0)


class Text(StatefulBolt):
    key = "line"
    times = ValueState(str)


def keeping(bolt: Any, spouts: int = 1, spout: str = "Lines") -> Topology:
    """A topology whose bolt keeps what another one does."""
    topology = a_topology("words", spouts, 2)
    keeps = {"lines": {"class": spout}, "count": keeps_of(bolt)}
    specs = tuple(
        replace(spec, keeps=keeps[spec.id], keeps_tasks=spec.kind == "spout") for spec in topology.components
    )
    return replace(topology, components=specs)


def replaced(before: Topology, after: Topology, conf: Any = AT_A_PATH, then: Any = AT_A_PATH) -> str | None:
    """Submit a topology, and another version of it; return why that is refused."""
    scenario = Scenario()
    first = scenario.nimbus.submit(Submission(before, conf, {}))
    try:
        scenario.nimbus.submit(Submission(after, then, {}, replace=True))
        return None
    except InvalidConfig as error:
        record = Registry(scenario.store).topologies.get("words")
        assert record is not None and record.id == first.id and record.state == first.state
        return str(error)


def test_a_version_whose_states_fit_takes_over() -> None:
    assert replaced(keeping(Count()), keeping(Count())) is None
    assert replaced(keeping(Count()), keeping(Mean())) is None
    assert replaced(a_topology("words", 1), a_topology("words", 1)) is None


def test_a_state_of_another_type_is_refused_with_both_types() -> None:
    refused = replaced(keeping(Count()), keeping(Text()))
    assert refused is not None
    assert (
        "component 'count': state 'times' was saved as ValueState(int) and is declared as ValueState(str) now"
        in refused
    )
    assert "`squall state drop /folder/words count.times`" in refused


def test_a_spout_of_another_class_or_number_of_tasks_is_refused() -> None:
    assert "its position is that of a Lines" in str(
        replaced(keeping(Count()), keeping(Count(), spout="Other"))
    )
    assert "spout 'lines' has 1 tasks, and would have 2" in str(
        replaced(keeping(Count()), keeping(Count(), 2))
    )


def test_a_version_with_another_path_or_none_would_leave_the_state_behind() -> None:
    here = keeping(Count())
    assert "set topology.state.path to file:///state" in str(replaced(here, here, then=ELSEWHERE))
    assert "topology.state.path is null, so" in str(replaced(here, here, then=IN_MEMORY))
    assert replaced(here, here, conf=IN_MEMORY, then=AT_A_PATH) is None


def test_while_nothing_is_acked_calls_show_how_a_trial_with_epochs_goes() -> None:
    busy = Evidence(emitted=90, pending=20, executed=70, raised=10)
    assert busy.attempts == (60, 10)
    assert Evidence(emitted=90, pending=20, executed=70).attempts == (0, 0)
    assert Evidence(emitted=90, pending=20, executed=70).of_calls.attempts == (70, 0)
    assert Evidence(emitted=90, pending=20, executed=70, raised=40, failed=5).of_calls.attempts == (30, 45)
    assert Evidence(emitted=9, pending=9).of_calls.attempts == (0, 0)


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


def test_a_rebalance_to_more_tasks_than_key_groups_is_refused_with_both_numbers() -> None:
    few = {**AT_A_PATH, "topology.state.groups": 4}
    scenario = Scenario()
    scenario.nimbus.submit(Submission(keeping(Count()), few, {}))
    with pytest.raises(InvalidConfig, match=r"bolt 'count' would have 5 tasks, .* divided into 4 groups"):
        scenario.nimbus.rebalance("words", parallelism={"count": 5})
    scenario.nimbus.rebalance("words", parallelism={"count": 4})
    in_memory = Scenario()
    in_memory.nimbus.submit(Submission(keeping(Count()), {**few, "topology.state.path": None}, {}))
    in_memory.nimbus.rebalance("words", parallelism={"count": 5})


def test_a_submission_with_more_tasks_than_key_groups_is_refused() -> None:
    topology, few = keeping(Count()), {**AT_A_PATH, "topology.state.groups": 1}
    with pytest.raises(InvalidConfig, match=r"bolt 'count' would have 2 tasks, .* divided into 1 groups"):
        Scenario().nimbus.submit(Submission(topology, few, {}))
    more = Submission(topology, {**AT_A_PATH, "topology.state.groups": 2}, {})
    Scenario().nimbus.submit(more)
    set_later = structs.replace(more, options=SetOptions(parallelism={"count": 3}))
    with pytest.raises(InvalidConfig, match="would have 3 tasks"):
        Scenario().nimbus.submit(set_later)


def test_a_version_with_another_number_of_key_groups_is_refused_with_both_numbers() -> None:
    named = {number: {**AT_A_PATH, "topology.state.groups": number} for number in (None, 64, 1024)}
    refused = replaced(keeping(Count()), keeping(Count()), conf=named[1024], then=named[64])
    assert "its state has 1,024 key groups, and topology.state.groups is 64 now: leave it out" in str(refused)
    earlier = {name: value for name, value in AT_A_PATH.items() if name != "topology.state.groups"}
    for before, after in ((earlier, named[None]), (named[64], named[None]), (named[None], named[64])):
        assert replaced(keeping(Count()), keeping(Count()), conf=before, then=after) is None
