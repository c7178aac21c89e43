"""Replays: which components run for which outputs, and mistakes, which are all reported at once and by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from squall_io.spark.replay import CannotReplay
from squall_io.spark.replay.plan import ReplayPlan, StreamKey, plan_replay
from tests.local_cluster.small_topologies import Split
from tests.squall_io.replay_topologies import Lines, Passer, Tagged, ToTask, word_count
from topology_api import Fields, Stream, Topology, TopologyBuilder


def plan(topology: Topology, sources: Sequence[Any], outputs: Sequence[Any]) -> ReplayPlan:
    return plan_replay(topology, sources, outputs, 0, 0.0)


def problems(topology: Topology, sources: Sequence[Any], outputs: Sequence[Any]) -> str:
    with pytest.raises(CannotReplay) as caught:
        plan(topology, sources, outputs)
    return str(caught.value)


def test_only_components_that_the_outputs_depend_on_run_upstream_first() -> None:
    found = plan(word_count(sink=True), ["lines"], ["split"])
    assert found.steps == ("split",)
    assert plan(word_count(sink=True), ["lines"], ["count"]).steps == ("split", "count")
    assert set(found.topology.pickles) == {"split"}


def test_a_source_in_the_middle_skips_the_components_before_it() -> None:
    assert plan(word_count(), ["split"], ["count"]).steps == ("count",)


def test_an_unread_source_is_not_used() -> None:
    assert plan(word_count(), ["lines", "split"], ["count"]).sources == (StreamKey("split", "default"),)


def test_tasks_are_numbered_as_on_a_cluster() -> None:
    assert plan(word_count(), ["lines"], ["count"]).tasks[:4] == (
        (1, "lines", 0),
        (2, "split", 0),
        (3, "split", 1),
        (4, "count", 0),
    )


def test_an_unknown_name_is_reported_with_the_nearest() -> None:
    text = problems(word_count(), ["line"], ["cuont", "split:words"])
    assert "source 'line': there is no component 'line'; did you mean 'lines'?" in text
    assert "output 'cuont': there is no component 'cuont'; did you mean 'count'?" in text
    assert "component 'split' has no stream 'words' (it has: 'default')" in text


@pytest.mark.parametrize("most", [-1, "5", 2.0, True])
def test_an_invalid_number_of_errors_is_refused(most: Any) -> None:
    with pytest.raises(CannotReplay, match="give a whole number from 0, or None for any number of errors"):
        plan_replay(word_count(), ["lines"], ["count"], most, 0.0)


def test_a_name_that_is_no_text_is_reported() -> None:
    assert "source 3: write 'component' or 'component:stream'" in problems(word_count(), [3], ["count"])


def test_a_spout_without_a_source_is_named_with_its_reader() -> None:
    text = problems(word_count(), [], ["count"])
    assert "no source is given for 'lines', which is read by 'split': a replay does not run spouts" in text


def test_a_sink_is_no_output() -> None:
    assert "'store' emits nothing; a replay runs no sinks" in problems(
        word_count(sink=True), ["lines"], ["store"]
    )


def test_a_spout_is_no_output() -> None:
    assert "'lines' is a spout, which a replay does not run" in problems(word_count(), ["lines"], ["lines"])


def test_an_empty_set_of_outputs_is_a_problem() -> None:
    assert "outputs is empty" in problems(word_count(), ["lines"], [])


def test_one_stream_under_two_names_is_a_problem() -> None:
    text = problems(word_count(), ["lines", "lines:default"], ["count"])
    assert "source 'lines:default': stream 'default' of 'lines' is given twice" in text


def test_a_cycle_is_named_and_a_source_in_it_breaks_it() -> None:
    builder = TopologyBuilder("cycle")
    builder.set_spout("lines", Lines())
    builder.set_bolt("ping", Passer("a", "b")).shuffle_grouping("lines").shuffle_grouping("pong", stream="a")
    builder.set_bolt("pong", Passer("a", "b")).shuffle_grouping("ping", stream="a")
    builder.set_bolt("last", Split()).shuffle_grouping("pong", stream="b")
    topology = builder.build()
    assert "'ping', 'pong' form a cycle" in problems(topology, ["lines"], ["last"])
    assert plan(topology, ["lines", "pong:b"], ["last"]).steps == ("last",)
    assert "'pong' is given as a source, but it would also have to run" in problems(
        topology, ["lines", "pong:a"], ["last"]
    )


def test_a_direct_stream_is_neither_source_nor_output() -> None:
    builder = TopologyBuilder("direct")
    builder.set_spout("lines", Lines())
    builder.set_bolt("to", ToTask()).shuffle_grouping("lines")
    builder.set_bolt("even", Tagged()).direct_grouping("to", stream="chosen")
    topology = builder.build()
    assert "stream 'chosen' is direct, so each of its tuples is for one task" in problems(
        topology, ["lines"], ["to"]
    )
    assert "no row of a frame says for which task it is" in problems(topology, ["to:chosen"], ["even"])


def test_dead_letters_are_a_source_that_has_to_be_given() -> None:
    builder = TopologyBuilder("letters")
    builder.set_spout("lines", Lines())
    builder.set_bolt("it", Split()).shuffle_grouping("lines").dead_letters("lines")
    text = problems(builder.build(), ["lines"], ["it"])
    assert (
        "no source is given for 'lines:__dead_letters', which is read by 'it': a replay has no dead letters"
        in text
    )


def test_an_output_needs_fields_that_differ_in_more_than_case() -> None:
    class Twice(Split):
        outputs = {"default": Fields("Word", "word"), "signals": Stream(Fields())}  # type: ignore[assignment]

    builder = TopologyBuilder("odd")
    builder.set_spout("lines", Lines())
    builder.set_bolt("it", Twice()).shuffle_grouping("lines")
    text = problems(builder.build(), ["lines"], ["it:default", "it:signals"])
    assert "several of its fields are called 'word'" in text
    assert "stream 'signals' has no fields" in text


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(CannotReplay) as caught:
        plan(word_count(sink=True), ["nothing"], ["store", "lines"])
    assert len(caught.value.problems) == 3


def test_many_sources_are_refused() -> None:
    builder = TopologyBuilder("many")
    declared = builder.set_bolt("it", Split())
    for number in range(129):
        builder.set_spout(f"lines{number}", Lines())
        declared.shuffle_grouping(f"lines{number}")
    names = [f"lines{number}" for number in range(129)]
    assert "129 sources, and at most 128" in problems(builder.build(), names, ["it"])
