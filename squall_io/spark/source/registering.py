"""`register`: makes `format("squall")` known to a session.

Must not know: how a table is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.stores.java.java import require_packages
from squall_io.spark.stores import WEBHDFS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Let a session, classic or of Spark Connect, read tables by `format("squall")`:

        squall_io.spark.register(spark)
        rows = spark.read.format("squall").load("/tables/counts")
        stream = spark.readStream.format("squall").load("hdfs://namenode:9000/tables/counts")

    Squall must be installed in the Python of Spark's driver (with Spark Connect: of the server) and of its executors. HDFS is
    read through WebHDFS: the option or the session's setting `squall.webhdfs.address` says where (HOST:PORT); by default it is
    port 9870 of the path's host. The tables are of Parquet files; `read_committed` reads all formats.

    Options of a frame: `since` and `until`, as in `read_committed`. Options of a stream: `startingTimestamp` (only batches that
    were committed at that moment or later), and `maxFilesPerTrigger` or `maxRowsPerTrigger` (at least one batch is read).
    """
    require_packages()
    from squall_io.spark.source.data_source import SquallSource

    webhdfs = spark.conf.get(WEBHDFS, None)
    source = SquallSource if webhdfs is None else type("SquallSource", (SquallSource,), {"webhdfs": webhdfs})
    spark.dataSource.register(source)
