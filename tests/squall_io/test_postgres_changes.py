"""Changes of a real PostgreSQL: rewound, restarted, frozen, and with every setup that cannot work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from local_cluster.contracts.opened import Surroundings, context_of
from local_cluster.testing import check_rewindable_spout
from squall_io.postgres import PostgresChanges
from squall_io.postgres.connection import ServerRefuses
from squall_io.postgres.slot import UnusableSlot
from squall_io.postgres.transactions import LostChanges
from tests.sql_servers import PostgreSQL, postgresql_server
from tests.squall_io.postgres_slots import changes, clean, run, until
from topology_api import InvalidConfig, SquallError


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


class Reading:
    """One task of a spout, in a topology with epochs or without."""

    def __init__(
        self, spout: PostgresChanges, epochs: bool = True, position: Any = None, keep: int = 10
    ) -> None:
        self.spout, self.around = spout, Surroundings()
        self.rows: list[Any] = []
        self.ids: list[Any] = []
        self.around.conf["topology.epoch.keep"] = keep
        if not epochs:
            self.around.without_epochs()
        vars(spout)["_squall_task"] = self
        spout.open(context_of("changes", 0, 1, self.around))
        if position is not None:
            spout.rewind(position)

    def emit(self, values: Any, *, message_id: Any = None, stream: str = "default") -> None:
        self.rows.append(values)
        self.ids.append(message_id)

    def step(self) -> None:
        self.around.now += self.spout.next_tuple() or 0.1

    def read(self, count: int) -> list[tuple[Any, ...]]:
        """Read until as many changes have come in all; return op, row and old of each."""
        until(lambda: len(self.rows) >= count, self.step)
        assert len(self.rows) == count
        return [tuple(each[1:4]) for each in self.rows]

    def ack(self) -> None:
        for each in self.ids:
            self.spout.ack(each)
        self.ids.clear()


@pytest.fixture
def opened() -> Iterator[Callable[..., Reading]]:
    """Make readings that are closed at the end."""
    made: list[Reading] = []

    def make(*given: Any, **more: Any) -> Reading:
        made.append(Reading(*given, **more))
        return made[-1]

    yield make
    for each in made:
        each.spout.close()
        each.around.end()


def place(server: PostgreSQL, slot: str = "shop") -> int:
    found = run(
        server, f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{slot}'"
    )
    return int(found[0][0])


# What is emitted.


def test_the_contract_of_spouts(server: PostgreSQL) -> None:
    """Each spout gets a copy of one slot: the server lets one at a time read a slot, and the contract has several."""
    reading = Reading(changes(server, slot="base", create=True))
    run(
        server,
        "INSERT INTO orders SELECT n, 'x' FROM generate_series(1, 9) n",
        "UPDATE orders SET name = 'y'",
    )
    run(server, *(f"DELETE FROM orders WHERE id = {number}" for number in range(1, 5)), "TRUNCATE orders")
    reading.read(23)
    expected = reading.rows
    reading.spout.close()
    lost, count = [False], [0]

    def make() -> PostgresChanges:
        count[0] += 1
        slot = f"copy_{count[0]}"
        if not lost[0]:
            run(server, f"SELECT pg_copy_logical_replication_slot('base', '{slot}')")
        return changes(server, slot=slot)

    def lose() -> None:
        lost[0] = True
        clean(server)

    check_rewindable_spout(make, Hashed.of(expected), lose=lose)


class Hashed(dict[str, Any]):
    """A row that can be counted."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))

    @staticmethod
    def of(rows: Any) -> list[tuple[Any, ...]]:
        return [tuple(Hashed(each) if isinstance(each, dict) else each for each in row) for row in rows]


