"""The example of orders keeps its promise on a cluster of `squall dev` while workers, broker and database are killed in turn:
each balance is exact."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.kafka_servers import KafkaServer
from tests.sql_servers import PostgreSQL, postgresql_server
from tests.squall_cli.dev_cluster import CAP, Commands, dev_cluster
from tests.zookeeper_servers import eventually

pytestmark = pytest.mark.slow

NAME = "kafka-orders"
TABLE = "CREATE TABLE balance (customer text PRIMARY KEY, cents bigint NOT NULL, orders bigint NOT NULL)"
CUSTOMERS = ["ada", "bela", "chen", "dora", "emil", "fritz", "gerda"]
Balances = dict[str, tuple[int, int]]


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


def kill(turn: int, squall: Commands, broker: KafkaServer, database: PostgreSQL) -> None:
    """Kill a worker, the broker or the database; start what does not start by itself."""
    if turn % 3 == 0:
        eventually(lambda: len(squall.pids(NAME)) == 2, CAP, every=0.2)
        os.kill(squall.pids(NAME)[turn % 2], signal.SIGKILL)
    elif turn % 3 == 1:
        broker.kill()
        broker.start()
    else:
        database.stop()
        database.start()


def counted(database: PostgreSQL) -> int:
    """How many orders the table has."""
    return sum(count for _, count in rows(database).values())


def use(folder: Path, seconds: float) -> None:
    """Kill them in turn for about that long, at least each once; check the balances."""
    home = folder / "home"
    home.mkdir()
    with (
        KafkaServer(folder) as broker,
        postgresql_server() as database,
        dev_cluster(home, slots=2) as squall,
    ):
        broker.create_again("orders", 3)
        import psycopg

        with psycopg.connect(database.plain_url) as connection:
            connection.execute(TABLE)
        settings = {
            "topology.workers": 2,
            "topology.state.path": f"file://{folder}/state",
            "topology.epoch.secs": 0.5,
        }
        options = [f"-o{name}={value}" for name, value in settings.items()]
        squall.run("submit", *options, "examples/kafka_orders.py", "--", broker.servers, database.url)
        orders, kills = Orders(broker.servers), 0
        orders.start()
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end or kills < 3:
                before = counted(database)
                eventually(lambda before=before: counted(database) > before, CAP, every=0.1)  # type: ignore[misc]
                kill(kills, squall, broker, database)
                kills += 1
        finally:
            orders.ending.set()
            orders.join()
        eventually(lambda: rows(database) == orders.balances(), CAP, every=0.1)
        squall.here("kill", NAME, "--wait", "-w", "0")
        assert rows(database) == orders.balances()
    count = sum(count for _, count in orders.balances().values())
    print(f"{count} orders, {kills} kills of workers, broker and database in turn: exact")


def test_each_balance_is_exact_whatever_is_killed(tmp_path: Path) -> None:
    use(tmp_path, 0.0)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_each_balance_is_exact_after_minutes_of_kills(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """With `--soak 10` ten minutes."""
    use(tmp_path, 60.0 * request.config.getoption("--soak"))
