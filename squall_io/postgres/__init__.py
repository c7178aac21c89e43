"""PostgreSQL as a stream of changes. Needs the extra `squall[postgres]`."""

from squall_io.postgres.spout import PostgresChanges

__all__ = ["PostgresChanges"]
