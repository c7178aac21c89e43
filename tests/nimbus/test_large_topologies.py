"""A topology of many components fits into its record."""

from __future__ import annotations

import pytest

from nimbus.leader.master import Nimbus
from nimbus.submission.submission import Submission
from squall.clock import ManualClock
from squall.cluster.memory import InMemoryStore
from squall.cluster.records import SupervisorRecord
from squall.cluster.registry import Registry
from squall.cluster.store import TooBig
from topology_api.options import defaults
from topology_api.topology import ComponentSpec, StreamSpec, Topology


def test_a_thousand_components_have_room_in_a_record_whatever_options_there_are() -> None:
    nimbus = Nimbus(InMemoryStore(), ManualClock())
    ids = [f"lines-{number}" for number in range(1_000)]
    parts = tuple(ComponentSpec(id, "spout", 1, {}, {"default": StreamSpec(("line",))}) for id in ids)
    mine = {f"mine.{number}": "x" * 1_000 for number in range(50)}
    conf = {**defaults(), "topology.state.path": None, **mine}
    topology = Topology("words", {}, parts, dict.fromkeys(ids, b"no pickle"))
    submission = Submission(topology, conf, dict.fromkeys(ids, conf))
    record = nimbus.submit(submission)
    assert Registry(nimbus.registry.store).topologies.get("words") == record
    assert record.component_confs["lines-7"] == conf
    nimbus.kill("words", wait_secs=0)
    nimbus.registry.supervisors.put(SupervisorRecord("s1", "of an earlier build", 1))
    with pytest.raises(TooBig, match=r"is too large: .*a later release runs these daemons: supervisor s1"):
        nimbus.submit(submission)
