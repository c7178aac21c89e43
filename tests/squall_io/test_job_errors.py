"""An error of a user's Spark job is reported in a line or two: Spark's text, or the user's error with its file and line."""

from __future__ import annotations

from typing import Any

import pytest

from squall_io.spark.results.job_errors import reason_in, worker_died

IN_A_WORKER = """Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times:
org.apache.spark.api.python.PythonException:
Traceback (most recent call last):
  File "/x/python3.11/site-packages/pyspark/worker.py", line 100, in main
    process()
  File "/home/me/recount.py", line 7, in half
    return count // 0
           ~~~~~~^^~~
  File "/usr/lib/python3.11/decimal.py", line 4, in divide
    raise error
ZeroDivisionError: integer division by zero

\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:100)
"""
OF_A_QUERY = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `wrod` cannot be resolved. Did you mean [`word`]?
SQLSTATE: 42703; line 1 pos 7;
'Project ['wrod]
+- Relation [word#3,count#4L] json
"""
DEAD = """An error occurred while calling o65.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 1 times, most recent failure:
Lost task 0.0 in stage 0.0 (TID 0) (localhost): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed){}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:1136)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
"""
FAULT = """: Fatal Python error: Segmentation fault

Current thread 0x00007f2183cb1b80 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/home/me/recount.py", line 23 in half
  File "/x/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 1955 in func
"""
OF_STORAGE = """An error occurred while calling o77.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times:
{outer}
\tat org.apache.spark.sql.execution.datasources.FileFormatWriter$.executeTask(FileFormatWriter.scala:100)
{inner}
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.connect(Net.java:579)
"""
READING = (
    "a.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file {}.  SQLSTATE: KD001"
)
WRITING = "a.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to {}. SQLSTATE: 58030"
NO_TASK = "Connection refused (ConnectException); is HDFS running there, and are host and port right?"


def spark_error(text: str, condition: str | None = None) -> Exception:
    """An error as PySpark raises them."""
    made = type(
        "CapturedException",
        (Exception,),
        {"__module__": "pyspark.errors", "getCondition": lambda self: condition},
    )
    error = made(text)
    assert isinstance(error, Exception)
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("theirs"), None),
        (
            spark_error(IN_A_WORKER),
            "ZeroDivisionError: integer division by zero\n  at /home/me/recount.py:7, in half",
        ),
        (
            spark_error(OF_A_QUERY, "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `wrod` cannot be resolved. Did you mean [`word`]?"
            " SQLSTATE: 42703; line 1 pos 7",
        ),
        (
            spark_error("Traceback (most recent call last):\n  File \"/x/site-packages/a.py\", line 1, in b\nKeyError: 'c'\n"),
            "KeyError: 'c'",
        ),
        (
            spark_error(DEAD.format(". Consider setting 'spark.x' configuration to 'true' for the better Python traceback.")),
            "a Python worker of Spark's died: it was killed (perhaps for lack of memory), ended itself, or crashed in a"
            " library\n"
            "  fewer tasks at a time leave more memory to each (--master 'local[1]');"
            " --conf spark.sql.execution.pyspark.udf.faulthandler.enabled=true shows the line of a crash",
        ),
        (
            spark_error(DEAD.format(FAULT)),
            "a Python worker of Spark's died: Fatal Python error: Segmentation fault\n  at /home/me/recount.py:23, in half",
        ),
        (spark_error("something went wrong\nmore of it"), "CapturedException: something went wrong"),
        (spark_error("[X] " + "long " * 200, "X"), "[X] " + "long " * 78 + "lon..."),
    ],
    ids=["not-sparks", "in-a-worker", "of-a-query", "in-a-library", "dead-worker", "dead-worker-and-its-line", "other", "long"],
)  # fmt: skip
def test_an_error_of_spark_is_reported_without_its_stack(error: Exception, said: str | None) -> None:
    assert reason_in(error) == said


@pytest.mark.parametrize(
    ("outer", "inner", "call"),
    [
        (READING.format("hdfs://h:1/t/a.parquet"), "", "Spark cannot read hdfs://h:1/t/a.parquet"),
        (WRITING.format("hdfs://h:1/out"), "", "Spark cannot write hdfs://h:1/out"),
        (
            WRITING.format("hdfs://h:1/out"),
            "Caused by: " + READING.format("hdfs://h:1/t/a.parquet"),
            "Spark cannot read hdfs://h:1/t/a.parquet",
        ),
        ("java.io.IOException: nobody says at what", "", "storage or the network failed"),
    ],
    ids=["reads", "writes", "reads-while-it-writes", "not-said"],
)
def test_a_storage_error_is_reported_with_the_jobs_operation(outer: str, inner: str, call: str) -> None:
    error = spark_error(OF_STORAGE.format(outer=outer, inner=inner))
    assert reason_in(error) == f"{call}: {NO_TASK}"


def test_an_error_whose_java_has_died_is_reported_without_it() -> None:
    def gone(self: object) -> str:
        raise ConnectionRefusedError

    kind = type(
        "Py4JJavaError", (Exception,), {"__module__": "py4j.protocol", "__str__": gone, "getCondition": gone}
    )
    assert reason_in(kind()) == "Py4JJavaError"
    assert not worker_died(kind())


def py4js(name: str, text: str) -> Exception:
    """An error of Py4J's own."""
    made = type(name, (Exception,), {"__module__": "py4j.protocol"})(text)
    assert isinstance(made, Exception)
    return made


def raised(error: Exception, after: Exception | None = None) -> Exception:
    """The error as if it was raised while another one was handled."""
    error.__context__ = after
    return error


def refused(module: str) -> Exception:
    """A connection that is refused in the code of a module."""
    code: dict[str, Any] = {"__name__": module}
    exec("def connect():\n    raise ConnectionRefusedError(111, 'Connection refused')", code)
    try:
        code["connect"]()
    except ConnectionRefusedError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (py4js("Py4JNetworkError", "Error while sending or receiving"), True),
        (py4js("Py4JError", "An error occurred while calling o69.schema"), True),
        (py4js("Py4JError", "An error occurred while calling o6.nope. Trace:\npy4j.Py4JException: Method"), False),
        (py4js("Py4JError", "com.example.Nope does not exist in the JVM"), False),
        (raised(refused("py4j.clientserver"), py4js("Py4JNetworkError", "Answer from Java side is empty")), True),
        (refused("py4j.clientserver"), True),
        (refused("recount"), False),
        (raised(spark_error("[CANNOT_PARSE_DATATYPE] Unable to parse.", "X"), refused("py4j.clientserver")), True),
        (raised(ValueError("theirs"), py4js("Py4JNetworkError", "Answer from Java side is empty")), False),
    ],
    ids=["no-answer", "to-a-call", "no-such-method", "no-such-class", "again", "refused", "theirs", "made-of-it", "later"],
)  # fmt: skip
def test_the_end_of_java_is_reported_however_it_appears(error: Exception, gone: bool) -> None:
    said = reason_in(error) or ""
    assert said.startswith("the Java process of Spark's driver has ended") == gone
    assert ("spark.driver.memory" in said) == gone
