"""A PostgreSQL is restarted between what a worker process writes and the answer to it: each row is there once.

`tests/squall_io/test_sql_sink.py` does the same with a topology in one process.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from local_cluster import LocalCluster
from squall_io.sql import SqlSink
from tests.faults.every_kind_with_state import conf_at
from tests.faults.noted_acks import committed_position
from tests.local_cluster.words_with_state import Words, eventually
from tests.sql_servers import PostgreSQL, postgresql_server
from topology_api import Context, Fields, TopologyBuilder

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.soak]

#: The steps of a transaction at which a sink waits: what it does next meets a connection that is gone, or is never done.
BEFORE, AFTER = "before the commit", "after the commit"


class Plan:
    """Files by which a test and a worker process agree on steps: each is planned, then waits, then goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        folder.mkdir()

    def file(self, step: str, state: str) -> Path:
        return Path(self.folder, f"{step}, {state}")

    def ask(self, step: str) -> int:
        """Wait until a process is at a step; return its pid."""
        self.file(step, "planned").touch()
        eventually(self.file(step, "waits").exists)
        return int(self.file(step, "waits").read_text())

    def go_on(self, step: str) -> None:
        self.file(step, "over").touch()

    def wait_at(self, step: str) -> bool:
        """A step of a worker process; return whether it was planned."""
        try:
            self.file(step, "planned").rename(self.file(step, "comes"))
        except FileNotFoundError:
            return False
        self.file(step, "comes").write_text(str(os.getpid()))
        self.file(step, "comes").rename(self.file(step, "waits"))
        while not self.file(step, "over").exists():
            time.sleep(0.01)
        return True


class Watched(SqlSink):
    """Its transactions wait where the plan says."""

    def __init__(self, url: str, plan: Plan) -> None:
        super().__init__(url, "orders", ["id", "price"])
        self.plan = plan

    def prepare(self, context: Context) -> None:
        super().prepare(context)
        plan, commit = self.plan, sqlalchemy.Connection.commit
        if commit.__module__ == __name__:
            return

        def watched(connection: Any) -> None:
            plan.wait_at(BEFORE)
            commit(connection)
            for step in (AFTER, f"{AFTER}, killed"):
                if plan.wait_at(step):
                    connection.exec_driver_sql("SELECT 1")  # there was no answer, and there is no server
                    raise AssertionError("the connection has outlived its server")

        sqlalchemy.Connection.commit = watched  # type: ignore[method-assign,assignment]


class Orders(Words):
    """Emits until there is a file."""

    outputs = Fields("id", "price")

    def __init__(self, end: Path) -> None:
        super().__init__(0)
        self.end = str(end)

    def next_tuple(self) -> float:
        if Path(self.end).exists():
            self.finish()
        else:
            self.emit((self.at, 5), message_id=self.at)
            self.at += 1
        return 0.01


@pytest.fixture
def server() -> Iterator[PostgreSQL]:
    with postgresql_server() as found:
        yield found


def with_connection(url: str, do: Callable[[sqlalchemy.Connection], Any]) -> Any:
    engine = sqlalchemy.create_engine(url)
    try:
        with engine.begin() as connection:
            return do(connection)
    finally:
        engine.dispose()


def test_each_row_is_there_once_when_the_server_restarts_and_its_client_dies_before_the_answer(
    server: PostgreSQL, tmp_path: Path
) -> None:
    table = "CREATE TABLE orders (id INTEGER NOT NULL, price INTEGER NOT NULL)"  # rows may be there twice
    with_connection(server.url, lambda connection: connection.exec_driver_sql(table))
    plan, end = Plan(tmp_path / "plan"), tmp_path / "end"
    builder = TopologyBuilder("words")
    builder.set_spout("words", Orders(end))
    builder.set_bolt("write", Watched(server.url, plan), 2).shuffle_grouping("words")
    with LocalCluster(processes=True) as cluster:
        cluster.submit(builder.build(), conf_at(tmp_path, **{"topology.workers": 2}))
        for step in (BEFORE, AFTER):
            plan.ask(step)
            server.stop()
            server.start()
            plan.go_on(step)
        killed = plan.ask(f"{AFTER}, killed")
        server.stop()
        os.kill(killed, signal.SIGKILL)
        server.start()
        flows(cluster)
        end.touch()
        cluster.wait("words", 60)
    total = committed_position(f"{tmp_path}/state", "words/0")
    rows = "SELECT id FROM orders ORDER BY id"
    found = with_connection(server.url, lambda connection: list(connection.exec_driver_sql(rows).scalars()))
    assert total > 100 and found == list(range(total))


def flows(cluster: LocalCluster) -> None:
    """Wait for more commits, behind which there are rows."""
    for _ in range(3):
        before = cluster.status("words").components["words"].acked
        eventually(lambda before=before: cluster.status("words").components["words"].acked > before)  # type: ignore[misc]
