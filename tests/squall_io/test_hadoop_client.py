"""Hadoop's client in a JVM, without a JVM: its file statuses, its default file system, and a JVM that does not start."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from squall.stores.files import FileStatus, FilesUnavailable
from squall.stores.java import hadoop
from squall.stores.java.hadoop import HadoopFiles, Jvm, decode_statuses
from squall.stores.java.jvm import JavaFailed
from squall.stores.paths import InvalidPath


@pytest.mark.parametrize(
    ("default", "why"),
    [
        ("s3a://key:s3cret@bucket", "'s3a://...@bucket': Hadoop's fs.defaultFS contains a password"),
        ("hdfs", "'hdfs': Hadoop's fs.defaultFS is not the address of a file system"),
        ("", "'': Hadoop's fs.defaultFS is not the address of a file system"),
    ],
)
def test_a_path_without_a_host_is_refused_if_hadoops_default_is_invalid(default: str, why: str) -> None:
    jvm = Jvm(MagicMock(), {"fs.defaultFS": default})
    with pytest.raises(InvalidPath, match=why):
        HadoopFiles("hdfs:///table", jvm)
    assert HadoopFiles("hdfs://host:9000/table", jvm).root == "hdfs://host:9000/table"


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def status_bytes(kind: int, path: str, size: int, modified: int) -> bytes:
    name = path.encode()
    message = b"\x08" + varint(kind) + b"\x12" + varint(len(name)) + name + b"\x18" + varint(size)
    message += b"\x22\x02\x08\x01"  # a message inside
    message += b"\x38" + varint(modified) + b"\x49" + bytes(8) + b"\x55" + bytes(4)  # fixed 64 and 32
    return len(message).to_bytes(4, "big") + message


def test_statuses_are_read_as_hadoop_writes_them_without_padding() -> None:
    data = status_bytes(2, "hdfs://h:1/t/d/größe=ü; x", 3_000_000_000, 1_700_000_000_123)
    data += status_bytes(1, "hdfs://h:1/t/d/a", 0, 5_000)
    assert decode_statuses("d", data + bytes(100), 2) == [
        FileStatus("d/a", 0, True, 5.0),
        FileStatus("d/größe=ü; x", 3_000_000_000, False, 1_700_000_000.123),
    ]
    assert [status.path for status in decode_statuses("", data, 2)] == ["a", "größe=ü; x"]
    assert decode_statuses("d", bytes(32), 0) == []


def test_a_jvm_that_does_not_start_is_an_error_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(conf: object) -> None:
        raise JavaFailed("Spark's Java process ended with code 1 as it started: no memory")

    monkeypatch.setattr(hadoop, "start_jvm", start)
    with pytest.raises(
        FilesUnavailable, match=r"cannot start a JVM for access to file systems: .* no memory"
    ):
        hadoop.Jvm.own({})
