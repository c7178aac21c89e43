"""The HDFS that the tests of this folder share, and a path in it for each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.hdfs_servers import HdfsServer

_paths = itertools.count(1)


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """An HDFS with two DataNodes for all tests that do it no harm. A test that does starts one of its own, and ends it."""
    with HdfsServer(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture
def hdfs_path(hdfs: HdfsServer) -> str:
    """A whole path of this test alone, where nothing lies yet."""
    return f"{hdfs.url}/test-{next(_paths)}/table"
