"""SQL databases: a sink that writes rows to a table, and a bolt that looks rows up. Needs the extra `squall[sql]`, and the
driver of the database."""

from squall_io.sql.lookup import SqlLookup
from squall_io.sql.sink import SqlSink

__all__ = ["SqlLookup", "SqlSink"]
