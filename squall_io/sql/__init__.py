"""SQL databases: a sink that writes rows to a table. Needs the extra `squall[sql]`, and the driver of the database."""

from squall_io.sql.sink import SqlSink

__all__ = ["SqlSink"]
