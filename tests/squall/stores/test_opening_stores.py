"""Stores that need no Java are opened without it, and without everything that comes with Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from squall.stores.files import FilesRefused
from squall.stores.java.java import NotInstalled
from squall.stores.opening import needs_java, open_hdfs, open_store
from squall.stores.paths import InvalidPath
from squall.stores.webhdfs import WebHdfsFiles

#: Imports all modules of the stores where Spark, Python's ways to it and to a Java process, and the connectors are missing.
PROGRAM = """
import sys, uuid  # msgspec imports uuid, which on Python 3.10 imports subprocess
for name in ("pyspark", "py4j", "boto3", "botocore", "pyarrow", "pandas", "subprocess", "squall_io"):
    sys.modules[name] = None
import importlib, pkgutil
import squall.stores
for module in pkgutil.iter_modules(squall.stores.__path__):
    importlib.import_module(f"squall.stores.{module.name}")
from squall.stores.opening import open_store
with open_store(sys.argv[1]) as store:
    print(store.put_if_absent("a/b", b"1"), store.put_if_absent("a/b", b"2"), store.read("a/b"))
    print([status.path for status in store.list("a")])
    store.delete("a")
    print(store.exists("a/b"))
ours = {".".join(name.split(".")[:2]) for name in sys.modules}
print(sorted(name for name in ours if name.startswith(("squall.", "nimbus", "supervisor", "worker"))))
"""


def test_stores_work_without_spark_java_and_the_rest_of_squall(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "True False b'1'",
        "['a/b']",
        "False",
        "['squall.stores']",
    ]


@pytest.mark.parametrize("path", ["{}/state", "file://{}/state"])
def test_files_of_this_machine_are_opened_by_a_path_with_or_without_scheme(tmp_path: Path, path: str) -> None:
    with open_store(path.format(tmp_path)) as store:
        assert store.root == f"file://{tmp_path}/state"
        assert not (tmp_path / "state").exists()
        assert store.put_if_absent("a", b"1")
    assert (tmp_path / "state" / "a").read_bytes() == b"1"


def test_hdfs_is_opened_through_webhdfs() -> None:
    with open_store("hdfs://host:9000/state", webhdfs="host:9870") as store:
        assert isinstance(store, WebHdfsFiles)
        assert store.root == "hdfs://host:9000/state"


@pytest.mark.parametrize(
    "path, webhdfs, why",
    [
        ("hdfs://host:9000/state", None, r"give the NameNode's web address \(HOST:9870\)"),
        ("hdfs://host:9000/state", "host:web", "'host:web' is not a WebHDFS address"),
        ("abfs://box/state", None, "abfs:// needs Java, .*; give a file://, an hdfs:// or an s3:// path"),
        (
            "abfs://box/state",
            "host:9870",
            "abfs:// needs Java, .*; give a file://, an hdfs:// or an s3:// path",
        ),
    ],
)
def test_a_path_that_cannot_be_opened_without_java_is_refused_with_advice(
    path: str, webhdfs: str | None, why: str
) -> None:
    with pytest.raises(FilesRefused, match=why):
        open_store(path, webhdfs=webhdfs)


@pytest.mark.parametrize("path", ["s3://bucket/table", "s3a://bucket/table"])
def test_without_boto3_the_error_names_the_extra(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(FilesRefused, match="needs boto3: install Squall with its extra `s3`"):
        open_store(path)
    with pytest.raises(FilesRefused, match="'minio:9000' is not the address of an S3 server"):
        open_store(path, s3_endpoint="minio:9000")


def test_an_invalid_path_is_refused_before_its_scheme_is_looked_at() -> None:
    with pytest.raises(InvalidPath, match="relative"):
        open_store("state")


def test_only_paths_that_the_stores_cannot_open_need_java() -> None:
    assert not needs_java("file", None)
    assert not needs_java("hdfs", "host:9870")
    assert not needs_java("s3", None) and not needs_java("s3a", "host:9870")
    assert needs_java("hdfs", None)
    assert needs_java("viewfs", "host:9870")


def test_without_webhdfs_and_without_the_extra_both_ways_to_hdfs_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent() -> None:
        raise NotInstalled("PySpark is not installed")

    monkeypatch.setattr("squall.stores.java.jvm.require_spark", absent)
    monkeypatch.setattr("squall.stores.java.steady._shared", {})  # another test may have left its JVM
    with pytest.raises(
        FilesRefused, match=r"set topology.state.webhdfs .* by HTTP; or .* by Java.* extra spark: PySpark"
    ):
        open_hdfs("hdfs://host:9000/state", None)
