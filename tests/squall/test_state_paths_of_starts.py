"""`--state [PATH][@EPOCH]` as a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.packages.state_paths import BadStart, StateStart


@pytest.mark.parametrize(
    ("text", "path", "epoch"),
    [
        ("@17", "", 17),
        ("/a/b", "/a/b", None),
        ("/a/b@3", "/a/b", 3),
        ("file:///a/b@3", "/a/b", 3),
        ("/a@b/c", "/a@b/c", None),
        ("/a@1/c@2", "/a@1/c", 2),
    ],
)
def test_path_and_epoch_are_found(text: str, path: str, epoch: int | None) -> None:
    start = StateStart.parse(text)
    assert start == StateStart(path, epoch)
    assert StateStart.parse(str(start)) == start


@pytest.mark.parametrize("text", ["", "@", "a/b", "ftp://host/a@3", "@0"])
def test_what_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadStart):
        StateStart.parse(text)


def test_a_relative_path_belongs_to_the_working_directory() -> None:
    assert StateStart.parse("state/words@3", Path("/home/me")) == StateStart("/home/me/state/words", 3)


@pytest.mark.parametrize("text", ["file://host/a@3", "../a@3", "ftp://host/a"])
def test_what_no_host_finds_is_refused_where_it_is_typed(text: str) -> None:
    with pytest.raises(BadStart, match="--state"):
        StateStart.parse(text, Path("/home/me"))
