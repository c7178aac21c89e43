"""A topology with state and with every kind of bolt, each of which raises now and then; and what it has shown and committed.

    words -> pass (acks itself) -> batches -> async -> around (a cycle with `back`) -> rows
                                                  \\-> rings (timers) -> rung

Must not know: processes, faults.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.faults.noted_acks import NotedWords, assert_acked_is_committed
from tests.local_cluster.cycle_of_words import Around, Back, wanted_visits
from tests.local_cluster.keeping_words import Async, Batches, Gathers
from tests.local_cluster.staged_words import StagedRows, shown_rows
from tests.local_cluster.words_with_state import expected_rows, snapshots_at
from topology_api import Context, StatefulBolt, Topology, TopologyBuilder, Tuple, ValueState
from worker.state.saved_rows import rows_of, whole_state

#: The share of calls that raise.
RAISES: Final = 0.01


class Rings(StatefulBolt):
    """A moment after each tuple a timer counts: some of them raise, after they have counted and emitted."""

    key = ("word",)
    outputs = ("word", "times")
    rung = ValueState(int, default=0)

    def prepare(self, context: Context) -> None:
        self.random = context.random

    def execute(self, tup: Tuple) -> None:
        self.timer_after(self.random.uniform(0.01, 0.3), name=str(tup["number"]))

    def on_timer(self, name: str, time: float) -> None:
        self.rung.value += 1
        self.emit((self.current_key, self.rung.value))
        if self.random.random() < RAISES:
            raise ValueError(f"timer {name}")


def conf_at(folder: Path, **more: Any) -> dict[str, Any]:
    """The configuration of a topology with its state below a folder."""
    return {"topology.state.path": f"file://{folder}/state", "topology.epoch.secs": 0.2, **more}


def every_kind(folder: Path, total: int, a_second: int) -> Topology:
    """The topology; its rows are in folders below `folder`. It does not end: then timers would be dropped."""
    builder = TopologyBuilder("words")
    builder.set_spout("words", NotedWords(total, a_second, folder / "state", folder / "acks"))
    builder.set_bolt("pass", Gathers(7, RAISES), 2).shuffle_grouping("words")
    builder.set_bolt("batches", Batches(20, 0.1, RAISES), 2).shuffle_grouping("pass")
    builder.set_bolt("async", Async(0.01, RAISES), 2).shuffle_grouping("batches")
    around = builder.set_bolt("around", Around(RAISES), 2).fields_grouping("async", "word")
    around.fields_grouping("back", "word", stream="again")
    builder.set_bolt("back", Back(), 2).shuffle_grouping("around", stream="again")
    builder.set_bolt("rings", Rings(), 2).fields_grouping("async", "word")
    builder.set_bolt("rows", StagedRows(str(folder / "rows"))).shuffle_grouping("around")
    builder.set_bolt("rung", StagedRows(str(folder / "rung"))).shuffle_grouping("rings")
    return builder.build()


def shown(folder: Path) -> int:
    """How many rows are visible."""
    return len(shown_rows(folder / "rows")) + len(shown_rows(folder / "rung"))


def committed(folder: Path, component: str, state: str) -> dict[Any, Any]:
    """The values of a state in the last commit, by key, over all tasks."""
    found = {}
    for snapshot in snapshots_at(folder / "state" / "words"):
        if snapshot.task.partition("/")[0] == component:
            for row in rows_of(whole_state(snapshot.state, snapshot.parts)):
                if row.state == state:
                    assert row.key not in found, "a key is in two tasks"
                    found[row.key] = row.value
    return found


def assert_each_counts_once(folder: Path, total: int) -> None:
    """The ledger: acked is what is committed, each row is there once, and the balance of each key is the sum of its inputs."""
    assert_acked_is_committed(folder / "acks", total)
    numbers = list(range(total))
    assert shown_rows(folder / "rows") == expected_rows(numbers)
    assert shown_rows(folder / "rung") == expected_rows(numbers)
    visits = wanted_visits(total)
    assert committed(folder, "around", "rounds") == {word: rounds for word, (rounds, *_) in visits.items()}
    assert committed(folder, "around", "left") == {word: left for word, (_, left, _) in visits.items()}
    assert committed(folder, "rings", "rung") == {word: left for word, (_, left, _) in visits.items()}
