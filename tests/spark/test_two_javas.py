"""A process with two Javas, Spark's and a small one only for file systems: each answers for its own exceptions."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from squall.stores.files import AbsentFile, FilesRefused, FilesUnavailable
from squall.stores.java.hadoop import HadoopFiles, Jvm
from squall.stores.java.jvm import _connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

#: Objects made in Spark's Java, under the names that the exceptions of the small one will have.
HELD = 400


@pytest.fixture(scope="module")
def small() -> Iterator[Jvm]:
    own = Jvm.own({})
    yield own
    own.close()


def number(held: Any) -> int:
    """Py4J's name of an object: o12 is the 12th of its Java."""
    return int(held._get_object_id().removeprefix("o"))


@pytest.mark.usefixtures("spark")  # a session makes PySpark look at all exceptions of Py4J
def test_an_exception_of_one_java_is_not_asked_of_the_other(
    small: Jvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark asks the session's Java of every exception, and there the name of another Java's is that of some list.

    Another small Java stands in for the session's: the session's has used names up to some ten thousand by now.
    """
    from pyspark import SparkContext

    files = HadoopFiles(f"file://{tmp_path}/t", small.lent())
    files.put_if_absent("a", b"1")
    asked = Jvm.own({})
    try:
        monkeypatch.setattr(SparkContext, "_jvm", asked.java)
        monkeypatch.setattr(SparkContext, "_gateway", asked.gateway)
        held = [asked.java.java.util.ArrayList() for _ in range(HELD)]
        while number(small.java.java.util.ArrayList()) < number(held[0]):
            pass
        with pytest.raises(AbsentFile, match=r"/t/b.*\(FileNotFoundException\)"):
            files.read("b")
        with pytest.raises(FilesRefused, match="a file lies where a folder must be"):
            files.put_if_absent("a/b", b"1")
        assert not files.put_if_absent("a", b"2") and files.list("c") == []
        assert number(small.java.java.util.ArrayList()) < number(held[-1]), (
            "otherwise the names would be unused"
        )
    finally:
        asked.close()
    # Without a session there is no Java that PySpark could ask.
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with pytest.raises(AbsentFile, match=r"/t/b.*\(FileNotFoundException\)"):
        files.read("b")


def test_a_stopped_session_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)
    with pytest.raises(FilesUnavailable, match="the Spark session for access to the file system was stopped"):
        Jvm.of_session(spark)


def test_two_javas_that_start_at_once_are_connected_one_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark reads the address of its Java from the environment, which all threads share."""
    from pyspark import java_gateway

    both = threading.Barrier(2)

    def launch() -> tuple[str, str]:
        port = os.environ["PYSPARK_GATEWAY_PORT"]
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # until the other one arrives as well, which must not happen
        return port, os.environ["PYSPARK_GATEWAY_PORT"]

    unused: Any = None
    monkeypatch.setattr(java_gateway, "launch_gateway", launch)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda port: _connect(unused, port, "secret"), (1, 2)))
    assert found == [("1", "1"), ("2", "2")]
    assert both.broken and "PYSPARK_GATEWAY_PORT" not in os.environ


def test_a_frozen_java_is_ended_by_a_thread_that_never_used_it(small: Jvm) -> None:
    process = small.gateway.proc
    os.kill(process.pid, signal.SIGSTOP)
    ending = threading.Thread(target=small.close, daemon=True)
    ending.start()
    try:
        ending.join(60)
        assert not ending.is_alive() and process.poll() is not None
    finally:
        process.kill()