@pytest.fixture(autouse=True)
def countable_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract counts rows, and a dict cannot be counted. Real time is short, and the clock of readings is fast."""
    from squall_io.postgres import task

    values_of = task.values_of
    monkeypatch.setattr(task, "WAIT", 0.005)
    monkeypatch.setattr(task, "values_of", lambda change: Hashed.of([values_of(change)])[0])


def test_transactions_come_whole_in_the_order_of_their_commits(
    server: PostgreSQL, opened: Callable[..., Reading]
) -> None:
    reading = opened(changes(server, create=True, tables=["public.orders"]))
    with psycopg.connect(server.plain_url) as late, psycopg.connect(server.plain_url) as undone:
        late.execute("INSERT INTO orders VALUES (1, 'late')")
        undone.execute("INSERT INTO orders VALUES (2, 'undone')")
        run(server, "INSERT INTO orders VALUES (3, 'early')")
        late.execute("INSERT INTO orders VALUES (4, 'late')")
        reading.read(1)
        undone.rollback()
        late.commit()
    assert [row["id"] for _, row, _ in reading.read(3)] == [3, 1, 4]
    lsns = [each[4] for each in reading.rows]
    assert lsns[0] < lsns[1] == lsns[2]


def test_columns_have_their_names_through_changes_of_the_schema(
    server: PostgreSQL, opened: Callable[..., Reading], caplog: pytest.LogCaptureFixture
) -> None:
    reading = opened(changes(server, create=True))
    run(
        server,
        "INSERT INTO orders VALUES (1, 'a')",
        "ALTER TABLE orders ADD COLUMN price NUMERIC(8, 2)",
        "UPDATE orders SET price = 1.5",
        "ALTER TABLE orders DROP COLUMN name",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "UPDATE orders SET price = 2",
        "DELETE FROM orders",
    )
    found = [
        (op, None if row is None else dict(row), None if old is None else dict(old))
        for op, row, old in reading.read(4)
    ]
    assert [repr(each) for each in found] == [
        "('insert', {'id': 1, 'name': 'a'}, None)",
        "('update', {'id': 1, 'name': 'a', 'price': Decimal('1.50')}, None)",
        "('update', {'id': 1, 'price': Decimal('2.00')}, {'id': 1, 'price': Decimal('1.50')})",
        "('delete', None, {'id': 1, 'price': Decimal('2.00')})",
    ]
    said = [record.getMessage() for record in caplog.records if "schema" in record.getMessage()]
    assert said[0] == "the schema of a table has changed: public.orders: new columns price"
    assert said[1] == "the schema of a table has changed: public.orders: no columns name any more"


def test_a_large_value_that_did_not_change_is_left_out(
    server: PostgreSQL, opened: Callable[..., Reading]
) -> None:
    reading = opened(changes(server, create=True))
    large = "SELECT string_agg(md5(n::text), '') FROM generate_series(1, 1000) n"
    run(server, "ALTER TABLE orders ADD COLUMN state INTEGER", f"INSERT INTO orders VALUES (1, ({large}), 1)")
    run(
        server,
        "UPDATE orders SET state = 2",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "UPDATE orders SET state = 3",
    )
    insert, partly, full = reading.read(3)
    assert len(insert[1]["name"]) == 32_000
    assert partly == ("update", {"id": 1, "state": 2}, None)
    assert full[1] == {"id": 1, "name": insert[1]["name"], "state": 3}


def test_a_large_transaction_is_left_and_continued_anywhere(
    server: PostgreSQL, opened: Callable[..., Reading]
) -> None:
    spout = changes(server, create=True)
    reading = opened(spout)
    run(server, "INSERT INTO orders SELECT n, 'x' FROM generate_series(1, 20000) n", "TRUNCATE orders")
    positions = []
    while len(reading.rows) < 20_001:
        reading.step()
        if len(reading.rows) % 1024 < 64:
            positions.append((len(reading.rows), spout.position()))
    assert [each[2]["id"] for each in reading.rows[:-1]] == list(range(1, 20_001))
    assert len({tuple(position) for _, position in positions}) > 10
    expected = list(reading.rows)
    for count, position in positions[:: len(positions) // 4]:
        reading.rows.clear()
        spout.rewind(position)
        left = expected[count : count + 300]
        while len(reading.rows) < len(left):
            reading.step()
        assert reading.rows[: len(left)] == left


def test_while_a_long_transaction_is_skipped_the_server_hears_from_the_task(
    server: PostgreSQL, opened: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends a connection that says nothing for a minute (`wal_sender_timeout`)."""
    from squall_io.postgres.connection import ReplicationConnection
    from squall_io.postgres.task import CONFIRM

    spout = changes(server, create=True)
    reading = opened(spout)
    run(server, "INSERT INTO orders SELECT n, 'x' FROM generate_series(1, 3000) n")
    until(lambda: len(reading.rows) >= 2900, reading.step)
    position, count, begin = spout.position(), len(reading.rows), place(server)
    read, confirm, said = ReplicationConnection.read, ReplicationConnection.confirm, list[int]()

    def slowly(link: Any, wait: float) -> Any:
        reading.around.now += CONFIRM / 100
        return read(link, wait)

    def noted(link: Any, received: int, news: int, asks: bool) -> None:
        if not reading.rows:
            said.append(news)
        confirm(link, received, news, asks)

    monkeypatch.setattr(ReplicationConnection, "read", slowly)
    monkeypatch.setattr(ReplicationConnection, "confirm", noted)
    reading.rows.clear()
    spout.rewind(position)
    until(lambda: reading.rows, reading.step)
    assert len(said) >= 3, "each time that it is due, however many changes a read brings"
    assert not any(said) and place(server) == begin, "the transaction is needed"
    assert reading.rows[0][2] == {"id": count + 1, "name": "x"}


