"""What Spark session somebody wants: the master, the settings, and whether two who share a process can both have theirs.

Must not know: PySpark, sessions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from squall_io.spark.session.jvm import is_secret
from topology_api import SquallError
from topology_api.wording import nearest, shown

__all__ = ["SQL_DEFAULTS", "NoServer", "NoSession", "Wish", "master_problem", "told", "wish_problem"]

#: Where Spark runs unless told: in this process's own Java, with as many threads as there are processors.
MASTER: Final = "local[*]"
#: Settings of Squall's that stand among Spark's: not for Spark.
OWN_PREFIX: Final = "squall."
#: What Squall's use of Spark wants; the user's settings come after them.
DEFAULTS: Final = {
    "spark.app.name": "squall",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Task commits move files to where they belong; what is half there is in a staging folder that nobody reads.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # The first wait for a closed file's DataNode: at 400 ms, Hadoop's own, a small file takes six times as long.
    "spark.hadoop.dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
}
#: Those that a session of Spark Connect can have, whose server has started long before.
SQL_DEFAULTS: Final = {name: value for name, value in DEFAULTS.items() if name.startswith("spark.sql.")}
LOCAL_DEFAULTS: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

_HOST: Final = r"(?:[\w.-]+|\[[\da-fA-F:.]+\])"
#: Masters that Spark takes; "local-cluster" is what its own tests, and ours, have executors by.
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


class NoServer(SquallError):
    """A Spark Connect server does not answer."""


class NoSession(SquallError):
    """A Spark Connect server does not give a session as it is wanted."""


@dataclass(frozen=True)
class Wish:
    """What session somebody wants."""

    master: str | None
    conf: Mapping[str, str]

    @classmethod
    def of(cls, master: str | None, conf: Mapping[str, str] | None) -> Wish:
        """A wish by a sink's arguments; Squall's own settings are not part of it."""
        settings = {name: value for name, value in (conf or {}).items() if not name.startswith(OWN_PREFIX)}
        named = settings.pop("spark.master", None)
        return cls(named if master is None else master, settings)

    @property
    def where(self) -> str:
        """The master, as Spark takes it."""
        return MASTER if self.master is None else self.master

    @property
    def place(self) -> str:
        """The master, as it may be told: what is behind a ";" of Spark Connect's may be a token."""
        address, more, _ = self.where.partition(";")
        return address + (";..." if more else "")

    @property
    def is_local(self) -> bool:
        """Whether Spark's work is done in this process's own Java."""
        return self.where.startswith("local")

    @property
    def is_connect(self) -> bool:
        """Whether a Spark Connect server does everything: then there is no Java here."""
        return self.where.startswith("sc://")

    @property
    def settings(self) -> dict[str, str]:
        """Every setting of the session to start."""
        local = LOCAL_DEFAULTS if self.is_local else {}
        return {**DEFAULTS, **local, **self.conf, "spark.master": self.where}

    def __str__(self) -> str:
        conf = ", ".join(f"{name}={told(name, value)}" for name, value in sorted(self.conf.items()))
        return f"master {self.place}" + (f" with {conf}" if conf else "")


def master_problem(master: str) -> str | None:
    """Why Spark does not take a master; None: it does."""
    if _MASTER.fullmatch(master):
        return None
    address, more, _ = master.partition(";")
    return (
        f"master is {shown(address + (';...' if more else ''))}, which Spark does not take: write one of"
        f" {', '.join(_MASTERS)}{nearest(address, _MASTERS)}"
    )


def told(name: str, value: str | None) -> str:
    """A setting's value as it may be told."""
    if value is None:
        return "not set"
    return "..." if is_secret(name) else value


def wish_problem(wanted: Wish, running: Wish) -> str | None:
    """Why two users of Spark in one process cannot both have what they want; None: they can."""
    if (wanted.where, dict(wanted.conf)) == (running.where, dict(running.conf)):
        return None
    return (
        f"Spark runs in this process already, with {running}; wanted was {wanted}. There is one Spark driver in a process:"
        " give all that use Spark in one topology the same master and conf"
    )
