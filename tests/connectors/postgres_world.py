"""SqlTable, SqlSink and PostgresChanges on a real PostgreSQL, for the matrix of faults. Must not know: promises."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from squall_io.postgres import PostgresChanges
from squall_io.sql import SqlSink, SqlTable
from tests.connector_contract import SOON, SinkWorld, SourceWorld
from tests.killable import freeze
from tests.sql_servers import PostgreSQL, postgresql_server
from tests.squall_io.postgres_slots import SETTINGS, run, until
from topology_api import Bolt, Spout

#: `guest` needs a password, and has another one than tests give.
_LOGINS = "local all guest scram-sha-256\nlocal all all trust\n"
_LOGIN_WORDS = "refuses the login"
_TYPED = "columns have types: the database takes no value that cannot be read"


class PostgresProcesses:
    """A server with all its processes, as the matrix ends and freezes it."""

    def __init__(self, server: PostgreSQL) -> None:
        self.server = server

    def start(self) -> None:
        """Start it."""
        self.server.start()

    def kill(self) -> None:
        """End it as a crash would."""
        self.server.stop()

    def freeze(self) -> None:
        """Suspend it, its first process before its children: no new ones come."""
        for process in self._processes():
            freeze(process)

    def thaw(self) -> None:
        """Resume it."""
        for process in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)

    def _processes(self) -> Iterator[int]:
        first = self.server.process()
        yield first
        yield from map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgreSQL]:
    with postgresql_server(*SETTINGS) as server:
        (server.folder / "data" / "pg_hba.conf").write_text(_LOGINS)
        server.run("pg_ctl", "reload")
        run(server, "CREATE ROLE guest LOGIN REPLICATION PASSWORD 'secret of guest'")
        yield server


class _Table:
    """A table, which a world reads or writes."""

    def __init__(self, server: PostgreSQL, name: str) -> None:
        self.server, self.name = server, name.replace("-", "_")
        self.create()

    def create(self) -> None:
        """Make the table."""
        run(
            self.server,
            f"CREATE TABLE {self.name} (id SERIAL PRIMARY KEY, number INTEGER, text TEXT CHECK (text <> 'refused'))",
        )

    def drop(self) -> None:
        """Drop the table."""
        run(self.server, f"DROP TABLE {self.name}")

    def insert(self, numbers: Iterable[int], text: str = "x") -> None:
        """Insert a row for each number, in one transaction."""
        rows = ", ".join(f"({number}, '{text}')" for number in numbers)
        run(self.server, f"INSERT INTO {self.name} (number, text) VALUES {rows}")


def _as_guest(url: str) -> str:
    return url.replace("//app@", "//guest@")


class SqlTableSource(SourceWorld):
    """A table that is read by its key."""

    name = "sql_table"
    connector = "squall_io.sql.SqlTable"
    rewindable = True
    most_tasks = 1
    missing_words = "no table"
    needs_place = True
    not_applicable = {"unreadable": _TYPED, "rebalanced": "it has one task"}

    def __init__(self, server: PostgreSQL) -> None:
        super().__init__()
        self.server, self.url = PostgresProcesses(server), server.url
        self.table = _Table(server, self.id)

    def spout(self, **options: Any) -> Spout:
        given = {"url": self.url, "order_by": "id", "lag": 0, "poll_interval": 0.2, **options}
        return SqlTable(given.pop("url"), self.table.name, ["number", "text"], **given)

    def put(self, numbers: Iterable[int], partition: int = 0) -> None:
        self.table.insert(numbers)

    def number_of(self, values: Sequence[Any]) -> int:
        return int(values[0])

    def put_large(self, number: int) -> str:
        self.table.insert([number], "x" * 5_000_000)
        return ""

    def wrong_login(self) -> tuple[Spout, str]:
        return self.spout(url=_as_guest(self.url), password="env:WRONG_PASSWORD"), _LOGIN_WORDS

    def remove(self) -> None:
        self.table.drop()

    def create(self) -> None:
        self.table.create()


@pytest.fixture
def sql_table(postgres_server: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> SqlTableSource:
    monkeypatch.setattr("squall_io.sql.table.SILENCE", 1.0)
    monkeypatch.setattr("squall_io.sql.table.RETRY_SECONDS", 0.5)
    return SqlTableSource(postgres_server)


class ChangesSource(SourceWorld):
    """A publication of one table, and a slot."""

    name = "postgres_changes"
    connector = "squall_io.postgres.PostgresChanges"
    rewindable = True
    most_tasks = 1
    missing_words = "no replication slot"
    needs_place = True
    not_applicable = {"unreadable": _TYPED, "rebalanced": "it has one task"}

    def __init__(self, server: PostgreSQL) -> None:
        super().__init__()
        self.server, self.postgres = PostgresProcesses(server), server
        self.table = _Table(server, self.id)
        run(server, f"CREATE PUBLICATION {self.table.name} FOR TABLE {self.table.name}")
        self.create()

    def spout(self, **options: Any) -> Spout:
        given = {"slot": self.table.name, "publication": self.table.name, "replay": SOON, **options}
        return PostgresChanges(given.pop("url", self.postgres.plain_url), **given)

    def put(self, numbers: Iterable[int], partition: int = 0) -> None:
        self.table.insert(numbers)

    def number_of(self, values: Sequence[Any]) -> int:
        return int(values[2]["number"])

    def put_large(self, number: int) -> str:
        self.table.insert([number], "x" * 5_000_000)
        return ""

    def wrong_login(self) -> tuple[Spout, str]:
        return self.spout(url=_as_guest(self.postgres.plain_url), password="env:WRONG_PASSWORD"), _LOGIN_WORDS

    def remove(self) -> None:
        slot = f"FROM pg_replication_slots WHERE slot_name = '{self.table.name}'"
        run(self.postgres, f"SELECT pg_terminate_backend(active_pid) {slot} AND active_pid IS NOT NULL")
        until(lambda: not run(self.postgres, f"SELECT 1 {slot} AND active_pid IS NOT NULL"))
        run(self.postgres, f"SELECT pg_drop_replication_slot('{self.table.name}')")

    def create(self) -> None:
        run(self.postgres, f"SELECT pg_create_logical_replication_slot('{self.table.name}', 'pgoutput')")


@pytest.fixture
def postgres_changes(postgres_server: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChangesSource]:
    monkeypatch.setattr("squall_io.postgres.connection.PATIENCE", 1.0)
    world = ChangesSource(postgres_server)
    yield world
    with contextlib.suppress(Exception):
        world.remove()


class SqlTarget(SinkWorld):
    """A table into which rows are inserted. It has no key: a row that comes twice is there twice."""

    name = "sql_sink"
    connector = "squall_io.sql.SqlSink"
    once = True
    away_words = "OperationalError"
    shows_frozen = False
    missing_words = "create it"
    needs_place = True
    refused_words = "refuses the row"

    def __init__(self, server: PostgreSQL) -> None:
        super().__init__()
        self.server, self.postgres = PostgresProcesses(server), server
        self.table = _Table(server, self.id)

    def sink(self, **options: Any) -> Bolt:
        return SqlSink(options.pop("url", self.postgres.url), self.table.name, ["number", "text"], **options)

    def written(self) -> list[int]:
        return [number for (number,) in run(self.postgres, f"SELECT number FROM {self.table.name}")]

    def refused(self, number: int) -> tuple[Any, ...]:
        return number, "refused"

    def large(self, number: int) -> tuple[tuple[Any, ...], bool]:
        return (number, "x" * 5_000_000), True

    def wrong_login(self) -> tuple[Bolt, str]:
        sink = self.sink(url=_as_guest(self.postgres.url), password="env:WRONG_PASSWORD")
        return sink, "password authentication failed"

    def remove(self) -> None:
        self.table.drop()

    def create(self) -> None:
        self.table.create()

    @contextlib.contextmanager
    def answer_lost(self) -> Iterator[Callable[[], bool]]:
        original, lost = sqlalchemy.Connection.commit, list[int]()

        def commit(connection: sqlalchemy.Connection) -> None:
            process = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            original(connection)
            if not lost:
                lost.append(process)
                run(self.postgres, f"SELECT pg_terminate_backend({process})")
                connection.exec_driver_sql("SELECT 1")  # what waits for the answer meets a closed connection

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlalchemy.Connection, "commit", commit)
            yield lambda: bool(lost)


@pytest.fixture
def sql_sink(postgres_server: PostgreSQL) -> SqlTarget:
    return SqlTarget(postgres_server)
