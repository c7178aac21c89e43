"""The example of orders keeps its promise while workers, broker and database are killed in turn: each balance is exact."""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from local_cluster import LocalCluster
from tests.accounts_ledger import EXAMPLES
from tests.kafka_servers import KafkaServer
from tests.local_cluster.words_with_state import eventually
from tests.sql_servers import PostgreSQL, postgresql_server

pytestmark = pytest.mark.slow

NAME = "kafka-orders"
TABLE = "CREATE TABLE balance (customer text PRIMARY KEY, cents bigint NOT NULL, orders bigint NOT NULL)"
CUSTOMERS = ["ada", "bela", "chen", "dora", "emil", "fritz", "gerda"]
Balances = dict[str, tuple[int, int]]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example, as its user imports it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module("kafka_orders")
    sys.modules.pop("kafka_orders", None)


class Orders(threading.Thread):
    """Sends orders until it is asked to end; it waits for a broker that is away. `sent`: cents and orders by customer."""

    def __init__(self, servers: str) -> None:
        super().__init__()
        self.servers = servers
        self.sent: dict[str, Counter[str]] = {"cents": Counter(), "orders": Counter()}
        self.ending = threading.Event()

    def run(self) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self.servers, "enable.idempotence": True, "message.timeout.ms": 0}
        producer = Producer(settings, logger=_Quiet())
        draw = random.Random(1)
        while not self.ending.wait(0.02):
            for _ in range(10):
                customer, cents = draw.choice(CUSTOMERS), draw.randint(1, 500)
                producer.produce("orders", json.dumps({"customer": customer, "cents": cents}), key=customer)
                self.sent["cents"][customer] += cents
                self.sent["orders"][customer] += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    def balances(self) -> Balances:
        """What the table has to have at the end."""
        return {name: (self.sent["cents"][name], count) for name, count in self.sent["orders"].items()}


class _Quiet:
    def log(self, *said: Any) -> None: ...


def rows(database: PostgreSQL) -> Balances:
    """What the table has."""
    import psycopg

    with psycopg.connect(database.plain_url) as connection:
        found = connection.execute("SELECT customer, cents, orders FROM balance").fetchall()
    return {customer: (cents, orders) for customer, cents, orders in found}


def kill(turn: int, cluster: LocalCluster, broker: KafkaServer, database: PostgreSQL) -> bool:
    """Kill a worker, the broker or the database; start what does not start by itself. Return whether something was killed."""
    if turn % 3 == 0:
        pids = [worker.pid for worker in cluster.workers(NAME) if worker.pid]
        if len(pids) < 2:
            return False
        os.kill(pids[turn % 2], signal.SIGKILL)
    elif turn % 3 == 1:
        broker.kill()
        broker.start()
    else:
        database.stop()
        database.start()
    return True


def use(example: ModuleType, folder: Path, seconds: float) -> None:
    """Kill them in turn for about that long; check the balances."""
    with KafkaServer(folder) as broker, postgresql_server() as database:
        broker.create_again("orders", 3)
        import psycopg

        with psycopg.connect(database.plain_url) as connection:
            connection.execute(TABLE)
        orders, kills = Orders(broker.servers), 0
        conf = {
            "topology.workers": 2,
            "topology.state.path": f"file://{folder}/state",
            "topology.epoch.secs": 0.5,
        }
        with LocalCluster(processes=True) as cluster:
            cluster.submit(example.topology(broker.servers, database.url), conf)
            orders.start()
            try:
                end = time.monotonic() + seconds
                while time.monotonic() < end or kills < 3:
                    before = sum(count for _, count in rows(database).values())
                    eventually(
                        lambda before=before: sum(count for _, count in rows(database).values()) > before  # type: ignore[misc]
                    )
                    kills += kill(kills, cluster, broker, database)
            finally:
                orders.ending.set()
                orders.join()
            eventually(lambda: rows(database) == orders.balances())
    count = sum(count for _, count in orders.balances().values())
    print(f"{count} orders, {kills} kills of workers, broker and database in turn: exact")


def test_each_balance_is_exact_whatever_is_killed(tmp_path: Path, example: ModuleType) -> None:
    use(example, tmp_path, 0.0)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_each_balance_is_exact_after_minutes_of_kills(
    tmp_path: Path, example: ModuleType, request: pytest.FixtureRequest
) -> None:
    """With `--soak 10` ten minutes."""
    use(example, tmp_path, 60.0 * request.config.getoption("--soak"))
