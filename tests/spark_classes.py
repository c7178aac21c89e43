"""Options of a Java for a short life: it compiles little, has few threads, and finds Spark's classes in an archive.

Loading classes is most of a Spark's start: with the archive a session and its first write take 6 seconds of a processor, and 13
without it. It is made once for a Java and a PySpark, in the folder of this machine that tests/hdfs_servers.py keeps, by a Spark
that writes down its classes when it ends: `python -m tests.spark_classes ARCHIVE`. If that fails, Java runs without it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from squall.stores.java.java import find_java
from squall_io.spark.rows.schema import parse_schema
from squall_io.spark.session import sessions
from squall_io.spark.session.request import SessionRequest
from squall_io.spark.sink.writing import TableWriter, WriteAs
from tests.hdfs_servers import cache_folder

ROOT = Path(__file__).resolve().parents[1]
SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
#: Longest time for the Spark that writes the archive on a machine under load; half a minute on an idle one.
_CAP = 300.0
#: An archive has 180 MB; one that was not used for this long is deleted.
_KEPT_SECS = 7 * 24 * 3600.0


@cache
def small_java() -> str:
    """The value for `spark.driver.extraJavaOptions`; makes the archive if there is none yet."""
    archive = _archive()
    # A Java that cannot use it, because of another class path, would report that on its stdout.
    return SMALL_JAVA if archive is None else f"{SMALL_JAVA} -XX:SharedArchiveFile={archive} -Xlog:disable"


def small_spark() -> dict[str, str]:
    """The environment of processes that start such a Java, with a Spark that listens on the loopback only."""
    return {"SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": small_java()}


def _archive() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    java = find_java(os.environ).resolve()
    of = repr((str(java), java.stat().st_mtime, spec.origin, Path(spec.origin).stat().st_mtime))
    with cache_folder() as folder:
        archive = folder / f"spark-{hashlib.sha256(of.encode()).hexdigest()[:16]}.jsa"
        for other in folder.glob("spark-*.jsa"):
            if time.time() - other.stat().st_mtime > _KEPT_SECS:
                other.unlink()
        if not archive.exists():
            fresh = folder / "spark.tmp"
            command = [sys.executable, "-m", "tests.spark_classes", str(fresh)]
            variables = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
            try:
                subprocess.run(
                    command, cwd=ROOT, env=variables, capture_output=True, timeout=_CAP, check=True
                )
                fresh.rename(archive)
            except (subprocess.SubprocessError, OSError):
                return None
        os.utime(archive)
        return archive


def main(archive: str) -> None:
    """Have a Spark do what most tests do, and write down the classes it needed."""
    with tempfile.TemporaryDirectory() as folder:
        options = f"{SMALL_JAVA} -XX:ArchiveClassesAtExit={archive}"
        conf = {"spark.driver.extraJavaOptions": options, "spark.sql.shuffle.partitions": "1"}
        session = sessions.start_session(SessionRequest.of("local[2]", conf))
        TableWriter(session, parse_schema("a int, b string"), WriteAs("parquet", ("b",), None)).warm_up(
            folder
        )
        frame = session.createDataFrame([(1, "a")], "a int, b string")
        for file_format in ("parquet", "orc", "json", "csv"):
            frame.write.format(file_format).save(f"{folder}/{file_format}")
            session.read.format(file_format).load(f"{folder}/{file_format}").distinct().collect()
        assert sessions._process.jvm is not None
        java = sessions._process.jvm
        with suppress(Exception):  # it does not answer any more
            java.gateway.jvm.java.lang.System.exit(0)
        sys.exit(java.process.wait(_CAP))


if __name__ == "__main__":
    main(sys.argv[1])
