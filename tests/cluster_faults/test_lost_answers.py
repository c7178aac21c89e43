"""ZooKeeper carries out a request, and the answer gets lost with the connection: nothing is done twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from squall.cluster import paths
from squall.cluster.zookeeper import ZooKeeperStore
from squall.http.client import Refused, Unreachable
from tests.cluster_faults.cluster_run import ClusterRun, store_of
from tests.cluster_faults.cluster_topology import topology
from tests.cluster_faults.proxied_cluster import proxied_cluster
from tests.cluster_faults.test_supervisor_faults import check_slots
from tests.cluster_faults.zookeeper_proxy import Change, ZooKeeperProxy, once_each
from tests.faults.ledger import account, read
from tests.faults.ledger_topology import STOP
from tests.faults.running import Tally
from tests.nimbus_http.nimbuses import submission
from tests.zookeeper_servers import ZooKeeperServer

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]


def insist(run: ClusterRun, ask: Callable[[], Any], done: Callable[[], bool] = lambda: False) -> int:
    """Ask until the request is accepted or the state shows that it was carried out; return the number of attempts."""
    times = 0

    def is_taken() -> bool:
        nonlocal times
        times += 1
        try:
            ask()
            return True
        except Unreachable:
            return done()
        except (
            Refused
        ) as error:  # the store is unreachable, or the topology is past the state in which this is allowed
            assert error.status == 503 or error.kind == "IllegalTransition", error
            return done()

    run.wait_for(is_taken, "that it is taken")
    return times


def test_a_change_whose_answer_was_lost_is_not_made_twice(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with (
        proxied_cluster(tmp_path, zookeeper, slots=4) as (run, ways),
        store_of(run, zookeeper.servers) as store,
    ):
        client = run.daemons.client
        for proxy in ways.all:
            proxy.loses = once_each()
        (nimbus,), (way,) = run.daemons.nimbuses, ways.nimbuses
        way.loses = until_placed(way)
        books = tmp_path / "second"
        books.mkdir()
        body = submission(topology(f"books={books}", "name=second", "workers=2"))
        insist(run, lambda: client.post("topologies", body))
        run.wait_for(lambda: way.closed, "that it is placed")
        nimbus.kill()  # it has placed the topology without knowing it
        way.closed = False
        nimbus.start()
        tally = Tally(books)
        run.wait_for(lambda: tally.of("A"), "the first ack of the other topology")
        for command, state in (("deactivate", "INACTIVE"), ("activate", "ACTIVE")):
            insist(
                run,
                lambda command=command: client.post(f"topologies/second/{command}"),  # type: ignore[misc]
                lambda state=state: run.state_of("second") == state,  # type: ignore[misc]
            )
        run.daemons.supervisors[0].kill()
        run.daemons.supervisors[0].start()
        victim = next(iter(run.daemons.processes(1).values()))
        os.kill(victim.pid, signal.SIGKILL)
        run.wait_for(lambda: belongings(store) == [2] * len(BELONGINGS), f"two of each: {belongings(store)}")
        run.wait_for(lambda: len(run.daemons.supervisors_there()) == 2, "both supervisors")
        run.wait_for(lambda: len(run.daemons.living_workers()) == 4, "two workers for each of the two")
        check_slots(run)
        run.flows()
        (books / STOP).touch()
        run.wait_for(lambda: run.state_of("second") == "COMPLETED", "the completion of the other one")
        assert not account(read(books)).problems
        insist(
            run,
            lambda: client.delete("topologies/second", wait_secs=0),
            lambda: run.names() == [run.name],
        )
        run.wait_for(lambda: run.names() == [run.name], "its end")
        lost = {kind_of(change) for proxy in ways.all for change in proxy.lost}
        assert lost >= {"assignments", "blobs", "counters", "keys", "leadership", "leaving", "nimbuses", "presence",
                        "reports", "supervisors", "topologies"}, lost  # fmt: skip
        for proxy in ways.all:
            proxy.loses = lambda change: False
        taken = Change("create", f"{run.daemons.root}{paths.topology('third')}")
        way.loses = lambda change: change == taken and taken not in way.lost
        run.another("third")
        assert taken in way.lost
        assert run.names() == [run.name, "third"]
        run.obey("kill", "third", "-w", "0", "--wait")


def until_placed(way: ZooKeeperProxy) -> Callable[[Change], bool]:
    """For `loses`: each kind of change once; when a topology is placed, all later connections are refused."""
    loses = once_each()

    def lost(change: Change) -> bool:
        is_lost = loses(change)
        if is_lost and change.kind == "create" and kind_of(change) == "assignments":
            way.closed = True
        return is_lost

    return lost


#: Records that exist once for each topology.
BELONGINGS = (paths.TOPOLOGIES, paths.ASSIGNMENTS, paths.REPORTS, paths.BLOBS)


def belongings(store: ZooKeeperStore) -> list[int]:
    """The number of topologies with such a record."""
    return [len(store.children(above)) for above in BELONGINGS]


def kind_of(change: Change) -> str:
    """The kind of record that a change concerns: /<root>/<kind>/..."""
    return change.path.split("/")[2]
