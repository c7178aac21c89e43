"""Unused files lose their name at once, and are deleted in the background, after a restart too."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from supervisor import removals
from supervisor.removals import GONE, Removals
from tests.supervisor.programs import until


def fill(folder: Path) -> Path:
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").write_text("much")
    return folder


def test_the_name_is_free_at_once_even_if_the_removal_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    really = removals.delete

    def slowly(path: Path) -> None:
        assert may_go_on.wait(30)
        really(path)

    monkeypatch.setattr(removals, "delete", slowly)
    made = Removals(tmp_path, threads=True)
    made.remove(fill(tmp_path / "code"))
    fill(tmp_path / "code")
    assert len(list((tmp_path / GONE).iterdir())) == 1
    may_go_on.set()
    until(lambda: not list((tmp_path / GONE).iterdir()))
    assert (tmp_path / "code" / "deep" / "file").exists(), "its successor stays"
    made.close()


def test_without_threads_the_files_are_gone_when_the_call_returns(tmp_path: Path) -> None:
    made = Removals(tmp_path)
    made.remove(fill(tmp_path / "code"))
    made.remove(tmp_path / "nothing")
    assert os.listdir(tmp_path) == [GONE]
    assert os.listdir(tmp_path / GONE) == []


def test_a_link_is_removed_and_its_target_stays(tmp_path: Path) -> None:
    kept = fill(tmp_path / "kept")
    (tmp_path / "work").symlink_to(kept)
    Removals(tmp_path).remove(tmp_path / "work")
    assert not os.path.lexists(tmp_path / "work")
    assert (kept / "deep" / "file").exists()


def test_a_folder_that_cannot_be_renamed_is_removed_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*names: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    Removals(tmp_path, threads=True).remove(fill(tmp_path / "code"))
    assert not (tmp_path / "code").exists()


def test_removals_that_an_earlier_supervisor_had_not_finished_are_finished(tmp_path: Path) -> None:
    Removals(tmp_path).sweep()  # there was none
    fill(tmp_path / GONE / "12ab")
    Removals(tmp_path).sweep()
    assert os.listdir(tmp_path / GONE) == []


def test_a_failed_removal_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(removals, "delete", lambda path: None)
    made = Removals(tmp_path)
    made.remove(fill(tmp_path / "code"))
    made.sweep()
    assert not (tmp_path / "code").exists(), "its name is free all the same"
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and "cannot be removed" in told[0] and GONE in told[0]


@pytest.mark.slow
def test_folders_deeper_than_a_path_can_be_are_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("precious")
    deep = tmp_path / "state" / "deep"
    deep.mkdir(parents=True)
    folder = os.open(deep, os.O_RDONLY)
    for level in range(sys.getrecursionlimit() + 100):
        os.mkdir("folder", dir_fd=folder)
        if level % 100 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
            os.symlink(tmp_path / "precious", "link", dir_fd=folder)
        deeper = os.open("folder", os.O_RDONLY, dir_fd=folder)
        if level % 3 == 0:
            os.fchmod(folder, 0o500)
        os.close(folder)
        folder = deeper
    os.close(folder)
    Removals(tmp_path / "state").remove(deep)
    assert list((tmp_path / "state" / GONE).iterdir()) == []
    assert (tmp_path / "precious" / "file").read_text() == "precious"
