"""FileSink on S3 and on HDFS, for the matrix of faults. Must not know: promises."""

from __future__ import annotations

import contextlib
import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from squall.stores.files import AbsentFile, FilesUnavailable, OpenStore
from squall.stores.s3 import S3Files
from squall.stores.webhdfs import WebHdfsFiles
from squall_io.files import FileSink
from squall_io.spark.stores import S3_ENDPOINT, WEBHDFS
from tests.connector_contract import CAP, SinkWorld
from tests.connectors.sink_promises import PROMISES
from tests.hdfs_servers import HdfsServer
from tests.s3_servers import S3Server, s3, s3_keys
from tests.zookeeper_servers import eventually
from topology_api import Bolt

__all__ = ["s3", "s3_keys"]

_names = itertools.count(1)


class FilesInStore(SinkWorld):
    """A folder of lines in a store."""

    connector = "squall_io.files.FileSink"
    once = True
    refused_words = "line"
    #: How the sink and the test reach the store.
    path: str
    settings: dict[str, str]

    @abstractmethod
    def files(self) -> OpenStore:
        """The folder, as a reader sees it."""

    def sink(self, **options: Any) -> Bolt:
        return FileSink(self.path, **{"fields": ["text"], "conf": self.settings, **options})

    def written(self) -> list[int]:
        """Read again if a file was moved meanwhile, or cannot be read now."""
        found: list[int] = []

        def read() -> bool:
            found.clear()
            with contextlib.suppress(AbsentFile, FilesUnavailable), self.files() as files:
                for each in files.list(""):
                    if not each.is_folder:
                        found.extend(int(line.split()[1]) for line in files.read(each.path).splitlines())
                return True
            return False

        eventually(read, CAP)
        return found

    def refused(self, number: int) -> tuple[Any, ...]:
        return number, f"row {number}\nand more"

    def large(self, number: int) -> tuple[tuple[Any, ...], bool]:
        return (number, f"row {number} {'x' * 5_000_000}"), True


class S3Target(FilesInStore):
    """A bucket of its own."""

    name = "s3_files"
    missing_words = "NoSuchBucket"
    not_applicable = {
        **dict.fromkeys(
            ("killed", "restarted", "away at the start"),
            "on S3: the server of the tests keeps its objects in memory",
        ),
        "wrong login": "on S3: the server of the tests takes any key",
    }

    def __init__(self, server: S3Server) -> None:
        super().__init__()
        self.s3 = server
        self.server = server  # type: ignore[assignment]  # its start returns it
        self.bucket = f"bucket-{next(_names)}"
        self.path, self.settings = f"s3://{self.bucket}/out", {S3_ENDPOINT: server.url}
        self.create()

    def files(self) -> OpenStore:
        return S3Files(self.path, self.s3.url)

    def remove(self) -> None:
        self.s3.ask("DELETE", f"/{self.bucket}")

    def create(self) -> None:
        self.s3.ask("PUT", f"/{self.bucket}")

    @contextlib.contextmanager
    def answer_lost(self) -> Iterator[Callable[[], bool]]:
        """The answers to a put, to the end of a copy and to the deletion of its source."""
        faults = [
            ("PUT", "out/.staging", "after"),
            ("POST", "uploadId", "after"),
            ("DELETE", ".staging/", "after"),
        ]
        self.s3.fails(*faults)
        try:
            yield lambda: not self.s3.faults()
        finally:
            self.s3.fails()


@pytest.fixture
def s3_files(s3: S3Server, s3_keys: None) -> S3Target:
    return S3Target(s3)


class NameNode:
    """The NameNode of an HDFS: the server without which nothing is read or written."""

    def __init__(self, hdfs: HdfsServer) -> None:
        self.hdfs = hdfs
        self.kill, self.freeze, self.thaw = hdfs.namenode.kill, hdfs.namenode.freeze, hdfs.namenode.thaw

    def start(self) -> None:
        self.hdfs.namenode.start()
        self.hdfs.wait_ready()


class HdfsTarget(FilesInStore):
    """A folder of an HDFS, by WebHDFS."""

    name = "hdfs_files"
    not_applicable = {
        "missing": "on HDFS the folder is made",
        "wrong login": "on HDFS: WebHDFS has no passwords",
        "answer lost": "on HDFS: answers are lost of a simulated one, at each call",
    }
    #: Two Javas start for it; tests/hdfs/test_file_sink_hdfs.py kills the NameNode in the usual run.
    slow = frozenset(PROMISES)

    def __init__(self, hdfs: HdfsServer) -> None:
        super().__init__()
        self.server, self.hdfs = NameNode(hdfs), hdfs
        self.path = f"{hdfs.url}/out-{next(_names)}"
        self.settings = {WEBHDFS: hdfs.webhdfs}

    def files(self) -> OpenStore:
        return WebHdfsFiles(self.path, self.hdfs.webhdfs)


@pytest.fixture(scope="session")
def hdfs_of_the_matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    with HdfsServer(tmp_path_factory.mktemp("hdfs"), datanodes=1) as server:
        yield server


@pytest.fixture
def hdfs_files(hdfs_of_the_matrix: HdfsServer) -> HdfsTarget:
    return HdfsTarget(hdfs_of_the_matrix)
