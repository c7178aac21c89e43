"""Probes of folders: where they are put, that they go away, and what they never touch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import json

from squall.api.folder_probes import FolderProbe, ProbeSeen
from squall.http.json_app import Refusal
from supervisor.folder_probes import PATIENCE, FolderProbes

ONE, TWO = "0" * 32, "1" * 32


class Time:
    """A clock that moves while it is waited for. `meanwhile` is called then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], object] = int

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def probes(tmp_path: Path, time: Time) -> FolderProbes:
    return FolderProbes(str(tmp_path), lambda: time.now, time.pause)


def do(probes: FolderProbes, step: str, folder: str, number: str = ONE) -> ProbeSeen:
    return probes.answer(step, json.encode(FolderProbe(folder, number)))


def names(folder: Path) -> list[str]:
    return sorted(os.path.relpath(each, folder) for each in folder.rglob("*"))


def test_a_probe_lies_where_the_workers_would_make_folders_and_goes_away(
    tmp_path: Path, probes: FolderProbes, time: Time
) -> None:
    (tmp_path / "mnt").mkdir()
    assert do(probes, "put", "/mnt/state/words") == ProbeSeen("/mnt", True)
    assert do(probes, "put", "/mnt/state/words") == ProbeSeen("/mnt", True)  # asked again
    assert names(tmp_path) == ["mnt", f"mnt/.squall-probe-{ONE}"]
    assert do(probes, "look", "/mnt") == ProbeSeen("/mnt", True)
    assert do(probes, "look", "/mnt", TWO) == ProbeSeen("/mnt", False) and time.now >= PATIENCE
    assert not do(probes, "look", "/mnt/state").seen
    do(probes, "remove", "/mnt")
    assert names(tmp_path) == ["mnt"]
    (tmp_path / "mnt/state/words").mkdir(parents=True)
    assert do(probes, "put", "/mnt/state/words") == ProbeSeen("/mnt/state/words", True)
    probes.close()
    assert names(tmp_path / "mnt/state/words") == []


def test_a_probe_of_another_host_may_show_a_moment_later(
    tmp_path: Path, probes: FolderProbes, time: Time
) -> None:
    time.meanwhile = (tmp_path / f".squall-probe-{ONE}").touch
    assert do(probes, "look", "/") == ProbeSeen("/", True)


def test_only_own_probes_are_removed_and_nothing_is_replaced(tmp_path: Path, probes: FolderProbes) -> None:
    other = tmp_path / f".squall-probe-{ONE}"
    other.write_text("of somebody else")
    answer = do(probes, "put", "/words")
    assert not answer.seen and "it cannot write into /: File exists" in answer.problem
    do(probes, "remove", "/")
    assert other.read_text() == "of somebody else"


@pytest.mark.parametrize(
    ("user", "owner", "why"),
    [
        (0, 0, "/link is a symbolic link, which a supervisor of root does not follow"),
        (500, 501, "/link is a symbolic link of another user (uid 501)"),
        (500, 500, ""),
        (500, 0, ""),
    ],
)
def test_a_link_is_followed_only_where_a_worker_would_follow_it_and_never_by_root(
    tmp_path: Path, probes: FolderProbes, monkeypatch: pytest.MonkeyPatch, user: int, owner: int, why: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give links away")
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    os.lchown(tmp_path / "link", owner, owner)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    answer = do(probes, "put", "/link/words")
    assert (answer.problem, answer.seen) == (why, not why)
    assert bool(list((tmp_path / "there").iterdir())) is (why == "")
    probes.close()
    assert names(tmp_path) == ["link", "there"]


def test_what_cannot_be_known_is_said(tmp_path: Path, probes: FolderProbes) -> None:
    (tmp_path / "file").touch()
    assert do(probes, "look", "/file/words").problem == "it cannot enter /file: Not a directory"
    probes._turn.acquire()  # a file system does not answer another request
    assert "does not answer" in do(probes, "look", "/").problem


@pytest.mark.parametrize("folder", ["words", "/a/../etc", "/a//b", "/a/./b", "/a\0b"])
def test_a_path_that_could_mean_another_place_is_refused(probes: FolderProbes, folder: str) -> None:
    with pytest.raises(Refusal, match=r"no absolute path"):
        do(probes, "put", folder)


def test_a_name_that_is_no_number_of_a_probe_is_refused(probes: FolderProbes) -> None:
    for number in ("../../etc/passwd", "0" * 31, "A" * 32, ONE + "\n"):
        with pytest.raises(Refusal, match="cannot be read"):
            do(probes, "look", "/", number)
    with pytest.raises(Refusal, match="put, look or remove"):
        do(probes, "delete", "/")
