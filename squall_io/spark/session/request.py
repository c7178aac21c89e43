"""A request for a Spark session: its master and settings, and whether two requests in one process are compatible. This module
also distinguishes sessions that have a JVM from sessions of Spark Connect.

This module is cheap to import: it loads neither PySpark nor the modules that start a JVM.
Must not know: how sessions start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from squall.stores.java.java_settings import is_secret
from topology_api import SquallError
from topology_api.wording import nearest, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Where Spark runs by default: in this process's own Java, with a thread per processor.
MASTER: Final = "local[*]"
#: Prefix of Squall's own settings among Spark's.
OWN_PREFIX: Final = "squall."
#: Defaults for Squall's use of Spark; the user's settings override them.
DEFAULTS: Final = {
    "spark.app.name": "squall",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Version 2: a Spark task moves its files to the job's output folder when the task commits. That is safe, since the output
    # folder is a staging folder, which has no readers.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # The delay before the first check whether a closed file has reached its DataNodes. With Hadoop's default of 400 ms, a small
    # file takes six times as long.
    "spark.hadoop.dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
}
#: The only defaults that a session of Spark Connect can set, since its server is already running.
SQL_DEFAULTS: Final = {name: value for name, value in DEFAULTS.items() if name.startswith("spark.sql.")}
#: How the names begin of settings that a Spark Connect server reads when it starts, and refuses later (CANNOT_MODIFY_CONFIG,
#: CANNOT_MODIFY_STATIC_CONFIG; tried with Spark 4). It refuses more, rarely used ones, when the session starts.
_OF_THE_SERVER: Final = (
    *("spark.archives", "spark.cores.", "spark.driver.", "spark.dynamicAllocation.", "spark.executor."),
    *("spark.files", "spark.jars", "spark.kryoserializer.", "spark.memory.", "spark.network.", "spark.rpc."),
    *("spark.serializer", "spark.shuffle.", "spark.sql.catalogImplementation", "spark.sql.extensions"),
    *("spark.sql.warehouse.dir", "spark.submit.", "spark.task.", "spark.ui."),
)
#: Further defaults if the master is `local...`.
LOCAL_DEFAULTS: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
#: Further defaults if the driver is all of Spark (`local`, `local[...]`): its ports, which every user of the machine can reach,
#: answer only clients with a secret. Spark makes the secret itself and keeps it in the driver; executors would need it, too.
LONE_DRIVER_DEFAULTS: Final = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}

_HOST: Final = r"(?:[\w.-]+|\[[\da-fA-F:.]+\])"
#: Masters that Spark accepts; "local-cluster" provides executors for the tests of Spark and of Squall.
_MASTER: Final = re.compile(
    r"local|local\[(?:[1-9]\d*|\*)(?:\s*,\s*[1-9]\d*)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn"
    rf"|spark://{_HOST}:\d+(?:,{_HOST}:\d+)*|k8s://\S+|sc://{_HOST}(?::\d+)?(?:/(?:;.*)?)?",
    re.ASCII,
)
_MASTERS: Final = (
    "local",
    "local[*]",
    "local[2]",
    "yarn",
    "spark://HOST:7077",
    "k8s://HOST:443",
    "sc://HOST:15002",
)


class NoConnectServer(SquallError):
    """A Spark Connect server does not answer."""


class NoSession(SquallError):
    """A Spark Connect server refuses the requested session."""


@dataclass(frozen=True)
class SessionRequest:
    """The master and the settings of a requested session."""

    # `master` and `conf` may contain secrets, such as the token of a Spark Connect address.
    master: str | None = field(repr=False)
    conf: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, master: str | None, conf: Mapping[str, str] | None) -> SessionRequest:
        """Return the request for a sink's arguments, without Squall's own settings."""
        settings = {name: value for name, value in (conf or {}).items() if not name.startswith(OWN_PREFIX)}
        named = settings.pop("spark.master", None)
        return cls(named if master is None else master, settings)

    @property
    def where(self) -> str:
        """The master, as Spark takes it."""
        return MASTER if self.master is None else self.master

    @property
    def place(self) -> str:
        """The master in a form that is safe to show: without the part of a Spark Connect address after ";", which may have a
        token.
        """
        return _without_token(self.where)

    @property
    def is_local(self) -> bool:
        """Whether Spark works in this process's own Java."""
        return self.where.startswith("local")

    @property
    def is_connect(self) -> bool:
        """Whether a Spark Connect server does the work, without Java in this process."""
        return self.where.startswith("sc://")

    @property
    def server_settings(self) -> list[str]:
        """The names of settings that only the start of a Spark Connect server can set; none with another master."""
        if not self.is_connect:
            return []
        return sorted(name for name in self.conf if name.startswith(_OF_THE_SERVER))

    @property
    def settings(self) -> dict[str, str]:
        """All settings of the session to start."""
        local = LOCAL_DEFAULTS if self.is_local else {}
        alone = LONE_DRIVER_DEFAULTS if self.is_local and not self.where.startswith("local-cluster") else {}
        return {**DEFAULTS, **local, **alone, **self.conf, "spark.master": self.where}

    @property
    def connect_settings(self) -> dict[str, str]:
        """All settings of a session of Spark Connect to create."""
        return {**SQL_DEFAULTS, **self.conf}

    def __str__(self) -> str:
        conf = ", ".join(f"{name}={shown_value(name, value)}" for name, value in sorted(self.conf.items()))
        return f"master {self.place}" + (f" with {conf}" if conf else "")


def is_classic(session: SparkSession) -> bool:
    """Return whether a session has, or had, its own JVM; sessions of Spark Connect have none."""
    return getattr(session, "_jsc", None) is not None


def master_problem(master: str) -> str | None:
    """Return why Spark does not accept a master; None if it does."""
    if _MASTER.fullmatch(master):
        return None
    near = nearest(master.partition(";")[0], _MASTERS)
    return (
        f"master is {shown(_without_token(master))}, which Spark does not take: write one of"
        f" {', '.join(_MASTERS)}{near}"
    )


def _without_token(master: str) -> str:
    address, more, _ = master.partition(";")
    return address + (";..." if more else "")


def shown_value(name: str, value: str | None) -> str:
    """Return a setting's value for display, without secrets."""
    if value is None:
        return "not set"
    return "..." if is_secret(name) else value


def request_conflict(wanted: SessionRequest, running: SessionRequest) -> str | None:
    """Return why two users of Spark in one process cannot both have what they request; None if they can."""
    if (wanted.where, dict(wanted.conf)) == (running.where, dict(running.conf)):
        return None
    return (
        f"Spark runs in this process already, with {running}; the request is for {wanted}. A process has one Spark driver:"
        " give all users of Spark in one topology the same master and conf"
    )
