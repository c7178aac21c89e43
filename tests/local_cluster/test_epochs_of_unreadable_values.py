"""Values that can be pickled, and not be read again by the process that goes on: each costs its own tuple, and nothing else.

Where such a tuple waited at the last commit, it is a dead letter of the task that has it; every other tuple counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from squall.dead_letters.letter import DeadLetter
from tests.local_cluster.test_epochs_of_unkept_values import (
    GathersLocks,
    Holds,
    Unlocks,
    conf_at,
)
from tests.local_cluster.words_with_state import (
    WORDS,
    Count,
    Newest,
    Pass,
    Words,
    counts,
    expected,
)
from topology_api import Bolt, Fields, Spout, Topology, TopologyBuilder, Tuple
from worker.tasks.epoch_spout import PickledEmissions

TOTAL = 120
ODD = frozenset(range(3, TOTAL, 5))
#: Whether values of class `Moody` cannot be read.
MOODS: list[str] = []


@pytest.fixture(autouse=True)
def no_moods() -> Iterator[None]:
    MOODS.clear()
    yield
    MOODS.clear()


class Moody:
    """Can be read until there is a mood."""

    def __setstate__(self, state: Any) -> None:
        if MOODS:
            raise ValueError(MOODS[0])

    def __init__(self) -> None:
        self.own = 1


class Adds(Pass):
    """Adds such a value to some tuples."""

    outputs = Fields("word", "number", "mood")

    def execute(self, tup: Tuple) -> None:
        number = tup["number"]
        self.emit((tup["word"], number, Moody() if number in ODD else None))


class MoodySpout(Words):
    """Emits all at once."""

    outputs = Adds.outputs

    def next_tuple(self) -> float:
        if self.at < self.count:
            number = self.at
            self.at += 1
            self.emit(
                (WORDS[number % len(WORDS)], number, Moody() if number in ODD else None), message_id=number
            )
            return 0
        return 0.1


class Fails(Pass):
    """Fails what is odd, without end."""

    def execute(self, tup: Tuple) -> None:
        if tup["mood"] is not None:
            raise ValueError("not now")
        self.emit((tup["word"], tup["number"]))


def check(cluster: LocalCluster, letters: list[DeadLetter]) -> None:
    """Each tuple is counted, or is one letter."""
    numbers = Counter(letter.values[1] for letter in letters)
    assert numbers and set(numbers) <= ODD and set(numbers.values()) == {1}
    assert counts(cluster) == expected([number for number in range(TOTAL) if number not in numbers])
    for letter in letters:
        if "not now" in (letter.failure.error or ""):
            continue
        assert letter.values[2] == "<cannot be read: ValueError: not today>"
        assert "field 'mood' could not be read: ValueError: not today" in letter.why_no_values
    assert cluster.status("words").state == "ACTIVE"


WAITING: dict[str, tuple[Spout, list[Bolt], str]] = {
    "emitted": (Words(TOTAL), [Adds(), Unlocks()], "adds"),
    "emitted by a spout": (MoodySpout(TOTAL), [Unlocks()], "words"),
    "held": (Words(TOTAL, 200), [Adds(), Holds()], "holds"),
    "gathered": (Words(TOTAL, 200), [Adds(), GathersLocks()], "gatherslocks"),
    "parked": (Words(TOTAL, 200), [Adds(), Fails()], "fails"),
}


def built(spout: Spout, bolts: list[Bolt], tasks: int, key: str = "word") -> Topology:
    """A line of bolts, each with this number of tasks, and the counts at its end. `key`: of the tuples between bolts."""
    builder = TopologyBuilder("words")
    builder.set_spout("words", spout)
    before = "words"
    for bolt in bolts:
        name = type(bolt).__name__.lower()
        builder.set_bolt(name, bolt, tasks).fields_grouping(before, "word" if before == "words" else key)
        before = name
    builder.set_bolt("count", Count(), 2).fields_grouping(before, "word")
    builder.set_bolt("newest", Newest()).fields_grouping("count", "word")
    return builder.build()


@pytest.mark.parametrize("where", WAITING)
@pytest.mark.parametrize("tasks", [1, 2], ids=["same tasks", "more tasks"])
def test_a_tuple_that_waited_and_cannot_be_read_is_a_letter_of_the_task_that_has_it(
    tmp_path: Path, where: str, tasks: int
) -> None:
    spout, bolts, component = WAITING[where]
    conf = conf_at(tmp_path, **{"topology.epoch.secs": 0.1})
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(built(spout, bolts, 1), conf)
        cluster.advance(1.5 if "emitted" in where else 0.35)
    MOODS.append("not today")
    found: dict[str, DeadLetter] = {}
    for seconds in (0.25, 12):
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(built(spout, bolts, tasks), conf)
            cluster.advance(seconds)
            found |= {letter.id: letter for letter in cluster.dead_letters("words")}
            if seconds == 12:
                check(cluster, list(found.values()))
    assert {
        letter.component for letter in found.values() if "not now" not in (letter.failure.error or "")
    } == {component}


def test_a_tuple_that_cannot_be_read_by_the_next_worker_is_a_letter_of_that_worker(tmp_path: Path) -> None:
    """Values go through the codec between two workers: half of the tuples."""
    conf = conf_at(tmp_path, **{"topology.workers": 2})
    MOODS.append("not today")
    with LocalCluster(simulated_time=True, encode=True) as cluster:
        cluster.submit(built(Words(TOTAL, 200), [Adds(), GathersLocks()], 2, "number"), conf)
        cluster.advance(12)
        letters = cluster.dead_letters("words")
        check(cluster, letters)
    assert {letter.component for letter in letters} == {"gatherslocks"}


def test_what_a_spout_was_to_emit_again_and_cannot_be_read_is_given_up_with_the_open_epoch() -> None:
    before, after = PickledEmissions(rewindable=False), PickledEmissions(rewindable=False)
    for number, value in enumerate((Moody(), "a", Moody())):
        before.add(number, ("default", 0, (number, value)))
    before.rewind()
    content = before.content()
    MOODS.append("not today")
    given_up: list[Any] = []
    after.give_up = given_up.append
    after.restore(content)
    assert list(after.again) == [(1, ("default", 0, (1, "a")))]
    assert [(message_id, values[2][0]) for message_id, values in given_up] == [(0, 0), (2, 2)]
    after.close(5)
    assert after.commit(5) == [0, 2], "acked with the commit of their letters"
