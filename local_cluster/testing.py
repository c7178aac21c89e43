"""The names that users' tests import, to run topologies and bolts in the test's own process, on simulated time.

    def test_words_are_counted():
        done = complete_topology(topology(), sources={"lines": [("a b a",)]})
        assert done.acked("lines") == [0]
        assert sorted(done.emitted("count")) == [("a", 1), ("a", 2), ("b", 1)]

    def test_a_line_is_split():
        assert run_bolt(Split(), [("a b",)], source_fields="line").emitted() == [("a",), ("b",)]

This module only exports names; each name is documented where it is defined. No pytest plugin is needed.
"""

from local_cluster.bolt_run import BoltRun, run_bolt
from local_cluster.complete import Completed, complete_topology
from local_cluster.contracts import (
    ContractBroken,
    check_rewindable_spout,
    check_staged_sink,
    check_token_sink,
)
from local_cluster.mutation import MutatedValue
from local_cluster.scripted import TICK, Pause, ScriptedSpout

__all__ = [
    "TICK",
    "BoltRun",
    "Completed",
    "ContractBroken",
    "MutatedValue",
    "Pause",
    "ScriptedSpout",
    "check_rewindable_spout",
    "check_staged_sink",
    "check_token_sink",
    "complete_topology",
    "run_bolt",
]
