"""The calls of a cluster's owner return while a component's call hangs, or say which call they would have to wait for.

It uses real time, since simulated time has only one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from local_cluster import LocalCluster, driver
from local_cluster.testing import ScriptedSpout
from squall.daemon import command_loop
from tests.local_cluster.gathering import Rows
from topology_api import (
    Bolt,
    Context,
    Fields,
    NoSuchTopology,
    Spout,
    SquallError,
    Topology,
    TopologyBuilder,
    Tuple,
)

CAP = 60.0
ENTERED, GO_ON = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def _hanging() -> Iterator[None]:
    ENTERED.clear()
    GO_ON.clear()
    yield
    GO_ON.set()


def hang() -> None:
    ENTERED.set()
    assert GO_ON.wait(CAP)


class HangsInExecute(Bolt):
    def execute(self, tup: Tuple) -> None:
        hang()


class HangsInPrepare(Bolt):
    def prepare(self, context: Context) -> None:
        hang()

    def execute(self, tup: Tuple) -> None:
        pass


class HangsInNextTuple(Spout):
    outputs = Fields("number")

    def next_tuple(self) -> None:
        hang()


class Passes(Bolt):
    def execute(self, tup: Tuple) -> None:
        pass


def topology(name: str, bolt: Bolt, spout: Spout | None = None) -> Topology:
    builder = TopologyBuilder(name)
    builder.set_spout("source", ScriptedSpout("number", [(1,)]) if spout is None else spout)
    builder.set_bolt("bolt", bolt).shuffle_grouping("source")
    return builder.build()


@pytest.mark.parametrize("spout", [None, HangsInNextTuple()], ids=["execute", "next_tuple"])
def test_calls_of_the_owner_return_while_a_call_hangs(spout: Spout | None) -> None:
    with LocalCluster() as cluster:
        cluster.submit(topology("other", Passes(), Rows([(1,)], finishes=False)))
        cluster.submit(topology("hangs", Passes() if spout else HangsInExecute(), spout))
        assert ENTERED.wait(CAP)
        cluster.deactivate("hangs")
        assert cluster.status("hangs").state == "INACTIVE"
        cluster.activate("hangs")
        assert cluster.status("hangs").state == "ACTIVE"
        cluster.submit(topology("third", Passes()))
        cluster.rebalance("other", workers=2)
        assert cluster.status("other").state == "REBALANCING"
        cluster.kill("hangs", 0)
        assert cluster.status("hangs").state == "KILLED"
        with pytest.raises(NoSuchTopology):
            cluster.kill("unknown")
        assert not GO_ON.is_set(), "all this while the call hangs"
        GO_ON.set()
        cluster.wait("third", CAP)  # it goes on
        reached = threading.Event()
        while "hangs" in cluster.topologies() or cluster.status("other").state != "ACTIVE":
            assert not reached.wait(0.01)


CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("submit", (topology("third", Passes()),)),
    ("activate", ("hangs",)),
    ("deactivate", ("hangs",)),
    ("rebalance", ("hangs", 2)),
    ("kill", ("hangs",)),
]


def test_calls_that_have_to_wait_for_prepare_name_it_and_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "LONGEST_SLEEP", 0.01)
    monkeypatch.setattr(driver, "HUNG_SECS", 0.02)
    with LocalCluster() as cluster:
        cluster.submit(topology("hangs", HangsInPrepare()))
        assert ENTERED.wait(CAP)
        for name, arguments in CALLS:
            with pytest.raises(
                SquallError,
                match=r"prepare\(\) of bolt\[2\] of topology 'hangs' has been running for \d+ s\. Nothing was changed",
            ):
                getattr(cluster, name)(*arguments)
        GO_ON.set()
        cluster.wait("hangs", CAP)
        assert cluster.topologies() == ["hangs"]


def test_a_call_waits_for_a_prepare_that_takes_only_a_moment() -> None:
    with LocalCluster() as cluster:
        cluster.submit(topology("hangs", HangsInPrepare(), Rows([(1,)], finishes=False)))
        assert ENTERED.wait(CAP)
        threading.Timer(0.05, GO_ON.set).start()
        cluster.deactivate("hangs")
        assert GO_ON.is_set()


def test_several_threads_give_orders_at_once() -> None:
    with LocalCluster() as cluster:
        cluster.submit(topology("other", Passes(), Rows([(1,)], finishes=False)))
        errors: list[BaseException] = []

        def give_orders() -> None:
            try:
                for _ in range(50):
                    cluster.deactivate("other")
                    cluster.activate("other")
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=give_orders) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(CAP)
        assert not errors
        assert cluster.status("other").state == "ACTIVE"


def test_shutdown_names_the_call_that_has_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_loop, "STOP_SECONDS", 0.05)
    cluster = LocalCluster()
    cluster.submit(topology("hangs", HangsInExecute()))
    assert ENTERED.wait(CAP)
    with pytest.raises(
        SquallError, match=r"a call of bolt\[2\] of topology 'hangs'.* has not returned for 0\.05 s"
    ):
        cluster.shutdown()
    with pytest.raises(SquallError, match="has been shut down"):
        cluster.kill("hangs")
    GO_ON.set()
    cluster._driver.thread.join(CAP)  # type: ignore[union-attr]
