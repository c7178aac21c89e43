"""`Context.progress(why)`: what a long call of a bolt waits for is in the status while it waits, and no longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.recording import Numbers, chain
from topology_api import Bolt, Context, Tuple

#: Seconds that nothing here should take.
PATIENCE = 60.0


class Steps:
    """Has a call wait where a test wants to look at it; a new one for each test."""

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)

    def wait(self) -> None:
        self.arrived.release()
        assert self.go_on.acquire(timeout=PATIENCE)


STEPS = Steps()


@pytest.fixture(autouse=True)
def steps() -> Iterator[Steps]:
    global STEPS
    STEPS = Steps()
    yield STEPS
    for _ in range(10):  # whatever waits still
        STEPS.go_on.release()


class Waits(Bolt):
    """Each call says something three times, and waits after each of them."""

    threaded = True

    def prepare(self, context: Context) -> None:
        self.context = context

    def execute(self, tup: Tuple) -> None:
        for why in ("waiting for storage\x1b[31m\nof host-1", "", "x" * 1000):
            self.context.progress(why)
            STEPS.wait()


class WaitsAtItsStart(Waits):
    def prepare(self, context: Context) -> None:
        context.progress("waiting for a license")
        context.progress()  # it goes on, and says nothing new
        STEPS.wait()
        super().prepare(context)

    def execute(self, tup: Tuple) -> None:
        pass


def idle_of(cluster: LocalCluster) -> str:
    return cluster.status("waits").components["bolt1"].idle


def seen(steps: Steps, look: Callable[[], str]) -> str:
    """What is told at the next place where the call waits; it goes on after that."""
    assert steps.arrived.acquire(timeout=PATIENCE)
    told = look()
    steps.go_on.release()
    return told


def test_what_a_bolts_call_says_is_told_until_it_says_another_thing_or_returns(steps: Steps) -> None:
    with LocalCluster() as cluster:
        cluster.submit(chain("waits", Numbers(1), Waits()))
        told = [seen(steps, lambda: idle_of(cluster)) for _ in range(3)]
        cluster.wait("waits", timeout=PATIENCE)
        assert told == ["waiting for storage?[31m of host-1", "", "x" * 179 + "…" + "x" * 120]
        assert idle_of(cluster) == ""


def test_what_a_bolt_waits_for_at_its_start_is_told(steps: Steps) -> None:
    with LocalCluster() as cluster:
        cluster.submit(chain("waits", Numbers(1), WaitsAtItsStart()))
        assert seen(steps, lambda: idle_of(cluster)) == "waiting for a license"
        cluster.wait("waits", timeout=PATIENCE)


class SaysAndReturns(Waits):
    def execute(self, tup: Tuple) -> None:
        self.context.progress("waiting for storage")
        STEPS.wait()


def test_what_was_said_is_forgotten_when_the_call_has_returned(steps: Steps) -> None:
    with LocalCluster() as cluster:
        cluster.submit(chain("waits", Numbers(1, finishes=False), SaysAndReturns()))
        assert seen(steps, lambda: idle_of(cluster)) == "waiting for storage"
        until = time.monotonic() + PATIENCE
        while idle_of(cluster) and time.monotonic() < until:
            time.sleep(0.01)
        assert idle_of(cluster) == ""
