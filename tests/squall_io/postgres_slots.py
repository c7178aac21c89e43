"""A PostgreSQL whose changes are read: its statements, its slots, and waiting for what they do. Must not know: tasks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from squall_io.postgres import PostgresChanges
from tests.sql_servers import PostgreSQL

#: Seconds after which a test gives up.
CAP = 60.0


def run(server: PostgreSQL, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements, each in a transaction of its own; return the rows of the last one."""
    with psycopg.connect(server.plain_url, autocommit=True) as connection:
        found = [connection.execute(each) for each in statements][-1]
        return found.fetchall() if found.description else []


def clean(server: PostgreSQL) -> None:
    run(
        server,
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL",
    )
    until(lambda: not run(server, "SELECT 1 FROM pg_replication_slots WHERE active_pid IS NOT NULL"))
    run(server, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    for (name,) in run(server, "SELECT pubname FROM pg_publication"):
        run(server, f'DROP PUBLICATION "{name}"')
    run(server, "DROP TABLE IF EXISTS orders, others, seen, squall_tokens")


def until(happens: Callable[[], Any], step: Callable[[], object] = lambda: time.sleep(0.01)) -> None:
    """Take steps until something happens."""
    end = time.monotonic() + CAP
    while not happens():
        assert time.monotonic() < end
        step()


def changes(server: PostgreSQL, **more: Any) -> PostgresChanges:
    given = {"slot": "shop", "publication": "shop", **more}
    return PostgresChanges(server.plain_url, **given)
