"""The connections to a database: how they are made, and when a dead one is noticed. Must not know: tables, statements."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine

#: Settings of libpq with which a dead connection is noticed within a minute.
_LIBPQ: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


def engine_of(url: URL) -> Engine:
    """Return the connections to a database; none is made yet. Errors do not show values: they may be secrets."""
    settings: dict[str, Any] = {}
    if url.get_driver_name() in ("psycopg", "psycopg2"):
        settings = {name: value for name, value in _LIBPQ.items() if name not in url.query}
    return create_engine(url, pool_pre_ping=True, hide_parameters=True, connect_args=settings)
