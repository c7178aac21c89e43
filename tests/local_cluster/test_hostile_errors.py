"""Errors whose class fights back, and a call that stops the loop of all async bolts: each harms its own tuple only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.local_cluster.recording import JOURNAL, Numbers, chain, message_ids, run_to_the_end
from topology_api import BatchBolt, Bolt, Replay, Tuple


@pytest.fixture(autouse=True)
def empty_journal() -> None:
    JOURNAL.clear()


class HostileMeta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__mro__"):
            raise SystemExit("a hostile metaclass")
        return super().__getattribute__(name)


class Hostile(Exception, metaclass=HostileMeta):
    """Raises at each access to it."""

    @property
    def __class__(self) -> Any:
        raise SystemExit("a hostile class")

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise SystemExit("a hostile class")

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(f"a hostile {name}")

    def __str__(self) -> str:
        raise SystemExit("a hostile text")

    __repr__ = __str__


class RaisesHostile(Bolt):
    def execute(self, tup: Tuple) -> None:
        if tup["number"] == 2:
            raise Hostile


class RaisesInItsThread(RaisesHostile):
    threaded = True


class RaisesInACoroutine(Bolt):
    async def execute(self, tup: Tuple) -> None:
        if tup["number"] == 2:
            raise Hostile


class RaisesInABatch(BatchBolt):
    batch_size = 1

    def execute_batch(self, tups: Sequence[Tuple]) -> None:
        if any(tup["number"] == 2 for tup in tups):
            raise Hostile


class RaisesACause(Bolt):
    def execute(self, tup: Tuple) -> None:
        if tup["number"] == 2:
            raise RuntimeError("the effect") from Hostile()


class StopsTheLoop(Bolt):
    async def execute(self, tup: Tuple) -> None:
        if tup["number"] == 2:
            asyncio.get_running_loop().stop()


def run(bolt: Bolt, simulated: bool) -> str:
    """Run five numbers through the bolt, which fails the third one; return the report."""
    topology = chain("errors", Numbers(5, replay=Replay(max_attempts=1)), bolt)
    with LocalCluster(simulated_time=simulated) as cluster:
        cluster.submit(topology)
        if simulated:
            run_to_the_end(cluster, "errors")
        cluster.wait("errors", timeout=30)
        status = cluster.status("errors")
    assert message_ids(JOURNAL.of("ack")) == [0, 1, 3, 4]
    assert message_ids(JOURNAL.of("fail")) == [2]
    report = next(report for report in status.errors if report.component == "bolt1")
    assert __file__ in report.render()
    return report.render()


@pytest.mark.parametrize("simulated", [True, False])
@pytest.mark.parametrize(
    "bolt",
    [RaisesHostile(), RaisesInItsThread(), RaisesInACoroutine(), RaisesInABatch()],
    ids=lambda bolt: type(bolt).__name__,
)
def test_an_error_whose_class_raises_is_reported_as_any_other(bolt: Bolt, simulated: bool) -> None:
    assert "raised Hostile: (its str() raises SystemExit)" in run(bolt, simulated)


def test_a_hostile_cause_is_named() -> None:
    text = run(RaisesACause(), True)
    assert "RuntimeError: the effect" in text
    assert "caused by Hostile: (its str() raises SystemExit)" in text


@pytest.mark.parametrize("simulated", [True, False])
def test_a_call_that_stops_the_loop_is_blamed_and_the_others_go_on(simulated: bool) -> None:
    text = run(StopsTheLoop(), simulated)
    assert "loop.stop() would stop the calls of all async bolts of this worker" in text
