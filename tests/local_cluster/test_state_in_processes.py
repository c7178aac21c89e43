"""`LocalCluster(processes=True).state(...)` reads the states of a key from the worker process that has it."""

from __future__ import annotations

import pickle
from base64 import b64encode

import pytest

from local_cluster import LocalCluster
from local_cluster.states import chosen
from squall.reports.live_state import StateCopy, TaskState, WorkerState
from tests.local_cluster.process_topologies import Place, places
from tests.local_cluster.words_with_state import eventually
from topology_api import NoSuchTopology, SquallError, StateError


def test_state_reads_the_values_of_the_process_that_has_the_key() -> None:
    with LocalCluster(processes=True) as cluster:
        with pytest.raises(NoSuchTopology):
            cluster.state("places", "visits", Place("hall", 1))
        cluster.submit(places(8), {"topology.workers": 2})
        eventually(lambda: cluster.status("places").components["visits"].executed == 8, 30)
        for row in range(0, 8, 2):
            place = Place("hall", row)
            assert cluster.state("places", "visits", place) == {"times": 1, "seen": {row: place}}
        assert cluster.state("places", "visits", Place("hall", 8)) == {"times": 0, "seen": {}}
        with pytest.raises(StateError, match="places is no StatefulBolt"):
            cluster.state("places", "places", "x")
        with pytest.raises(SquallError, match=r"no running task of 'visit' \(running: 'places', 'visits'\)"):
            cluster.state("places", "visit", "x")


def test_the_owner_is_chosen_and_a_silent_worker_is_named() -> None:
    def answer(owns: bool, value: int) -> WorkerState:
        return WorkerState(1, copies=(StateCopy(0, owns, b64encode(pickle.dumps({"n": value})).decode()),))

    workers = ["w1", "w2"]
    assert chosen("count", "a", workers, [answer(False, 0), answer(True, 5)]) == {"n": 5}
    assert chosen("count", "a", workers, [answer(False, 0), answer(False, 0)]) == {"n": 0}
    assert chosen("count", "a", workers, [None, answer(True, 5)]) == {"n": 5}
    with pytest.raises(SquallError, match="key 'a' of count was not reached; worker w1 does not answer"):
        chosen("count", "a", workers, [None, answer(False, 0)])
    with pytest.raises(SquallError, match=r"was not reached; count\[2\] is starting"):
        busy = WorkerState(1, (TaskState(2, 0, why="count[2] is starting"),))
        chosen("count", "a", workers, [busy, answer(False, 0)])
