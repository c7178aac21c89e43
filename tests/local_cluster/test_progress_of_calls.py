"""`Context.progress(why)`: the status shows what a bolt's long call waits for, while it waits and no longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.recording import Numbers, chain
from topology_api import Bolt, Context, Tuple

#: A limit in seconds that is never reached.
PATIENCE = 60.0


class Steps:
    """Makes a call wait at points of a test's choice; a new one for each test."""

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
    for _ in range(10):  # release whatever still waits
        STEPS.go_on.release()


class Waits(Bolt):
    """Each call reports progress three times, and waits after each."""

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
        context.progress()  # it goes on without reporting anything new
        STEPS.wait()
        super().prepare(context)

    def execute(self, tup: Tuple) -> None:
        pass


def idle_of(cluster: LocalCluster) -> str:
    return cluster.status("waits").components["bolt1"].idle


def seen(steps: Steps, look: Callable[[], str]) -> str:
    """The status at the next point where the call waits; the call goes on afterwards."""
    assert steps.arrived.acquire(timeout=PATIENCE)
    told = look()
    steps.go_on.release()
    return told


def test_a_bolts_report_is_shown_until_the_next_one_or_until_the_call_returns(steps: Steps) -> None:
    with LocalCluster() as cluster:
        cluster.submit(chain("waits", Numbers(1), Waits()))
        told = [seen(steps, lambda: idle_of(cluster)) for _ in range(3)]
        cluster.wait("waits", timeout=PATIENCE)
        assert told == ["waiting for storage?[31m of host-1", "", "x" * 179 + "…" + "x" * 120]
        assert idle_of(cluster) == ""


def test_the_wait_of_a_bolt_in_prepare_is_shown(steps: Steps) -> None:
    with LocalCluster() as cluster:
        cluster.submit(chain("waits", Numbers(1), WaitsAtItsStart()))
        assert seen(steps, lambda: idle_of(cluster)) == "waiting for a license"
        cluster.wait("waits", timeout=PATIENCE)


class SaysAndReturns(Waits):
    def execute(self, tup: Tuple) -> None:
        self.context.progress("waiting for storage")
        STEPS.wait()


def test_a_report_is_forgotten_when_the_call_has_returned(steps: Steps) -> None:
    with LocalCluster() as cluster:
        cluster.submit(chain("waits", Numbers(1, finishes=False), SaysAndReturns()))
        assert seen(steps, lambda: idle_of(cluster)) == "waiting for storage"
        until = time.monotonic() + PATIENCE
        while idle_of(cluster) and time.monotonic() < until:
            time.sleep(0.01)
        assert idle_of(cluster) == ""
