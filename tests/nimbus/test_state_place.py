"""Where a topology keeps its state that leaves `topology.state.path` to Nimbus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from nimbus.submission.repeated import repetition
from nimbus.submission.submission import Submission
from squall.cluster.records import SetOptions, SupervisorRecord, TopologyRecord, VersionRecord
from squall.cluster.registry import Registry
from tests.nimbus.transcripts import Scenario, a_topology
from topology_api.errors import InvalidConfig
from topology_api.options import defaults
from topology_api.topology import Topology

AUTO = defaults()
PATH = "topology.state.path"
IN_MEMORY = {**AUTO, PATH: None}
HERE = {**AUTO, PATH: "file:///state"}
#: What the descriptions of a stateful bolt and of a sink say, and that of any other bolt.
STATEFUL: dict[str, Any] = {"key": ["line"], "states": {}}
SINK: dict[str, Any] = {"commits": True}
PLAIN: dict[str, Any] = {}

B = SupervisorRecord("b", "alpha", 2, state_folder="/var/b/kept")
A = structs.replace(B, id="a", state_folder="/var/a/kept")
OTHER = structs.replace(B, id="c", host="beta", state_folder="/var/c/kept")


def keeping(keeps: Mapping[str, Any], **conf: object) -> Topology:
    """A topology whose bolt keeps something."""
    topology = a_topology("words", 1, 1)
    spout, bolt = topology.components
    return replace(topology, conf=conf, components=(spout, replace(bolt, keeps=keeps)))


def cluster(*supervisors: SupervisorRecord) -> Scenario:
    """A Nimbus with these supervisors."""
    scenario = Scenario()
    registry = Registry(scenario.store)
    for each in supervisors:
        registry.supervisors.put(each)
    return scenario


def submitted(scenario: Scenario, topology: Topology, conf: Any = AUTO, **fields: Any) -> TopologyRecord:
    """The record of a submission. All of its components have the path of the topology."""
    own = {spec.id: conf for spec in topology.components}
    record = scenario.nimbus.submit(Submission(topology, conf, own, **fields))
    assert {each[PATH] for each in record.component_confs.values()} == {record.conf[PATH]}
    return record


def then(
    before: Topology, after: Topology, conf: Any, *supervisors: SupervisorRecord, **fields: Any
) -> object:
    """The path of a version with `auto` that replaces one with a configuration."""
    scenario = cluster(*(supervisors or (A,)))
    submitted(scenario, before, conf)
    return submitted(scenario, after, replace=True, **fields).conf[PATH]


@pytest.mark.parametrize("keeps", [STATEFUL, SINK])
def test_on_one_host_state_is_in_the_folder_of_the_supervisor_that_is_the_first_by_its_id(
    keeps: Mapping[str, Any],
) -> None:
    old = structs.replace(A, id="0", state_folder="")  # of an earlier release
    for supervisors in ([A], [B, A], [A, B, old]):
        assert submitted(cluster(*supervisors), keeping(keeps)).conf[PATH] == "file:///var/a/kept"


def test_a_topology_that_keeps_nothing_and_one_that_says_so_have_no_folder_whatever_the_hosts() -> None:
    for supervisors in ([], [A], [A, OTHER]):
        assert submitted(cluster(*supervisors), keeping(PLAIN)).conf[PATH] is None
        assert submitted(cluster(*supervisors), keeping(STATEFUL), IN_MEMORY).conf[PATH] is None
        assert submitted(cluster(*supervisors), keeping(STATEFUL), HERE).conf[PATH] == "file:///state"


def test_on_several_hosts_such_a_topology_is_refused_with_the_ways_out() -> None:
    with pytest.raises(InvalidConfig) as refused:
        submitted(cluster(A, OTHER), keeping(STATEFUL))
    assert str(refused.value).endswith(
        "topology.state.path is auto, and the topology keeps state ('count'), but the hosts (alpha, beta) share no folder that "
        "Squall knows of: name one by -o topology.state.path=hdfs://host:port/folder or -o topology.state.path=file:///folder "
        "(a folder of a file system that all hosts have at the same path), or keep the state in memory by -o "
        "topology.state.path=null"
    )


def test_a_drained_host_does_not_count_and_a_drained_supervisor_keeps_its_folder() -> None:
    scenario = cluster(A, B, OTHER)
    scenario.nimbus.drain("c", True)
    scenario.nimbus.drain("a", True)
    assert submitted(scenario, keeping(STATEFUL)).conf[PATH] == "file:///var/a/kept"
    failing = structs.replace(OTHER, cannot_start="its disk is full")  # for now
    with pytest.raises(InvalidConfig, match=r"the hosts \(alpha, beta\) share no folder"):
        submitted(cluster(A, failing), keeping(STATEFUL))


@pytest.mark.parametrize(
    ("supervisors", "why"),
    [
        ([], "no supervisor is registered: start one, or name a place by -o"),
        ([structs.replace(A, state_folder="")], "the supervisors of host alpha are of an earlier release"),
        (
            [structs.replace(A, state_folder="/a[1]/kept")],
            r"the supervisor's state directory cannot be used .* '\['",
        ),
    ],
)
def test_a_cluster_that_has_no_such_folder_refuses_it(supervisors: list[SupervisorRecord], why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        submitted(cluster(*supervisors), keeping(STATEFUL))


def test_a_version_keeps_the_path_of_the_one_that_it_replaces_whatever_the_hosts_are_now() -> None:
    first = keeping(STATEFUL)
    assert then(first, first, AUTO) == "file:///var/a/kept"
    for supervisors in ([B], [A, OTHER], []):
        assert then(first, first, HERE, *supervisors) == "file:///state"
    assert then(first, keeping(PLAIN), HERE) == "file:///state", "what is there is not left behind"
    scenario = cluster(B)
    submitted(scenario, first)
    Registry(scenario.store).supervisors.put(A)
    assert submitted(scenario, first, replace=True).conf[PATH] == "file:///var/b/kept"


def test_state_in_memory_stays_there_until_a_path_is_asked_for() -> None:
    # As of a topology that an earlier release has accepted: null was the default.
    first = keeping(STATEFUL)
    for supervisors in ([A], [A, OTHER]):
        assert then(first, first, IN_MEMORY, *supervisors) is None
    assert then(keeping(PLAIN), keeping(SINK), IN_MEMORY) is None, (
        "its description did not say that it commits"
    )
    for asks in (
        {"options": SetOptions({PATH: "auto"})},
        {"state_start": "/elsewhere/words"},
    ):
        assert then(first, first, IN_MEMORY, **asks) == "file:///var/a/kept"
    for said in ({PATH: "auto"}, {"topology.require": "exactly-once"}):
        scenario = cluster(A)
        submitted(scenario, first, IN_MEMORY)
        after = submitted(scenario, keeping(STATEFUL, **said), {**AUTO, **said}, replace=True)
        assert after.conf[PATH] == "file:///var/a/kept"


def test_a_bolt_that_begins_to_keep_state_has_a_path() -> None:
    assert then(keeping(PLAIN), keeping(STATEFUL), IN_MEMORY) == "file:///var/a/kept"
    assert then(a_topology("words", 1), keeping(STATEFUL), IN_MEMORY) == "file:///var/a/kept"
    with pytest.raises(InvalidConfig, match="share no folder"):
        then(keeping(PLAIN), keeping(STATEFUL), IN_MEMORY, A, OTHER)


def test_null_that_an_operator_has_set_is_kept() -> None:
    scenario = cluster(A)
    null = SetOptions({PATH: None})
    submitted(scenario, keeping(PLAIN), IN_MEMORY, options=null)
    assert submitted(scenario, keeping(STATEFUL), replace=True).conf[PATH] is None


def test_a_rollback_has_the_path_of_its_version() -> None:
    scenario, first = cluster(A), keeping(STATEFUL)
    record = submitted(scenario, first)
    version = VersionRecord(
        record.id, record.name, "replaced", None, 0, 0, record.conf, record.component_confs, {}, ""
    )
    submission = repetition(version, first)
    scenario = cluster(B)  # its record says where, not the hosts of today
    submitted(scenario, first, {**AUTO, PATH: "file:///var/a/kept"})
    assert scenario.nimbus.submit(submission).conf[PATH] == "file:///var/a/kept"
