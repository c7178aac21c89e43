"""No symbolic link below a table on local files leads anything that reads, writes, commits or sweeps out of the table."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from squall.stores.files import FilesRefused
from squall.stores.local import LocalFiles
from tests.squall_io.test_forged_records import Site, contents, go_through, quick, results, stream

__all__ = ["quick"]  # a fixture of all tests here


@pytest.mark.parametrize("make", [stream, results])
def test_no_link_in_place_of_a_folder_of_a_table_leads_out_of_it(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    site = Site(tmp_path)
    make(site.template)
    folders = [path.relative_to(site.template) for path in site.template.rglob("*") if path.is_dir()]
    assert len(folders) > 5
    for folder in folders:
        site.again()
        outside = site.all / "precious"
        shutil.rmtree(outside, ignore_errors=True)
        shutil.copytree(site.table / folder, outside)
        (outside / "own").write_text("precious")
        shutil.rmtree(site.table / folder)
        (site.table / folder).symlink_to(outside)
        before = contents(outside)
        go_through(site.table)
        assert contents(outside) == before, folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with a file, and a table in which "in" is a link to the folder, and "file" one to the file."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("precious")
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "in").symlink_to(tmp_path / "outside")
    (tmp_path / "table" / "file").symlink_to(tmp_path / "outside" / "file")
    (tmp_path / "table" / "own").write_text("own")
    return tmp_path / "outside"


@pytest.mark.parametrize(
    "call",
    [
        lambda files: files.read("in/file"),
        lambda files: files.read("file"),
        lambda files: files.digest("file"),
        lambda files: files.exists("in/file"),
        lambda files: files.list("in"),
        lambda files: files.walk("in"),
        lambda files: files.put_if_absent("in/new", b"x"),
        lambda files: files.replace("in/file", b"x"),
        lambda files: files.move_if_absent("in/file", "moved"),
        lambda files: files.move_if_absent("file", "moved"),
        lambda files: files.move_if_absent("own", "in/moved"),
        lambda files: files.delete("in/file"),
    ],
)
def test_every_call_through_a_link_is_refused_and_names_it(
    outside: Path, call: Callable[[LocalFiles], object]
) -> None:
    before = contents(outside)
    with pytest.raises(FilesRefused, match=r"table/(in|file) is a symbolic link, which is not followed"):
        call(LocalFiles(str(outside.parent / "table")))
    assert contents(outside) == before


def test_a_link_itself_can_be_listed_replaced_and_deleted(outside: Path) -> None:
    files = LocalFiles(str(outside.parent / "table"))
    before = contents(outside)
    assert [(status.path, status.is_folder) for status in files.walk("")] == [
        ("file", False), ("in", False), ("own", False),
    ]  # fmt: skip
    assert not files.put_if_absent("file", b"x"), "the name is taken"
    files.replace("file", b"new")
    assert files.read("file") == b"new"
    files.delete("in")
    assert [status.name for status in files.list("")] == ["_squall", "file", "own"]
    assert contents(outside) == before


def test_a_link_to_the_table_itself_is_followed(outside: Path, tmp_path: Path) -> None:
    os.symlink(tmp_path / "table", tmp_path / "name")
    assert LocalFiles(str(tmp_path / "name")).read("own") == b"own"
