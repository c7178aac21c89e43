"""`complete_topology` with `topology.state.path`: bolts of every kind take part in epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from local_cluster.testing import complete_topology
from tests.local_cluster.staged_words import StagedRows, shown_rows
from tests.local_cluster.words_with_state import Count, Finite, Pass, Rows, expected_rows, rows_at
from topology_api import BatchBolt, Bolt, StateError, StatefulBolt, TopologyBuilder, Tuple, ValueState


class PassInBatches(BatchBolt):
    outputs = Pass.outputs
    batch_size, batch_interval = 7, 0.1

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        for tup in tups:
            self.emit((tup["word"], tup["number"]), anchors=tup)


class PassAwaited(Bolt):
    outputs = Pass.outputs

    async def execute(self, tup: Tuple) -> None:
        self.emit((tup["word"], tup["number"]))


class PassInThread(Pass):
    threaded = True


class PassAndAck(Bolt):
    outputs = Pass.outputs
    auto_ack = False

    def execute(self, tup: Tuple) -> None:
        self.emit((tup["word"], tup["number"]))
        self.ack(tup)


@pytest.mark.parametrize("between", [Pass, PassInBatches, PassAwaited, PassInThread, PassAndAck])
def test_a_bolt_of_any_kind_may_stand_before_one_with_state(
    tmp_path: Path, between: Callable[[], Bolt]
) -> None:
    builder = TopologyBuilder("words")
    builder.set_spout("words", Finite(50))
    builder.set_bolt("pass", between()).shuffle_grouping("words")
    builder.set_bolt("count", Count()).fields_grouping("pass", "word")
    done = complete_topology(builder.build(), conf={"topology.state.path": f"file://{tmp_path}"})
    assert sorted(row[:2] for row in done.emitted("count")) == expected_rows(list(range(50)))


def test_a_token_sink_shows_its_rows(tmp_path: Path) -> None:
    complete_into(Rows(str(tmp_path / "rows.db")), tmp_path)
    assert rows_at(tmp_path / "rows.db") == expected_rows(list(range(50)))


def test_a_staged_sink_shows_its_rows(tmp_path: Path) -> None:
    complete_into(StagedRows(str(tmp_path)), tmp_path)
    assert shown_rows(tmp_path) == expected_rows(list(range(50)))


def complete_into(sink: Bolt, folder: Path) -> None:
    """Run a word count into a sink to its end."""
    builder = TopologyBuilder("words")
    builder.set_spout("words", Finite(50))
    builder.set_bolt("count", Count()).fields_grouping("words", "word")
    builder.set_bolt("rows", sink).shuffle_grouping("count")
    complete_topology(builder.build(), conf={"topology.state.path": f"file://{folder}/state"})


class KeepsAside(StatefulBolt):
    """Changes a value in its timer that it does not read there."""

    key = "word"
    seen = ValueState(list[int], default=[])

    def execute(self, tup: Tuple) -> None:
        self.kept = self.seen.value = [tup["number"]]
        self.timer_after(0.1, name="aside")

    def on_timer(self, name: str, time: float) -> None:
        self.kept.append(-1)


def test_a_value_that_a_timer_changes_behind_its_state_is_found(tmp_path: Path) -> None:
    builder = TopologyBuilder("words")
    builder.set_spout("words", Finite(2, 1))
    builder.set_bolt("count", KeepsAside()).fields_grouping("words", "word")
    conf = {"topology.state.path": f"file://{tmp_path}"}
    with pytest.raises(StateError, match=r"on_timer\(\) changed the value of state 'seen'"):
        complete_topology(builder.build(), conf=conf)