# What the slot forgets.


def test_without_epochs_the_slot_follows_what_is_acked(
    server: PostgreSQL, opened: Callable[..., Reading]
) -> None:
    reading = opened(changes(server, create=True), epochs=False)
    begin = place(server)
    run(server, *(f"INSERT INTO orders VALUES ({number}, 'x')" for number in range(3)))
    reading.read(3)
    reading.spout.ack(reading.ids[1])
    for _ in range(30):
        reading.step()
    assert begin <= place(server) <= reading.rows[0][4]
    reading.spout.ack(reading.ids[0])
    until(lambda: place(server) == reading.rows[2][4], reading.step)
    reading.spout.close()
    again = opened(changes(server), epochs=False)
    assert again.read(1)[0][1] == {"id": 2, "name": "x"}


def test_an_idle_slot_follows_the_log_that_other_tables_fill(
    server: PostgreSQL, opened: Callable[..., Reading]
) -> None:
    run(server, "CREATE TABLE others (id INTEGER)")
    reading = opened(changes(server, create=True, tables=["public.orders"]), epochs=False)
    reading.step()
    run(server, *["INSERT INTO others SELECT generate_series(1, 1000)"] * 3)
    (end,) = run(server, "SELECT pg_current_wal_lsn() - '0/0'")[0]
    until(lambda: place(server) >= end, reading.step)
    assert not reading.rows


def test_with_epochs_every_kept_commit_can_be_returned_to(
    server: PostgreSQL, opened: Callable[..., Reading]
) -> None:
    spout = changes(server, create=True)
    reading = opened(spout, keep=3)
    kept = [spout.position()]
    for number in range(12):
        run(server, f"INSERT INTO orders VALUES ({number}, 'x')")
        reading.read(number + 1)
        kept.append(spout.position())
        reading.ack()  # the commit
        for _ in range(12):
            reading.step()
    until(lambda: place(server) > kept[0][0], reading.step)
    assert place(server) <= kept[-3][0]
    spout.close()
    for back in (1, 2, 3):
        again = opened(changes(server), position=kept[-back])
        assert [row["id"] for _, row, _ in again.read(back - 1)] == list(range(13 - back, 12))
        again.spout.close()
    with pytest.raises(LostChanges, match=r"slot 'shop' of .* begins at .* the changes between are gone"):
        opened(changes(server), position=kept[0])


def test_a_server_whose_log_is_shorter_is_another_one(
    server: PostgreSQL, opened: Callable[..., Reading]
) -> None:
    opened(changes(server, create=True)).spout.close()
    beyond = place(server) + 2**40
    with pytest.raises(LostChanges, match=r"the log of .* ends at .*: it is another server"):
        opened(changes(server), position=[beyond, 0])


def test_a_slot_that_was_made_again_has_lost_the_changes(
    server: PostgreSQL, opened: Callable[..., Reading]
) -> None:
    reading = opened(changes(server, create=True))
    position = reading.spout.position()
    reading.spout.close()
    run(server, "SELECT pg_drop_replication_slot('shop')", "INSERT INTO orders VALUES (1, 'gone')")
    with pytest.raises(LostChanges, match="because the slot was made again"):
        opened(changes(server, create=True), position=position)


def test_a_server_that_shuts_down_does_not_wait_for_commits(
    server: PostgreSQL, opened: Callable[..., Reading]
) -> None:
    """The slot stays behind what was read, and the server would wait until it has caught up."""
    reading = opened(changes(server, create=True), keep=1)
    for number in range(6):
        run(server, f"INSERT INTO orders VALUES ({number}, 'x')")
        reading.read(number + 1)
        reading.spout.position()
        reading.ack()
        for _ in range(12):
            reading.step()
    assert reading.rows[0][4] < place(server) < reading.rows[-1][4]
    stopping = threading.Thread(target=server.stop, args=("fast",))
    stopping.start()
    try:
        until(lambda: not stopping.is_alive(), reading.step)
        assert reading.spout._opened._waiting.reason
    finally:
        stopping.join()
        server.start()
    until(lambda: not reading.spout._opened._waiting.reason, reading.step)


# Setups that cannot work.


