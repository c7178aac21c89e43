"""A JVM with Hadoop's client in it: that of a Spark session, or a small one started here if there is no session.

Must not know: tables, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from squall_io.spark.manifest.files import FilesUnavailable
from squall_io.spark.session.jvm import JavaFailed, JavaProcess, start_jvm
from squall_io.spark.stores.hadoop_errors import translated_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Prefix of Hadoop's settings among Spark's.
HADOOP: Final = "spark.hadoop."

#: A small JVM that starts quickly: it only calls file systems.
_LAUNCH: Final = {
    "spark.driver.memory": "256m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

#: Defaults of Hadoop's client, and values that suit a caller that retries: (setting, Hadoop's, Squall's). Settings that
#: have another value are left alone.
_SETTINGS: Final = (
    # The first check whether a closed file has reached its DataNodes: 400 ms would be most of a small file's time.
    ("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", "400", "10"),
    # A NameNode that is away is reported after 2 seconds, not 10; one that drops packets after 20 seconds, not 15 minutes.
    ("ipc.client.connect.max.retries", "10", "2"),
    ("ipc.client.connect.max.retries.on.timeouts", "45", "0"),
    # How long a frozen NameNode or DataNode holds up a call.
    ("ipc.client.rpc-timeout.ms", "120000", "30000"),
    ("dfs.client.socket-timeout", "60000", "30000"),
)


class Jvm:
    """A usable JVM, and a Hadoop configuration in it. `close` ends it if it was started here."""

    def __init__(self, gateway: Any, configuration: Any, process: JavaProcess | None = None) -> None:
        self.gateway = gateway
        self.java = gateway.jvm
        self.configuration = configuration
        self._process = process

    @classmethod
    def of_session(cls, session: SparkSession) -> Jvm:
        """Return the JVM of a classic session, with a copy of its Hadoop configuration; `FilesUnavailable` if it is gone."""
        with translated_errors("cannot ask the JVM of Spark's session"):
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
        """Start a JVM, which takes a second or two, with the Hadoop settings in `conf`; `NotInstalled`, `FilesUnavailable`."""
        try:
            process = start_jvm(_LAUNCH)
        except JavaFailed as error:
            raise FilesUnavailable(f"no JVM can be had to ask file systems: {error}") from None
        try:
            with translated_errors("cannot ask the JVM that was started to ask file systems"):
                configuration = process.gateway.jvm.org.apache.hadoop.conf.Configuration()
                for name, value in conf.items():
                    # Not on the command line, which every user of the machine can read.
                    if name.startswith(HADOOP):
                        configuration.set(name.removeprefix(HADOOP), value)
                return cls(process.gateway, _suited(configuration), process)
        except BaseException:
            process.stop()
            raise

    def lent(self) -> Jvm:
        """Return the same JVM for a user that must not end it."""
        return Jvm(self.gateway, self.configuration)

    def close(self) -> None:
        """End the JVM if it was started here."""
        if self._process is not None:
            self._process.stop()


def _suited(configuration: Any) -> Any:
    """Put `_SETTINGS` into a configuration."""
    for name, theirs, ours in _SETTINGS:
        if configuration.get(name) in (None, theirs):
            configuration.set(name, ours)
    return configuration
