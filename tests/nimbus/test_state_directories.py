"""A state directory that a Nimbus cannot use: one sentence, and nothing stays open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nimbus.daemon import NimbusDaemon, NimbusSettings
from squall.cluster.memory import InMemoryStore
from squall.daemon.state_directory import BadStateDirectory, StateDirectory


def in_the_way_of_files(state: Path) -> None:
    (state / "files").write_text("a file")


def no_id(state: Path) -> None:
    (state / "id").write_bytes(b"\xff\xfe\x00")


def a_directory_for_an_id(state: Path) -> None:
    (state / "id").mkdir()


@pytest.mark.parametrize("spoil", [in_the_way_of_files, no_id, a_directory_for_an_id])
def test_the_problem_is_reported_and_the_directory_is_usable_once_repaired(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    spoil(state)
    settings = NimbusSettings(state, environ={"HOME": str(tmp_path)})
    with pytest.raises(BadStateDirectory, match=str(state)):
        NimbusDaemon(InMemoryStore(), settings)
    for path in state.iterdir():
        if path.name in ("files", "id"):
            path.rmdir() if path.is_dir() else path.unlink()
    StateDirectory(state, "Nimbus", "nimbus").close()  # its lock is free again


def test_a_remembered_cluster_that_is_no_text_counts_as_another_one(tmp_path: Path) -> None:
    (tmp_path / "cluster").write_bytes(b"\xff\xfe")
    state = StateDirectory(tmp_path, "Nimbus", "nimbus")
    assert state.cluster.id not in (None, "")
    state.close()
