"""Values that no snapshot can keep, in topologies whose state is at a path: each costs its own tuple, and nothing else.

Such a tuple may be on its way between two tasks when an epoch ends, in the hands of a bolt, or still to be emitted again. It
is a dead letter that names component, field and type; every other tuple counts once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from squall.dead_letters.letter import DeadLetter
from tests.local_cluster.keeping_words import Batches, Gathers
from tests.local_cluster.words_with_state import (
    Count,
    Forward,
    Newest,
    Pass,
    Words,
    counts,
    expected,
    snapshots_at,
)
from topology_api import BatchBolt, Bolt, Fields, Spout, Topology, TopologyBuilder, Tuple
from worker.tasks.epoch_spout import PickledEmissions

TOTAL = 120
#: Of which numbers the tuple has a lock.
LOCKED = frozenset(range(3, TOTAL, 10))


class Locks(Pass):
    """Adds a lock, which pickle cannot carry, to some tuples."""

    outputs = Fields("word", "number", "lock")

    def execute(self, tup: Tuple) -> None:
        number = tup["number"]
        self.emit((tup["word"], number, threading.Lock() if number in LOCKED else None))


class Unlocks(Pass):
    """Is so slow that tuples wait before it at the end of an epoch, and passes them on without their locks."""

    max_concurrency = 1

    async def execute(self, tup: Tuple) -> None:  # type: ignore[override]
        await asyncio.sleep(0.03)
        self.emit((tup["word"], tup["number"]))


class Holds(Gathers):
    """Holds tuples with locks until the next tick."""

    def __init__(self) -> None:
        super().__init__(most=1_000)

    def settle(self) -> None:
        own, self.own = self.own, []
        for tup in own:
            self.emit((tup["word"], tup["number"]), anchors=tup)
            self.ack(tup)


class GathersLocks(Batches):
    """Gathers tuples with locks."""

    def __init__(self) -> None:
        super().__init__(size=1_000, interval=0.5)

    def execute_batch(self, tups: Any) -> None:
        for tup in tups:
            self.emit((tup["word"], tup["number"]), anchors=tup)


def topology(spout: Spout, *bolts: Bolt) -> Topology:
    """A line of bolts, and the counts at its end."""
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    before = "words"
    for bolt in bolts:
        name = type(bolt).__name__.lower()
        builder.set_bolt(name, bolt).shuffle_grouping(before)
        before = name
    builder.set_bolt("count", Count(), 2).fields_grouping(before, "word")
    builder.set_bolt("newest", Newest()).fields_grouping("count", "word")
    return builder.build()


def conf_at(path: Path, **more: Any) -> dict[str, Any]:
    return {
        "topology.state.path": f"file://{path}",
        "topology.epoch.secs": 0.2,
        "topology.queue.size": 16,
        **more,
    }


def check(cluster: LocalCluster, letters: list[DeadLetter], total: int = TOTAL) -> None:
    """Each tuple is counted, or is one letter."""
    numbers = Counter(letter.values[1] for letter in letters)
    assert set(numbers) <= LOCKED and set(numbers.values()) <= {1}
    assert counts(cluster) == expected([number for number in range(total) if number not in numbers])
    for letter in letters:
        assert letter.as_text == (2,)
        assert letter.values[2].startswith("<unlocked _thread.lock object")
        assert "field 'lock' is " in letter.why_no_values
        assert "which pickle cannot carry: TypeError" in letter.why_no_values


def test_an_emission_that_cannot_be_kept_and_waits_at_a_barrier_is_a_letter_of_its_producer(
    tmp_path: Path,
) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Words(TOTAL), Locks(), Unlocks()), conf_at(tmp_path))
        cluster.advance(6)
        letters = cluster.dead_letters("words")
        check(cluster, letters)
        assert letters, "no lock has waited at a barrier"
        for letter in letters:
            assert (letter.component, letter.source, letter.stream) == ("locks", "locks", "default")
            assert "emitted for unlocks/0 on stream 'default', and never sent" in (letter.failure.error or "")
        status = cluster.status("words")
        assert status.state == "ACTIVE"
        assert status.components["words"].pending == 0
        assert status.components["words"].acked == TOTAL
        assert any("the tuple for unlocks/0 is a dead letter" in error.text for error in status.errors)


class LockSpout(Forward):
    """Has no position, and adds a lock to some tuples."""

    outputs = Locks.outputs

    def next_tuple(self) -> None:
        if self.at < self.count:
            lock = threading.Lock() if self.at in LOCKED else None
            self.emit((f"w{self.at % 7}", self.at, lock), message_id=self.at)
            self.at += 1


def test_so_is_one_of_a_spout(tmp_path: Path) -> None:
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(LockSpout(TOTAL), Unlocks()), conf_at(tmp_path))
        cluster.advance(6)
        letters = cluster.dead_letters("words")
        check(cluster, letters)
        assert letters and {letter.component for letter in letters} == {"words"}
        assert cluster.status("words").components["words"].acked == TOTAL


def test_what_a_spout_is_to_emit_again_and_cannot_be_kept_is_given_up_and_acked_with_its_epoch() -> None:
    given_up: list[Any] = []
    emissions = PickledEmissions(rewindable=False)
    emissions.give_up = given_up.append
    unkept = threading.Lock()
    for number, value in enumerate((0, unkept, 2)):
        emissions.add(number if number else unkept, ("default", 0, (value,)))
    emissions.close(1)
    emissions.rewind()
    emissions.close(2)
    content = emissions.content()
    assert [values for _, (_, _, values) in given_up] == [(unkept,)]
    assert [message_id for message_id, _ in emissions.again] == [unkept, 2]
    after = PickledEmissions(rewindable=False)
    after.restore(content)
    assert list(after.again) == [(None, ("default", 0, (0,))), (2, ("default", 0, (2,)))]
    assert emissions.commit(2) == [1]


@pytest.mark.parametrize("bolt", [Holds(), GathersLocks()], ids=["rich bolt", "batch bolt"])
def test_a_held_tuple_that_cannot_be_kept_is_a_letter_of_its_holder(
    tmp_path: Path, bolt: Bolt | BatchBolt
) -> None:
    name = type(bolt).__name__.lower()
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(topology(Words(TOTAL, 200), Locks(), bolt), conf_at(tmp_path))
        cluster.advance(5)
        letters = cluster.dead_letters("words")
        check(cluster, letters)
        assert letters and {(letter.component, letter.source) for letter in letters} == {(name, "locks")}
        assert all("held at the end of an epoch" in (letter.failure.error or "") for letter in letters)
        status = cluster.status("words")
        assert (status.state, status.components["words"].pending) == ("ACTIVE", 0)


@pytest.mark.parametrize("bolts", [(Locks(), Unlocks()), (Locks(), Holds())], ids=["on its way", "held"])
def test_letters_of_such_tuples_are_committed_with_their_epoch(
    tmp_path: Path, bolts: tuple[Bolt, ...]
) -> None:
    """However often the cluster starts again, each tuple is counted or is one letter."""
    found: dict[str, DeadLetter] = {}
    for seconds in (0.5, 0.9, 1.3, 5):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(topology(Words(TOTAL, 100), *bolts), conf_at(tmp_path))
            cluster.advance(seconds)
            found.update({letter.id: letter for letter in cluster.dead_letters("words")})
            if seconds == 5:
                check(cluster, list(found.values()))
    assert found
    assert snapshots_at(tmp_path / "words")