def test_what_is_missing_is_said_with_what_to_do(server: PostgreSQL, opened: Callable[..., Reading]) -> None:
    with pytest.raises(
        UnusableSlot, match=r'no publication \'shop\': run CREATE PUBLICATION "shop" FOR ALL TABLES'
    ):
        opened(changes(server))
    run(server, "CREATE PUBLICATION shop FOR ALL TABLES")
    with pytest.raises(UnusableSlot, match=r"no replication slot 'shop': run SELECT pg_create_logical"):
        opened(changes(server))
    with pytest.raises(
        UnusableSlot, match=r"refuses CREATE PUBLICATION.*bills.*does not exist; give the names of `tables`"
    ):
        opened(changes(server, publication="bills", create=True, tables=["public.bills"]))
    run(server, "SELECT pg_create_physical_replication_slot('shop')")
    with pytest.raises(UnusableSlot, match="is physical with the plugin None: give another slot"):
        opened(changes(server))


def test_a_slot_of_another_database_is_refused(server: PostgreSQL, opened: Callable[..., Reading]) -> None:
    run(server, "SELECT pg_create_logical_replication_slot('shop', 'pgoutput')")
    with pytest.raises(UnusableSlot, match=r"is of the database tests_\d+, and url names tests_\d+"):
        opened(changes(server.database(), create=True))


def test_a_slot_that_is_in_use_is_waited_for(
    server: PostgreSQL, opened: Callable[..., Reading], caplog: pytest.LogCaptureFixture
) -> None:
    first = opened(changes(server, create=True))
    first.step()
    run(server, "INSERT INTO orders VALUES (1, 'x')")
    second = opened(changes(server))
    second.step()
    assert "is in use by the server's process" in caplog.text
    first.spout.close()
    assert second.read(1)[0][1]["id"] == 1


def test_a_publication_that_is_gone_is_waited_for_and_named(
    server: PostgreSQL, opened: Callable[..., Reading], caplog: pytest.LogCaptureFixture
) -> None:
    reading = opened(changes(server, create=True))
    reading.step()
    run(server, "DROP PUBLICATION shop", "INSERT INTO orders VALUES (1, 'x')")
    until(lambda: "has changes from when there was no such publication" in caplog.text, reading.step)
    run(server, "CREATE PUBLICATION shop FOR ALL TABLES")
    for _ in range(30):
        reading.step()
    assert "answers again" not in caplog.text and not reading.rows


def test_a_server_that_keeps_no_changes_of_rows_and_missing_passwords(
    monkeypatch: pytest.MonkeyPatch, opened: Callable[..., Reading]
) -> None:
    with postgresql_server(password="s3cret") as server:
        monkeypatch.setenv("SHOP_PASSWORD", "s3cret")
        with pytest.raises(UnusableSlot, match=r"wal_level = replica.*ALTER SYSTEM SET wal_level = logical"):
            opened(changes(server, password="env:SHOP_PASSWORD"))
        with pytest.raises(ServerRefuses, match=r"refuses the login: .*no password supplied"):
            opened(changes(server))
        with pytest.raises(
            SquallError, match="env:NO_PASSWORD, and the environment of the worker has no NO_PASSWORD"
        ):
            opened(changes(server, password="env:NO_PASSWORD"))


def test_a_slot_whose_log_the_server_has_removed_is_named(opened: Callable[..., Reading]) -> None:
    with postgresql_server("wal_level=logical", "max_slot_wal_keep_size=1MB", "max_wal_size=32MB") as server:
        run(server, "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
        reading = opened(changes(server, create=True))
        reading.spout.close()
        for _ in range(4):
            run(server, "SELECT pg_logical_emit_message(false, 'x', 'y'), pg_switch_wal()", "CHECKPOINT")
        with pytest.raises(UnusableSlot, match=r"has lost its changes.*pg_drop_replication_slot"):
            opened(changes(server))


def test_several_tasks_are_refused(server: PostgreSQL) -> None:
    with pytest.raises(InvalidConfig, match="it has 2 tasks, and a slot is read by one"):
        changes(server).open(context_of("changes", 0, 2, Surroundings()))


def test_arguments_are_checked_together() -> None:
    with pytest.raises(InvalidConfig) as bad:
        PostgresChanges(
            "mysql://db/shop?password=hunter2", slot="A b", publication="", tables=[], password="hunter2"
        )
    for part in (
        "url has the scheme 'mysql'",
        "url has a password",
        "slot is",
        "publication is",
        "tables is",
        "password has",
    ):
        assert part in str(bad.value)
    assert "hunter2" not in str(bad.value)
    with pytest.raises(InvalidConfig, match="url has a password, and a topology holds no secrets"):
        PostgresChanges("postgresql://app:hunter2@db/shop", slot="a", publication="b")
