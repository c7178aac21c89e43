"""A JVM with Hadoop's client in it: that of a Spark session, or a small one of our own where there is no session.

Must not know: tables, files.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from squall_io.spark.manifest.files import FilesUnavailable
from squall_io.spark.session.jvm import JavaFailed, JavaProcess, start_jvm
from squall_io.spark.stores.java_calls import told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What of Spark's configuration is Hadoop's begins so.
HADOOP: Final = "spark.hadoop."

#: A small JVM that is up soon: it only asks file systems.
_LAUNCH: Final = {
    "spark.driver.memory": "256m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

#: What Hadoop's client does as it comes, and what suits a caller that tries again by itself: (setting, Hadoop's, ours). What
#: somebody has set otherwise is left alone.
_SETTINGS: Final = (
    # The first look whether a file that was closed has reached its DataNodes: 400 ms would be most of a small file's time.
    ("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", "400", "10"),
    # A NameNode that is away: said after some 2 seconds, not 10; one that drops packets after 20 seconds, not 15 minutes.
    ("ipc.client.connect.max.retries", "10", "2"),
    ("ipc.client.connect.max.retries.on.timeouts", "45", "0"),
    # One that is frozen, and a DataNode that is, hold a call up for so long.
    ("ipc.client.rpc-timeout.ms", "120000", "30000"),
    ("dfs.client.socket-timeout", "60000", "30000"),
)


class Jvm:
    """A JVM that can be asked, and a Hadoop configuration in it. `close` ends it if it is our own."""

    def __init__(self, gateway: Any, configuration: Any, process: JavaProcess | None = None) -> None:
        self.gateway = gateway
        self.java = gateway.jvm
        self.configuration = configuration
        self._process = process
        self._lock = threading.Lock()

    @classmethod
    def of_session(cls, session: SparkSession) -> Jvm:
        """The JVM of a classic session, with a copy of its Hadoop configuration; `FilesUnavailable` when it is gone."""
        with told("cannot ask the JVM of Spark's session"):
            context: Any = session.sparkContext
            if context._jsc is None:
                raise FilesUnavailable(
                    "Spark's session was stopped, and it was to ask the file system: give one that runs"
                )
            gateway = context._gateway
            theirs = context._jsc.hadoopConfiguration()
            return cls(gateway, _suited(gateway.jvm.org.apache.hadoop.conf.Configuration(theirs)))

    @classmethod
    def own(cls, conf: Mapping[str, str]) -> Jvm:
        """A JVM of our own, up in a second or two, with what `conf` says of Hadoop; `NotInstalled`, `FilesUnavailable`."""
        try:
            process = start_jvm(_LAUNCH)
        except JavaFailed as error:
            raise FilesUnavailable(f"no JVM can be had to ask file systems: {error}") from None
        try:
            with told("cannot ask the JVM that was started to ask file systems"):
                configuration = process.gateway.jvm.org.apache.hadoop.conf.Configuration()
                for name, value in conf.items():
                    # Not by the command line, which everybody on the machine can read.
                    if name.startswith(HADOOP):
                        configuration.set(name.removeprefix(HADOOP), value)
                return cls(process.gateway, _suited(configuration), process)
        except BaseException:
            process.stop()
            raise

    def lent(self) -> Jvm:
        """The same JVM for somebody who does not end it."""
        return Jvm(self.gateway, self.configuration)

    def close(self) -> None:
        """End the JVM if it is our own."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.stop()


def _suited(configuration: Any) -> Any:
    """A configuration with `_SETTINGS` in it."""
    for name, theirs, ours in _SETTINGS:
        if configuration.get(name) in (None, theirs):
            configuration.set(name, ours)
    return configuration


def is_classic(session: SparkSession) -> bool:
    """Whether a session has a JVM of its own: those of Spark Connect have not."""
    return getattr(session, "_jsc", None) is not None
