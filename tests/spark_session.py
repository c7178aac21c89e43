"""The Spark session that all tests of a pytest process share: a start takes seconds, and a process has one driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from squall.stores.java.java import NotInstalled, require_spark
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.session.request import SessionRequest
from squall_io.spark.session.sessions import start_session, stop_session
from squall_io.spark.sink.writing import TableWriter, WriteAs
from tests.hdfs_servers import missing
from tests.spark_classes import small_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_spark_here() -> None:
    """Skips where Java or PySpark is missing, but not in CI."""
    try:
        require_spark()
    except NotInstalled as error:
        missing(str(error))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two threads. Squall's code treats it as one made by the user: used, and not stopped."""
    require_spark_here()
    folder = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": small_java(),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.hadoop.dfs.replication": "2",  # as many as the DataNodes of the tests' HDFS
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    session = start_session(SessionRequest.of("local[2]", conf))
    # A session's first write takes seconds, and on a busy machine longer than a test may wait.
    write_as = WriteAs("parquet", ("a",), None)
    TableWriter(session, parse_schema("a int, b int"), write_as).warm_up(f"file://{folder}/warm")
    yield session
    stop_session(session)
