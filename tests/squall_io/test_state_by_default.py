"""Which topologies keep state if `topology.state.path` is left at `auto`: on a cluster, and on this machine alone."""

from __future__ import annotations

import pytest

from squall.settings import Overrides, merged
from squall_io.files import FileSink
from squall_io.spark import SparkSink
from squall_io.sql import SqlSink
from topology_api import (
    Bolt,
    Fields,
    InvalidConfig,
    RewindableSpout,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)
from topology_api.epoch_rules import has_path, keepers

PATH = "topology.state.path"


class Lines(RewindableSpout):
    outputs = Fields("word")

    def position(self) -> int:
        return 0

    def rewind(self, position: object) -> None:
        pass

    def next_tuple(self) -> None:
        self.finish()


class Plain(Bolt):
    def execute(self, tup: Tuple) -> None:
        pass


class Remembers(StatefulBolt):
    key = "word"
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1


class Holds(Remembers):
    auto_ack = False


def lines_to(bolt: Bolt, **conf: object) -> Topology:
    builder = TopologyBuilder("lines", conf=conf)
    builder.set_spout("lines", Lines())
    builder.set_bolt("last", bolt).fields_grouping("lines", "word")
    return builder.build()


def sinks() -> list[Bolt]:
    return [FileSink("/data", fields="word"), SqlSink("sqlite:///rows", "words", ["word"])]


def test_state_and_sinks_that_commit_are_a_reason_to_keep_state_and_no_other_component_is() -> None:
    for bolt in (Remembers(), *sinks()):
        topology = lines_to(bolt)
        again = Topology.from_description(topology.describe(), topology.pickles)
        assert keepers(topology) == keepers(again) == ["last"], "Nimbus knows only the description"
        assert has_path(topology, merged(topology)[0])
    for bolt in (Plain(), SparkSink("/table", "word string")):
        topology = lines_to(bolt)
        assert keepers(topology) == []
        assert not has_path(topology, merged(topology)[0])
        assert has_path(topology, {PATH: "file:///state"})


@pytest.mark.parametrize("said", [{}, {PATH: "auto"}])
def test_without_a_cluster_nothing_is_kept_unless_a_folder_is_named(said: dict[str, object]) -> None:
    topology = lines_to(Remembers(), **said)
    conf, own = merged(topology, local=True)
    assert [each[PATH] for each in (conf, *own.values())] == [None, None, None]
    conf, own = merged(topology)
    assert [each[PATH] for each in (conf, *own.values())] == ["auto", "auto", "auto"]
    named = Overrides(topology={PATH: "file:///state"})
    assert merged(topology, overrides=named, local=True)[0][PATH] == "file:///state"


def test_state_that_cannot_be_kept_is_refused_with_the_way_to_have_it_in_memory() -> None:
    untracked = lines_to(Remembers(), **{"topology.acking": False})
    for topology in (untracked, lines_to(Holds())):
        with pytest.raises(InvalidConfig, match=r"; or set topology\.state\.path to null, which keeps"):
            merged(topology)
        merged(topology, local=True)
        merged(topology, overrides=Overrides(topology={PATH: None}))
    merged(lines_to(Plain(), **{"topology.acking": False}))


def test_what_must_be_exactly_once_is_so_by_default_on_a_cluster_only() -> None:
    topology = lines_to(sinks()[0], **{"topology.require": "exactly-once"})
    merged(topology)
    with pytest.raises(InvalidConfig, match=r"topology\.state\.path is not set"):
        merged(topology, local=True)
