"""A cluster in this process paces the garbage collector, frees what is garbage, and leaves the collector as it was."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_cluster import LocalCluster
from local_cluster.collector import GARBAGE_IN_ALL, MOST, PACE, WAITING_IN, adapted, relaxed
from tests.local_cluster.gathering import Rows
from tests.local_cluster.small_topologies import Keeps
from topology_api import Bolt, Context, Spout, Topology, TopologyBuilder, Tuple

ROOT = Path(__file__).parents[2]
#: The thresholds before each test: Python's own since 3.0.
BEFORE = (700, 10, 10)


@pytest.fixture(autouse=True)
def _own_thresholds() -> Iterator[None]:
    """As in a process of its own: nothing is frozen, unlike after the collection of the tests."""
    found, enabled, frozen = gc.get_threshold(), gc.isenabled(), gc.get_freeze_count()
    gc.unfreeze()
    gc.set_threshold(*BEFORE)
    gc.enable()
    yield
    gc.set_threshold(*found)
    (gc.enable if enabled else gc.disable)()
    if frozen:
        gc.freeze()


def state() -> tuple[Any, ...]:
    return gc.get_threshold(), gc.isenabled(), gc.get_freeze_count(), PACE.clusters


def with_rows(bolt: Bolt, count: int) -> Topology:
    builder = TopologyBuilder("rows", {"topology.max.spout.pending": 200_000})
    builder.set_spout("rows", Rows([(number,) for number in range(count)]))
    builder.set_bolt("bolt", bolt).shuffle_grouping("rows")
    return builder.build()


class Collects(Spout):
    """Has all objects visited, until collections are rare; then it ends."""

    def next_tuple(self) -> None:
        if gc.get_threshold()[0] == MOST[0]:
            self.finish()
        gc.collect()


@pytest.mark.parametrize("simulated", [False, True])
def test_after_a_cluster_the_collector_is_as_before(simulated: bool) -> None:
    """The spout runs in the thread that adapts the thresholds, which may be in the middle of that when any other one looks."""
    before = state()
    builder = TopologyBuilder("collects")
    builder.set_spout("collects", Collects())
    with LocalCluster(simulated_time=simulated) as cluster:
        assert gc.isenabled()
        cluster.submit(builder.build())
        if simulated:
            cluster.advance(1)
        cluster.wait("collects")
    assert state() == before


def test_after_two_nested_clusters_the_collector_is_as_before() -> None:
    before = state()
    with LocalCluster():
        with LocalCluster(simulated_time=True):
            pass
        assert PACE.clusters == 1, "the outer cluster still runs"
    assert state() == before


def test_clusters_that_overlap_leave_the_collector_as_before() -> None:
    before = state()
    first, second = LocalCluster(simulated_time=True), LocalCluster(simulated_time=True)
    first.shutdown()
    first.shutdown()
    assert PACE.clusters == 1
    second.shutdown()
    assert state() == before


def test_after_an_error_the_collector_is_as_before() -> None:
    before = state()
    with pytest.raises(ZeroDivisionError), LocalCluster(simulated_time=True):
        _ = 1 / 0
    assert state() == before


def test_what_was_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        before = state()
        with LocalCluster(simulated_time=True):
            assert gc.get_freeze_count() <= before[2], "frozen objects may only end"
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    with LocalCluster(simulated_time=True):
        assert not gc.isenabled()
    assert not gc.isenabled()
    gc.enable()
    gc.set_threshold(0)
    with LocalCluster(simulated_time=True):
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold()[0] == 0


def test_thresholds_that_other_code_sets_meanwhile_stay() -> None:
    with LocalCluster(simulated_time=True):
        gc.set_threshold(1234, 5, 6)
        gc.collect()
        assert gc.get_threshold() == (1234, 5, 6)
    assert gc.get_threshold() == (1234, 5, 6)


def test_worker_processes_leave_the_collector_of_this_process_alone() -> None:
    before = state()
    with LocalCluster(processes=True):
        assert state() == before
    assert state() == before


class Node:
    """Refers to itself. Counts its instances."""

    alive = peak = ended = 0

    def __init__(self) -> None:
        self.itself = self
        Node.alive += 1
        Node.peak = max(Node.peak, Node.alive)

    def __del__(self) -> None:
        Node.alive -= 1
        Node.ended += 1


class MakesCycles(Bolt):
    """Makes garbage that only the collector frees, and a weak reference to the first of each tuple."""

    watched: list[weakref.ref[Node]] = []

    def execute(self, tup: Tuple) -> None:
        self.watched.append(weakref.ref(Node()))
        for _ in range(99):
            Node()


def test_cycles_of_a_bolt_are_freed_while_it_runs_with_finalizers_and_weak_references() -> None:
    Node.alive = Node.peak = Node.ended = 0
    MakesCycles.watched.clear()
    with LocalCluster(simulated_time=True) as cluster:
        cluster.submit(with_rows(MakesCycles(), 1_000))
        cluster.advance(1)
        assert gc.get_threshold() == BEFORE, "a collector that finds garbage looks as often as before"
        assert cluster.status("rows").components["bolt"].executed == 1_000
        cleared = sum(reference() is None for reference in MakesCycles.watched)
        assert 100_000 - Node.alive == Node.ended >= 80_000 and cleared >= 800
        assert Node.peak <= 2 * BEFORE[0]
    gc.collect()
    assert Node.alive == 0 and not any(reference() for reference in MakesCycles.watched)


class Window(Bolt):
    """Keeps the last 10,000 to 20,000 cycles: they are garbage only when they are old."""

    def prepare(self, context: Context) -> None:
        self.nodes: list[Node] = []

    def execute(self, tup: Tuple) -> None:
        self.nodes.extend(Node() for _ in range(100))
        if len(self.nodes) >= 20_000:
            del self.nodes[:10_000]


def test_a_window_of_cycles_takes_no_more_than_a_fifth_more_memory_than_in_plain_python() -> None:
    def peak_of(run: Callable[[], None]) -> int:
        gc.collect()
        Node.alive = Node.peak = 0
        run()
        return Node.peak

    def plain() -> None:
        bolt = Window()
        bolt.prepare(cast(Any, None))
        for _ in range(3_000):
            bolt.execute(cast(Any, None))

    def in_a_cluster() -> None:
        with LocalCluster(simulated_time=True) as cluster:
            cluster.submit(with_rows(Window(), 3_000))
            cluster.advance(1)
            assert cluster.status("rows").components["bolt"].executed == 3_000

    assert peak_of(in_a_cluster) <= 1.2 * peak_of(plain)


@pytest.mark.slow
@pytest.mark.parametrize("cycles", [2_000_000, pytest.param(10_000_000, marks=pytest.mark.soak)])
def test_the_process_of_a_bolt_that_makes_cycles_stays_within_a_fifth_of_its_memory(cycles: int) -> None:
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("this system does not say how much memory a process has")
    program = f"from tests.local_cluster.cycles_in_a_cluster import run; print(*run({cycles}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    warm, most = map(int, done.stdout.split())
    assert most <= 1.2 * warm


def test_tuples_that_are_held_and_pending_are_not_visited_again_and_again() -> None:
    collections = [0, 0, 0]

    def count(phase: str, info: Mapping[str, Any]) -> None:
        collections[info["generation"]] += phase == "start"

    with LocalCluster(simulated_time=True) as cluster:
        topology = with_rows(Keeps(), 50_000)
        gc.collect()
        PACE.adapt()
        gc.collect()  # finds nothing
        PACE.adapt()
        gc.callbacks.append(count)
        try:
            cluster.submit(topology)
            cluster.advance(1)
        finally:
            gc.callbacks.remove(count)
        assert cluster.status("rows").components["rows"].pending == 50_000
    young, middle, whole = collections
    # With Python's thresholds there are some 300, 30 and 5.
    assert young <= 50 and middle <= 3 and whole <= 1


THRESHOLDS = st.tuples(st.integers(1, 100_000), st.integers(0, 100), st.integers(0, 100))
COUNTS = st.integers(0, 10**7)


def test_no_list_of_all_objects_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is one, `tuple(iterator)` of another thread raises SystemError: the list refers to the unfinished tuple."""
    monkeypatch.setattr(gc, "get_objects", lambda *generation: pytest.fail("it refers to unfinished tuples"))
    PACE.begin()
    try:
        for _ in range(2):  # the first looks at what was collected since an earlier test
            gc.collect()
            gc.collect()
            PACE.adapt()
        assert gc.get_threshold()[0] == MOST[0]
    finally:
        PACE.end()


