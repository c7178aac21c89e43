"""How often an epoch ends: as the option says, or as the staged sinks need it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from topology_api import Bolt, Fields, InvalidTopology, Spout, StagedSink, TokenSink, TopologyBuilder
from topology_api.description import describe, parse
from topology_api.epoch_rules import epoch_secs
from topology_api.options import defaults


class Words(Spout):
    outputs = Fields("word")

    def next_tuple(self) -> None:
        self.finish()


class Slow(StagedSink):
    batch_interval = 7


class Quick(StagedSink):
    """Has the interval of every batch bolt."""


class SlowTokens(TokenSink):
    batch_interval = 99.0


class Last(Bolt):
    def execute(self, tup: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("sinks", "secs"),
    [
        ([], 1.0),
        ([SlowTokens()], 1.0),
        ([Slow(), Quick()], 7.0),
        ([Quick(), Slow()], 7.0),
        ([Quick()], 1.0),
    ],
)
def test_an_epoch_lasts_as_long_as_the_longest_interval_of_a_staged_sink(
    sinks: list[Bolt], secs: float
) -> None:
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words())
    builder.set_bolt("last", Last()).shuffle_grouping("words")
    for number, sink in enumerate(sinks):
        builder.set_bolt(f"sink{number}", sink).shuffle_grouping("words")
    topology = builder.build()
    conf = defaults()
    described = parse(describe(topology), dict.fromkeys(topology.pickles, b""))  # nothing is unpickled
    for each in (topology, described, pickle.loads(pickle.dumps(topology))):
        assert epoch_secs(each, conf) == secs
        assert epoch_secs(each, {**conf, "topology.epoch.secs": 2}) == 2.0


@pytest.mark.parametrize("interval", [0.0, -1.0, float("inf"), float("nan"), "7", True])
def test_a_description_with_an_interval_that_is_none_is_refused(interval: object) -> None:
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words())
    builder.set_bolt("sink", Slow()).shuffle_grouping("words")
    topology = builder.build()
    raw = describe(topology)
    raw["components"][1]["batch_interval"] = interval
    with pytest.raises(InvalidTopology, match=r"components\[1\].batch_interval is "):
        parse(raw, topology.pickles)
