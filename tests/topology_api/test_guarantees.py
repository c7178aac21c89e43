"""What a topology guarantees from each spout to each sink: each rule, and `topology.require` in `build()`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from topology_api import (
    BatchBolt,
    Bolt,
    Fields,
    InvalidTopology,
    RewindableSpout,
    Spout,
    StatefulBolt,
    TokenSink,
    Topology,
    TopologyBuilder,
    Tuple,
    ValueState,
)
from topology_api.guarantees import (
    Guarantees,
    PairGuarantee,
    counting_again,
    guarantees,
    requirement_problems,
    rewind_note,
)

WITH_PATH = {"topology.state.path": "file:///state"}
REQUIRED = {"topology.require": "exactly-once"}


class Plain(Spout):
    outputs = "word"

    def next_tuple(self) -> None:
        self.finish()


class Rewinds(RewindableSpout):
    outputs = "word"

    def next_tuple(self) -> None:
        self.finish()

    def position(self) -> int:
        return 0

    def rewind(self, position: Any) -> None:
        pass


class Own(Plain):
    replay = None


class Pass(Bolt):
    outputs = "word"

    def execute(self, tup: Tuple) -> None:
        self.emit(tup.values)


class Async(Pass):
    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        self.emit(tup.values)


class Alone(Pass):
    auto_ack = auto_anchor = False


class Batches(BatchBolt):
    outputs = "word"

    def execute_batch(self, tups: Any) -> None:
        pass


class Counts(StatefulBolt):
    key = "word"
    outputs = "word"
    times = ValueState(int, default=0)

    def execute(self, tup: Tuple) -> None:
        self.times.value += 1


class AloneCounts(Counts):
    auto_ack = False


class Rows(TokenSink):
    outputs = Fields("word")

    def read_token(self, token: str) -> int:
        return 0

    def write(self, epoch: int | None, rows: list[Any], expected: int, token: str | None) -> bool:
        return True


class AloneRows(Rows):
    auto_ack = False


def line(*components: Any, conf: Mapping[str, object] | None = None) -> Topology:
    """A spout `c0`, and bolts behind it, each of which reads the one before."""
    builder = TopologyBuilder("t", conf)
    builder.set_spout("c0", components[0])
    for number, bolt in enumerate(components[1:], 1):
        builder.set_bolt(f"c{number}", bolt).fields_grouping(f"c{number - 1}", "word")
    return builder.build()


def only(*components: Any, conf: Mapping[str, object] | None = None) -> PairGuarantee:
    """The only pair of a line."""
    (pair,) = guarantees(line(*components), conf or {}).pairs
    return pair


def texts(pair: PairGuarantee | Guarantees) -> list[str]:
    return [each.text for each in pair.obstacles]


# The levels


def test_a_token_sink_behind_a_rewindable_spout_with_a_state_path_is_exactly_once() -> None:
    pair = only(Rewinds(), Pass(), Counts(), Rows(), conf=WITH_PATH)
    assert (pair.spout, pair.through, pair.sink) == ("c0", ("c1", "c2"), "c3")
    assert (pair.level, pair.obstacles, pair.conditions) == ("exactly-once", (), ())
    assert pair.outside == "what 'c3' writes is there exactly once"
    assert [each.text for each in pair.states] == ["the state of 'c2' counts each tuple of 'c0' once"]


def test_without_a_state_path_replays_are_written_and_counted_twice() -> None:
    pair = only(Rewinds(), Counts(), Rows())
    assert pair.level == "at-least-once"
    assert texts(pair) == [
        "topology.state.path is not set, so tuples that are emitted again are processed and written again: give a folder as "
        "file:///path or hdfs://host:port/path"
    ]
    assert pair.outside.endswith("at least once: tuples that are emitted again are written again")
    assert pair.conditions == ("'c0' emits with a message id: all else is delivered at most once",)
    assert [each.text for each in pair.states] == [
        "the state of 'c1' counts replays twice, and ends with its worker"
    ]


def test_a_spout_that_cannot_rewind_is_named() -> None:
    pair = only(Plain(), Counts(), Rows(), conf=WITH_PATH)
    assert pair.level == "at-least-once"
    assert texts(pair) == [
        "spout 'c0' cannot rewind, so what it emitted since the last commit is lost, or comes again, when its worker ends: "
        "derive from RewindableSpout"
    ]
    assert pair.conditions == ("the source of 'c0' delivers again what was not acked",)
    assert "once while its worker lives" in pair.states[0].text


@pytest.mark.parametrize(
    ("components", "named"),
    [
        ((Plain(), Pass(), Counts(), Pass()), ["c0"]),
        ((Plain(), Counts(), Rows()), ["c0"]),
        ((Plain(), Rows()), ["c0"]),
        ((Plain(), Pass()), []),
        ((Rewinds(), Counts(), Rows()), []),
    ],
)
def test_spouts_that_cannot_rewind_are_named_if_they_reach_state_or_a_committing_sink(
    components: tuple[Any, ...], named: list[str]
) -> None:
    assert counting_again(line(*components)) == named


def test_the_note_on_spouts_that_cannot_rewind_says_what_happens_and_what_to_do() -> None:
    assert rewind_note(["a"]) == (
        "spout 'a' cannot rewind: what such a spout emits again after its own worker has died may count twice, and what it "
        "does not may be lost; derive from RewindableSpout (docs/state.md)"
    )
    assert rewind_note(["a", "b"]).startswith("spouts 'a', 'b' cannot rewind: ")


def test_a_bolt_that_is_no_token_sink_is_named() -> None:
    pair = only(Rewinds(), Pass(), Pass(), conf=WITH_PATH)
    assert (pair.level, pair.conditions) == ("at-least-once", ())
    assert texts(pair) == [
        "bolt 'c2' is no TokenSink or StagedSink, so what it has written since the last commit may be written again: derive "
        "from one of them"
    ]
    assert pair.outside.endswith("what it has written since the last commit may be written again")


def test_without_acking_a_tuple_arrives_at_most_once() -> None:
    pair = only(Rewinds(), Counts(), Rows(), conf={"topology.acking": False})
    assert pair.level == "at-most-once"
    assert [each.subject for each in pair.obstacles] == ["topology.acking", "topology.state.path"]
    assert "at most once" in pair.outside and "misses lost tuples" in pair.states[0].text
    both = guarantees(line(Rewinds(), Rows()), {**WITH_PATH, "topology.acking": False})
    assert both.pairs[0].level == "at-most-once"
    assert both.refused == (
        "topology.acking is false: in a topology with topology.state.path it must be true",
    )


# What only a running topology shows


@pytest.mark.parametrize(
    ("spout", "bolt", "found"),
    [
        (Own(), Pass(), ["'c0' emits failed tuples again itself"]),
        (Plain(), Pass(), ["the source of 'c0' delivers again"]),
        (Plain(), Batches(), ["'c1' gives anchors="]),
        (Plain(), Alone(), ["'c1' gives anchors=", "'c1' acks a tuple only when"]),
    ],
)
def test_what_the_code_has_to_do_itself_is_a_condition(spout: Spout, bolt: Bolt, found: list[str]) -> None:
    pair = only(spout, bolt, Rows())
    assert pair.level == "at-least-once"
    assert all(any(text in each for each in pair.conditions) for text in found)


def test_a_bolt_that_acks_itself_has_to_emit_in_the_call_that_acks() -> None:
    pair = only(Rewinds(), Alone(), Counts(), Rows(), conf=WITH_PATH)
    assert (pair.level, pair.obstacles) == ("exactly-once", ())
    assert pair.conditions == (
        "'c1' emits what comes of a tuple in the call that acks it: what it holds is executed again",
    )


# What a state path does not support


@pytest.mark.parametrize(
    ("bolt", "why"),
    [
        (AloneCounts(), "acks itself (auto_ack is False) and has state"),
        (AloneRows(), "acks itself (auto_ack is False), and"),
    ],
)
def test_a_bolt_that_a_state_path_refuses_is_an_obstacle_with_and_without_a_path(
    bolt: Bolt, why: str
) -> None:
    for conf in ({}, WITH_PATH):
        found = guarantees(line(Rewinds(), bolt, Rows()), conf)
        assert found.pairs[0].level == "at-least-once"
        assert any(text.startswith(f"bolt 'c1' {why}") for text in texts(found))
        assert bool(found.refused) == bool(conf)


def cyclic(*, leaves: bool) -> Topology:
    """Bolts `a` and `b` that read each other; with `leaves`, a sink behind them."""
    builder = TopologyBuilder("t")
    builder.set_spout("s", Rewinds())
    builder.set_bolt("a", Pass()).shuffle_grouping("s").shuffle_grouping("b")
    builder.set_bolt("b", Pass()).shuffle_grouping("a")
    if leaves:
        builder.set_bolt("sink", Rows()).shuffle_grouping("a")
    return builder.build()


def test_a_cycle_may_be_on_the_way() -> None:
    (pair,) = guarantees(cyclic(leaves=True), WITH_PATH).pairs
    assert (pair.sink, pair.through) == ("sink", ("a", "b"))
    assert (pair.level, pair.obstacles) == ("exactly-once", ())


def test_the_members_of_a_cycle_that_nothing_leaves_are_sinks() -> None:
    assert [pair.sink for pair in guarantees(cyclic(leaves=False), {}).pairs] == ["a", "b"]


# Pairs


def test_each_spout_is_judged_with_each_sink_that_it_reaches() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("lines", Rewinds())
    builder.set_spout("queue", Plain())
    builder.set_bolt("join", Pass()).shuffle_grouping("lines").shuffle_grouping("queue")
    builder.set_bolt("rows", Rows()).shuffle_grouping("join")
    builder.set_bolt("other", Rows()).shuffle_grouping("lines")
    builder.set_bolt("after", Pass()).shuffle_grouping("rows")
    found = guarantees(builder.build(), WITH_PATH)
    assert [(pair.spout, pair.through, pair.sink, pair.level) for pair in found.pairs] == [
        ("lines", ("join",), "rows", "exactly-once"),
        ("lines", (), "other", "exactly-once"),
        ("lines", ("join", "rows"), "after", "at-least-once"),
        ("queue", ("join",), "rows", "at-least-once"),
        ("queue", ("join", "rows"), "after", "at-least-once"),
    ]


def test_the_worst_bolt_on_any_path_counts_and_dead_letters_do_not() -> None:
    builder = TopologyBuilder("t")
    spout = builder.set_spout("s", Rewinds())
    builder.set_bolt("good", Pass()).shuffle_grouping("s")
    builder.set_bolt("bad", AloneCounts()).fields_grouping("s", "word")
    builder.set_bolt("rows", Rows()).shuffle_grouping("good").shuffle_grouping("bad")
    builder.set_bolt("morgue", Pass()).dead_letters(spout)
    (pair,) = guarantees(builder.build(), WITH_PATH).pairs
    assert [each.component for each in pair.obstacles] == ["bad"]


def test_a_wide_graph_with_very_many_paths_is_judged_at_once() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Rewinds())
    before = ["s"]
    for layer in range(30):  # 3 ** 30 paths
        names = [f"b{layer}-{number}" for number in range(3)]
        for name in names:
            declarer = builder.set_bolt(name, Pass())
            for source in before:
                declarer.shuffle_grouping(source)
        before = names
    assert [len(pair.through) for pair in guarantees(builder.build(), WITH_PATH).pairs] == [87] * 3


def test_a_topology_without_bolts_has_no_pair() -> None:
    assert guarantees(line(Rewinds()), WITH_PATH).pairs == ()


# topology.require


def test_build_refuses_a_topology_that_gives_less_than_it_requires() -> None:
    with pytest.raises(InvalidTopology) as caught:
        line(Plain(), Pass(), conf={**REQUIRED, **WITH_PATH})
    assert caught.value.problems == (
        "topology.require is exactly-once, but spout 'c0' cannot rewind, so what it emitted since the last commit is lost, or "
        "comes again, when its worker ends: derive from RewindableSpout",
        "topology.require is exactly-once, but bolt 'c1' is no TokenSink or StagedSink, so what it has written since "
        "the last commit may be written again: derive from one of them",
    )
    assert line(Rewinds(), Rows(), conf={**REQUIRED, **WITH_PATH}).name == "t"
    assert line(Plain(), Pass(), conf={"topology.require": None}).name == "t"


def test_build_leaves_the_state_path_to_later_settings_unless_it_is_set_to_null() -> None:
    assert line(Rewinds(), Rows(), conf=dict(REQUIRED)).name == "t"
    with pytest.raises(InvalidTopology, match=r"but topology\.state\.path is not set"):
        line(Rewinds(), Rows(), conf={**REQUIRED, "topology.state.path": None})


def test_build_names_what_a_state_path_would_refuse() -> None:
    with pytest.raises(InvalidTopology, match="bolt 'c1' acks itself"):
        line(Rewinds(), AloneCounts(), Rows(), conf={**REQUIRED, **WITH_PATH})


def test_complete_settings_need_the_path_and_do_not_repeat_what_epochs_refuse() -> None:
    topology = line(Rewinds(), AloneCounts(), Rows())
    assert len([*requirement_problems(topology, REQUIRED)]) == 2
    assert [*requirement_problems(topology, {**REQUIRED, **WITH_PATH})] == []
    assert [*requirement_problems(topology, {})] == []


@pytest.mark.parametrize("bolt", [Async(), Batches()])
def test_async_bolts_and_batch_bolts_may_be_on_the_way(bolt: Bolt) -> None:
    pair = only(Rewinds(), bolt, Counts(), Rows(), conf=WITH_PATH)
    assert (pair.level, pair.obstacles, pair.conditions) == ("exactly-once", (), ())


@pytest.mark.parametrize("value", ["exactly_once", "once", True, 1])
def test_only_exactly_once_can_be_required(value: object) -> None:
    with pytest.raises(InvalidTopology, match=r"'topology.require' is .*give 'exactly-once'.*or null"):
        line(Rewinds(), Rows(), conf={"topology.require": value})
