"""Changes of a real PostgreSQL in topologies that keep state, while server and topology come and go."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cluster import LocalCluster
from squall_io.sql import SqlSink
from tests.sql_servers import PostgreSQL
from tests.squall_io.postgres_slots import changes, clean, run, until
from topology_api import Bolt, FailTuple, Fields, TopologyBuilder, Tuple


@pytest.fixture(scope="module")
def running(postgresql_of_module: PostgreSQL) -> PostgreSQL:
    return postgresql_of_module


@pytest.fixture
def server(running: PostgreSQL) -> Iterator[PostgreSQL]:
    """The server with one table, and without slots and publications."""
    clean(running)
    run(running, "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
    yield running
    clean(running)


class Seen(Bolt):
    """Passes on the number of each row that was inserted."""

    outputs = Fields("id", "seen")

    def execute(self, tup: Tuple) -> None:
        if tup["op"] != "insert":
            raise FailTuple("another op")
        self.emit((tup["row"]["id"], 1))


def topology(server: PostgreSQL, parallelism: int = 1) -> TopologyBuilder:
    builder = TopologyBuilder("shop")
    builder.set_spout("changes", changes(server, create=True, tables=["public.orders"]), parallelism)
    builder.set_bolt("seen", Seen()).shuffle_grouping("changes")
    builder.set_bolt("write", SqlSink(server.url, "seen", ["id", "seen"])).shuffle_grouping("seen")
    return builder


def test_several_tasks_are_refused(server: PostgreSQL) -> None:
    with LocalCluster() as cluster:
        cluster.submit(topology(server, 2).build())
        until(lambda: cluster.status("shop").errors)
        assert "it has 2 tasks, and a slot is read by one" in cluster.status("shop").errors[-1].render()


@pytest.mark.parametrize("how", ["crash", "shutdown", "freeze"])
def test_each_change_counts_once_whatever_happens_to_server_and_topology(
    server: PostgreSQL, tmp_path: Path, how: str
) -> None:
    """The primary key of the sink's table refuses a row that comes twice."""
    run(server, "CREATE TABLE seen (id INTEGER PRIMARY KEY, seen INTEGER)")
    conf = {"topology.state.path": f"file://{tmp_path}/state", "topology.epoch.secs": 0.2}

    def seen() -> int:
        return int(run(server, "SELECT count(*) FROM seen")[0][0])

    written = 0
    for part in range(3):
        with LocalCluster() as cluster:
            cluster.submit(topology(server).build(), conf)
            until(lambda: run(server, "SELECT 1 FROM pg_replication_slots WHERE active"))
            run(server, f"INSERT INTO orders SELECT {written} + n, 'x' FROM generate_series(1, 200) n")
            written += 200
            if part == 1:
                disturb(server, how)
                run(server, f"INSERT INTO orders SELECT {written} + n, 'x' FROM generate_series(1, 200) n")
                written += 200
            while seen() < (written if part else 1):  # the first topology ends in the middle
                time.sleep(0.05)
            assert cluster.dead_letters("shop") == []
    assert run(server, "SELECT count(*), min(id), max(id) FROM seen") == [(written, 1, written)]


def disturb(server: PostgreSQL, how: str) -> None:
    if how == "freeze":
        for (process,) in run(server, "SELECT active_pid FROM pg_replication_slots WHERE active"):
            os.kill(process, signal.SIGSTOP)
            threading.Timer(1.0, os.kill, (process, signal.SIGCONT)).start()
        return
    server.stop("fast" if how == "shutdown" else "immediate")
    server.start()
