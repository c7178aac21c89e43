"""SqlSink while its database is away: it waits, says so, and goes on; a login that is refused is an error."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy

from local_cluster import LocalCluster
from local_cluster.contracts.opened import Surroundings, context_of
from squall_io.sql import SqlSink
from tests.rewinding_spout import FromPosition
from tests.sql_servers import PostgreSQL, postgresql_server
from tests.zookeeper_servers import eventually
from topology_api import Fields, SquallError, TopologyBuilder

TABLE = "CREATE TABLE orders (id INTEGER PRIMARY KEY, price INTEGER NOT NULL)"
CAP = 40.0

pytestmark = pytest.mark.slow


class Orders(FromPosition):
    outputs = Fields("id", "price")

    def next_tuple(self) -> float:
        if self.at < 100:
            self.emit((self.at, 5), message_id=self.at)
            self.at += 1
        return 0.001


def make_table(url: str) -> None:
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(TABLE)
    engine.dispose()


def written(url: str) -> list[int]:
    engine = sqlalchemy.create_engine(url)
    try:
        with engine.connect() as connection:
            return list(connection.exec_driver_sql("SELECT id FROM orders ORDER BY id").scalars())
    finally:
        engine.dispose()


def conf_of(folder: Path, epochs: bool) -> dict[str, object]:
    return {"topology.state.path": f"file://{folder}/state", "topology.epoch.secs": 0.2} if epochs else {}


@pytest.mark.parametrize("epochs", [True, False])
def test_rows_wait_for_a_database_that_cannot_be_reached_at_the_start(
    tmp_path: Path, epochs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "missing"
    url = f"sqlite:///{folder}/shop.db"
    builder = TopologyBuilder("shop")
    builder.set_spout("orders", Orders())
    builder.set_bolt("write", SqlSink(url, "orders", ["id", "price"])).shuffle_grouping("orders")
    with caplog.at_level(logging.INFO), LocalCluster() as cluster:
        cluster.submit(builder.build(), conf_of(tmp_path, epochs))

        def shown() -> str:
            return str(cluster.status("shop").components["write"].idle)

        eventually(lambda: f"waiting for {url} for " in shown(), CAP)
        assert "unable to open database file" in shown()
        # Made elsewhere and moved, so that no one sees it without its table.
        make_table(f"sqlite:///{tmp_path}/made.db")
        folder.mkdir()
        (tmp_path / "made.db").rename(folder / "shop.db")
        eventually(lambda: written(url) == list(range(100)), CAP)
        status = cluster.status("shop")
        assert not status.errors and cluster.dead_letters("shop") == []
    said = [each.getMessage() for each in caplog.records]
    assert sum(each.startswith(f"waits for {url}: ") for each in said) == 1
    assert sum(each.startswith(f"{url} answers again after ") for each in said) == 1


def test_rows_wait_for_a_server_that_goes_and_comes_back(
    postgresql_database: PostgreSQL, tmp_path: Path
) -> None:
    server = postgresql_database
    make_table(server.url)
    builder = TopologyBuilder("shop")
    builder.set_spout("orders", Orders())
    builder.set_bolt("write", SqlSink(server.url, "orders", ["id", "price"])).shuffle_grouping("orders")
    with LocalCluster() as cluster:
        server.stop()
        try:
            cluster.submit(builder.build(), conf_of(tmp_path, True))
            eventually(
                lambda: (
                    "waiting for postgresql+psycopg://app@/"
                    in str(cluster.status("shop").components["write"].idle)
                ),
                CAP,
            )
        finally:
            server.start()
        eventually(lambda: written(server.url) == list(range(100)), CAP)
        assert not cluster.status("shop").errors


def test_a_login_that_is_refused_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRONG_PASSWORD", "hunter2")
    around = Surroundings()
    with postgresql_server(password="s3cret") as server:
        bolt = SqlSink(server.url, "orders", ["id", "price"], password="env:WRONG_PASSWORD")
        with pytest.raises(SquallError, match=r"refuses the login: .*change url or password") as refused:
            bolt.prepare(context_of("write", 0, 1, around))
        assert "hunter2" not in str(refused.value)
    around.end()


def test_a_task_that_is_stopped_does_not_wait(tmp_path: Path) -> None:
    around = Surroundings()
    context = context_of("write", 0, 1, around)
    stopped = threading.Event()
    context._stopped = stopped.is_set
    context._now = time.monotonic
    bolt = SqlSink(f"sqlite:///{tmp_path}/missing/shop.db", "orders", ["id", "price"])
    bolt.prepare(context)
    timer = threading.Timer(0.3, stopped.set)
    timer.start()
    with pytest.raises(SquallError, match=r"the task is stopped while it waits for sqlite:.*unable to open"):
        bolt.read_token("t")
    timer.join()
    bolt.cleanup()
    around.end()
