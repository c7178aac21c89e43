"""`register`: makes `format("squall")` known to a session.

Must not know: how a table is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.stores.java.java import require_packages
from squall_io.spark.stores import S3_ENDPOINT, WEBHDFS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Let a session, classic or of Spark Connect, read tables by `format("squall")`:

        squall_io.spark.register(spark)
        rows = spark.read.format("squall").load("/tables/counts")
        stream = spark.readStream.format("squall").load("hdfs://namenode:9000/tables/counts")

    Squall must be installed in the Python of Spark's driver (with Spark Connect: of the server) and of its executors. HDFS is
    read through WebHDFS: the option or the session's setting `squall.webhdfs.address` says where (HOST:PORT); by default it is
    port 9870 of the path's host. S3 is read by boto3: `squall.s3.endpoint` says where a server is that is not Amazon's. The
    tables are of Parquet files; `read_committed` reads all formats.

    Options of a frame: `since` and `until`, as in `read_committed`. Options of a stream: `startingTimestamp` (only batches that
    were committed at that moment or later), and `maxFilesPerTrigger` or `maxRowsPerTrigger` (at least one batch is read).
    """
    require_packages()
    from squall_io.spark.source.data_source import SquallSource

    given = {"webhdfs": spark.conf.get(WEBHDFS, None), "s3_endpoint": spark.conf.get(S3_ENDPOINT, None)}
    found = {name: value for name, value in given.items() if value is not None}
    source = type("SquallSource", (SquallSource,), found) if found else SquallSource
    spark.dataSource.register(source)
