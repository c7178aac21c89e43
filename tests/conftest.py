"""Settings for every test: how Hypothesis searches; and shared fixtures: a ZooKeeper server, a Kafka broker, a Redis server, a
Spark session.

In CI the examples are the same in every run, so that a failure there can be reproduced, and half of the usual number;
elsewhere each run tries other ones, and failures are kept in `.hypothesis` and printed as a line to paste. There are no
deadlines: machines differ.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.aws_servers import aws
from tests.chained_snapshots import maybe_chained
from tests.checked_returns import returns
from tests.gate_times import (
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    pytest_terminal_summary,
    reason_for,
)
from tests.kafka_servers import kafka
from tests.left_behind import pytest_configure, pytest_unconfigure
from tests.mqtt_servers import mosquitto
from tests.nats_servers import nats_server
from tests.rabbitmq_servers import rabbitmq
from tests.redis_servers import redis_server
from tests.soak import leave_out, pytest_addoption
from tests.spark_session import spark
from tests.sql_servers import postgresql, postgresql_database, postgresql_of_module
from tests.zookeeper_servers import tls_zookeeper, zookeeper, zookeeper_root, zookeeper_store

#: Folders whose tests run one after another in parallel runs, those with equal names in one process: each test makes a cluster
#: and faults in it, or needs the one Spark session of its process, or the one HDFS.
ONE_AT_A_TIME = {
    "tests/faults": "faults",
    "tests/cluster_faults": "cluster faults",
    "tests/hdfs": "HDFS",
    "tests/spark": "Spark",
}

#: Files whose tests run one after another in one process in parallel runs: they share its broker, or its PostgreSQL.
WITH_ONE_SERVER = {
    "tests/squall_cli/test_pipe_command.py": "Kafka",
    "tests/squall_io/test_contracts_of_connectors.py": "Kafka",
    "tests/squall_io/test_kafka_": "Kafka",
    "tests/squall_io/test_postgres_": "PostgreSQL",
    "tests/squall_io/test_sql_": "PostgreSQL",
}

#: The same in tests/connectors, by the beginning of the names of worlds: "kafka_source". Others are groups of their own.
WORLDS_WITH_ONE_SERVER = {"kafka": "Kafka", "postgres": "PostgreSQL", "sql": "PostgreSQL"}

#: Two files of these run at a time: their clusters share no port, and wait more than they work.
TWO_AT_A_TIME = {"tests/cluster_faults"}

__all__ = [
    "aws",
    "kafka",
    "maybe_chained",
    "mosquitto",
    "nats_server",
    "postgresql",
    "postgresql_database",
    "postgresql_of_module",
    "pytest_addoption",
    "pytest_configure",
    "pytest_runtest_logreport",
    "pytest_runtest_makereport",
    "pytest_terminal_summary",
    "pytest_unconfigure",
    "rabbitmq",
    "redis_server",
    "returns",
    "spark",
    "tls_zookeeper",
    "zookeeper",
    "zookeeper_root",
    "zookeeper_store",
]

settings.register_profile("ci", derandomize=True, print_blob=True, deadline=None, max_examples=50)
settings.register_profile("home", print_blob=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "home")
#: For a Python that repeats tests (`--hypothesis-profile again`): a Python that breaks a property breaks it soon.
settings.register_profile("again", derandomize=True, print_blob=True, deadline=None, max_examples=25)

# Under nohup and in some CI systems SIGHUP is ignored, in the background of a script SIGINT, and every process that a test
# starts would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect no garbage while the tests are collected, and never visit what this has made: a million objects that live to the
    end, which each collection of all objects in each test would look at.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests, and in parallel runs begin with files of long ones: the last to end is then a short one."""
    leave_out(config, items)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: reason_for(item.nodeid) is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """With `-n N --dist loadscope`: the tests of a file run in one process, with their shared fixtures."""
    return _ByFile(config, log) if config.getvalue("dist") == "loadscope" else None


class _ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """The tests' names decide which of them stay together. (Marks for `--dist loadgroup` are written into names, and pytest 9.2
    and xdist 3.8 silently disagree about them: nothing stayed together.)
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = "/".join(file.split("/")[:2])
        if folder == "tests/connectors" and "[" in nodeid:
            world = nodeid.partition("[")[2].partition("_")[0]
            return WORLDS_WITH_ONE_SERVER.get(world, f"{folder} {world}")
        shared = (group for start, group in WITH_ONE_SERVER.items() if file.startswith(start))
        group = ONE_AT_A_TIME.get(folder) or next(shared, file)
        return f"{group} {crc32(file.encode()) % 2}" if folder in TWO_AT_A_TIME else group
