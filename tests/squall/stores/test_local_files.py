"""Files on this machine: the contract of all stores, and errors of the system."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.stores.files import AbsentFile, Files, FilesFull, FilesRefused, FilesUnavailable
from squall.stores.local import LocalFiles
from squall.stores.paths import TMP, InvalidPath, authority_of, check_path, folder_of, scheme_of
from tests.files_contract import FilesContract


class TestLocalFiles(FilesContract):
    """The contract of all stores."""

    @pytest.fixture
    def files(self, tmp_path: Path) -> Files:
        return LocalFiles(f"{tmp_path}/table")

    @pytest.fixture
    def other(self, tmp_path: Path) -> Files:
        return LocalFiles(f"file://{tmp_path}/table")


def test_a_table_whose_path_is_a_file_is_refused_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"")
    with pytest.raises(
        FilesRefused, match=rf"cannot list file://{tmp_path}/t: .*; a file lies where a folder must be"
    ):
        LocalFiles(f"{tmp_path}/t").list("")


@pytest.mark.parametrize("call", ["link", "replace", "fsync"])
def test_no_partial_file_is_left_when_the_system_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    files = LocalFiles(str(tmp_path))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(FilesUnavailable, match=r"cannot write file://.*/a/b: No space left on device"):
        (files.replace if call == "replace" else files.put_if_absent)("a/b", b"1")
    monkeypatch.undo()
    assert files.list(TMP) == []
    assert not files.exists("a/b")


def test_a_file_is_put_though_its_folder_or_its_source_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalFiles(f"{tmp_path}/table")
    links: list[str] = []
    link = os.link

    def disturbed(source: str, target: str) -> None:
        links.append(target)
        if len(links) == 1:
            os.rmdir(os.path.dirname(target))
        elif len(links) == 3:
            os.unlink(source)
        link(source, target)

    os.makedirs(tmp_path / "table" / "folder")
    monkeypatch.setattr(os, "link", disturbed)
    assert files.put_if_absent("folder/file", b"content")
    assert len(links) == 2
    assert files.put_if_absent("folder/other", b"content")
    assert [status.name for status in files.list("folder")] == ["file", "other"]
    assert files.list(TMP) == []


def test_a_folder_that_is_written_to_meanwhile_is_deleted_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalFiles(f"{tmp_path}/table")
    files.replace("folder/file", b"1")
    rmdir, writes = os.rmdir, [b"2", b"3"]

    def disturbed(path: Any, **more: Any) -> None:
        if writes:
            (tmp_path / "table" / "folder" / "file").write_bytes(writes.pop())
        rmdir(path, **more)

    monkeypatch.setattr(os, "rmdir", disturbed)
    files.delete("folder")
    assert writes == [] and not files.exists("folder")


def test_a_file_system_without_hard_links_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    files = LocalFiles(str(tmp_path))
    with pytest.raises(FilesRefused, match="must have hard links"):
        files.put_if_absent("a", b"1")
    assert files.list(TMP) == []


@pytest.mark.parametrize(
    "number, kind",
    [
        (errno.EACCES, FilesRefused),
        (errno.EROFS, FilesRefused),
        (errno.EDQUOT, FilesFull),
        (errno.ENOSPC, FilesUnavailable),
        (errno.EIO, FilesUnavailable),
        (errno.EMFILE, FilesUnavailable),
        (errno.ESTALE, FilesUnavailable),
        (errno.ENOENT, AbsentFile),
    ],
)
def test_the_systems_errors_decide_whether_to_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    files = LocalFiles(str(tmp_path))
    files.put_if_absent("a", b"1")

    def fail(*_: object) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("builtins.open", fail)
    with pytest.raises(kind, match=f"cannot read file://{tmp_path}/a: {os.strerror(number)}") as raised:
        files.read("a")
    assert "\n" not in str(raised.value)


def test_a_moved_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalFiles(str(tmp_path))
    files.put_if_absent("staging/a", b"1")
    files.put_if_absent("place/b", b"1")
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def synced(handle: int) -> None:
        steps.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def linked(source: str, target: str) -> None:
        steps.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    files.move_if_absent("staging/a", "place/a")
    assert steps == ["a", "link", "place"]


def test_a_second_attempt_completes_a_move_that_crashed_between_its_two_steps(
    tmp_path: Path,
) -> None:
    files = LocalFiles(str(tmp_path))
    files.put_if_absent("staging/a", b"1")
    os.mkdir(tmp_path / "place")
    os.link(tmp_path / "staging/a", tmp_path / "place/a")
    assert not files.move_if_absent("staging/a", "place/a")
    assert files.digest("place/a") == files.digest("staging/a")


_names = st.sampled_from(["a", "b", "a/x", "b/x", "b/y/z"])
_steps = st.one_of(
    st.tuples(st.just("put"), _names, st.binary(max_size=3)),
    st.tuples(st.just("replace"), _names, st.binary(max_size=3)),
    st.tuples(st.just("move"), _names, _names),
    st.tuples(st.just("delete"), _names, st.none()),
)


@given(st.lists(_steps, max_size=12))
def test_the_files_equal_those_of_a_dictionary_after_the_same_steps(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, Any]]
) -> None:
    files = LocalFiles(str(tmp_path_factory.mktemp("model") / "t"))
    model: dict[str, bytes] = {}
    for step, path, value in steps:
        names = {path, value} if step == "move" else {path}
        folders = {status.path for status in files.walk("") if status.is_folder}
        if any(name in folders or any(name.startswith(f"{file}/") for file in model) for name in names):
            continue  # a file where a folder is: a test of its own
        if step == "put":
            assert files.put_if_absent(path, value) == (path not in model)
            model.setdefault(path, value)
        elif step == "replace":
            files.replace(path, value)
            model[path] = value
        elif step == "delete":
            files.delete(path)
            model.pop(path, None)
        elif path not in model:
            with pytest.raises(AbsentFile):
                files.move_if_absent(path, value)
        elif not value.startswith(f"{path}/"):
            assert files.move_if_absent(path, value) == (value not in model)
            if value not in model:
                model[value] = model.pop(path)
    found = [status.path for status in files.walk("") if not status.is_folder]
    assert {path: files.read(path) for path in found} == model


@pytest.mark.parametrize(
    "path, normal",
    [
        ("/a//b/./c/", "/a/b/c"),
        ("file:/a", "file:///a"),
        ("file://localhost/a", "file:///a"),
        ("FILE:///a%20b", "file:///a%20b"),
        ("hdfs://host:9000//a b/", "hdfs://host:9000/a b"),
        ("hdfs:/a", "hdfs:///a"),
        ("viewfs://cluster/a", "viewfs://cluster/a"),
        ("hdfs://user@host/größe", "hdfs://user@host/größe"),
        ("hdfs://[::1]:9000/a", "hdfs://[::1]:9000/a"),
        ("abfs://box$1@store.dfs.net/a", "abfs://box$1@store.dfs.net/a"),
        ("s3a://my_bucket.x/_squally/a", "s3a://my_bucket.x/_squally/a"),
    ],
)
def test_a_path_has_one_normal_form(path: str, normal: str) -> None:
    assert check_path(path) == check_path(normal) == normal


@pytest.mark.parametrize(
    "path, why",
    [
        ("", "empty"),
        ("   ", "empty"),
        ("warehouse/counts", "relative"),
        ("~/counts", "relative"),
        ("C:/counts", "relative"),
        ("/", "root of a file system"),
        ("hdfs://host:9000", "root of a file system"),
        ("/a/../b", r"'\.\.'"),
        ("/a*", r"'\*'"),
        ("hdfs://host/a:b", "':'"),
        ("/a\nb", r"'\\n'"),
        ("/a\ud800", "'\\\\ud800'"),
        ("hdfs:a/b", "there must be '/'; write hdfs://host/folder or hdfs:///folder"),
        ("file:a/b", "there must be '/'; write file:///folder"),
        ("hdfs://host:port/a", "'port' is not a port"),
        ("hdfs://host:99999/a", "'99999' is not a port"),
        ("hdfs://host:0/a", "'0' is not a port"),
        ("hdfs://host:/a", "'' is not a port"),
        ("hdfs://h h/a", "'h h' is not a host name"),
        ("hdfs://:9000/a", "':9000' is not a host name"),
        ("http://host:9870/a", "http:// is not a file system; write hdfs://"),
        ("HTTPS://host/a", "https:// is not a file system"),
        ("file://host/a", "'host' would be a host"),
        (b"/a", "not text"),
    ],
)
def test_an_invalid_path_of_a_table_is_refused_with_the_reason(path: Any, why: str) -> None:
    with pytest.raises(InvalidPath, match=why):
        check_path(path)


def test_a_password_in_a_path_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidPath, match="password") as raised:
        check_path("s3a://key:s3cret@bucket/table")
    assert "s3cret" not in str(raised.value) and "s3cret" not in repr(raised.value)


def test_the_parts_of_a_path_are_distinguished() -> None:
    path = check_path("hdfs://host:9000/a/b")
    assert (scheme_of(path), authority_of(path), folder_of(path)) == ("hdfs", "host:9000", "/a/b")
    assert (scheme_of("/a"), authority_of("/a"), folder_of("/a")) == ("file", "", "/a")
