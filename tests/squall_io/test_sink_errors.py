"""The consequence of an error for a batch follows from its class and the classes in Java's stack trace, without asking Java."""

from __future__ import annotations

import logging

import pytest

from squall.stores.files import AbsentFile, FilesRefused, FilesUnavailable
from squall.stores.java.java import NotInstalled
from squall.stores.java.java_calls import causes_in
from squall.stores.java.jvm import JavaFailed
from squall_io.spark.manifest.commit import BatchConflict, BatchLost
from squall_io.spark.manifest.tables import TableMismatch
from squall_io.spark.sink.errors import ErrorClass, Retries, classify, reason_of

AGAIN, REFUSED, UNKNOWN = ErrorClass.AGAIN, ErrorClass.REFUSED, ErrorClass.UNKNOWN

TRACE = """\
org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to hdfs://host:9000/t. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:780)
Caused by: {cause}
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 20 more
"""


def spark_error(trace: str, name: str = "Py4JJavaError", module: str = "py4j.protocol") -> Exception:
    made: Exception = type(name, (Exception,), {"__module__": module})(
        f"An error occurred while calling o1.save.\n: {trace}"
    )
    return made


@pytest.mark.parametrize(
    ("cause", "expected", "reason"),
    [
        ("java.io.IOException: No space left on device", AGAIN, "No space left on device (IOException)"),
        ("java.io.EOFException: End of File Exception between local host", AGAIN, "ended in the middle"),
        ("java.net.ConnectException: Connection refused", AGAIN, "Connection refused (ConnectException); "),
        ("java.nio.channels.ClosedByInterruptException", AGAIN, "ClosedByInterruptException"),
        ("org.apache.hadoop.hdfs.server.namenode.SafeModeException: safe mode is ON", AGAIN, "in safe mode"),
        ("org.apache.hadoop.security.AccessControlException: denied: user=x", REFUSED, "denied: user=x"),
        ("java.nio.file.InvalidPathException: Malformed input: /t/p=Zürich", REFUSED, "with LC_ALL=C.UTF-8"),
        (
            "org.apache.hadoop.ipc.RemoteException(java.io.IOException): File /t/x could only be written to 0 of the 1 nodes.",
            AGAIN,
            "no DataNode that runs and has room",
        ),
        (
            "org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.hdfs.server.namenode.SafeModeException): Cannot create",
            AGAIN,
            "Cannot create (SafeModeException); HDFS takes no changes",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", UNKNOWN, "Java heap space (OutOfMemoryError)"),
        ("java.lang.ClassCastException: a is no b", UNKNOWN, "a is no b (ClassCastException)"),
        ("java.io.NotSerializableException: a.B", UNKNOWN, "a.B (NotSerializableException)"),
        (
            "java.io.InvalidClassException: org.apache.spark.X; local class incompatible",
            UNKNOWN,
            "(InvalidClassException); do Spark's executors have the same Spark and Java as this worker?",
        ),
        ("java.io.UTFDataFormatException: bad byte", UNKNOWN, "bad byte (UTFDataFormatException)"),
        ("java.io.IOException: x\nCaused by: java.io.InvalidClassException: y", UNKNOWN, "y (InvalidClass"),
        ("java.io.FileNotFoundException: /tmp/x.jar (No such file or directory)", UNKNOWN, "/tmp/x.jar"),
        ("java.nio.file.NoSuchFileException: /tmp/x.jar", UNKNOWN, "/tmp/x.jar"),
        ("java.nio.BufferOverflowException", UNKNOWN, "BufferOverflowException"),
        ("java.net.URISyntaxException: Illegal character", UNKNOWN, "Illegal character"),
        ("org.apache.hadoop.HadoopIllegalArgumentException: no such value", UNKNOWN, "no such value"),
        ("org.apache.spark.SparkException: Job 3 cancelled because SparkContext was shut down", AGAIN, ""),
        ("org.apache.spark.SparkException: ExecutorLostFailure (executor 1 exited)", AGAIN, ""),
    ],
)
def test_the_cause_of_a_failed_spark_job_decides(cause: str, expected: ErrorClass, reason: str) -> None:
    error = spark_error(TRACE.format(cause=cause))
    assert classify(error) is expected
    assert reason in reason_of(error)
    assert "\n" not in reason_of(error)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FilesUnavailable("away"), AGAIN),
        (AbsentFile("gone"), UNKNOWN),
        (BatchLost("gone"), UNKNOWN),
        (JavaFailed("ended"), AGAIN),
        (ConnectionRefusedError("no process listens"), AGAIN),
        (spark_error("", "Py4JNetworkError"), AGAIN),
        (spark_error("", "Py4JError"), AGAIN),
        (spark_error("Trace:\npy4j.Py4JException: Method x([]) does not exist", "Py4JError"), UNKNOWN),
        (spark_error("StatusCode.RESOURCE_EXHAUSTED", "_InactiveRpcError", "grpc._channel"), UNKNOWN),
        (spark_error("StatusCode.UNAVAILABLE", "_InactiveRpcError", "grpc._channel"), AGAIN),
        (
            spark_error(
                "[SESSION_NOT_FOUND]", "SparkConnectGrpcException", "pyspark.errors.exceptions.connect"
            ),
            AGAIN,
        ),
        (FilesRefused("no permission"), REFUSED),
        (NotInstalled("no Java"), REFUSED),
        (BatchConflict("another writer's"), REFUSED),
        (TableMismatch("another table"), REFUSED),
        (spark_error("", "AnalysisException", "pyspark.errors.exceptions.captured"), UNKNOWN),
        (ValueError("a bug"), UNKNOWN),
    ],
)
def test_the_class_of_other_errors_decides(error: Exception, expected: ErrorClass) -> None:
    assert classify(error) is expected


