"""The HDFS shared by the tests of this folder, and a path in it for each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hdfs_servers import HdfsServer

_FOLDER = Path(__file__).parent
_servers: list[HdfsServer] = []
_paths = itertools.count(1)
#: Seconds for one of these tests, with the start of the daemons if it is the first one.
_LIMIT = 400


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Daemons are slow on a machine under load."""
    for item in items:
        if _is_here(item) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_LIMIT))


def _is_here(item: pytest.Item) -> bool:
    return item.path.is_relative_to(_FOLDER)


def pytest_runtest_setup() -> None:
    """Have the servers run again, if tests of other folders came between."""
    for server in _servers:
        if not server.namenode.running:
            server.start()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the servers before the tests of other folders: three Javas are never idle, and Spark's tests take ten minutes."""
    if nextitem is None or not _is_here(nextitem):
        for server in _servers:
            server.stop()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """An HDFS with two DataNodes for all tests that do it no harm; see `troubled_hdfs`."""
    # Of a folder, the NameNode gives a client 100 entries at a time, not 1,000.
    with HdfsServer(tmp_path_factory.mktemp("hdfs"), settings={"dfs.ls.limit": "100"}) as server:
        _servers.append(server)
        yield server
        _servers.remove(server)


@pytest.fixture
def hdfs_path(hdfs: HdfsServer) -> str:
    """An empty path for this test alone."""
    return f"{hdfs.url}/test-{next(_paths)}/table"


@pytest.fixture
def troubled_hdfs(hdfs: HdfsServer) -> Iterator[HdfsServer]:
    """The same HDFS for a test that kills, freezes or restarts its processes: all are up again when it has ended. (The tests of
    this folder run one after another; a server of its own would cost each of them 20 seconds.)
    """
    yield hdfs
    for daemon in (hdfs.namenode, *hdfs.datanodes):
        if daemon.running:
            daemon.thaw()
        else:
            daemon.kill()
            daemon.start()
    hdfs.wait_ready()
