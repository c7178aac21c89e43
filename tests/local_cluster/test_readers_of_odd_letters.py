"""Letters of tuples that no call has failed reach the bolts that read letters, too, each once.

Their values cannot be kept or read, a sink refuses to stage their rows, or a cycle has no room for them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from local_cluster import LocalCluster
from squall.dead_letters.letter import DeadLetter
from tests.local_cluster import test_epochs_of_full_cycles as full_cycles
from tests.local_cluster import test_epochs_of_unkept_values as unkept
from tests.local_cluster import test_epochs_of_unreadable_values as unreadable
from tests.local_cluster.staged_words import StagedRows, shown_rows
from tests.local_cluster.test_refused_rows import PickyFiles
from tests.local_cluster.words_with_state import Count, Finite, Words
from topology_api import Bolt, Topology, TopologyBuilder, Tuple


class Graves(StagedRows):
    """Shows of each letter the bolt that has given it up, and the number."""

    def row(self, tup: Tuple) -> list[object]:
        return [tup["failure"].component, tup["values"][1]]


def line(folder: Path, spout: Any, *bolts: Bolt, tasks: int = 1, key: str = "word") -> Topology:
    """A line of bolts, and a reader of their letters."""
    builder = TopologyBuilder("words")
    words = builder.set_spout("words", spout)
    before = "words"
    for bolt in bolts:
        name = type(bolt).__name__.lower()
        builder.set_bolt(name, bolt, tasks).fields_grouping(before, "word" if before == "words" else key)
        before = name
    builder.set_bolt("letters", Graves(str(folder / "graves")), 2).dead_letters(words)
    return builder.build()


def cycle(folder: Path, bolt: Bolt, count: int) -> Topology:
    """A cycle of two bolts, and a reader of their letters."""
    builder = TopologyBuilder("words")
    words = builder.set_spout("words", Words(count))
    grows = builder.set_bolt("grows", bolt, 2).shuffle_grouping("words")
    grows.shuffle_grouping("back", stream="again")
    builder.set_bolt("back", full_cycles.Back(), 2).shuffle_grouping("grows", stream="again")
    builder.set_bolt("letters", Graves(str(folder / "graves"))).dead_letters(words)
    return builder.build()


def check(folder: Path, letters: Mapping[str, DeadLetter]) -> None:
    """Each letter was read once, and nothing else."""
    kept = Counter((letter.component, letter.values[1]) for letter in letters.values())
    assert kept and Counter(shown_rows(folder / "graves")) == kept


def run(topology: Topology, conf: Mapping[str, Any], *secs: float, **options: Any) -> dict[str, DeadLetter]:
    """Run a topology in one cluster after another; return all letters."""
    letters: dict[str, DeadLetter] = {}
    for start, each in enumerate(secs):
        with LocalCluster(simulated_time=True, seed=start, **options) as cluster:
            cluster.submit(topology, conf)
            cluster.advance(each)
            assert cluster.last_status("words").state in ("ACTIVE", "COMPLETED")
            letters |= {letter.id: letter for letter in cluster.dead_letters("words")}
    return letters


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "bolts",
    [
        (unkept.Locks(), unkept.Unlocks()),
        (unkept.Locks(), unkept.Holds()),
        (unkept.Locks(), unkept.GathersLocks()),
    ],
    ids=["on its way", "held", "gathered"],
)
def test_letters_of_values_that_cannot_be_kept(tmp_path: Path, bolts: tuple[Bolt, ...], workers: int) -> None:
    conf = unkept.conf_at(tmp_path / "state", **{"topology.workers": workers})
    check(tmp_path, run(line(tmp_path, Words(unkept.TOTAL, 100), *bolts), conf, 0.5, 0.9, 1.3, 8))


def test_letters_of_values_that_cannot_be_read_on_arrival(tmp_path: Path) -> None:
    conf = unkept.conf_at(tmp_path / "state", **{"topology.workers": 2})
    bolts = unreadable.Adds(), unkept.GathersLocks()
    built = line(tmp_path, Words(unreadable.TOTAL, 200), *bolts, tasks=2, key="number")
    unreadable.MOODS.append("not today")
    try:
        letters = run(built, conf, 12, encode=True)
    finally:
        unreadable.MOODS.clear()
    check(tmp_path, letters)


@pytest.mark.parametrize("where", ["emitted", "held", "gathered", "parked"])
def test_letters_of_values_that_waited_and_cannot_be_read(tmp_path: Path, where: str) -> None:
    spout, bolts, _ = unreadable.WAITING[where]
    conf = unkept.conf_at(tmp_path / "state", **{"topology.epoch.secs": 0.1})
    built = line(tmp_path, spout, *bolts)
    letters = run(built, conf, 1.5 if where == "emitted" else 0.35)
    unreadable.MOODS.append("not today")
    try:
        letters |= run(built, conf, 0.25, 0.4, 12)
    finally:
        unreadable.MOODS.clear()
    check(tmp_path, letters)


@pytest.mark.parametrize("seed", range(2))
def test_letters_of_rows_that_can_never_be_staged(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    sink = PickyFiles(str(tmp_path / "out"))
    built = line(tmp_path, Words(200, 100), Count(0.1), sink)
    conf = unkept.conf_at(tmp_path / "state")
    check(tmp_path, run(built, conf, *(draw.uniform(0.1, 8) for _ in range(3)), 60))


def test_letters_of_tuples_for_which_a_cycle_has_no_room(tmp_path: Path) -> None:
    built = cycle(tmp_path, full_cycles.Grows(6, 2), 8)
    check(tmp_path, run(built, full_cycles.conf_at(tmp_path / "state"), 0.3, 0.15, 0.4, 6.0))


def test_letters_of_what_came_round_behind_the_marker_and_cannot_be_kept(tmp_path: Path) -> None:
    conf = full_cycles.conf_at(tmp_path / "state", **{"topology.epoch.secs": 0.02})
    check(tmp_path, run(cycle(tmp_path, full_cycles.Grows(20, 1, locked=5), 20), conf, 0.1, 0.15, 4.0))


def test_a_topology_that_completes_has_told_its_readers(tmp_path: Path) -> None:
    built = line(tmp_path, Finite(unkept.TOTAL), unkept.Locks(), unkept.Unlocks())
    check(tmp_path, run(built, unkept.conf_at(tmp_path / "state"), 20))