@given(THRESHOLDS, st.lists(st.tuples(st.integers(0, 2), COUNTS, COUNTS)))
def test_thresholds_stay_between_those_before_and_the_relaxed_ones(
    before: tuple[int, int, int], history: list[tuple[int, int, int]]
) -> None:
    now, most = before, relaxed(before, 10**9)
    for generation, freed, alive in history:
        now = adapted(now, before, generation, freed, alive)
        assert all(low <= value <= high for low, value, high in zip(before, now, most, strict=True))
        if generation < 2:
            assert now == adapted(now, before, generation, 0, 0), "only a collection of all objects relaxes"
    for generation in (0, 1, 2):
        assert adapted(most, before, generation, 10**8, 10**9) == before, "any collection that finds garbage"
    assert adapted(before, before, 2, 10**9 // GARBAGE_IN_ALL - 1, 10**9) == most


@given(THRESHOLDS, st.integers(0, 10**7))
def test_what_may_wait_is_a_share_of_what_is_alive_or_as_much_as_before(
    before: tuple[int, int, int], alive: int
) -> None:
    young, middle, _ = relaxed(before, alive)
    assert young == max(before[0], MOST[0])
    assert middle == before[1] or young * middle * WAITING_IN <= alive
    assert middle <= max(before[1], MOST[1])