def test_the_text_of_an_error_whose_java_has_died_is_requested_only_once() -> None:
    class Dead(Exception):
        __module__ = "pyspark.errors.exceptions.captured"

        def __str__(self) -> str:
            raise ConnectionRefusedError

    Dead._stackTrace = TRACE.format(cause="java.io.IOException: gone")  # type: ignore[attr-defined]
    assert reason_of(Dead()) == "Spark cannot write: gone (IOException)"


def test_causes_are_found_from_the_outermost_to_the_innermost() -> None:
    found = causes_in(TRACE.format(cause="java.io.IOException: No space left\nCaused by: a.b.Other"))
    assert [(cause.classes[0], cause.message) for cause in found[1:]] == [
        ("java.io.IOException", "No space left"),
        ("a.b.Other", ""),
    ]


def test_errors_of_a_spark_connect_server_are_reported_with_grpcs_message() -> None:
    text = """<_InactiveRpcError of RPC that terminated with:
	status = StatusCode.UNAVAILABLE
	details = "Failed to connect to remote host: Connection refused"
	debug_error_string = "UNKNOWN:much {grpc_status:14}"
>"""
    kind = type(
        "SparkConnectGrpcException", (Exception,), {"__module__": "pyspark.errors.exceptions.connect"}
    )
    assert classify(kind(text)) is AGAIN
    assert reason_of(kind(text)) == "Spark Connect: Failed to connect to remote host: Connection refused"


def test_the_cause_of_a_failed_job_on_a_spark_connect_server_decides() -> None:
    kind = type("UnknownException", (Exception,), {"__module__": "pyspark.errors.exceptions.connect"})
    bare = kind(
        "(java.io.EOFException) End of File Exception between local host and x; For more details see: y"
    )
    assert classify(bare) is AGAIN
    assert "the connection has ended in the middle" in reason_of(bare)
    traced = kind("(org.apache.spark.SparkException) Task failed while writing rows")
    traced._stacktrace = TRACE.format(cause="java.net.ConnectException: Connection refused")
    assert classify(traced) is AGAIN
    assert "Connection refused (ConnectException)" in reason_of(traced)


def test_the_waiting_time_may_be_read_while_the_retries_end() -> None:
    def end_meanwhile() -> float:
        retries.since = None
        return 7.0

    retries = Retries("the batch", logging.getLogger("test"), progress=lambda doing: None, now=end_meanwhile)
    retries.since = 5.0
    assert retries.trouble == 2.0
    assert retries.trouble == 0.0
