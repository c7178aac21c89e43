"""SQL databases: a sink that writes the rows of a topology to a table. Needs the extra `squall[sql]`, and the database's driver."""

from squall_io.sql.sink import SqlSink

__all__ = ["SqlSink"]
