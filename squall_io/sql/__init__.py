"""SQL databases: a sink that writes rows to a table, a bolt that looks rows up, and a spout that reads new rows.

Needs the extra `squall[sql]`, and the driver of the database.
"""

from squall_io.sql.lookup import SqlLookup
from squall_io.sql.sink import SqlSink
from squall_io.sql.table import SqlTable

__all__ = ["SqlLookup", "SqlSink", "SqlTable"]
