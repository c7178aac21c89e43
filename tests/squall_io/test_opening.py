"""Which file system a table's path opens, and what is refused before any file system is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from squall.stores.files import FilesRefused
from squall.stores.paths import InvalidPath, check_path
from squall_io.spark.stores import open_files
from squall_io.spark.stores.opening import check_table_path


def test_a_path_without_scheme_is_this_machines_and_needs_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with open_files(f"{tmp_path}/t") as files:
        files.put_if_absent("a", b"1")
        assert files.root == f"file://{tmp_path}/t"
    assert (tmp_path / "t" / "a").read_bytes() == b"1"


def test_a_path_without_scheme_is_refused_where_hadoop_has_another_default(tmp_path: Path) -> None:
    hdfs = "hdfs://host:9000"
    java = SimpleNamespace(hadoopConfiguration=lambda: {"fs.defaultFS": hdfs})
    session: Any = SimpleNamespace(_jsc=java)
    for where in ({"conf": {"spark.hadoop.fs.defaultFS": hdfs}}, {"session": session}):
        with pytest.raises(FilesRefused, match=f"write file://{tmp_path} or {hdfs}{tmp_path}"):
            open_files(str(tmp_path), **where)
        assert open_files(f"file://{tmp_path}", **where).root == f"file://{tmp_path}"
    for default in ("file:///", "\n  file:///\n"):
        assert open_files(str(tmp_path), conf={"spark.hadoop.fs.defaultFS": default}).list("") == []


@pytest.mark.parametrize("default", ["s3a://key:s3cret@bucket", "s3a://key:no/s3cret@bucket"])
def test_hadoops_default_with_a_password_is_refused_and_the_password_not_repeated(
    tmp_path: Path, default: str
) -> None:
    with pytest.raises(InvalidPath, match=r"fs\.defaultFS contains a password") as raised:
        open_files(str(tmp_path), conf={"spark.hadoop.fs.defaultFS": default})
    assert "s3cret" not in str(raised.value) and "s3cret" not in repr(raised.value)
    # A path with a scheme does not depend on the default.
    assert open_files(f"file://{tmp_path}", conf={"spark.hadoop.fs.defaultFS": default}).list("") == []


@pytest.mark.parametrize("default", ["", "hdfs", "host:9000", "file://host/", "hdfs:key:s3cret@host"])
def test_hadoops_default_that_is_not_an_address_is_refused(tmp_path: Path, default: str) -> None:
    with pytest.raises(
        InvalidPath, match=r"fs\.defaultFS is not the address of a file system; write hdfs://"
    ) as raised:
        open_files(str(tmp_path), conf={"spark.hadoop.fs.defaultFS": default})
    assert "s3cret" not in repr(raised.value)


def test_opening_files_of_this_machine_loads_nothing_that_starts_spark_or_java(tmp_path: Path) -> None:
    program = (
        "import sys; from squall_io.spark.stores import open_files; open_files(sys.argv[1]).close()\n"
        "loaded = sorted(name for name in sys.modules if name.startswith('squall_io.spark.session.'))\n"
        "print(loaded, 'squall.stores.java.hadoop' in sys.modules, 'subprocess' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "['squall_io.spark.session.request'] False False\n"


@pytest.mark.parametrize("path", ["/tmp/x/_squall", "hdfs://host/x/_squall/readers/mine"])
def test_a_table_must_not_be_in_anothers_own_folder_and_readers_positions_may(path: str) -> None:
    assert check_path(path) == path
    with pytest.raises(
        InvalidPath, match="'_squall' in it is the folder that a table keeps its own files in"
    ):
        check_table_path(path)
    assert check_table_path("/x/_squally/a") == "/x/_squally/a"
